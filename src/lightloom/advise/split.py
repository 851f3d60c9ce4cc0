"""Where the time of a rank went: one definition for every profiler.

Axes: N spans, U disjoint intervals of a union. All times integer nanoseconds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightloom.core.advice import GroupSplit, RankSplit
from lightloom.core.timeline import COMM, COMPUTE, COPY, Timeline

I64 = NDArray[np.int64]
Union = tuple[I64, I64]
"""Starts and ends of disjoint intervals, ascending."""
NS = 1e-9


def union(start_N: I64, end_N: I64) -> Union:
    """Return the disjoint intervals that cover all spans."""
    if not len(start_N):
        return start_N[:0], end_N[:0]
    order = np.argsort(start_N, kind="stable")
    start, reach = start_N[order], np.maximum.accumulate(end_N[order])
    fresh = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((np.flatnonzero(fresh)[1:] - 1, [len(start) - 1]))
    return start[fresh], reach[last]


def length(u: Union) -> int:
    """Return the nanoseconds that a union covers."""
    return int((u[1] - u[0]).sum())


def both(a: Union, b: Union) -> int:
    """Return the nanoseconds that two unions share (inclusion and exclusion)."""
    joined = union(np.concatenate((a[0], b[0])), np.concatenate((a[1], b[1])))
    return length(a) + length(b) - length(joined)


def gaps(u: Union) -> Union:
    """Return the intervals between those of a union."""
    return u[1][:-1], u[0][1:]


def device_rows(timeline: Timeline) -> NDArray[np.bool_]:
    """Return which spans are work on the device: compute, communication, copies."""
    mask: NDArray[np.bool_] = np.isin(timeline.kind_N, (COMPUTE, COMM, COPY))
    return mask


def of_kind(timeline: Timeline, *kinds: int) -> Union:
    """Return the union of the spans of some kinds."""
    mask = np.isin(timeline.kind_N, kinds)
    return union(timeline.start_N[mask], timeline.end_N[mask])


def split_of(timeline: Timeline, rank: int) -> RankSplit:
    """Return compute, communication, exposed, hidden, copies and idle of one rank's timeline.

    As `RankSplit` defines them; HTA and torch_npu's step_trace_time agree on complete steps.
    """
    compute, comm = of_kind(timeline, COMPUTE), of_kind(timeline, COMM)
    busy = of_kind(timeline, COMPUTE, COMM, COPY)
    hidden = both(compute, comm)
    span = int(busy[1][-1] - busy[0][0]) if len(busy[0]) else 0
    return RankSplit(
        rank=rank,
        span_s=span * NS,
        compute_s=length(compute) * NS,
        comm_s=length(comm) * NS,
        exposed_s=(length(comm) - hidden) * NS,
        hidden_s=hidden * NS,
        copy_s=length(of_kind(timeline, COPY)) * NS,
        idle_s=(span - length(busy)) * NS,
    )


def groups_of(timelines: dict[int, Timeline]) -> tuple[GroupSplit, ...]:
    """Return communication per group (mean over the ranks that take part), largest first."""
    found: dict[str, list[tuple[int, int, int, int]]] = {}
    for timeline in timelines.values():
        compute = of_kind(timeline, COMPUTE)
        comm = timeline.kind_N == COMM
        for index in np.unique(timeline.group_N[comm]):
            mask = comm & (timeline.group_N == index)
            u = union(timeline.start_N[mask], timeline.end_N[mask])
            total = length(u)
            name = timeline.groups[index] if index >= 0 else ""
            row = (int(mask.sum()), total, total - both(u, compute),
                   int(timeline.bytes_N[mask].sum()))  # fmt: skip
            found.setdefault(name, []).append(row)
    rows = [
        GroupSplit(
            group=name,
            axis=name.split(":")[0] if ":" in name else "",
            count=round(sum(p[0] for p in parts) / len(parts)),
            comm_s=sum(p[1] for p in parts) / len(parts) * NS,
            exposed_s=sum(p[2] for p in parts) / len(parts) * NS,
            bytes=sum(p[3] for p in parts) / len(parts),
        )
        for name, parts in found.items()
    ]
    return tuple(sorted(rows, key=lambda g: -g.comm_s))
