"""One stage of a collective: an algorithm on one axis, played on the fabric or only priced.

Axes: N cards, F classes of flows, L classes of links, P flows of a pattern.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import FabricError, InfeasibleError, InputError
from lightloom.fabric.network import Floats, Ints, Network
from lightloom.fabric.route import sibling
from lightloom.flow.fold import (
    Fold,
    Folded,
    all_pairs,
    fold_flows,
    fold_level,
    fold_listed,
    fold_machine,
    trivial,
)
from lightloom.flow.play import finish

from . import patterns
from .group import Axis, Group
from .patterns import Phase

Bools = NDArray[np.bool_]
LARGEST_LIST = 6_000_000
"""Flows that are listed one by one at most."""
LARGEST_PLAIN = 20_000
"""Flows from which a further look for equal ones pays before they are played."""


@dataclass(frozen=True, slots=True)
class Software:
    """What the library adds to physics: nothing by default."""

    launch_s: float = 0.0
    """Start-up of one collective."""
    first_step_s: float = 0.0
    """Software cost of one message to a peer, on the innermost level."""
    step_s: float = 0.0
    """The same on the levels above."""
    shares: tuple[float, ...] = ()
    """Share of the link rate reached, by level; the last one for the rest."""
    in_switch: float = 2.0
    """Rate of a reduction inside the switch over the ring's; 2 is physics."""
    ramp: float = 0.0
    """Slow start: seconds per root of (wire time x 10 us), paid in full from 3 us on."""

    def share(self, level: int) -> float:
        """Return the share of the link rate reached on a level."""
        return self.shares[min(level, len(self.shares) - 1)] if self.shares else 1.0

    def slow_start(self, wire_s: float) -> float:
        """Return the seconds by which a transfer of `wire_s` is late."""
        return self.ramp * math.sqrt(wire_s * 10e-6) * min(1.0, wire_s / 3e-6)


@dataclass(frozen=True, slots=True)
class Stage:
    """An algorithm on an axis, over `part` of the collective's bytes."""

    axis: Axis
    algorithm: str
    phases: tuple[Phase, ...]
    part: float


def algorithms(
    axis: Axis, kind: str = "all-reduce", in_switch: float = 2.0
) -> dict[str, list[Phase]]:
    """Return what can reduce-scatter (or all-gather) along an axis, by name.

    In-network: cards send all they have up and get all of it back, together once each way; as two
    halves of an all-reduce, half the data each.
    """
    n = axis.members
    found = {"ring": patterns.ring(n, axis.wraps)} if n > 1 else {}
    if n <= 512:
        found["direct"] = patterns.direct(n)
    if n > 2 and n & (n - 1) == 0:
        found["halving-doubling"] = patterns.butterfly(n, patterns.halving_peers)
        found["swing"] = patterns.butterfly(n, patterns.swing_peers)
    if axis.reduces and kind == "all-reduce":
        ring = patterns.ring(n, False)[0]
        share = max(0.5, (n - 1) / n / in_switch)
        found["in-network"] = [Phase(ring.source_P, ring.target_P, share)]
    return found


