"""What if: the step replayed with another bandwidth, without skew, with perfect overlap.

Each rank is a *frontier* of work with a time shift against what was measured, plus its
collectives. A span starts when what it visibly waited for has ended: the span of the same rank
that ended last before it began (its gap to that end is the host's, and is kept). So only
collectives, and the spans that began right after one (*joins*), can change the shift, and the
replay costs one pass over those, not over every kernel. A collective ends when its last rank has
arrived plus its transfer; the transfer is latency plus bytes over bandwidth. Changing nothing
gives back the measured times exactly (tested). The idea is Lumos' (2024) and dPRO's (2022).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError
from lightloom.core.timeline import COMM, Timeline

from .match import Block
from .split import device_rows, gaps, union

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is different."""

    text: str
    bandwidth: float = 1.0
    """Factor on the bandwidth of every transfer."""
    latency: bool = False
    """With infinite bandwidth: latency stays."""
    no_skew: bool = False
    no_host: bool = False
    overlap: bool = False


@dataclass(slots=True)
class _Event:
    """A collective that begins (`comm` >= 0) or work that begins after one (`comm` < 0)."""

    at: float
    """Measured start."""
    gap: float
    """Measured start minus the end of what it waited for."""
    cause: int
    """Own collective it waited for (index among the rank's); -1: the frontier of work."""
    before: float
    """End of the frontier's work before it."""
    comm: int
    lane_prior: int
    """Own collective that held the lane before; -1 none."""
    shared: int
    """Index of the matched collective; -1 alone."""
    wait: float
    transfer: float
    latency: float


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """The dependency structure of one set of ranks."""

    ranks: tuple[int, ...]
    events: tuple[tuple[_Event, ...], ...]
    begin: tuple[float, ...]
    end: tuple[float, ...]
    work_end: tuple[float, ...]
    """End of the last span of work."""
    members: tuple[tuple[int, ...], ...]
    """Positions (in `ranks`) of each shared collective."""
    steps: int
    one_late: bool = False
    """One rank's arrivals cost three quarters of all waiting."""

    @property
    def span(self) -> float:
        """Measured nanoseconds, mean over ranks."""
        return float(np.mean([b - a for a, b in zip(self.begin, self.end, strict=True)]))


def parse_change(text: str) -> Change:
    """Return the change named ``bandwidth=2x|inf``, ``skew=0``, ``overlap=1`` or ``host=0``.

    Several at once are joined with ``+``: ``bandwidth=2x+skew=0``.
    """
    change = Change(text=text)
    for part in text.split("+"):
        match = re.fullmatch(r"bandwidth=(inf|\d+(?:\.\d+)?|\.\d+)x?", part)
        if match and float(match.group(1)) > 0:
            change = replace(change, bandwidth=float(match.group(1)))
        elif part == "skew=0":
            change = replace(change, no_skew=True)
        elif part == "host=0":
            change = replace(change, no_host=True)
        elif part == "overlap=1":
            change = replace(change, overlap=True)
        else:
            raise InputError(
                f"--what-if {part!r} is not known",
                out="bandwidth=2x (any factor, or inf), skew=0, overlap=1, host=0; a comma "
                "between answers, a + between changes that happen together",
            )
    return change


def latencies(blocks: list[Block]) -> list[F64]:
    """Return per block the part of each transfer that bandwidth does not change, nanoseconds.

    A line through (bytes, transfer) of all blocks of the same group, by the median of pairwise
    slopes (Theil-Sen); its value at zero bytes, never above the transfer. Where sizes are unknown
    or all alike the latency cannot be seen and is taken as zero: the answer is an upper bound.
    """
    found = [np.zeros(len(b.bytes_K)) for b in blocks]
    for group in {b.group for b in blocks}:
        mine = [i for i, b in enumerate(blocks) if b.group == group]
        size = np.concatenate([blocks[i].bytes_K for i in mine]).astype(float)
        took = np.concatenate([blocks[i].transfer for i in mine]).astype(float)
        flat = _intercept(size, took)
        for i in mine:
            found[i] = np.minimum(flat, blocks[i].transfer)
    return found


