"""Whole collectives: chains of stages over a group's axes, chunks in a pipeline.

Data may cross the axes in any order; a share of it goes in each of a few orders so that every
level's links are busy at once (Themis, ISCA 2022), and chunks follow one another so that no level
waits. With one order and one chunk this is the plain hierarchical algorithm.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass

import numpy as np

from lightloom.core.errors import InputError

from . import patterns
from .group import Axis
from .simplex import share_out
from .stage import Player, Stage, algorithms

KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "send-recv")
CHUNKS = (1, 2, 4, 8, 16, 32, 64, 128)
SMALLEST_CHUNK = 4096.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Chains of stages, each with its share of the bytes, cut into chunks."""

    kind: str
    algorithm: str
    chains: tuple[tuple[float, tuple[Stage, ...]], ...]
    chunks: int = 1

    @property
    def stages(self) -> list[Stage]:
        """Every stage of every chain."""
        return [stage for _, chain in self.chains for stage in chain]


def seconds(
    player: Player, schedule: Schedule, total_bytes: float, *, estimate: bool = False
) -> float:
    """Return seconds of a schedule: chunks enter one after another, a stage waits for its
    predecessor and for the links it shares with others, first come first served."""
    tasks: list[list[tuple[float, tuple[int, ...]]]] = []
    keys: dict[object, int] = {}
    for weight, chain in schedule.chains:
        size = total_bytes * weight / schedule.chunks
        plan = [
            (
                player.seconds(stage, size, estimate=estimate),
                tuple(keys.setdefault(r, len(keys)) for r in sorted(player.resources(stage))),
            )
            for stage in chain
        ]
        tasks += [plan] * schedule.chunks
    tasks = tasks[:: max(1, schedule.chunks)] if schedule.chunks == 1 else _interleave(
        tasks, schedule.chunks
    )  # fmt: skip
    return player.software.launch_s + _pipeline(tasks, len(keys))


def _interleave(
    tasks: list[list[tuple[float, tuple[int, ...]]]], chunks: int
) -> list[list[tuple[float, tuple[int, ...]]]]:
    return [tasks[start + k] for k in range(chunks) for start in range(0, len(tasks), chunks)]


def _pipeline(tasks: list[list[tuple[float, tuple[int, ...]]]], resources: int) -> float:
    """Return when the last chunk is through its last stage."""
    free = [0.0] * resources
    queue = [(0.0, chunk, 0) for chunk in range(len(tasks))]
    end = 0.0
    while queue:
        ready, chunk, number = heapq.heappop(queue)
        if number == len(tasks[chunk]):
            end = max(end, ready)
            continue
        duration, needs = tasks[chunk][number]
        start = max([ready] + [free[r] for r in needs])
        for r in needs:
            free[r] = start + duration
        heapq.heappush(queue, (start + duration, chunk, number + 1))
    return end


def flat_axis(player: Player) -> Axis:
    """Return the group as one axis in rank order, whatever levels it spans."""
    g = player.group
    return Axis(-1, "flat", "flat", g.size, g.stride, g.size)


def hierarchical(
    player: Player, kind: str, total_bytes: float, only: str = "", name: str = "hierarchical"
) -> Schedule:
    """Return the schedule over the group's axes: the best algorithm on each axis for this size (or
    `only` one), orders weighted so that no level waits, the best number of chunks."""
    axes = player.group.axes
    if not axes:
        return Schedule(kind, name, ())
    picked = {axis: _pick(player, axis, total_bytes, only) for axis in axes}
    orders = _orders(player, axes, picked, kind, total_bytes)
    best: tuple[float, Schedule] | None = None
    for chains in orders:
        for chunks in CHUNKS:
            if chunks > 1 and total_bytes / chunks / player.group.size < SMALLEST_CHUNK:
                break
            schedule = Schedule(kind, name, chains, chunks)
            price = seconds(player, schedule, total_bytes, estimate=True)
            if best is None or price < best[0] * (1 - 1e-6):
                best = price, schedule
    assert best is not None
    return best[1]


