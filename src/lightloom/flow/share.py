"""Max-min fair shares: the one solver, for listed flows and for folded classes alike.

Axes: F flows (or flow classes), L links (or link classes), E crossings (flow, link).
A flow class F sends `rate_F` per flow; a link of class L carries ``sum_F count(F, L) * rate_F``,
where `count` is 1 on the trivial partition (design: an equitable partition has the same rates).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import FabricError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TIE = 1e-12
"""Shares closer than this (relative) are one bottleneck; far below the 1e-9 that is promised."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Which links each flow crosses; flow f owns entries ``start_F[f]:start_F[f + 1]``."""

    start_F: Ints
    link_E: Ints
    count_E: Floats | None = None
    """Load put on one link of the entry per unit of rate; None is 1 everywhere."""

    @property
    def flows(self) -> int:
        """Number of flows."""
        return len(self.start_F) - 1

    @property
    def flow_of_entry(self) -> Ints:
        """Flow of every entry."""
        return np.repeat(np.arange(self.flows), np.diff(self.start_F))

    def load(self, rate_F: Floats, links: int) -> Floats:
        """Return bytes/s on each link when flows run at `rate_F`."""
        weight_E = np.repeat(rate_F, np.diff(self.start_F))
        if self.count_E is not None:
            weight_E = weight_E * self.count_E
        return np.bincount(self.link_E, weight_E, minlength=links).astype(np.float64)


def paths_of(rows: list[list[int]]) -> Paths:
    """Return paths from one list of link numbers per flow."""
    start_F = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=start_F[1:])
    return Paths(start_F, np.array([link for row in rows for link in row], np.int64))


def max_min(
    paths: Paths,
    capacity_L: Floats,
    weight_F: Floats | None = None,
    priority_F: Ints | None = None,
) -> Floats:
    """Return the max-min fair rate of every flow, bytes/s.

    `weight_F` makes shares proportional (2.0 gets twice); `priority_F` is strict, 0 first: a lower
    priority shares what the higher ones leave. A flow that crosses nothing gets infinity; one that
    crosses a dead link gets 0. Water-filling (Bertsekas and Gallager 1992, 6.5.2), with every
    locally tightest link frozen in one round.
    """
    wrong_L = np.flatnonzero(~np.isfinite(capacity_L) | (capacity_L < 0))
    if len(wrong_L):
        raise FabricError(f"link {wrong_L[0]} has capacity {capacity_L[wrong_L[0]]:g} bytes/s")
    if weight_F is not None and not np.all(weight_F > 0):
        raise FabricError(f"flow {int(np.argmin(weight_F))} has a weight that is not positive")
    if priority_F is None:
        return _fill(paths, np.asarray(capacity_L, np.float64), weight_F)
    rate_F = np.zeros(paths.flows)
    room_L = np.array(capacity_L, np.float64)
    for priority in np.unique(priority_F):
        chosen = np.flatnonzero(priority_F == priority)
        part = select(paths, chosen)
        rate = _fill(part, room_L, None if weight_F is None else weight_F[chosen])
        rate_F[chosen] = rate
        used_L = part.load(np.where(np.isfinite(rate), rate, 0.0), len(room_L))
        room_L = np.where(used_L > room_L * (1 - TIE), 0.0, room_L - used_L)
    return rate_F


def select(paths: Paths, chosen_F: Ints) -> Paths:
    """Return the paths of some flows, in the order given."""
    length_F = np.diff(paths.start_F)[chosen_F]
    start_F = np.zeros(len(chosen_F) + 1, np.int64)
    np.cumsum(length_F, out=start_F[1:])
    take_E = np.repeat(paths.start_F[chosen_F] - start_F[:-1], length_F) + np.arange(start_F[-1])
    count_E = None if paths.count_E is None else paths.count_E[take_E]
    return Paths(start_F, paths.link_E[take_E], count_E)


@dataclass(slots=True)
class Rows:
    """Crossings by hop: flows sorted by path length, row h holds the h-th link of each flow
    that has one. Every pass is a handful of long vector operations."""

    flow_F: Ints
    link_HF: list[Ints]
    count_HF: list[Floats] | None
    weight_F: Floats | None

    def loads(self, k: int) -> Floats | None:
        """Weight times count of row k's entries; None stands for all ones."""
        size = len(self.link_HF[k])
        weight = None if self.weight_F is None else self.weight_F[:size]
        if self.count_HF is None:
            return weight
        return self.count_HF[k] if weight is None else self.count_HF[k] * weight

    def keep(self, mask_F: NDArray[np.bool_]) -> Rows:
        """The rows of the flows still unfrozen."""
        kept = [mask_F[: len(row)] for row in self.link_HF]
        links = [row[m] for row, m in zip(self.link_HF, kept, strict=True)]
        last = next((k for k, row in enumerate(links) if not len(row)), len(links))
        counts = self.count_HF and [
            row[m] for row, m in zip(self.count_HF[:last], kept[:last], strict=True)
        ]
        weight = None if self.weight_F is None else self.weight_F[mask_F]
        return Rows(self.flow_F[mask_F], links[:last], counts, weight)


def rows_of(paths: Paths, weight_F: Floats | None = None, flow_F: Ints | None = None) -> Rows:
    """Return the crossings of all flows (or of `flow_F`) by hop; flows that cross nothing are
    left out."""
    if flow_F is not None:
        part = select(paths, flow_F)
        rows = rows_of(part, None if weight_F is None else weight_F[flow_F])
        rows.flow_F = flow_F[rows.flow_F]
        return rows
    length_F = np.diff(paths.start_F)
    flow_F = np.flatnonzero(length_F)
    first, last = (int(length_F.min()), int(length_F.max())) if len(length_F) else (0, 0)
    if first != last:
        flow_F = flow_F[np.argsort(-length_F[flow_F], kind="stable")]
    start_F, length_F = paths.start_F[:-1][flow_F], length_F[flow_F]
    links, counts = [], []
    for hop in range(last):
        size = int(np.searchsorted(-length_F, -hop, side="left"))
        at_E = start_F[:size] + hop
        links.append(paths.link_E[at_E])
        if paths.count_E is not None:
            counts.append(paths.count_E[at_E])
    weight = None if weight_F is None else np.asarray(weight_F, np.float64)[flow_F]
    return Rows(flow_F, links, counts if paths.count_E is not None else None, weight)