def _intercept(size: F64, took: F64) -> float:
    known = size > 0
    size, took = size[known], took[known]
    sizes = np.unique(size)
    if len(sizes) < 2 or sizes[-1] < 1.5 * sizes[0]:
        return 0.0
    typical = np.array([np.median(took[size == s]) for s in sizes])
    i, j = np.triu_indices(min(len(sizes), 200), 1)
    slope = max(float(np.median((typical[j] - typical[i]) / (sizes[j] - sizes[i]))), 0.0)
    return max(float(np.median(typical - slope * sizes)), 0.0)


Account = dict[int, tuple[int, float, float, float]]
"""Row of a collective -> (shared index or -1, wait, transfer, latency), nanoseconds."""


def graph_of(
    timelines: dict[int, Timeline],
    blocks: list[Block],
    steps: int,
    *,
    own: dict[int, Account] | None = None,
    alone: float = 0.0,
    host: bool = True,
) -> Graph:
    """Return the dependency structure of the ranks of `timelines`.

    `own`: what the collective library itself says of a rank's collectives (it wins over matched
    arrivals). `alone`: share of a collective without partner that is transfer (the bounds of a
    lone rank are found with 0 and 1). `host=False`: every idle gap of the device is cut out.
    """
    ranks = tuple(sorted(timelines))
    place = {r: i for i, r in enumerate(ranks)}
    origin = min(t.origin_ns for t in timelines.values())
    accounts: list[Account] = [dict((own or {}).get(r, {})) for r in ranks]
    members: list[tuple[int, ...]] = []
    for b, flat in zip(blocks, latencies(blocks), strict=True):
        last = b.last_start
        for k in range(len(last)):
            for i, r in enumerate(b.ranks):
                came, left = b.start_KR[k, i], b.end_KR[k, i]
                wait = float(max(min(last[k], left) - came, 0))
                took = float(left - came) - wait
                entry = (len(members), wait, took, min(float(flat[k]), took))
                accounts[place[r]].setdefault(int(b.row_KR[k, i]), entry)
            members.append(tuple(place[r] for r in b.ranks))
    parts = []
    for i, r in enumerate(ranks):
        t = timelines[r] if host else squeezed(timelines[r])
        parts.append(_rank_events(t, float(t.origin_ns - origin), accounts[i], alone))
    return Graph(
        ranks=ranks,
        events=tuple(p[0] for p in parts),
        begin=tuple(p[1] for p in parts),
        end=tuple(p[2] for p in parts),
        work_end=tuple(p[3] for p in parts),
        members=_really_shared(members, accounts),
        steps=max(steps, 1),
        one_late=_one_late(blocks),
    )


def _one_late(blocks: list[Block]) -> bool:
    """Return whether one rank's arrivals cost three quarters of all waiting."""
    cost: dict[int, float] = {}
    for b in blocks:
        waited = (b.last_start[:, None] - b.start_KR).sum(axis=1)
        last = b.start_KR.argmax(axis=1)
        for i, rank in enumerate(b.ranks):
            cost[rank] = cost.get(rank, 0.0) + float(waited[last == i].sum())
    return bool(cost) and max(cost.values()) >= 0.75 * sum(cost.values()) > 0


def _really_shared(
    members: list[tuple[int, ...]], accounts: list[Account]
) -> tuple[tuple[int, ...], ...]:
    """Drop the members whose collective the library's own account took over."""
    there = [{entry[0] for entry in account.values()} for account in accounts]
    return tuple(tuple(p for p in m if k in there[p]) for k, m in enumerate(members))


