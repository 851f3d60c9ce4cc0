"""Routes for light: the k best simple paths of every pair, and what a demand needs on each."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Literal

from lightloom.core.errors import InputError

from .wavelength import FibreMap, Setting

Order = Literal["hops", "km"]
_Partial = tuple[float, int, float, tuple[int, ...], tuple[int, ...]]
REACH = ((625e3, 4), (1250e3, 3), (2500e3, 2), (math.inf, 1))
"""Metres and bits per symbol: 16QAM, 8QAM, QPSK, BPSK (XLRON, modulations_deeprmsa.csv)."""


@dataclass(frozen=True, slots=True)
class Route:
    """One way from source to destination."""

    links: tuple[int, ...]
    nodes: tuple[int, ...]
    metres: float

    @property
    def bits(self) -> int:
        """Bits per symbol that the length allows (`REACH`)."""
        return next(bits for reach, bits in REACH if self.metres <= reach)


@dataclass(frozen=True, slots=True)
class RouteTable:
    """Routes of every pair, best first."""

    pairs: tuple[tuple[int, int], ...]
    routes: tuple[tuple[Route, ...], ...]
    spectra: int
    """Independent spectra that `Route.links` point to."""


def route_table(
    fibres: FibreMap, k: int, order: Order = "hops", shared: bool = False
) -> RouteTable:
    """Return up to `k` simple routes of every ordered pair of nodes."""
    if k < 1:
        raise InputError(f"k = {k}: at least one route is needed")
    count = len(fibres.nodes)
    out: list[list[tuple[int, int, float]]] = [[] for _ in range(count)]
    for a, b, link, metres in fibres.directed(shared):
        out[a].append((b, link, metres))
    pairs = tuple((a, b) for a in range(count) for b in range(count) if a != b)
    routes = tuple(best_routes(out, a, b, k, order) for a, b in pairs)
    return RouteTable(pairs, routes, fibres.spectra(shared))


def best_routes(
    out: list[list[tuple[int, int, float]]], source: int, target: int, k: int, order: Order
) -> tuple[Route, ...]:
    """Return the `k` best simple paths: fewest hops (then metres) or fewest metres (then hops).

    Best-first search with the exact distance to the target as bound (A*, Hart 1968); a path
    leaves the queue only when no shorter one is left, so the order is exact.
    """
    left = _distance_to(out, target, order)
    queue: list[_Partial] = [(left[source], 1, 0.0, (source,), ())]
    found: list[Route] = []
    while queue and len(found) < k:
        total, _, metres, nodes, links = heapq.heappop(queue)
        here = nodes[-1]
        if here == target:
            found.append(Route(links, nodes, metres))
            continue
        spent = total - left[here]
        for there, link, length in out[here]:
            if there in nodes or math.isinf(left[there]):
                continue
            step = 1.0 if order == "hops" else length
            entry: _Partial = (spent + step + left[there], len(nodes) + 1, metres + length,
                     (*nodes, there), (*links, link))  # fmt: skip
            heapq.heappush(queue, entry)
    return tuple(found)


def _distance_to(out: list[list[tuple[int, int, float]]], target: int, order: Order) -> list[float]:
    into: list[list[tuple[int, float]]] = [[] for _ in out]
    for a, edges in enumerate(out):
        for b, _, metres in edges:
            into[b].append((a, 1.0 if order == "hops" else metres))
    far = [math.inf] * len(out)
    far[target] = 0.0
    queue = [(0.0, target)]
    while queue:
        cost, node = heapq.heappop(queue)
        if cost > far[node]:
            continue
        for before, step in into[node]:
            if cost + step < far[before]:
                far[before] = cost + step
                heapq.heappush(queue, (far[before], before))
    return far


def width(setting: Setting, rate: int, bits: int) -> int:
    """Return channels for `rate` Gb/s at `bits` per symbol, guard included; rate 0 is one."""
    if rate == 0:
        return 1 + setting.guard
    return math.ceil(rate * 1e9 / (bits * setting.slot_hz)) + setting.guard
