"""Fabric figures: ``python benchmarks/fabric.py [--quick]`` prints and writes benchmarks/fabric.md.

CPU seconds of this process (best of n): the solver alone, and apart from it building, routing and
folding. No peer is shipped; SimGrid's figures are from tests/golden/simgrid (3.32, Debian).
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lightloom.collectives.stage as stage_module
from lightloom.collectives import schedule as sch
from lightloom.collectives.choose import candidates, collective, make
from lightloom.collectives.group import make_group
from lightloom.collectives.stage import Player
from lightloom.core.catalog import load_cluster
from lightloom.core.fabric import Fabric, Level
from lightloom.fabric.faults import break_links
from lightloom.fabric.network import Network, build
from lightloom.flow.share import Paths, max_min

QUICK = "--quick" in sys.argv
OUT = Path(__file__).with_suffix(".md")
ROWS: list[tuple[str, str, str, str]] = []
GIB = 2.0**30
solver_s = [0.0]


def row(what: str, peer: str, goal: str, reached: str) -> None:
    ROWS.append((what, peer, goal, reached))
    print(f"{what} | {peer} | {goal} | {reached}", flush=True)


def cpu(work: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    best, answer = float("inf"), None
    for _ in range(times):
        start = time.process_time()
        answer = work()
        best = min(best, time.process_time() - start)
    return best, answer


def count_solver() -> None:
    inner = stage_module.finish

    def timed(*args: Any, **more: Any) -> Any:
        start = time.process_time()
        try:
            return inner(*args, **more)
        finally:
            solver_s[0] += time.process_time() - start

    stage_module.finish = timed


def solver() -> None:
    rng = np.random.default_rng(0)
    hosts, leaf = 1024, 32

    def fat_tree(source: np.ndarray, target: np.ndarray, spine: np.ndarray) -> tuple[Paths, Any]:
        a, b, up = source // leaf, target // leaf, 2 * hosts
        rows = np.stack([source, up + a * leaf + spine, up + hosts + b * leaf + spine,
                         hosts + target], 1)  # fmt: skip
        keep = np.ones(rows.shape, bool)
        keep[a == b, 1:3] = False
        start = np.zeros(len(source) + 1, np.int64)
        np.cumsum(keep.sum(1), out=start[1:])
        return Paths(start, rows[keep]), np.full(4 * hosts, 50e9)

    source = rng.integers(0, hosts, 100_000)
    target = (source + rng.integers(1, hosts, 100_000)) % hosts
    paths, capacity = fat_tree(source, target, rng.integers(0, 32, 100_000))
    seconds, _ = cpu(lambda: max_min(paths, capacity), 5)
    row("unfolded max-min, 100,000 random flows, fat-tree of 1,024 hosts", "0.13 s crude numpy",
        "<= 0.1 s", f"{seconds:.3f} s")  # fmt: skip
    source, target = np.divmod(np.arange(hosts * hosts), hosts)
    keep = source != target
    source, target = source[keep], target[keep]
    paths, capacity = fat_tree(source, target, (source + target) % 32)
    seconds, _ = cpu(lambda: max_min(paths, capacity), 5)
    row(f"unfolded max-min, {len(source):,} structured flows", "0.085 s crude numpy", "<= 0.1 s",
        f"{seconds:.3f} s")  # fmt: skip


def broken(net: Network) -> Network:
    rng = np.random.default_rng(1)
    ports = [t for t in net.tiers if t.c > 1 and t.ports == "own"]
    faults = [f"link:c{rng.integers(net.cards)}-{ports[k % len(ports)].name}" for k in range(20)]
    faults += [f"card:{rng.integers(net.cards)}" for _ in range(3)]
    return break_links(net, [*faults, f"link:c{rng.integers(net.cards)}-{ports[-1].name}=2x"])


def play(net: Network, kind: str, algorithm: str = "auto") -> tuple[Any, float, float]:
    best = (float("inf"), float("inf"), None)
    for _ in range(3):
        solver_s[0], start = 0.0, time.process_time()
        found = collective(Player(net, make_group(net.fabric)), kind, GIB, algorithm)
        best = min(best, (solver_s[0], time.process_time() - start, found), key=lambda b: b[:2])
    return best[2], best[0], best[1]


def large() -> None:
    optical = load_cluster("supernode-8192").fabric
    took, net = cpu(lambda: build(optical))
    found, solve, whole = play(net, "all-reduce")
    row("all-reduce 1 GiB, 8,192 cards, healthy: solve (all of it)", "no peer", "<= 50 ms",
        f"{solve * 1e3:.1f} ms ({whole * 1e3:.0f} ms with building {took * 1e3:.1f} ms, routes, "
        f"folds, choice); {found.seconds * 1e3:.2f} ms")  # fmt: skip
    hurt = broken(net)
    found, solve, whole = play(hurt, "all-reduce")
    row("the same, 20 dead ports, 3 dead cards, one slow link", "no peer", "<= 0.5 s",
        f"{solve:.2f} s ({whole:.2f} s); {found.seconds * 1e3:.2f} ms")  # fmt: skip
    found, solve, whole = play(net, "all-to-all", "direct")
    row("all-to-all, 8,192 cards, 67,100,672 pairs", "SimGrid 256 cards 11.4 s",
        "<= 1 s, <= 500 MB",
        f"{solve * 1e3:.1f} ms ({whole * 1e3:.0f} ms); whole process "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")  # fmt: skip
    if not QUICK:
        start = time.process_time()
        collective(Player(hurt, make_group(optical)), "all-to-all", GIB, "direct")
        row("the same with the 24 faults", "no peer", "-", f"{time.process_time() - start:.1f} s")
    net = build(load_cluster("atlas-960").fabric)
    _, solve, whole = play(net, "all-reduce")
    _, solve2, whole2 = play(net, "all-to-all", "direct")
    row("15,488 cards (88 x 176), all-reduce; all-to-all", "-", "<= 1 s",
        f"{solve * 1e3:.1f} ms ({whole * 1e3:.0f} ms); {solve2 * 1e3:.1f} ms "
        f"({whole2 * 1e3:.0f} ms)")  # fmt: skip
    net = build(million())
    found, solve, whole = play(net, "all-reduce", "hierarchical")
    _, solve2, whole2 = play(net, "all-to-all", "direct")
    row("1,048,576 cards in 64 domains, all-reduce; all-to-all", "-", "<= 2 s",
        f"{solve * 1e3:.1f} ms ({whole:.2f} s); {solve2 * 1e3:.1f} ms ({whole2:.2f} s)",
    )  # fmt: skip


def million() -> Fabric:
    def lv(name: str, kind: Any, n: int, link: float, links: int) -> Level:
        return Level(name=name, kind=kind, shape=(n,), link=link, links=links, latency=1e-6)

    return Fabric(levels=(
        lv("module", "full-mesh", 8, 100e9, 1), lv("board", "full-mesh", 16, 40e9, 1),
        lv("domain", "spine", 128, 1280e9, 8), lv("world", "switch", 64, 100e9, 8192),
    ))  # fmt: skip


def quality() -> None:
    names = ("traditional-8192", "atlas-950", "atlas-960", "dgx-h100", "mi300x", "tpu-v5p")
    text = []
    for name in names:
        machine = load_cluster(name).fabric
        found = collective(Player(build(machine), make_group(machine)), "all-reduce", 16 * GIB)
        text.append(f"{name} {found.seconds / found.bound_s:.3f}")
    row("large messages (16 GiB) against the border bound, healthy symmetric", "1.0", "<= 1.03",
        ", ".join(text))  # fmt: skip
    machine = load_cluster("traditional-8192").fabric
    net = build(machine)
    seconds, found = cpu(
        lambda: collective(Player(net, make_group(machine)), "all-reduce", 16 * GIB), 1
    )
    row("schedule for 8,192 cards with its distance to the optimum", "TACOS: 512 cards in minutes",
        "<= 10 s, >= 99 %", f"{seconds:.2f} s, {found.bound_s / found.seconds:.1%}")  # fmt: skip


def regret() -> None:
    worst, total, count = 0.0, 0.0, 0
    machines = ("supernode-8192", "traditional-8192", "atlas-950", "dgx-h100", "gb200-nvl72")
    for name in machines:
        machine = load_cluster(name).fabric
        net, (first, second) = build(machine), [lv.units for lv in machine.levels[:2]]
        groups = [(8, 1), (first, 1), (second, first), (4, first), (first * second, 1)]
        groups += [(2, first)]
        for size, stride in groups if not QUICK else groups[:2]:
            player = Player(net, make_group(machine, None, size, stride))
            for power in range(10, 40, 1 if not QUICK else 6):
                found = collective(player, "all-reduce", 2.0**power)
                every = min(
                    sch.seconds(player, make(player, "all-reduce", a, 2.0**power), 2.0**power)
                    for a in candidates(player, "all-reduce")
                )
                loss = found.seconds / every - 1 if every > 0 else 0.0
                worst, total, count = max(worst, loss), total + loss, count + 1
    row(f"chooser regret, {count} questions (5 fabrics x 30 sizes x 6 groups)", "-", "<= 2 %",
        f"worst {worst:.2%}, mean {total / count:.3%}; at most two played each")  # fmt: skip


def articles() -> None:
    machine = load_cluster("supernode-8192").fabric
    size = 64 * 2**20
    module, board, spine = machine.levels
    ring = Level(name="ring", kind="ring", shape=(8,), link=board.child_bandwidth / 2,
                 latency=board.latency, tier="optical")  # fmt: skip
    pair = Level(name="pair", kind="full-mesh", shape=(2,), link=1e9, latency=board.latency)
    rings = Fabric(levels=(module, ring, pair, spine))
    times = {}
    for label, shape in (("without", machine), ("with", rings)):
        player = Player(build(shape), make_group(shape, None, 64))
        for name in ("ring", "hierarchical"):
            times[name, label] = sch.seconds(player, make(player, "all-reduce", name, size), size)
    more = {n: times[n, "without"] / times[n, "with"] - 1 for n in ("ring", "hierarchical")}
    most = more["hierarchical"] / (1 + more["hierarchical"])
    row(
        "C2: ring optical path at TP = 64, all-reduce of 64 MiB without it", "article: +17 %",
        "what physics gives",
        f"in-order ring {more['ring']:+.0%}, nested {more['hierarchical']:+.0%}; a step that is "
        f"nothing else loses {most:.0%} of its speed (article: -22 %)",
    )  # fmt: skip
    net = build(machine)
    mixed = np.random.default_rng(0).permutation(machine.cards)
    aware = Player(net, make_group(machine, None, 8))
    far = Player(net, make_group(machine, None, 8, 1024))
    random = Player(net, make_group(machine, None, 8), placement=mixed)
    base = collective(aware, "all-reduce", size, "hierarchical").seconds
    apart = collective(far, "all-reduce", size).seconds / base
    shuffled = collective(random, "all-reduce", size, "hierarchical").seconds / base
    row(
        "C4: TP = 8, all-reduce of 64 MiB, placement: nested; ranks 1,024 apart; random", "-",
        "gain in the same run", f"{base * 1e3:.2f} ms; {apart:.1f} times; {shuffled:.1f} times",
    )  # fmt: skip
    picture(build(load_cluster("supernode-8192:board.link=853.33Gb/s").fabric))


def picture(net: Network) -> None:
    """Nested all-reduce against an in-order ring against a random ring, drawn for the guide."""
    from lightloom.show.plot import picture as draw

    group = make_group(net.fabric)
    mixed = np.random.default_rng(0).permutation(net.cards)
    plain, random = Player(net, group), Player(net, group, placement=mixed)
    bars = {
        "nested, levels balanced": collective(plain, "all-reduce", GIB, "balanced").seconds,
        "nested": collective(plain, "all-reduce", GIB, "hierarchical").seconds,
        "ring in rank order": collective(plain, "all-reduce", GIB, "ring").seconds,
        "ring in random order": collective(random, "all-reduce", GIB, "ring").seconds,
    }
    turn = 2 * (net.cards - 1) / net.cards  # data that a ring sends over each of its hops
    boards = net.cards // 128
    apart = int(np.count_nonzero(mixed // 128 != np.roll(mixed, -1) // 128))
    spine = [2 * (boards - 1), 2 * (boards - 1), turn * boards, turn * apart]
    labels = [f"{n}: {gib:,.0f} GiB over the spine" for n, gib in zip(bars, spine, strict=True)]
    pairs = zip(labels, bars.values(), strict=True)
    text = "; ".join(f"{label}, {seconds * 1e3:.2f} ms" for label, seconds in pairs)
    row("all-reduce 1 GiB on 8 x 16 x 64 cards, board read as 12.8 Tb/s a module", "-",
        "the three-way picture", text)  # fmt: skip
    with draw(str(OUT.parent.parent / "docs" / "img" / "all-reduce-three-ways.svg"), 9, 3) as axes:
        bars_ms = [seconds * 1e3 for seconds in bars.values()]
        drawn = axes.barh(labels[::-1], bars_ms[::-1], color="#0072b2")
        axes.bar_label(drawn, fmt="%.1f ms", padding=3)
        axes.set_xlim(0, max(bars_ms) * 1.15)
        axes.set_xlabel("milliseconds, all-reduce of 1 GiB on 8,192 cards")


def main() -> None:
    count_solver()
    for part in (solver, large, quality, regret, articles):
        part()
    text = ["# Fabric and flows", "", f"`python benchmarks/fabric.py`, CPU seconds of one process "
            f"on one core, best of 3 to 5.{' Quick run.' if QUICK else ''}", "",
            "| figure | peer or bound | goal | reached |", "|---|---|---|---|"]  # fmt: skip
    text += [f"| {' | '.join(r)} |" for r in ROWS]
    text += [
        "",
        "SimGrid 3.32 (full update, CM02 without corrections): every flow's end of 26 cases up to "
        "256 hosts within 1e-6 (`tests/flow/test_simgrid.py`). Folded against unfolded: 1e-9 on "
        "nine fabrics with random faults and 20 draws on 512 cards (`tests/flow/test_fold.py`).",
        "",
    ]
    OUT.write_text("\n".join(text))


if __name__ == "__main__":
    main()
