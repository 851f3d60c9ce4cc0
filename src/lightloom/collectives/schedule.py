"""Whole collectives: chains of stages over a group's axes, chunks in a pipeline.

Data may cross the axes in any order; a share of it goes in each of a few orders so that every
level's links are busy at once (Themis, ISCA 2022), and chunks follow one another so that no level
waits. With one order and one chunk this is the plain hierarchical algorithm.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lightloom.core.errors import InputError

from . import patterns
from .group import Axis
from .simplex import share_out
from .stage import Player, Stage, algorithms

KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "send-recv")
CHUNKS = (2, 4, 8, 16, 32, 64, 128)
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


class _Task(NamedTuple):
    """One stage of one chunk."""

    seconds: float
    busy: float
    needs: tuple[tuple[int, float], ...]
    """(run of links, share of the busy time)."""


def seconds(
    player: Player, schedule: Schedule, total_bytes: float, *, estimate: bool = False
) -> float:
    """Return seconds of a schedule: chunks enter one after another, a stage waits for its
    predecessor and for the links it shares with others, first come first served."""
    if player.group.size == 1:
        return 0.0
    tasks: list[list[_Task]] = []
    keys: dict[int, int] = {}
    for weight, chain in schedule.chains:
        size = total_bytes * weight / schedule.chunks
        plan = [
            _Task(
                *player.seconds(stage, size, estimate=estimate),
                tuple(
                    (keys.setdefault(run, len(keys)), share)
                    for run, share in sorted(player.resources(stage).items())
                ),
            )
            for stage in chain
        ]
        tasks += [plan] * schedule.chunks
    if schedule.chunks > 1:
        tasks = _interleave(tasks, schedule.chunks)
    wire = np.zeros(len(keys))
    for task in itertools.chain.from_iterable(tasks):
        for run, share in task.needs:
            wire[run] += task.busy * share
    late = player.software.slow_start(float(wire.max(initial=0.0)))
    return player.software.launch_s + _pipeline(tasks, len(keys)) + late


def _interleave(tasks: list[list[_Task]], chunks: int) -> list[list[_Task]]:
    return [tasks[start + k] for k in range(chunks) for start in range(0, len(tasks), chunks)]


def _pipeline(tasks: list[list[_Task]], resources: int) -> float:
    """Return when the last chunk is through its last stage. Links are free for the next chunk once
    the bytes are through; latency is only waited for by the chunk itself."""
    free = [0.0] * resources
    queue = [(0.0, chunk, 0) for chunk in range(len(tasks))]
    end = 0.0
    while queue:
        ready, chunk, number = heapq.heappop(queue)
        if number == len(tasks[chunk]):
            end = max(end, ready)
            continue
        task = tasks[chunk][number]
        start = max([ready] + [free[run] for run, _ in task.needs])
        for run, share in task.needs:
            free[run] = start + task.busy * share
        heapq.heappush(queue, (start + task.seconds, chunk, number + 1))
    return end


def flat_axis(player: Player) -> Axis:
    """Return the group as one axis in rank order, whatever levels it spans."""
    g = player.group
    return Axis(-1, "flat", "flat", g.size, g.stride, g.size)


def hierarchical(
    player: Player, kind: str, total_bytes: float, name: str = "hierarchical"
) -> Schedule:
    """Return the schedule over the group's axes, in the best number of chunks.

    `hierarchical` goes from the innermost level outwards and back with the best algorithm on each
    axis for this size, `bucket` with rings on every axis; `balanced` may also mix orders of the
    levels so that none waits for another.
    """
    only = {"bucket": "ring", "in-network": "in-network"}.get(name, "")
    axes = player.group.axes
    if not axes:
        return Schedule(kind, name, ())
    picked = {axis: _pick(player, axis, kind, total_bytes, only) for axis in axes}
    orders = _orders(player, axes, picked, kind, total_bytes, mixed=name == "balanced")
    return min(
        (_chunked(player, Schedule(kind, name, chains), total_bytes) for chains in orders),
        key=lambda found: found[0],
    )[1]


def _chunked(player: Player, whole: Schedule, total_bytes: float) -> tuple[float, Schedule]:
    """Return the estimate and the schedule with the number of chunks that is quickest."""
    best = seconds(player, whole, total_bytes, estimate=True), whole
    for chunks in CHUNKS:
        if total_bytes / chunks / player.group.size < SMALLEST_CHUNK:
            break
        schedule = replace(whole, chunks=chunks)
        price = seconds(player, schedule, total_bytes, estimate=True)
        if price < best[0] * (1 - 1e-6):
            best = price, schedule
    return best


def _pick(player: Player, axis: Axis, kind: str, total_bytes: float, only: str) -> str:
    """Return the algorithm with the lowest estimate on an axis for the data that reaches it."""
    inside = math.prod(a.members for a in player.group.axes if a.stride < axis.stride)
    known = algorithms(axis, kind, player.software.in_switch)
    if only:
        return only if only in known else "ring"
    prices = {
        name: player.seconds(
            Stage(axis, name, tuple(ph), 1.0 / inside), total_bytes, estimate=True
        )[0]
        for name, ph in known.items()
    }
    return min(prices, key=lambda name: (prices[name], name))


def _chain(
    kind: str, order: tuple[Axis, ...], picked: dict[Axis, str], in_switch: float
) -> tuple[Stage, ...]:
    """Return the stages of one order: scatter inwards, gather back out."""
    scatter: list[Stage] = []
    part = 1.0
    for axis in order:
        known = algorithms(axis, kind, in_switch)
        scatter.append(Stage(axis, picked[axis], tuple(known[picked[axis]]), part))
        part /= axis.members
    gather = [Stage(s.axis, s.algorithm, s.phases[::-1], s.part) for s in scatter[::-1]]
    if kind == "all-reduce":
        return tuple(scatter + gather)
    return tuple(scatter if kind == "reduce-scatter" else gather)


Chains = tuple[tuple[float, tuple[Stage, ...]], ...]


def _orders(
    player: Player, axes: tuple[Axis, ...], picked: dict[Axis, str], kind: str, size: float, *,
    mixed: bool,
) -> list[Chains]:  # fmt: skip
    """Return the plain inner-to-outer order, and the mixture of orders that keeps all links busy
    (linear programme over orders): of the dimensions inside a level, or of all axes."""
    plain = _chain(kind, axes, picked, player.software.in_switch)
    if len(axes) == 1:
        return [((1.0, plain),)]
    perms = [p for p in itertools.permutations(axes) if p != axes][:119]
    nested = [p for p in perms if all(a.level <= b.level for a, b in itertools.pairwise(p))]
    found: list[Chains] = [((1.0, plain),)]
    for some in (nested, perms) if mixed else (nested,):
        blend = _blend(player, [axes, *some], picked, kind, size)
        if len(blend) > 1 or blend[0][0] < 1.0 - 1e-9:
            found.append(blend)
    return found


def _blend(
    player: Player, orders: list[tuple[Axis, ...]], picked: dict[Axis, str], kind: str, size: float
) -> Chains:
    """Return the share of the data for each order that makes the busiest links least busy."""
    chains = [_chain(kind, order, picked, player.software.in_switch) for order in orders]
    cost: dict[tuple[Axis, float], float] = {}
    runs = sorted({run for stage in chains[0] for run in player.resources(stage)})
    load = np.zeros((len(runs), len(chains)))
    for column, chain in enumerate(chains):
        for stage in chain:
            key = (stage.axis, stage.part)
            if key not in cost:
                cost[key] = player.seconds(stage, max(size, 1e9), estimate=True)[1]
            for run, share in player.resources(stage).items():
                load[runs.index(run), column] += cost[key] * share
    weight = share_out(load)
    return tuple((float(w), chain) for w, chain in zip(weight, chains, strict=True) if w > 1e-6)


def all_to_all(player: Player, algorithm: str) -> Schedule:
    """Return an all-to-all: everything at once, in n - 1 steps, or axis after axis (each axis
    carries all data once, in long messages)."""
    axis, n = flat_axis(player), player.group.size
    if algorithm == "hierarchical":
        chain = tuple(Stage(a, "direct", tuple(_across(a)), 1.0) for a in player.group.axes)
        return Schedule("all-to-all", algorithm, ((1.0, chain),))
    if algorithm == "pairwise":
        stage = Stage(axis, algorithm, tuple(patterns.pairwise(n)), 1.0)
        return Schedule("all-to-all", algorithm, ((1.0, (stage,)),))
    if algorithm != "direct":
        raise InputError(
            f"no {algorithm} for all-to-all", out="direct, pairwise, hierarchical or auto"
        )
    single = len(player.group.axes) == 1
    if n == player.net.cards:
        stage = Stage(axis, algorithm, tuple(patterns.everyone(n)), 1.0)
    elif single:
        stage = Stage(player.group.axes[0], algorithm, tuple(patterns.exchange(n)), 1.0)
    else:
        stage = Stage(axis, algorithm, tuple(patterns.exchange(n)), 1.0)
    return Schedule("all-to-all", algorithm, ((1.0, (stage,)),))


def _across(axis: Axis) -> list[patterns.Phase]:
    return (
        patterns.exchange(axis.members) if axis.members <= 512 else patterns.pairwise(axis.members)
    )


def broadcast(player: Player, total_bytes: float) -> Schedule:
    """Return a broadcast over the axes: scatter inside, pipelined chains outside, gather back."""
    axes = player.group.axes
    if not axes:
        return Schedule("broadcast", "hierarchical", ())
    scatter: list[Stage] = []
    part = 1.0
    for axis in axes[:-1]:
        n = axis.members
        out = patterns.Phase(np.zeros(n - 1, np.int64), np.arange(1, n), 1.0 / n)
        scatter.append(Stage(axis, "scatter", (out,), part))
        part /= n
    across = Stage(axes[-1], "chain", tuple(patterns.chain(axes[-1].members)), part)
    gather = [
        Stage(s.axis, "ring", tuple(patterns.ring(s.axis.members, s.axis.wraps)), s.part)
        for s in scatter[::-1]
    ]
    whole = Schedule("broadcast", "hierarchical", ((1.0, (*scatter, across, *gather)),))
    return _chunked(player, whole, total_bytes)[1]


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
    elif kind == "send-recv":
        phases, halves = patterns.shift(n), 1
    else:
        raise InputError(f"no {algorithm} for {kind}")
    stage = Stage(axis, algorithm, tuple(phases), 1.0)
    return Schedule(kind, f"flat-{algorithm}", ((1.0, (stage,) * halves),))
