"""``lightloom topo``: the light of a job as a file; checked, compared, seen."""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING, Any

import click

from .options import cluster_option, echo_json, json_option, say

if TYPE_CHECKING:
    from lightloom.core.placement import Placement
    from lightloom.core.topo import Topo


@click.group()
def topo() -> None:
    """Which light joins whom: generate, check, compare and see a `.topo` file."""


def job_options(function: Any) -> Any:
    """Add the options that name a job: a plan, or a machine and axes."""
    for name in ("ep", "cp", "dp", "pp", "tp"):
        option = click.option(f"--{name}", type=int, default=1, help=f"size of axis {name}")
        function = option(function)
    function = cluster_option(function)
    return click.argument("plan", required=False, metavar="[PLAN.json]")(function)


def light_options(function: Any) -> Any:
    """Add the options that shape the light."""
    options = (
        click.option("--ring-path/--no-ring-path", default=True, help="light that closes rings"),
        click.option("--spare", type=int, default=1, help="dark channels a fibre, for moves"),
        click.option("--bands", default="", metavar="C[+L]", help="bands allowed; C+L+S"),
    )
    for option in options:
        function = option(function)
    return function


@topo.command()
@job_options
@light_options
@click.option("--keep", default="", metavar="OLD.topo", help="light that is on: touch no more")
@click.option("-o", "--output", default="", metavar="JOB.topo", help="write the file")
@json_option
def gen(output: str, as_json: bool, **asked: Any) -> None:
    """Channels of every card, port map of every cross-connect, optical route of every level."""
    from lightloom.core.files import write_json
    from lightloom.fabric.topo_heat import summary
    from lightloom.show.light import print_lines, topo_table

    made = topo_of(**asked)
    if output:
        write_json(output, made)
    if as_json:
        echo_json(made)
        return
    axes = " ".join(f"{axis} {size}" for axis, size in made.axes.items() if size > 1)
    print_lines(f"{made.cluster} · {made.cards:,} cards · {axes or 'one card'}")
    print_lines(topo_table(summary(made)), *filter(None, [_ring_line(made)]))
    for note in made.notes:
        print_lines(f"note  {note}")
    if output:
        say(f"wrote {output}; next: lightloom topo check {output}", err=True)


def _ring_line(made: Topo) -> str:
    """Return what the closing path is worth to the tp all-reduce (0.1 us a hop, 1 us a step)."""
    from lightloom.fabric.topo_ring import ring_path

    ranks = made.axes.get("tp", 1)
    lit = [(c.count, made.level(c.level)) for c in made.circuits if c.axis == "tp"]
    if ranks < 3 or not lit:
        return ""
    width = min(count * level.channel_rate for count, level in lit)
    sizes = (("64 KiB", 2.0**16), ("4 MiB", 2.0**22), ("64 MiB", 2.0**26))
    worth = ", ".join(
        f"{100 * ring_path(ranks, size, 1e-7, width, 1e-6).slower:+.0f} % at {name}"
        for name, size in sizes
    )
    state = "lit" if made.ring_path else "dark"
    return f"ring path {state}; tp all-reduce over {ranks} ranks without it: {worth} (closed form)"


def topo_of(plan: str | None, cluster: str | None, **asked: Any) -> Topo:
    """Return the light of a plan file, or of a machine cut into axes."""
    from lightloom import __version__
    from lightloom.core.catalog import load_cluster
    from lightloom.core.errors import InputError
    from lightloom.core.files import decode_json, read_bytes
    from lightloom.core.plan import Plan
    from lightloom.fabric.topo import generate
    from lightloom.fabric.topo_demand import axis_bytes

    light = {
        "ring_path": asked["ring_path"], "spare": asked["spare"],
        "bands": tuple(b for b in asked["bands"].split("+") if b),
        "made_by": f"lightloom {__version__}",
        "keep": _read(asked["keep"]) if asked.get("keep") else None,
    }  # fmt: skip
    names = ("tp", "pp", "dp", "cp", "ep")
    if plan:
        data = read_bytes(plan, "plan")
        read = decode_json(data, Plan, f"plan {plan}")
        axes = {name: getattr(read.strategy, name) for name in (*names, "etp")}
        return generate(
            read.cluster, axes, read.placement, volume=axis_bytes(read.model, read.strategy),
            plan=plan, plan_sha256=hashlib.sha256(data).hexdigest(), **light,
        )  # fmt: skip
    if cluster is None:
        raise InputError("which job?", out="PLAN.json, or --cluster NAME --tp 64 --pp 8 --dp 16")
    return generate(load_cluster(cluster), {name: asked[name] for name in names}, **light)


def _read(path: str) -> Topo:
    from lightloom.core.files import read_json
    from lightloom.core.topo import Topo

    return read_json(path, Topo, "topo")


