"""Does a schedule do what it says? Every block followed from rank to rank, contributions counted.

Axes: R ranks of one group, K blocks of the data (one for each place on every axis), C contributors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError

from . import patterns
from .group import Axis, Group
from .patterns import Move
from .schedule import Schedule
from .stage import Stage

Counts = NDArray[np.int16]
LARGEST = 256
"""Ranks that are followed at most: the cube of it is held in memory."""


def moves_of(stage: Stage, gather: bool) -> list[list[Move]]:
    """Return the steps of a stage with the blocks they carry."""
    n, name = stage.axis.members, stage.algorithm
    if name in ("ring", "bucket"):
        return patterns.ring_moves(n, gather)
    if name in ("halving-doubling", "swing"):
        peers = patterns.halving_peers if name[0] == "h" else patterns.swing_peers
        return patterns.butterfly_moves(n, peers, gather)
    if name in ("direct", "in-network"):
        return patterns.direct_moves(n, gather)
    if name == "tree":
        return patterns.tree_moves(n)
    raise InputError(f"schedule stage {name!r} has no blocks to follow")


def check(schedule: Schedule, group: Group) -> list[str]:
    """Return what is wrong with a schedule for one group; nothing if every rank ends with what the
    collective promises, each contribution exactly once."""
    if group.size > LARGEST:
        raise InputError(f"at most {LARGEST} ranks are followed, not {group.size}")
    wrong: list[str] = []
    for number, (_, chain) in enumerate(schedule.chains):
        follow = {"all-to-all": _follow_exchange, "broadcast": _follow_broadcast}.get(schedule.kind)
        found = follow(chain, group) if follow else _follow(schedule.kind, chain, group)
        wrong += [f"chain {number}: {text}" for text in found]
    total = sum(weight for weight, _ in schedule.chains)
    if schedule.chains and abs(total - 1.0) > 1e-6:
        wrong.append(f"chains carry {total:.6f} of the data, not all of it")
    return wrong


def _places(group: Group, axes: list[Axis]) -> dict[Axis, NDArray[np.int64]]:
    """Return each rank's place on every axis."""
    card = group.cards_of(0)
    flat = np.arange(group.size)
    return {a: flat if a.level < 0 else a.member(card) for a in axes}


def _follow(kind: str, chain: tuple[Stage, ...], group: Group) -> list[str]:
    """Reduce-scatter, all-gather and all-reduce: count contributions by rank and block."""
    size = group.size
    axes = list(dict.fromkeys(stage.axis for stage in chain))
    place = _places(group, axes)
    dims = [axis.members for axis in axes]
    block = np.stack(np.unravel_index(np.arange(size), dims))
    held = np.zeros((size, size, size), np.int16)
    home = np.ravel_multi_index([place[a] for a in axes], dims)
    if kind == "all-gather":
        held[np.arange(size), home, np.arange(size)] = 1
    else:
        held[np.arange(size), :, np.arange(size)] = 1
    scattered: list[Axis] = []
    if kind == "all-gather":
        scattered = list(axes)
    seen: set[Axis] = set(scattered)
    for stage in chain:
        gather = stage.axis in seen
        if gather:
            scattered = [a for a in scattered if a != stage.axis]
        held = _stage(held, stage, gather, axes, place, block, scattered)
        if not gather and stage.algorithm != "tree":
            scattered.append(stage.axis)
        seen.add(stage.axis)
    return _verdict(kind, held, home)


def _stage(
    held: Counts, stage: Stage, gather: bool, axes: list[Axis],
    place: dict[Axis, NDArray[np.int64]], block: NDArray[np.int64], scattered: list[Axis],
) -> Counts:  # fmt: skip
    axis = stage.axis
    here = place[axis]
    other = [place[a] for a in axes if a != axis]
    key = np.stack([*other, np.zeros_like(here)], axis=1)
    _, line = np.unique(key, axis=0, return_inverse=True)
    rank_at = {(int(g), int(m)): r for r, (g, m) in enumerate(zip(line, here, strict=True))}
    index = block[axes.index(axis)]
    for step in moves_of(stage, gather):
        before = held.copy()
        for move in step:
            wanted = np.isin(index, move.blocks)
            for g in range(int(line.max()) + 1):
                source, target = rank_at[g, move.source], rank_at[g, move.target]
                mine = wanted.copy()
                for a in scattered:
                    mine &= block[axes.index(a)] == place[a][source]
                if move.reduce:
                    held[target, mine] += before[source, mine]
                else:
                    held[target, mine] = before[source, mine]
    return held


def _verdict(kind: str, held: Counts, home: NDArray[np.int64]) -> list[str]:
    size = len(held)
    if kind == "reduce-scatter":
        own = held[np.arange(size), home]
        bad = np.argwhere(own != 1)
        return [f"rank {r} counts rank {c} {own[r, c]} times" for r, c in bad[:3]]
    if kind == "all-gather":
        want = np.zeros((size, size), np.int16)
        want[home, np.arange(size)] = 1
        bad = np.argwhere(held != want)
        return [f"rank {r} misses block {k}" for r, k, _ in bad[:3]]
    bad = np.argwhere(held != 1)
    return [f"rank {r}, block {k}: rank {c} {held[r, k, c]} times" for r, k, c in bad[:3]]


def _follow_exchange(chain: tuple[Stage, ...], group: Group) -> list[str]:
    """All-to-all: each block walks along the axes to its target."""
    axes = list(dict.fromkeys(stage.axis for stage in chain))
    place = _places(group, axes)
    if any(axis.level < 0 for axis in axes) or len(axes) == 1:
        lacks = [s for s in chain if not any(p.everyone or len(p.source_P) for p in s.phases)]
        pairs = {
            (int(a), int(b)) for s in chain for p in s.phases
            for a, b in zip(p.source_P, p.target_P, strict=True)
        }  # fmt: skip
        everyone = any(p.everyone for s in chain for p in s.phases)
        whole = everyone or len(pairs) == group.size * (group.size - 1)
        return [] if whole and not lacks else [f"{len(pairs)} of the pairs are served"]
    at = np.stack([np.repeat(place[a][:, None], group.size, 1) for a in axes])
    for stage in chain:
        k = axes.index(stage.axis)
        at[k] = np.repeat(place[stage.axis][None, :], group.size, 0)
    want = np.stack([np.repeat(place[a][None, :], group.size, 0) for a in axes])
    return [] if np.array_equal(at, want) else ["blocks end at the wrong rank"]


def _follow_broadcast(chain: tuple[Stage, ...], group: Group) -> list[str]:
    """Broadcast from rank 0: who has which block, phase by phase."""
    axes = list(dict.fromkeys(stage.axis for stage in chain))
    place, dims = _places(group, axes), [a.members for a in axes]
    block = np.stack(np.unravel_index(np.arange(group.size), dims))
    has = np.zeros((group.size, group.size), bool)
    has[0] = True
    rank = {tuple(int(place[a][r]) for a in axes): r for r in range(group.size)}
    done: list[Axis] = []
    for stage in chain:
        k = axes.index(stage.axis)
        again = stage.axis in done
        for r in range(group.size):
            for to in range(stage.axis.members):
                coordinate = [int(place[a][r]) for a in axes]
                coordinate[k] = to
                target = rank[tuple(coordinate)]
                sent = has[r].copy()
                if stage.algorithm == "scatter":
                    sent &= block[k] == to
                if again or stage.algorithm in ("scatter", "chain"):
                    has[target] |= sent
        done.append(stage.axis)
    return [] if has.all() else [f"rank {int(np.argmin(has.all(1)))} misses data"]
