"""Algorithms on one axis of n members: who sends how much to whom, step after step.

A `Phase` is one step, repeated; `share` is each flow's part of the data of the stage. A `Move` is
the same step with the blocks it carries, for the checker. Axes: P flows of a phase.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Peers = Callable[[int, int], Ints]
"""(step, members) -> peer of every member."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One step of an algorithm between members of an axis."""

    source_P: Ints
    target_P: Ints
    share: float
    repeat: int = 1
    hops: int = 1
    """Latencies that follow one another inside the step (a pipelined tree or chain)."""
    spread: bool = False
    """An all-to-all: messages are posted in parallel, a doubling at a time."""
    everyone: bool = False
    """Every pair of the machine: counted by class, never listed."""

    @property
    def key(self) -> bytes:
        """What makes two phases the same traffic, sizes aside."""
        return self.source_P.tobytes() + b"|" + self.target_P.tobytes()


@dataclass(frozen=True, slots=True)
class Move:
    """One message: blocks from one member to another, added or stored."""

    source: int
    target: int
    blocks: tuple[int, ...]
    reduce: bool


def _shift(n: int, by: int) -> tuple[Ints, Ints]:
    all_ = np.arange(n)
    return all_, (all_ + by) % n


def ring(n: int, both: bool) -> list[Phase]:
    """Reduce-scatter (or all-gather) round a ring: n - 1 steps of 1/n; half each way on a torus."""
    s, t = _shift(n, 1)
    if both and n > 2:
        back_s, back_t = _shift(n, -1)
        pair = np.concatenate([s, back_s]), np.concatenate([t, back_t])
        return [Phase(pair[0], pair[1], 0.5 / n, n - 1)]
    return [Phase(s, t, 1.0 / n, n - 1)]


def ring_moves(n: int, gather: bool) -> list[list[Move]]:
    """The blocks of `ring`: member i ends with block i reduced, or starts with block i."""
    steps = []
    for k in range(n - 1):
        shift = 0 if gather else 1
        steps.append([Move(i, (i + 1) % n, ((i - k - shift) % n,), not gather) for i in range(n)])
    return steps


def direct(n: int) -> list[Phase]:
    """Every member to every other at once, 1/n each: one step."""
    source = np.repeat(np.arange(n), n)
    target = np.tile(np.arange(n), n)
    keep = source != target
    return [Phase(source[keep], target[keep], 1.0 / n)]


def direct_moves(n: int, gather: bool) -> list[list[Move]]:
    """The blocks of `direct`."""
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    return [[Move(i, j, (i if gather else j,), not gather) for i, j in pairs]]


def halving_peers(step: int, n: int) -> Ints:
    """Peers of recursive halving: distance n/2, n/4 ... 1 (Rabenseifner)."""
    return np.arange(n) ^ (n >> (step + 1))


def swing_peers(step: int, n: int) -> Ints:
    """Peers of Swing (NSDI 2024): distances 1, 1, 3, 5, 11 ... alternating, short on a ring."""
    rho = (1 - (-2) ** (step + 1)) // 3
    member = np.arange(n)
    peer: Ints = np.where(member % 2 == 0, member + rho, member - rho) % n
    return peer


def butterfly(n: int, peers: Peers) -> list[Phase]:
    """Reduce-scatter by exchange with a peer: 1/2, 1/4 ... of the data (all-gather: reversed)."""
    steps = n.bit_length() - 1
    all_ = np.arange(n)
    return [Phase(all_, peers(k, n), 0.5 ** (k + 1)) for k in range(steps)]


def butterfly_moves(n: int, peers: Peers, gather: bool) -> list[list[Move]]:
    """The blocks of `butterfly`: a member hands over what its peer will be responsible for."""
    steps = n.bit_length() - 1
    owned = [[{i} for i in range(n)]]
    for k in range(steps - 1, -1, -1):
        after, peer = owned[0], peers(k, n)
        owned.insert(0, [after[i] | after[int(peer[i])] for i in range(n)])
    moves = []
    for k in range(steps):
        peer, after = peers(k, n), owned[k + 1]
        give = [(i, int(peer[i])) for i in range(n)]
        moves.append([
            Move(i, p, tuple(sorted(after[i] if gather else after[p])), not gather)
            for i, p in give
        ])  # fmt: skip
    return moves[::-1] if gather else moves


def tree_parents(n: int, shift: int) -> Ints:
    """Return the parent of every member in a binary tree in rank order, rotated by `shift`; the
    root is its own parent. Odd places are leaves, so a shift of one swaps leaves and inner."""
    parent = np.zeros(n, np.int64)

    def grow(low: int, high: int, above: int) -> None:
        middle = (low + high) // 2
        parent[middle] = middle if above < 0 else above
        if low < middle:
            grow(low, middle, middle)
        if middle + 1 < high:
            grow(middle + 1, high, middle)

    grow(0, n, -1)
    rotated = np.zeros(n, np.int64)
    rotated[(np.arange(n) + shift) % n] = (parent + shift) % n
    return rotated


def tree(n: int) -> list[Phase]:
    """All-reduce up and down two binary trees, half the data each, pipelined (NCCL's double
    tree); depth 2 log2 n counts as latency."""
    ups: list[tuple[Ints, Ints]] = []
    for shift in (0, 1):
        parent, all_ = tree_parents(n, shift), np.arange(n)
        keep = parent != all_
        ups.append((all_[keep], parent[keep]))
    source = np.concatenate([u[0] for u in ups] + [u[1] for u in ups])
    target = np.concatenate([u[1] for u in ups] + [u[0] for u in ups])
    return [Phase(source, target, 0.5, hops=2 * max(1, (n - 1).bit_length()))]


def tree_moves(n: int) -> list[list[Move]]:
    """The blocks of `tree`: blocks 0 .. n/2 through the first tree, the rest through the second."""
    half = (n + 1) // 2
    steps: list[list[Move]] = []
    for shift, blocks in ((0, tuple(range(half))), (1, tuple(range(half, n)))):
        parent = tree_parents(n, shift)
        depth = np.zeros(n, np.int64)
        for i in range(n):
            at = i
            while parent[at] != at:
                at, depth[i] = int(parent[at]), depth[i] + 1
        up = [
            [Move(i, int(parent[i]), blocks, True) for i in range(n) if depth[i] == d]
            for d in range(int(depth.max()), 0, -1)
        ]
        down = [[Move(m.target, m.source, blocks, False) for m in step] for step in up[::-1]]
        steps += up + down
    return steps


def exchange(n: int) -> list[Phase]:
    """All-to-all between the members of an axis at once, 1/n each."""
    return [replace(phase, spread=True) for phase in direct(n)]


def everyone(n: int) -> list[Phase]:
    """All-to-all between all cards of the machine at once, 1/n each; the pairs are not listed."""
    nobody = np.zeros(0, np.int64)
    return [Phase(nobody, nobody, 1.0 / n, everyone=True)]


def pairwise(n: int) -> list[Phase]:
    """All-to-all in n - 1 steps: in step k everybody sends to the member k places on."""
    return [Phase(*_shift(n, k), 1.0 / n) for k in range(1, n)]


def chain(n: int) -> list[Phase]:
    """Broadcast down a pipelined chain from member 0."""
    return [Phase(np.arange(n - 1), np.arange(1, n), 1.0, hops=n - 1)]


def shift(n: int) -> list[Phase]:
    """Every member sends all it has to the next one (pipeline stages, ring attention)."""
    s, t = _shift(n, 1)
    return [Phase(s, t, 1.0)]
