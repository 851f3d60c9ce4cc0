"""``lightloom collective``: how long a collective takes on a machine's fabric, and by which way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import cluster_option, echo_json, json_option, seed_option

if TYPE_CHECKING:
    from lightloom.collectives.choose import Outcome
    from lightloom.collectives.group import Group
    from lightloom.collectives.stage import Player, Software
    from lightloom.core.fabric import Fabric

KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "send-recv")


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@cluster_option
@click.option("--cards", type=int, default=None, help="use the first N cards (default: all)")
@click.option(
    "--group",
    default=None,
    metavar="SIZE[:STRIDE]",
    help="groups side by side, all at once: 64, or 128:64 for members 64 apart",
)
@click.option(
    "--bytes", "size", default="1GiB", show_default=True, help="buffer as nccl-tests counts it"
)
@click.option(
    "--algorithm",
    default="auto",
    show_default=True,
    help="hierarchical, bucket, ring, tree, halving-doubling, swing, direct ...",
)
@click.option("--sweep", default=None, metavar="LOW:HIGH", help="every power of two: 1KiB:4GiB")
@click.option("--fail", multiple=True, metavar="FAULT", help="link:c0-c1, link:b3-b7, card:17 ...")
@click.option(
    "--background",
    multiple=True,
    metavar="TRAFFIC",
    help="another job's steady flows: ring:0-127, shuffle:0-1023, all-to-all:0-63",
)
@click.option(
    "--placement",
    type=click.Choice(["nested", "random"]),
    default="nested",
    show_default=True,
    help="which card plays which rank; random says what that costs",
)
@click.option("--ideal", is_flag=True, help="physics only: no start-up, full link rate")
@click.option("--plot", default=None, metavar="FILE", help="picture as .png, .svg or .pdf")
@seed_option
@json_option
def collective(
    kind: str, cluster: str | None, cards: int | None, group: str | None, size: str,
    algorithm: str, sweep: str | None, fail: tuple[str, ...], background: tuple[str, ...],
    placement: str, ideal: bool, plot: str | None, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Play a collective on the fabric of --cluster: the best algorithm, its time, the bound."""
    from lightloom.collectives.background import steady_flows
    from lightloom.collectives.choose import collective as play
    from lightloom.collectives.group import make_group
    from lightloom.collectives.stage import Player
    from lightloom.core.catalog import load_cluster
    from lightloom.core.errors import InputError
    from lightloom.core.units import parse_bytes

    from .fabric import network_of

    if cluster is None:
        raise InputError("no machine given", out="--cluster NAME or FILE.toml")
    net = network_of(cluster, fail)
    count, stride = parse_group(group)
    members = make_group(net.fabric, cards, count, stride)
    software = (
        None if ideal else library(kind, net.fabric, members, load_cluster(cluster).chip.arch)
    )
    noise = steady_flows(net, background, seed) if background else None
    player = Player(net, members, software, background=noise)
    if placement == "random":
        import numpy as np

        mixed = np.random.default_rng(seed).permutation(members.cards)
        player = Player(net, members, software, background=noise, placement=mixed)
    sizes = sweep_sizes(sweep) if sweep else [parse_bytes(size, "--bytes")]
    found = [play(player, kind, each, algorithm) for each in sizes]
    _show(found, player, plot, as_json)


def library(kind: str, fabric: Fabric, group: Group, arch: str) -> Software:
    """Return what the collective library adds, as calibrated on measured collectives."""
    from lightloom.collectives.stage import Software
    from lightloom.cost.calibration import default_calibration, factor
    from lightloom.cost.comm import law_of

    comm = default_calibration().comm
    law = law_of(comm, kind)
    first = group.axes[0].members if group.axes and group.axes[0].level == 0 else 2
    inner = max(0.05, law.share - law.edge / max(2, first))
    inner *= comm.efficiency.get(fabric.levels[0].tier, 1.0)
    return Software(
        launch_s=law.launch_s * float(factor(comm.by_arch, arch, "launch_s")),
        first_step_s=law.step_s, step_s=comm.hop_s,
        shares=(inner, *(comm.of(level.tier) for level in fabric.levels[1:])),
        in_switch=comm.in_switch if first >= 8 else 1.0, ramp=law.ramp,
    )  # fmt: skip


def parse_group(text: str | None) -> tuple[int | None, int]:
    """Return (size, stride) from ``64`` or ``128:64``."""
    from lightloom.core.errors import InputError

    if text is None:
        return None, 1
    size, _, stride = text.partition(":")
    if not size.isdigit() or (stride and not stride.isdigit()):
        raise InputError(f"--group {text!r} is not SIZE[:STRIDE]", out="--group 64, --group 128:64")
    return int(size), int(stride or 1)


def sweep_sizes(text: str) -> list[float]:
    """Return the powers of two from LOW to HIGH."""
    from lightloom.core.errors import InputError
    from lightloom.core.units import parse_bytes

    low_text, colon, high_text = text.partition(":")
    if not colon:
        raise InputError(f"--sweep {text!r} is not LOW:HIGH", out="--sweep 1KiB:4GiB")
    low, high = parse_bytes(low_text, "--sweep"), parse_bytes(high_text, "--sweep")
    if not 0 < low <= high:
        raise InputError(f"--sweep {text}: sizes must be positive and grow")
    sizes = [low]
    while sizes[-1] * 2 <= high * (1 + 1e-9):
        sizes.append(sizes[-1] * 2)
    return sizes


def _show(found: list[Outcome], player: Player, plot: str | None, as_json: bool) -> None:
    from lightloom.show import collective as screen
    from lightloom.show.light import print_lines
    from lightloom.show.plot import picture

    from .fabric import rows_of

    rows: list[dict[str, Any]] = rows_of(found)
    if plot:
        with picture(plot) as axes:
            (screen.draw_sweep(axes, rows) if len(rows) > 1 else screen.draw_candidates(
                axes, rows[0]
            ))  # fmt: skip
    if as_json:
        echo_json(found if len(found) > 1 else found[0])
        return
    if len(rows) > 1:
        print_lines(screen.sweep_table(rows))
        return
    parts: list[Any] = list(screen.outcome_lines(rows[0]))
    if rows[0]["estimates"]:
        parts.append(screen.candidates_table(rows[0]))
    note = "physics only" if not player.software.shares else "library as calibrated"
    print_lines(*parts, f"derived: max-min flows on the fabric, {note}")