@topo.command()
@click.argument("file", metavar="JOB.topo")
@click.option("--plan", "plan", default="", metavar="PLAN.json", help="the plan it was made for")
@cluster_option
@json_option
def check(
    file: str, plan: str, cluster: str | None, as_json: bool
) -> None:  # fmt: skip
    """Find clashes, dark groups and channels outside the grid; exit 1 if there are any."""
    from lightloom.core.catalog import load_cluster
    from lightloom.core.finding import Finding, exit_code
    from lightloom.fabric.topo_check import check as look
    from lightloom.show.light import findings_table, print_lines

    read = _read(file)
    machine, placement, extra = None, None, list[Finding]()
    if plan:
        machine, placement, extra = _plan_of(read, plan)
    elif cluster:
        machine = load_cluster(cluster)
    findings = [*extra, *look(read, machine, placement)]
    if as_json:
        echo_json(findings)
    else:
        print_lines(findings_table(findings))
    sys.exit(exit_code(findings))


def _plan_of(read: Topo, plan: str) -> tuple[Any, Placement, list[Any]]:
    from lightloom.core.files import decode_json, read_bytes
    from lightloom.core.finding import Finding
    from lightloom.core.plan import Plan

    data = read_bytes(plan, "plan")
    made = decode_json(data, Plan, f"plan {plan}")
    same = hashlib.sha256(data).hexdigest() == read.plan_sha256
    other = Finding(
        severity="warning", code="plan", subject=plan,
        what="not the plan that the file was made from", remedy="generate again",
    )  # fmt: skip
    return made.cluster, made.placement, [] if same else [other]


@topo.command()
@click.argument("old", metavar="A.topo")
@click.argument("new", metavar="B.topo")
@json_option
def diff(old: str, new: str, as_json: bool) -> None:
    """Channels that are lit, darkened, moved and kept between two files, level by level."""
    from dataclasses import asdict

    from lightloom.fabric.topo_heat import difference
    from lightloom.show.light import grid, print_lines

    rows = difference(_read(old), _read(new))
    if as_json:
        echo_json([asdict(row) for row in rows])
        return
    print_lines(
        grid(
            ("level", "lit", "darkened", "moved", "kept", "pairs touched"),
            [(r.level, *(f"{x:,}" for x in (r.added, r.removed, r.moved, r.kept, r.pairs)))
             for r in rows],
        )
    )  # fmt: skip


@topo.command()
@job_options
@light_options
@click.option("--plot", default="", metavar="FILE.svg", help="draw the picture")
@json_option
def heat(plot: str, as_json: bool, **asked: Any) -> None:
    """Bytes of one step from the model's graph on the channels that carry them."""
    from lightloom.core.files import write_bytes
    from lightloom.core.units import show_bytes, show_count, show_time
    from lightloom.fabric.topo_heat import heat as look
    from lightloom.show.light import grid, heat_svg, heat_text, print_lines

    if plot and not plot.endswith(".svg"):
        raise click.BadParameter(f"{plot}: pictures are SVG", param_hint="--plot")
    made = topo_of(**asked)
    maps = look(made)
    unit = "bytes" if made.plan else "relative units"
    size_of = show_bytes if made.plan else show_count
    if plot:
        panels = [(f"{h.level}, unit {h.unit}", h.bytes_AB.tolist(), size_of) for h in maps]
        write_bytes(plot, heat_svg(panels, f"{made.cluster}: {unit} a step").encode())
    if as_json:
        echo_json([
            {"level": h.level, "unit": h.unit, "bytes": h.bytes_AB.tolist(),
             "channels": h.channels_AB.tolist(), "seconds": h.seconds_AB.tolist(),
             "by_class": h.by_class, "channels_by_class": h.channels_by_class}
            for h in maps
        ])  # fmt: skip
        return
    for h in maps:
        print_lines(
            heat_text(
                f"{h.level}, busiest unit {h.unit} ({unit} a step)", h.bytes_AB.tolist(), size_of
            )
        )
        rows = [
            (cls, size_of(size), f"{h.channels_by_class[cls]:,}")
            for cls, size in h.by_class.items()
        ]
        print_lines(grid(("class", "bytes a step", "channels"), rows))
        if made.plan:
            print_lines(f"slowest pair {show_time(h.slowest_s)} at full rate of its channels")
    if plot:
        say(f"wrote {plot}", err=True)


@topo.command()
@click.argument("file", metavar="JOB.topo")
@click.option("--number", "number", type=int, required=True, help="card to look at")
@json_option
def card(file: str, number: int, as_json: bool) -> None:
    """Channels that one card sends on: level, peer, fibre, channels, class."""
    from lightloom.core.errors import InputError
    from lightloom.fabric.topo import channels_of_card
    from lightloom.show.light import grid, print_lines

    read = _read(file)
    total = max((level.units * level.children * level.cards for level in read.levels), default=0)
    if not 0 <= number < total:
        raise InputError(f"card {number}: the machine has cards 0-{total - 1}")
    rows = channels_of_card(read, number)
    if as_json:
        echo_json([
            {"level": level, "dst": c.dst, "via": c.via, "first": c.first, "count": c.count,
             "cls": c.cls, "axis": c.axis, "shared_by_cards": n}
            for level, c, n in rows
        ])  # fmt: skip
        return
    print_lines(
        grid(
            ("level", "class", "to child", "via", "channels", "shared by cards"),
            [(level, c.cls, str(c.dst), "-".join(map(str, c.via)),
              f"{c.first}-{c.first + c.count - 1}", str(n)) for level, c, n in rows],
            left=2,
        )
    )  # fmt: skip