def _pick(player: Player, axis: Axis, total_bytes: float, only: str) -> str:
    """Return the algorithm with the lowest estimate on an axis for the data that reaches it."""
    inside = math.prod(a.members for a in player.group.axes if a.stride < axis.stride)
    known = algorithms(axis)
    if only:
        return only if only in known else "ring"
    prices = {
        name: player.seconds(Stage(axis, name, tuple(ph), 1.0 / inside), total_bytes, estimate=True)
        for name, ph in known.items()
    }
    return min(prices, key=lambda name: (prices[name], name))


def _chain(kind: str, order: tuple[Axis, ...], picked: dict[Axis, str]) -> tuple[Stage, ...]:
    """Return the stages of one order: scatter inwards, gather back out."""
    scatter: list[Stage] = []
    part = 1.0
    for axis in order:
        known = algorithms(axis)
        scatter.append(Stage(axis, picked[axis], tuple(known[picked[axis]]), part))
        part /= axis.members
    gather = [Stage(s.axis, s.algorithm, s.phases[::-1], s.part) for s in scatter[::-1]]
    if kind == "all-reduce":
        return tuple(scatter + gather)
    return tuple(scatter if kind == "reduce-scatter" else gather)


Chains = tuple[tuple[float, tuple[Stage, ...]], ...]


def _orders(
    player: Player, axes: tuple[Axis, ...], picked: dict[Axis, str], kind: str, size: float
) -> list[Chains]:
    """Return the plain inner-to-outer order, and the mixture of orders that keeps every level's
    links busy (linear programme over orders) where that is quicker."""
    plain = _chain(kind, axes, picked)
    if len(axes) == 1:
        return [((1.0, plain),)]
    perms = [axes] + [p for p in itertools.permutations(axes) if p != axes]
    chains = [_chain(kind, order, picked) for order in perms[:120]]
    cost: dict[tuple[Axis, float], float] = {}
    rows = {axis: i for i, axis in enumerate(_clusters(player, plain))}
    load = np.zeros((max(rows.values()) + 1, len(chains)))
    for column, chain in enumerate(chains):
        for stage in chain:
            key = (stage.axis, stage.part)
            if key not in cost:
                cost[key] = player.seconds(stage, max(size, 1e9), estimate=True)
            load[rows[stage.axis], column] += cost[key]
    weight = share_out(load)
    mixed = tuple((float(w), chain) for w, chain in zip(weight, chains, strict=True) if w > 1e-6)
    return [((1.0, plain),)] if mixed == ((1.0, plain),) else [((1.0, plain),), mixed]


def _clusters(player: Player, chain: tuple[Stage, ...]) -> dict[Axis, int]:
    """Return a number for each axis; axes whose links overlap share one."""
    uses = {stage.axis: player.resources(stage) for stage in chain}
    axes = list(uses)
    number = {axis: i for i, axis in enumerate(axes)}
    for a, b in itertools.combinations(axes, 2):
        if uses[a] & uses[b]:
            old, new = number[b], number[a]
            number = {axis: new if n == old else n for axis, n in number.items()}
    distinct = sorted(set(number.values()))
    return {axis: distinct.index(n) for axis, n in number.items()}


def flat(player: Player, kind: str, algorithm: str) -> Schedule:
    """Return an algorithm over the group in rank order, blind to the fabric's levels."""
    axis, n = flat_axis(player), player.group.size
    halves = 1 if kind in ("reduce-scatter", "all-gather") else 2
    if algorithm == "ring":
        phases = patterns.ring(n, False)
    elif algorithm == "direct":
        phases = patterns.direct(n)
    elif algorithm in ("halving-doubling", "swing"):
        if n & (n - 1):
            raise InputError(f"{algorithm} needs a power of two, not {n}", out="use ring or tree")
        peers = patterns.halving_peers if algorithm[0] == "h" else patterns.swing_peers
        phases = patterns.butterfly(n, peers)
    elif algorithm == "tree" and kind == "all-reduce":
        phases, halves = patterns.tree(n), 1
    elif algorithm == "chain" and kind == "broadcast":
        phases, halves = patterns.chain(n), 1
    else:
        raise InputError(f"no {algorithm} for {kind}")
    stage = Stage(axis, algorithm, tuple(phases), 1.0)
    return Schedule(kind, f"flat-{algorithm}", ((1.0, (stage,) * halves),))