def _fill(paths: Paths, capacity_L: Floats, weight_F: Floats | None) -> Floats:
    rate_F = np.full(paths.flows, np.nan)
    rate_F[np.diff(paths.start_F) == 0] = np.inf
    fill(rows_of(paths, weight_F), capacity_L.copy(), rate_F)
    return rate_F


def fill(rows: Rows, room_L: Floats, rate_F: Floats, ceiling: float = np.inf) -> None:
    """Write the rate of every flow that freezes at or below `ceiling` (per unit of weight) into
    `rate_F`, which holds NaN for these flows; `room_L` is used up."""
    while len(rows.flow_F):
        share_L = _shares(rows, room_L)
        if not np.any(share_L <= ceiling):
            return
        limit_F, frozen_F = _frozen(rows, share_L)
        frozen_F &= limit_F <= ceiling
        if ceiling == np.inf and _thin(int(frozen_F.sum()), len(frozen_F)):
            _lowest(rows, room_L, share_L, limit_F, rate_F)
            frozen_F = ~np.isnan(rate_F[rows.flow_F])
            limit_F = rate_F[rows.flow_F]
            if rows.weight_F is not None:
                limit_F = limit_F / rows.weight_F
        else:
            level_F, gone = limit_F[frozen_F], rows.flow_F[frozen_F]
            weight_F = 1.0 if rows.weight_F is None else rows.weight_F[frozen_F]
            rate_F[gone] = level_F * weight_F
        if frozen_F.all():
            return
        _take(rows, frozen_F, limit_F, room_L)
        rows = rows.keep(~frozen_F)


def _thin(frozen: int, flows: int) -> bool:
    """Whether a round froze so few of many flows that it pays to work on the lowest links alone."""
    return flows > 4000 and frozen * 8 < flows


def _lowest(rows: Rows, room_L: Floats, share_L: Floats, limit_F: Floats, rate_F: Floats) -> None:
    """Freeze the quarter of the flows with the lowest limits, looking only at links that can bind
    there. Exact: shares never fall, so a link above the ceiling stays above it."""
    ceiling = float(np.partition(limit_F, len(limit_F) // 4)[len(limit_F) // 4])
    low_L = share_L <= ceiling
    link_l = np.flatnonzero(low_L)
    local_L = np.zeros(len(low_L), np.int64)
    local_L[link_l] = np.arange(len(link_l))
    mask_HF = [low_L[link] for link in rows.link_HF]
    flow_E = np.concatenate([np.flatnonzero(mask) for mask in mask_HF])
    pairs = zip(rows.link_HF, mask_HF, strict=True)
    link_E = np.concatenate([local_L[link[mask]] for link, mask in pairs])
    order = np.argsort(flow_E, kind="stable")
    flow_f, size_f = np.unique(flow_E, return_counts=True)
    start_f = np.concatenate([[0], np.cumsum(size_f)])
    count_E = None
    if rows.count_HF is not None:
        counts = zip(rows.count_HF, mask_HF, strict=True)
        count_E = np.concatenate([count[mask] for count, mask in counts])[order]
    weight_f = None if rows.weight_F is None else rows.weight_F[flow_f]
    part = rows_of(Paths(start_f, link_E[order], count_E), weight_f)
    part.flow_F = rows.flow_F[flow_f[part.flow_F]]
    fill(part, room_L[link_l], rate_F, ceiling)


def _shares(rows: Rows, room_L: Floats) -> Floats:
    """Return what each link could still give to one unit of weight; infinite without flows."""
    need_L = np.zeros(len(room_L))
    for hop, link in enumerate(rows.link_HF):
        need_L += np.bincount(link, rows.loads(hop), minlength=len(room_L))
    share_L = np.full(len(room_L), np.inf)
    np.divide(room_L, need_L, out=share_L, where=need_L > 0)
    return share_L


def _take(rows: Rows, frozen_F: NDArray[np.bool_], limit_F: Floats, room_L: Floats) -> None:
    """Subtract what the frozen flows use from the room left on every link."""
    for hop, link in enumerate(rows.link_HF):
        mask = frozen_F[: len(link)]
        used, load = limit_F[: len(link)][mask], rows.loads(hop)
        used = used if load is None else used * load[mask]
        room_L -= np.bincount(link[mask], used, minlength=len(room_L))
    np.maximum(room_L, 0.0, out=room_L)


def _frozen(rows: Rows, share_L: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return each flow's limit and which flows stop here: those on a link that limits all of its
    flows (no flow on it is slower elsewhere)."""
    share_HF = [share_L[link] for link in rows.link_HF]
    limit_F = share_HF[0].copy()
    for share in share_HF[1:]:
        np.minimum(limit_F[: len(share)], share, out=limit_F[: len(share)])
    slack_L = np.zeros(len(share_L), bool)
    above_F = limit_F * (1 + TIE)
    for link, share in zip(rows.link_HF, share_HF, strict=True):
        slack_L[link[share > above_F[: len(share)]]] = True
    frozen_F = np.zeros(len(limit_F), bool)
    for link in rows.link_HF:
        frozen_F[: len(link)] |= ~slack_L[link]
    return limit_F, frozen_F