def _rank_events(
    t: Timeline, shift: float, account: Account, alone: float
) -> tuple[tuple[_Event, ...], float, float, float]:
    rows = np.flatnonzero(device_rows(t))
    if not len(rows):
        return (), 0.0, 0.0, 0.0
    rows = rows[np.argsort(t.start_N[rows], kind="stable")]
    start = t.start_N[rows].astype(np.float64) + shift
    end = t.end_N[rows].astype(np.float64) + shift
    is_comm = t.kind_N[rows] == COMM
    order = np.argsort(end, kind="stable")
    by_end, comm_by_end = end[order], is_comm[order]
    reach = np.maximum.accumulate(np.where(comm_by_end, -np.inf, by_end))
    latest = np.maximum.accumulate(np.where(comm_by_end, np.arange(len(rows)), -1))
    upto = np.searchsorted(by_end, start, side="right")
    before = np.concatenate(([-np.inf], reach))[upto]
    ended = np.concatenate(([-1], latest))[upto]
    comm_end = np.where(ended >= 0, by_end[ended], -np.inf)
    waits = comm_end > before
    waits &= is_comm | (start - before > _usual_gap(~is_comm, waits, start - before))
    stops = np.zeros(len(rows), dtype=bool)
    stops[order[ended[waits & ~is_comm]]] = True
    gap = start - np.where(waits, comm_end, before)
    number = np.cumsum(is_comm) - 1
    for lane in np.unique(t.lane_N[rows[is_comm]]):
        mine = np.flatnonzero(is_comm & (t.lane_N[rows] == lane))
        size = t.bytes_N[rows[mine]].astype(np.float64)
        _ready(mine, (start, end), before, waits, stops, size)
    lane_last: dict[int, int] = {}
    events = []
    for i in np.flatnonzero(is_comm | waits).tolist():
        cause = int(number[order[ended[i]]]) if waits[i] else -1
        head = (float(start[i]), float(gap[i]), cause, float(before[i]))
        if not is_comm[i]:
            events.append(_Event(*head, -1, -1, -1, 0.0, 0.0, 0.0))
            continue
        length, lane = float(end[i] - start[i]), int(t.lane_N[rows[i]])
        entry = (-1, length * (1 - alone), length * alone, 0.0)
        entry = account.get(int(rows[i]), entry)
        events.append(_Event(*head, int(number[i]), lane_last.get(lane, -1), *entry))
        lane_last[lane] = int(number[i])
    work = float(end[~is_comm].max()) if bool((~is_comm).any()) else float(start[0])
    return tuple(events), float(start[0]), float(end.max()), work


def _usual_gap(work: NDArray[np.bool_], waits: NDArray[np.bool_], pause: F64) -> float:
    """Return nanoseconds between two spans of work that are no sign of waiting."""
    calm = pause[work & ~waits & np.isfinite(pause)]
    return 2.0 * float(np.median(calm)) if len(calm) else 0.0


def _ready(
    mine: NDArray[np.intp],
    span: tuple[F64, F64],
    before: F64,
    waits: NDArray[np.bool_],
    stops: NDArray[np.bool_],
    size: F64,
) -> None:
    """Put into `before` when collectives that queued behind another could have begun.

    A collective that begins as its lane falls free was ready earlier; when is not visible. One for
    which work `stops` was ready when work ended before it. Those of a queue between are taken to
    become ready by their share of its bytes (assumed), as gradient buckets do.
    """
    start, end = span
    behind = np.concatenate(([np.inf], start[mine][1:] - end[mine][:-1]))
    near = np.maximum(20e3, 0.02 * (end[mine] - start[mine]))
    hidden = waits[mine] & (behind >= 0) & (behind <= near) & ~stops[mine]
    known = np.flatnonzero(~hidden)
    for first, last in zip(known, [*known[1:].tolist(), len(mine)], strict=True):
        part = np.arange(first + 1, last)
        if not len(part):
            continue
        chained = last < len(mine) and bool(waits[mine[last]])
        queue = mine[np.arange(first + 1, last + 1)] if chained else mine[part]
        weight = np.where(size[first + 1 : first + 1 + len(queue)] > 0,
                          size[first + 1 : first + 1 + len(queue)], 1.0)  # fmt: skip
        share = (np.cumsum(weight) / weight.sum())[: len(part)]
        begin = float(before[mine[first]] if waits[mine[first]] else start[mine[first]])
        ready = begin + share * max(float(before[queue[-1]]) - begin, 0.0)
        before[mine[part]] = np.minimum(ready, before[mine[part]])


def replay(graph: Graph, change: Change) -> float:
    """Return nanoseconds of the whole window, mean over ranks, if `change` were true."""
    state = _Replay(graph, change)
    state.run()
    spans = [e - b for e, b in zip(state.finish(), graph.begin, strict=True)]
    return state.together(spans) if change.no_skew else float(np.mean(spans))


