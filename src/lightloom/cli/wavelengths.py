"""``lightloom wavelengths``: channels admitted, released, tidied; allocators compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .options import FINITE, cluster_option, echo_json, json_option, say, seed_option


@click.group()
def wavelengths() -> None:
    """Wavelengths as a resource: who holds which channel, and how well they are given out."""


def _open(path: str, cluster: str | None = None) -> Any:
    """Return the channel file, or a dark one for the star of `cluster` where there is none."""
    from lightloom.core.channels import ChannelFile
    from lightloom.core.errors import InputError
    from lightloom.core.files import read_json

    if Path(path).exists() or cluster is None:
        return read_json(path, ChannelFile, "channels")
    from lightloom.core.catalog import load_cluster

    machine = load_cluster(cluster)
    level = next((x for x in reversed(machine.fabric.levels) if x.optics), None)
    if level is None or level.optics is None:
        raise InputError(
            f"{machine.name} states no channels on any level",
            out="a machine with [fabric.levels.optics], for example supernode-8192",
        )
    return ChannelFile(
        title=f"{machine.name} {level.name}", boards=level.units, fibres=level.optics.fibres,
        channels=level.optics.channels,
    )  # fmt: skip


@wavelengths.command()
@click.argument("file", metavar="CHANNELS.json")
@click.option("--boards", default="", metavar="0,3", help="boards to draw; the first 4 if not said")
@json_option
def show(file: str, boards: str, as_json: bool) -> None:
    """Draw who holds which channel; fragmentation and contiguity."""
    from lightloom.core.errors import InputError
    from lightloom.fabric.defrag import pool_of
    from lightloom.fabric.wavelength_pool import contiguity, fragmentation
    from lightloom.show.light import channel_map, print_lines

    read = _open(file)
    pool = pool_of(read)
    taken = sum(read.channels - mask.bit_count() for mask in pool.free)
    facts = {
        "lightpaths": len(read.lit), "channels_lit": taken,
        "channels": read.links * read.channels, "fragmentation": fragmentation(pool.free),
        "contiguity": contiguity(pool),
    }  # fmt: skip
    if as_json:
        echo_json(facts)
        return
    try:
        rows = [int(b) for b in boards.split(",")] if boards else list(range(min(4, read.boards)))
    except ValueError as error:
        raise InputError(f"--boards {boards!r} is not a list of numbers") from error
    if not all(0 <= b < read.boards for b in rows):
        raise InputError(f"--boards {boards}: boards are 0-{read.boards - 1}")
    print_lines(
        f"{read.title or file}: {len(read.lit):,} lightpaths, {taken:,} of "
        f"{facts['channels']:,} channels · fragmentation {facts['fragmentation']:.3f} · "
        f"{100 * facts['contiguity']:.1f} % of free channels in the largest block of their fibre",
        channel_map(read, rows),
    )


@wavelengths.command()
@click.argument("file", metavar="CHANNELS.json")
@cluster_option
@click.option("--job", required=True, help="who will own the light")
@click.option("--class", "cls", required=True, help="traffic class: expert, gradient, ...")
@click.option("--from", "src", type=int, required=True, help="sending board")
@click.option("--to", "dst", type=int, required=True, help="receiving board")
@click.option("--count", type=int, default=1, show_default=True, help="channels")
@click.option(
    "--contiguous", is_flag=True, help="neighbouring channels (bands); policy, no physics"
)
@json_option
def assign(
    file: str, cluster: str | None, job: str, cls: str, src: int, dst: int, count: int,
    contiguous: bool, as_json: bool,
) -> None:  # fmt: skip
    """Light channels between boards, or say why not (exit 5); --cluster makes the file."""
    import msgspec

    from lightloom.core.errors import FabricError, InputError, nearest
    from lightloom.core.files import write_json
    from lightloom.core.traffic import CLASSES
    from lightloom.fabric.defrag import lit_of, pool_of
    from lightloom.fabric.wavelength_pool import Refusal, runs

    read = _open(file, cluster)
    if cls not in CLASSES:
        raise InputError(f"no traffic class {cls!r}{nearest(cls, CLASSES)}",
                         out=f"one of {', '.join(CLASSES)}")  # fmt: skip
    if not (0 <= src < read.boards and 0 <= dst < read.boards) or src == dst:
        raise InputError(f"boards {src} -> {dst}: two different ones of 0-{read.boards - 1}")
    if count < 1:
        raise InputError(f"--count {count}: at least one channel")
    pool = pool_of(read)
    name = f"{job}/{cls}/{src}-{dst}/{sum(p.owner == job for p in pool.paths.values())}"
    while name in pool.paths:
        name += "+"
    path = pool.admit(name, job, cls, read.routes(src, dst), count, contiguous)
    if isinstance(path, Refusal):
        raise FabricError(f"refused ({path.code}): {path.what}", out=_way_out(path.code))
    write_json(file, msgspec.structs.replace(read, lit=lit_of(pool)))
    if as_json:
        echo_json({"name": name, "links": path.links, "channels": path.channels})
        return
    spans = ", ".join(
        f"{first}-{first + n - 1}" if n > 1 else f"{first}" for first, n in runs(path.mask)
    )
    say(f"{name}: fibre {path.links[0] % read.fibres}, channels {spans}")


def _way_out(code: str) -> str:
    return {
        "continuity": "lightloom wavelengths defrag FILE frees common channels without a pause",
        "contiguity": "drop --contiguous, or lightloom wavelengths defrag FILE",
        "capacity": "fewer channels, or release a job: lightloom wavelengths release",
    }.get(code, "give the class channels in `pools`")


@wavelengths.command()
@click.argument("file", metavar="CHANNELS.json")
@click.option("--job", required=True, help="whose light goes dark")
def release(file: str, job: str) -> None:
    """Darken everything that a job holds."""
    import msgspec

    from lightloom.core.errors import InputError, nearest
    from lightloom.core.files import write_json
    from lightloom.fabric.defrag import lit_of, pool_of

    read = _open(file)
    pool = pool_of(read)
    owners = {p.owner for p in pool.paths.values()}
    count = pool.release_owner(job)
    if not count:
        raise InputError(f"job {job!r} holds no light{nearest(job, owners)}")
    write_json(file, msgspec.structs.replace(read, lit=lit_of(pool)))
    say(f"{job}: {count} lightpaths dark")


@wavelengths.command()
@click.argument("file", metavar="CHANNELS.json")
@click.argument("target", metavar="TARGET.json")
@click.option("--spare-lasers", type=int, default=1, show_default=True, help="a board; 0: pauses")
@json_option
def steps(file: str, target: str, spare_lasers: int, as_json: bool) -> None:
    """Order the moves from one channel file to another; cycles are broken by a spare channel."""
    from dataclasses import asdict

    from lightloom.core.errors import InputError
    from lightloom.fabric.defrag import pool_of, steps_to
    from lightloom.show.light import grid, print_lines

    pool, wanted = pool_of(_open(file)), pool_of(_open(target)).paths
    for name, path in wanted.items():
        if name not in pool.paths or pool.paths[name].links != path.links:
            raise InputError(f"{target}: lightpath {name} is not lit on these links in {file}")
        if len(pool.paths[name].channels) != len(path.channels):
            raise InputError(f"{target}: lightpath {name} has another number of channels")
    found = steps_to(pool, {name: path.channels for name, path in wanted.items()}, spare_lasers)
    if as_json:
        echo_json([asdict(step) for step in found])
        return
    print_lines(
        grid(
            ("lightpath", "how", "dark", "lit"),
            [
                (s.name, f"{s.how}{' (parked)' if s.parked else ''}",
                 ",".join(map(str, s.old)), ",".join(map(str, s.new)))
                for s in found
            ],
            left=2,
        ),
        f"{len(found)} steps, {len({s.name for s in found if s.how == 'pause'})} lightpaths paused",
    )  # fmt: skip


@wavelengths.command()
@click.argument("file", metavar="CHANNELS.json")
@click.option("--goal", type=FINITE, default=0.8, show_default=True, help="contiguous share wanted")
@click.option("--spare-lasers", type=int, default=1, show_default=True, help="a board; 0: pauses")
@click.option("--move-time", default="30 ms", show_default=True, help="one move, all parts")
@click.option("-o", "--output", default="", metavar="FILE", help="write the channels afterwards")
@json_option
def defrag(
    file: str, goal: float, spare_lasers: int, move_time: str, output: str, as_json: bool
) -> None:  # fmt: skip
    """Plan and prove a night's moves: every state valid, no job paused."""
    from dataclasses import asdict

    import msgspec

    from lightloom.core.errors import InputError
    from lightloom.core.files import write_json
    from lightloom.core.units import parse_time, show_time
    from lightloom.fabric.defrag import apply, compact, copy_of, lit_of, pool_of
    from lightloom.show.light import print_lines

    if not 0.0 <= goal <= 1.0:
        raise InputError(f"--goal {goal:g} is not a share between 0 and 1")
    read = _open(file)
    pool = pool_of(read)
    report = compact(pool, goal, spare_lasers, lambda p: read.planes_of(p.links))
    after = copy_of(pool)
    for step in report.steps:
        apply(after, step)
    if output:
        write_json(output, msgspec.structs.replace(read, lit=lit_of(after)))
    if as_json:
        echo_json(asdict(report))
        return
    ways = {
        how: sum(s.how == how for s in report.steps) for how in ("push-pull", "make-before-break")
    }
    print_lines(
        f"contiguous {100 * report.before:.1f} % -> {100 * report.after:.1f} % "
        f"(goal {100 * goal:.0f} %)",
        f"{report.moves} moves ({ways['push-pull']} push-pull, {ways['make-before-break']} "
        f"make-before-break), {report.ratio:.2f} x the {report.bound} that these blocks force; "
        f"any plan needs at least {report.floor}",
        f"{report.paused} lightpaths paused · {show_time(report.moves * parse_time(move_time))} "
        "one after the other (articles: every job paused 12 minutes)",
        "on a fixed grid neighbouring channels have no value of their own; continuity has",
    )
    if output:
        say(f"wrote {output}", err=True)


