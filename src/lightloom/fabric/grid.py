"""Grids: full meshes of n dimensions, meshes, rings, tori: places, neighbours, minimal paths.

A place is a row-major number; dimension 0 varies slowest. Slots of a full mesh: one for each
coordinate a peer may have, dimension by dimension; of the rest: two a dimension, up and down.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .tiers import Tier

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Hops = list[tuple[Ints, Ints, Ints, Floats]]
"""Steps of many routes: (flow, place, slot, share of the flow)."""


def slot_target(tier: Tier, place: int, slot: int) -> int:
    """Return the place that a slot of `place` leads to; the place itself for an unused slot."""
    at = [int(x) for x in np.unravel_index(place, tier.dims)]
    if tier.full:
        for dim, size in enumerate(tier.dims):
            if slot < size:
                at[dim] = slot
                break
            slot -= size
        return int(np.ravel_multi_index(at, tier.dims))
    dim, down = divmod(slot, 2)
    return _step(tier, at, dim, -1 if down else 1, place)


def _step(tier: Tier, at: list[int], dim: int, sign: int, place: int) -> int:
    size = tier.dims[dim]
    if size == 1 or (size == 2 and sign < 0):
        return place
    there = 1 - at[dim] if size == 2 else at[dim] + sign
    if not 0 <= there < size:
        if not tier.wrap:
            return place
        if tier.twist and dim == 0 and len(at) > 1:
            at[1] = (at[1] + sign * tier.twist) % tier.dims[1]
        there %= size
    at[dim] = there
    return int(np.ravel_multi_index(at, tier.dims))


@lru_cache(maxsize=16)
def table(tier: Tier) -> Ints:
    """Return the target of every (place, slot); the place itself where a slot is unused."""
    rows = [[slot_target(tier, p, s) for s in range(tier.slots)] for p in range(tier.n)]
    return np.array(rows, np.int64).reshape(tier.n, tier.slots)


def ordered(tier: Tier, start_F: Ints, end_F: Ints) -> Hops:
    """Return minimal routes, one dimension after the other; half a ring away goes both ways."""
    flow_F = np.arange(len(start_F))
    here = np.stack(np.unravel_index(start_F, tier.dims)) if len(start_F) else None
    there = np.stack(np.unravel_index(end_F, tier.dims)) if len(end_F) else None
    hops: Hops = []
    if here is None or there is None:
        return hops
    offset = 0
    for dim, size in enumerate(tier.dims):
        if tier.full:
            move = np.flatnonzero(here[dim] != there[dim])
            place = np.ravel_multi_index(tuple(here[:, move]), tier.dims)
            hops.append((flow_F[move], place, offset + there[dim, move], np.ones(len(move))))
            offset += size
        else:
            hops += _walk(tier, dim, here, there)
        here[dim] = there[dim]
    return hops


def _walk(tier: Tier, dim: int, here: Ints, there: Ints) -> Hops:
    """Steps along one dimension of a mesh or torus."""
    size, hops = tier.dims[dim], []
    ahead = there[dim] - here[dim]
    wraps = tier.wrap and size > 2
    if wraps:
        ahead = ahead % size
    for sign in (1, -1):
        if wraps:
            steps = ahead if sign > 0 else (size - ahead) % size
            share = np.where(2 * steps < size, 1.0, np.where(2 * steps == size, 0.5, 0.0))
        else:
            steps, share = sign * ahead, np.ones(len(ahead))
        live = np.flatnonzero((steps > 0) & (share > 0))
        at = here[:, live].copy()
        for step in range(int(steps[live].max(initial=0))):
            go = np.flatnonzero(steps[live] > step)
            place = np.ravel_multi_index(tuple(at[:, go]), tier.dims)
            slot = np.full(len(go), 2 * dim + (0 if sign > 0 or size == 2 else 1))
            hops.append((live[go], place, slot, share[live[go]]))
            at[dim, go] = (at[dim, go] + sign) % size
    return hops


def spread_over_shortest(
    tier: Tier, start: int, end: int, closed: frozenset[tuple[int, int]]
) -> list[tuple[int, int, float]]:
    """Return (place, slot, share) of all shortest paths that avoid `closed` (place, slot), each
    path with an equal share; empty when there is none."""
    ahead = _distances(tier, start, closed, True)
    if ahead[end] < 0:
        return []
    back = _distances(tier, end, closed, False)
    length = ahead[end]
    to, ways = table(tier), _ways(tier, start, end, closed, ahead, back)
    steps: list[tuple[int, int, float]] = []
    share = {start: 1.0}
    for depth in range(length):
        following: dict[int, float] = {}
        for place, part in sorted(share.items()):
            for slot in range(tier.slots):
                peer = int(to[place, slot])
                good = back[peer] >= 0 and depth + 1 + back[peer] == length
                if peer == place or (place, slot) in closed or not good:
                    continue
                piece = part * ways[peer] / ways[place]
                steps.append((place, slot, piece))
                following[peer] = following.get(peer, 0.0) + piece
        share = following
    return steps


def all_paths(
    tier: Tier, start: int, end: int, closed: frozenset[tuple[int, int]]
) -> list[tuple[int, int, float]] | None:
    """Return an equal share on the direct link and on every two-hop path beside it; None unless
    the places differ in one dimension of a full mesh."""
    ends = np.stack(np.unravel_index([start, end], tier.dims), axis=1)
    differ = np.flatnonzero(ends[0] != ends[1])
    if not tier.full or len(differ) != 1:
        return None
    dim = int(differ[0])
    base = sum(tier.dims[:dim])
    to = table(tier)
    paths = [[(start, base + int(ends[1][dim]))]]
    for middle in range(tier.dims[dim]):
        if middle not in (ends[0][dim], ends[1][dim]):
            via = int(to[start, base + middle])
            paths.append([(start, base + middle), (via, base + int(ends[1][dim]))])
    good = [path for path in paths if not closed.intersection(path)]
    return [(place, slot, 1 / len(good)) for path in good for place, slot in path]


@lru_cache(maxsize=4096)
def _distances(
    tier: Tier, start: int, closed: frozenset[tuple[int, int]], forward: bool
) -> list[int]:
    """Return hops from (or to) a place, -1 where it cannot be reached."""
    to = table(tier)
    reach: list[list[int]] = [[] for _ in range(tier.n)]
    for place in range(tier.n):
        for slot in range(tier.slots):
            peer = int(to[place, slot])
            if peer != place and (place, slot) not in closed:
                reach[place if forward else peer].append(peer if forward else place)
    hops = [-1] * tier.n
    hops[start], queue = 0, deque([start])
    while queue:
        place = queue.popleft()
        for peer in reach[place]:
            if hops[peer] < 0:
                hops[peer] = hops[place] + 1
                queue.append(peer)
    return hops


def _ways(
    tier: Tier, start: int, end: int, closed: frozenset[tuple[int, int]],
    ahead: list[int], back: list[int],
) -> list[float]:  # fmt: skip
    """Return how many shortest paths lead from each place to `end`."""
    to, ways = table(tier), [0.0] * tier.n
    ways[end] = 1.0
    inner = [p for p in range(tier.n) if back[p] >= 0 and ahead[p] + back[p] == ahead[end]]
    for place in sorted(inner, key=lambda p: back[p]):
        for slot in range(tier.slots):
            peer = int(to[place, slot])
            if peer != place and (place, slot) not in closed and back[peer] == back[place] - 1:
                ways[place] += ways[peer]
    return ways