class _Replay:
    """State of one replay: what each rank has reached, what each collective still waits for."""

    def __init__(self, graph: Graph, change: Change) -> None:
        self.graph, self.change = graph, change
        self.next = [0] * len(graph.ranks)
        self.shift = [0.0] * len(graph.ranks)
        self.done: list[dict[int, float]] = [{} for _ in graph.ranks]
        """Per rank: own collective -> its new end."""
        self.came: list[dict[int, float]] = [{} for _ in graph.members]
        """Per shared collective: position -> new arrival."""
        self.open: list[dict[int, tuple[int, _Event]]] = [{} for _ in graph.members]

    def run(self) -> None:
        waiting = set(range(len(self.graph.ranks)))
        while waiting:
            moved = False
            for rank in sorted(waiting):
                moved |= self._advance(rank)
                if self.next[rank] >= len(self.graph.events[rank]):
                    waiting.discard(rank)
            if not moved and waiting:
                self._break_tie(waiting)

    def _advance(self, rank: int) -> bool:
        events, moved = self.graph.events[rank], False
        while self.next[rank] < len(events):
            event = events[self.next[rank]]
            needs = [c for c in (event.cause, event.lane_prior) if c >= 0]
            if any(c not in self.done[rank] for c in needs):
                return moved
            self._begin(rank, event)
            self.next[rank] += 1
            moved = True
        return moved

    def _begin(self, rank: int, event: _Event) -> None:
        frontier = event.before + self.shift[rank]
        if event.cause >= 0:
            start = max(self.done[rank][event.cause] + event.gap, frontier)
        elif math.isinf(event.before):
            start = event.at
        else:
            start = frontier + event.gap
        if event.comm < 0:
            self.shift[rank] = start - event.at
            return
        if event.lane_prior >= 0:
            start = max(start, self.done[rank][event.lane_prior])
        if event.shared < 0:
            wait = 0.0 if self.change.no_skew else event.wait
            self.done[rank][event.comm] = start + wait + self._took(event)
            return
        self.came[event.shared][rank] = start
        self.open[event.shared][rank] = (event.comm, event)
        if len(self.came[event.shared]) == len(self.graph.members[event.shared]):
            self._close(event.shared)

    def _took(self, event: _Event) -> float:
        latency = event.latency if self.change.latency else 0.0
        if math.isinf(self.change.bandwidth):
            return latency
        return event.latency + (event.transfer - event.latency) / self.change.bandwidth

    def _close(self, shared: int) -> None:
        arrivals = list(self.came[shared].values())
        last = self.together(arrivals) if self.change.no_skew else max(arrivals)
        for rank, (own, event) in self.open[shared].items():
            start = self.came[shared][rank]
            early = event.transfer > 0 or event.wait > 0
            begin = last if self.change.no_skew else max(last, start)
            self.done[rank][own] = (begin if early else start) + self._took(event)

    def together(self, times: list[float]) -> float:
        """Return the time of all without skew: the median's, of two with a straggler the other's.

        Two ranks of which none is always late share the work unevenly: they meet in the middle.
        """
        if len(times) == 2 and self.graph.one_late:
            return min(times)
        return float(np.median(times))

    def _break_tie(self, waiting: set[int]) -> None:
        """Close the oldest open collective with those who came (its match was wrong)."""
        partial = [s for s, came in enumerate(self.came) if came and self._is_open(s)]
        if partial:
            self._close(min(partial, key=lambda s: min(self.came[s].values())))
            return
        for rank in waiting:
            event = self.graph.events[rank][self.next[rank]]
            for own in (event.cause, event.lane_prior):
                if own >= 0:
                    self.done[rank].setdefault(own, event.at + self.shift[rank])

    def _is_open(self, shared: int) -> bool:
        return any(own not in self.done[rank] for rank, (own, _) in self.open[shared].items())

    def finish(self) -> list[float]:
        """Return the new end of every rank."""
        ends = []
        for i in range(len(self.graph.ranks)):
            last = max(self.done[i].values(), default=-math.inf)
            ends.append(max(self.graph.work_end[i] + self.shift[i], last))
        return ends


def squeezed(t: Timeline) -> Timeline:
    """Return one rank's timeline with every idle gap of the device cut out (host no limit)."""
    rows = device_rows(t)
    quiet_start, quiet_end = gaps(union(t.start_N[rows], t.end_N[rows]))
    cut = np.concatenate(([0], np.cumsum(quiet_end - quiet_start)))
    at = np.searchsorted(quiet_end, t.start_N, side="right")
    return replace(t, start_N=t.start_N - cut[at], end_N=t.end_N - cut[at])