@wavelengths.command()
@click.option("--setting", default="nsfnet-rwa", show_default=True, help="published test; `list`")
@click.option("--policy", default="weave", show_default=True, help="first-fit, weave, replan")
@click.option("--routes", type=int, default=50, show_default=True, help="routes of a pair (k)")
@click.option("--order", type=click.Choice(["hops", "km"]), default="hops", help="order of routes")
@click.option("--erlang", type=FINITE, default=None, help="offered load; the setting's own")
@click.option("--requests", type=int, default=100_000, show_default=True, help="requests a seed")
@click.option("--seeds", type=int, default=1, show_default=True, help="independent runs")
@seed_option
@json_option
def replay(
    setting: str, policy: str, routes: int, order: str, erlang: float | None, requests: int,
    seeds: int, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Play random demand on a published network; compare blocking with a reference."""
    from lightloom.core.errors import InputError, nearest
    from lightloom.fabric.wavelength import REASONS, load_settings
    from lightloom.show.light import grid, print_lines

    known = load_settings()
    if setting == "list":
        print_lines(grid(("setting", "title", "Erlang", "reference"), [
            (name, s.title, f"{s.erlang:g}", f"{100 * s.blocking:.2f} %")
            for name, s in known.items()
        ], left=2))  # fmt: skip
        return
    if setting not in known:
        raise InputError(f"no setting {setting!r}{nearest(setting, known)}", out="--setting list")
    if requests < 1000 or seeds < 1:
        raise InputError("at least 1,000 requests and one seed")
    test = known[setting]
    rows, speed = _play(test, policy, routes, order, erlang, requests, range(seed, seed + seeds))
    mean = sum(r["blocking"] for r in rows) / len(rows)
    if as_json:
        echo_json({"setting": setting, "policy": policy, "blocking": mean, "runs": rows})
        return
    print_lines(
        f"{test.title}: {policy}, {routes} routes by {order}, {erlang or test.erlang:g} Erlang",
        f"refused {100 * mean:.3f} % of {len(rows)} x {requests:,} requests",
    )
    say(f"{speed:,.0f} requests a CPU second, routes and log included", err=True)
    if erlang in (None, test.erlang):
        spread = f" ± {100 * test.spread:.2f}" if test.spread else ""
        print_lines(
            f"reference, first fit on 50 routes by hops: {100 * test.blocking:.2f}{spread} %"
        )
    for code, text in enumerate(REASONS[1:], 1):
        count = sum(r["reasons"][code] for r in rows)
        if count:
            print_lines(f"  {count:>7,} {text}")


def _play(
    test: Any, policy: str, routes: int, order: Any, erlang: float | None, requests: int,
    seeds: range,
) -> tuple[list[dict[str, Any]], float]:  # fmt: skip
    import time

    import numpy as np

    from lightloom.fabric.wavelength import draw, load_map
    from lightloom.fabric.wavelength_load import WARM_UP
    from lightloom.fabric.wavelength_replay import replay as play
    from lightloom.fabric.wavelength_routes import route_table

    start, rows = time.process_time(), []
    table = route_table(load_map(test.map), routes, order, test.shared)
    for number in seeds:
        demand = draw(test, len(table.pairs), requests, np.random.default_rng(number), erlang)
        out = play(test, table, demand, policy)  # type: ignore[arg-type]
        rows.append({
            "seed": number, "blocking": out.blocking(min(WARM_UP, requests // 10)),
            "reasons": np.bincount(out.reason_R, minlength=4).tolist(), "moves": out.moves,
        })  # fmt: skip
    return rows, len(rows) * requests / (time.process_time() - start)


@wavelengths.command()
@cluster_option
@click.option("--expert", default="80 GB", show_default=True, help="a board sends to all others")
@click.option(
    "--gradient", default="40 GB", show_default=True, help="a board sends around the ring"
)
@click.option("--hot", type=FINITE, default=0.0, help="spread of expert traffic (log deviation)")
@click.option(
    "--framing", type=FINITE, default=None, help="useful share of a frame; 0.9375 is LL128"
)
@seed_option
@json_option
def compare(
    cluster: str | None, expert: str, gradient: str, hot: float, framing: float | None, seed: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Effective bandwidth of mixed traffic with and without channels that know it, in parts."""
    from dataclasses import asdict

    from lightloom.core.catalog import load_cluster
    from lightloom.core.errors import InputError
    from lightloom.core.units import parse_bytes, show_time
    from lightloom.flow.channels import SCHEMES, Overheads, effective, exchange
    from lightloom.show.light import grid, print_lines

    machine = load_cluster(cluster or "supernode-8192")
    level = next((x for x in reversed(machine.fabric.levels) if x.optics), None)
    if level is None or level.optics is None:
        raise InputError(f"{machine.name} states no channels on any level")
    o = level.optics
    sizes = (parse_bytes(expert, "--expert"), parse_bytes(gradient, "--gradient"))
    if min(sizes) <= 0 or not 0 <= hot <= 10:
        raise InputError(f"--expert {expert} --gradient {gradient} --hot {hot:g}: bytes above 0, "
                         "spread from 0 to 10")  # fmt: skip
    if framing is not None and not 0 < framing <= 1:
        raise InputError(f"--framing {framing:g} is no share above 0 and at most 1")
    sent = exchange(level.units, *sizes, imbalance=hot, seed=seed)
    even = exchange(level.units, *sizes)
    over = Overheads() if framing is None else Overheads(framing=framing)
    rows = {
        scheme: effective(sent, ("expert", "gradient"), o.fibres * o.channels, o.channel_rate,
                          scheme, over, even if hot else None, o.fibres, seed=seed)  # type: ignore[arg-type]
        for scheme in SCHEMES
    }  # fmt: skip
    if as_json:
        echo_json({k: asdict(v) | {"effective": v.effective} for k, v in rows.items()})
        return
    parts = [p for p in rows["aware"].parts if any(r.parts[p] < 1 for r in rows.values())]
    print_lines(
        f"{machine.name} {level.name}: {level.units} boards x {o.fibres} x {o.channels} channels; "
        f"max-flow bound {show_time(rows['aware'].bound_s)}",
        grid(
            ("channels", "useful", *parts, "expert", "gradient"),
            [(k, f"{100 * v.effective:.1f} %", *(f"{100 * v.parts[p]:.1f}" for p in parts),
              *(show_time(s) for s in v.class_s.values())) for k, v in rows.items()],
        ),
        *(f"{k}: {text}" for k, text in SCHEMES.items()),
    )  # fmt: skip