class Player:
    """Plays stages of one group on one network; remembers routes and folds, which sizes do not
    change."""

    def __init__(
        self, net: Network, group: Group, software: Software | None = None, *, fold: bool = True,
        background: tuple[Ints, Ints] | None = None, placement: Ints | None = None,
    ) -> None:  # fmt: skip
        self.net, self.group, self.fold = net, group, fold
        self.software = software or Software()
        nobody = np.zeros(0, np.int64)
        self.background = background or (nobody, nobody)
        self.card_N = stand_ins(net, group.cards)
        self.placed = placement is not None
        if placement is not None:
            self.card_N = self.card_N[placement]
        self.played = 0
        self._folds: dict[tuple[int, int], Fold] = {}
        self._flows: dict[tuple[object, ...], tuple[Folded, Floats, Bools]] = {}
        self._seconds: dict[tuple[object, ...], tuple[float, float]] = {}
        self._used: dict[tuple[object, ...], dict[int, float]] = {}

    def seconds(
        self, stage: Stage, total_bytes: float, *, estimate: bool = False
    ) -> tuple[float, float]:
        """Return seconds of a stage, and how many of them its links are busy: its phases one after
        the other, each until its slowest flow ends. An estimate takes the worst link's load
        instead of playing the flows."""
        seconds = busy = 0.0
        for phase in stage.phases:
            size = total_bytes * stage.part * phase.share
            post = self._posting(stage, phase)
            key = (stage.axis, phase.key, phase.everyone, size, phase.hops, post, estimate)
            if key not in self._seconds:
                self._seconds[key] = self._phase(stage.axis, phase, size, post, estimate)
            took, wait = self._seconds[key]
            seconds += took * phase.repeat
            busy += (took - wait) * phase.repeat
        return seconds, busy

    def _phase(
        self, axis: Axis, phase: Phase, size: float, post: float, estimate: bool
    ) -> tuple[float, float]:
        folded, capacity_L, ours_F = self.flows(axis, phase)
        if not ours_F.any():
            return 0.0, 0.0
        wait_F = folded.latency_F + post
        bytes_F = np.full(folded.paths.flows, size)
        with np.errstate(divide="ignore"):
            whole = float((folded.paths.load(bytes_F, len(capacity_L)) / capacity_L).max())
        wait = float(wait_F[ours_F].max())
        lead = (phase.hops - 1) * (wait + whole / self._chunks(size, phase))
        if estimate:
            return lead + whole + wait, lead + wait
        self.played += 1
        if self.fold and folded.paths.flows > LARGEST_PLAIN:
            folded, capacity_L, ours_F = self._refined(axis, phase)
            wait_F = folded.latency_F + post
            bytes_F = np.full(folded.paths.flows, size)
        bytes_F[~ours_F] = np.inf
        end_F = finish(folded.paths, capacity_L, bytes_F, wait_F)
        return lead + float(end_F[ours_F].max()), lead + wait

    def _refined(self, axis: Axis, phase: Phase) -> tuple[Folded, Floats, Bools]:
        """Return the flows of a phase folded further by colour refinement."""
        key = ("refined", axis, phase.key, phase.everyone)
        if key not in self._flows:
            listed, _, ours_F = self.flows(axis, phase)
            folded, class_F = fold_listed(listed, ours_F.astype(np.float64))
            ours_C = np.zeros(folded.paths.flows, bool)
            ours_C[class_F[ours_F]] = True
            self._flows[key] = folded, self._capacity(folded), ours_C
        return self._flows[key]

    def _posting(self, stage: Stage, phase: Phase) -> float:
        """Seconds of software in one step of a stage, as calibrated: on the innermost level one
        message for each other member whatever the algorithm, above it one for each step of a ring
        or two for each doubling; an all-to-all pays by the doubling."""
        n, steps = stage.axis.members, sum(p.repeat for p in stage.phases)
        doublings = math.ceil(math.log2(max(2, n)))
        each = self.software.first_step_s if stage.axis.level == 0 else self.software.step_s
        if phase.everyone or phase.spread:
            return each * doublings
        if stage.axis.level == 0:
            return each * (n - 1) / steps
        return each * max(1.0, min(n - 1, 2 * doublings) / steps)

    def _chunks(self, size: float, phase: Phase) -> float:
        """Chunks of a pipelined phase: 64 KiB each, 1024 at most."""
        return min(1024.0, max(1.0, size / 65536.0)) if phase.hops > 1 else 1.0

    def flows(self, axis: Axis, phase: Phase) -> tuple[Folded, Floats, Bools]:
        """Return the flows of a phase over classes of links, what those links carry, and which
        flows are ours (the rest is background)."""
        key = (axis, phase.key, phase.everyone)
        if key not in self._flows:
            folded, ours_F = self._all() if phase.everyone else self._listed(axis, phase)
            self._flows[key] = folded, self._capacity(folded), ours_F
        return self._flows[key]

    def _all(self) -> tuple[Folded, Bools]:
        """Every ordered pair of live cards of the machine, counted by class."""
        fold = fold_machine(self.net) if self.fold else trivial(self.net)
        classes = fold.classes if not fold.transitive else 1
        if classes**2 > LARGEST_LIST:
            raise InfeasibleError(
                f"all pairs of {self.net.cards:,} cards with these faults leave {classes:,} "
                f"different cards ({classes**2:,} kinds of pairs)",
                out="a torus or mesh with a fault has no symmetry left: take fewer --cards, or "
                "--algorithm hierarchical",
            )
        folded = fold_flows(self.net, fold, *all_pairs(self.net, fold))
        return folded, np.ones(folded.paths.flows, bool)

    def _listed(self, axis: Axis, phase: Phase) -> tuple[Folded, Bools]:
        fold = self._fold(axis)
        role_C = fold.first_C[fold.first_C < self.group.cards]
        size_C = fold.size_C[fold.first_C < self.group.cards]
        order = np.argsort(phase.source_P, kind="stable")
        source_P, target_P = phase.source_P[order], phase.target_P[order]
        start_M = np.searchsorted(source_P, np.arange(axis.members + 1))
        member_C = axis.member(role_C)
        many_C = np.diff(start_M)[member_C]
        if many_C.sum() > LARGEST_LIST:
            raise InputError(
                f"{int(many_C.sum()):,} flows on axis {axis.name} are too many to list one by one",
                out="use another --algorithm, or fewer --cards",
            )
        row = np.repeat(np.arange(len(role_C)), many_C)
        first = np.repeat(start_M[:-1][member_C] - np.cumsum(many_C) + many_C, many_C)
        peer = target_P[first + np.arange(len(row))]
        source = role_C[row]
        target = source + (peer - member_C[row]) * axis.stride
        source, target = self.card_N[source], self.card_N[target]
        size = size_C[row].astype(np.float64)
        keep = source != target
        source = np.concatenate([source[keep], self.background[0]])
        target = np.concatenate([target[keep], self.background[1]])
        size = np.concatenate([size[keep], np.ones(len(self.background[0]))])
        ours_F = np.arange(len(source)) < len(source) - len(self.background[0])
        return fold_flows(self.net, fold, source, target, size), ours_F

    def _fold(self, axis: Axis) -> Fold:
        """An axis folds by its level, a flat axis by the levels that the group spans; nothing folds
        beside background traffic (colour refinement follows)."""
        levels = (axis.level, axis.level)
        if axis.level < 0:
            spanned = [a.level for a in self.group.axes] or [0]
            levels = (min(spanned), max(spanned))
        if not self.fold or self.placed or len(self.background[0]):
            levels = (-1, -1)
        if levels not in self._folds:
            active = np.arange(self.net.cards) < self.group.cards
            some = None if active.all() else active
            self._folds[levels] = (
                trivial(self.net)
                if levels[0] < 0
                else fold_level(self.net, levels[0], some, levels[1])
            )
        return self._folds[levels]

    def _capacity(self, folded: Folded) -> Floats:
        block_L = self.net.block_of(folded.link_L)
        of_block = np.array(
            [self.software.share(self.net.tiers[b.tier].level) for b in self.net.blocks]
        )
        capacity_L: Floats = folded.capacity_L * of_block[block_L]
        return capacity_L

    def resources(self, stage: Stage) -> dict[int, float]:
        """Return what a stage occupies (runs of links, a grid's by dimension), and for which share
        of the time: 1 for the run that binds it."""
        used: dict[int, float] = {}
        for phase in stage.phases:
            key = (stage.axis, phase.key, phase.everyone)
            if key not in self._used:
                folded, capacity_L, _ = self.flows(stage.axis, phase)
                self._used[key] = _occupied(self.net, folded, capacity_L)
            for resource, share in self._used[key].items():
                used[resource] = max(used.get(resource, 0.0), share)
        return used


def _occupied(net: Network, folded: Folded, capacity_L: Floats) -> dict[int, float]:
    """Return a number for every run of links (grid: run and dimension) with its load against that
    of the busiest."""
    if not folded.paths.flows or not len(capacity_L):
        return {}
    busy_L = folded.paths.load(np.ones(folded.paths.flows), len(capacity_L)) / capacity_L
    busy_L /= busy_L.max()
    block_L = net.block_of(folded.link_L)
    run_L = block_L * 16
    for number in np.unique(block_L).tolist():
        block = net.blocks[number]
        tier = net.tiers[block.tier]
        if block.role == "link":
            here = block_L == number
            slot = (folded.link_L[here] - block.first) % block.slots
            edges = np.cumsum(tier.dims if tier.full else (2,) * len(tier.dims))
            run_L[here] += np.searchsorted(edges, slot, side="right")
    most = np.zeros(int(run_L.max()) + 1)
    np.maximum.at(most, run_L, busy_L)
    return {int(run): float(most[run]) for run in np.unique(run_L)}


def stand_ins(net: Network, cards: int) -> Ints:
    """Return the card that plays each role: itself, or for a dead card its next live sibling."""
    card_N = np.arange(cards)
    if not net.dead:
        return card_N
    dead = np.zeros(net.cards, bool)
    dead[np.fromiter(net.dead, np.int64)] = True
    cell = min(net.tiers[0].cards, cards)
    for lost in np.flatnonzero(dead[:cards]).tolist():
        for offset in range(1, cards):
            mate = int(sibling(np.array([lost]), offset, cell, cards)[0])
            if mate < cards and not dead[mate]:
                card_N[lost] = mate
                break
        else:
            raise FabricError("no card of the group is left", out="fewer --fail")
    return card_N
