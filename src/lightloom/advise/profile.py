"""What one profiled rank becomes, whatever tool wrote it."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from lightloom.core.advice import RankSplit
from lightloom.core.timeline import Timeline

COMM_NAME = re.compile(r"nccl|rccl|hccl|hcom|nvshmem|deep_ep|cross_device_reduce", re.IGNORECASE)
"""A device kernel with such a name is communication; every other kernel is computing."""
DTYPE_BYTES = {
    "float": 4, "float32": 4, "fp32": 4, "int": 4, "int32": 4, "uint32": 4, "bfloat16": 2,
    "bf16": 2, "bfp16": 2, "half": 2, "float16": 2, "fp16": 2, "short": 2, "int16": 2, "double": 8,
    "float64": 8, "fp64": 8, "long": 8, "int64": 8, "uint64": 8, "long int": 8, "byte": 1,
    "char": 1, "int8": 1, "uint8": 1, "signed char": 1, "unsigned char": 1, "bool": 1,
}  # fmt: skip
"""Bytes of an element by the names that profilers use (lower case, ``c10::`` cut off)."""


def dtype_bytes(name: str) -> int:
    """Return bytes of one element; 0 when the name is unknown."""
    text = name.lower().removeprefix("c10::")
    return 1 if text.startswith("float8") else DTYPE_BYTES.get(text, 0)


@dataclass(frozen=True, slots=True)
class Library:
    """A collective library's own account of one operation (HCCL: transit, wait, idle), seconds."""

    name: str
    elapse_s: float
    transit_s: float
    wait_s: float
    idle_s: float
    bytes: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class RankProfile:
    """One rank: spans where the profile has them, totals where it has only those."""

    rank: int
    source: str
    """kineto, torch_npu, torch_npu-db, msprof-cluster, nsight, table, or a Timeline's source."""
    path: str
    timeline: Timeline | None = None
    split: RankSplit | None = None
    """Totals that the file states, used where there are no spans."""
    library: tuple[Library, ...] = ()
    steps: tuple[tuple[int, int, int], ...] = ()
    """(number, start, end) of the training steps, nanoseconds from the timeline's origin."""
    world_size: int = 0
    device: str = ""
    base_ns: int = 0
    """What the trace's own clock counts from (Kineto's baseTimeNanoseconds)."""
    named: bool = True
    """The rank number is written in the profile or its name (not just counted)."""
    chrome: str = ""
    """The trace file whose host events can be asked again."""
    job: str = ""
    """What tells two jobs apart (world size, group names); empty unknown."""
    notes: tuple[str, ...] = ()

    def as_rank(self, rank: int) -> RankProfile:
        """Return the same profile under another rank number."""
        timeline = self.timeline
        if timeline is not None:
            column = np.broadcast_to(np.int32(rank), len(timeline))
            timeline = replace(timeline, rank_N=column)
        split = self.split and msgspec.structs.replace(self.split, rank=rank)
        return replace(self, rank=rank, timeline=timeline, split=split)


@dataclass(slots=True)
class Rows:
    """Spans of one rank while they are read: a few bytes each."""

    start: array[int] = field(default_factory=lambda: array("q"))
    end: array[int] = field(default_factory=lambda: array("q"))
    lane: array[int] = field(default_factory=lambda: array("i"))
    kind: array[int] = field(default_factory=lambda: array("b"))
    name: array[int] = field(default_factory=lambda: array("i"))
    names: dict[str, int] = field(default_factory=dict)
    lanes: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    wire: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Row -> (bytes, group) of the few rows that communicate."""

    def add(self, start: int, end: int, lane: str, kind: int, name: str) -> int:
        """Append one span and return its row."""
        self.start.append(start)
        self.end.append(end)
        self.lane.append(self.lanes.setdefault(lane, len(self.lanes)))
        self.kind.append(kind)
        self.name.append(self.names.setdefault(name, len(self.names)))
        return len(self.start) - 1

    def timeline(
        self, rank: int, source: str, base_ns: int, steps: Sequence[tuple[int, int, int]] = ()
    ) -> tuple[Timeline, tuple[tuple[int, int, int], ...]]:
        """Return the spans as a Timeline ordered by start, and `steps` on its origin."""
        start = np.frombuffer(self.start, dtype=np.int64)
        order = np.argsort(start, kind="stable")
        first = int(start[order[0]]) if len(start) else 0
        moved = tuple((n, a - first, b - first) for n, a, b in sorted(steps, key=lambda s: s[1]))
        sorted_start = start[order] - first
        size = len(start)
        bytes_N, group_N = _wire(self, order)
        return Timeline(
            start_N=sorted_start,
            end_N=np.frombuffer(self.end, dtype=np.int64)[order] - first,
            rank_N=np.broadcast_to(np.int32(rank), size),
            lane_N=np.frombuffer(self.lane, dtype=np.int32)[order],
            kind_N=np.frombuffer(self.kind, dtype=np.int8)[order].astype(np.int32),
            name_N=np.frombuffer(self.name, dtype=np.int32)[order],
            bytes_N=bytes_N,
            group_N=group_N,
            match_N=np.broadcast_to(np.int64(-1), size),
            step_N=_step_of(sorted_start, moved),
            names=tuple(self.names),
            lanes=tuple(self.lanes),
            groups=tuple(self.groups),
            origin_ns=first + base_ns,
            source=source,
        ), moved


def _wire(rows: Rows, order: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    size = len(order)
    if not rows.wire:
        return np.broadcast_to(np.int64(0), size), np.broadcast_to(np.int32(-1), size)
    bytes_N, group_N = np.zeros(size, np.int64), np.full(size, -1, np.int32)
    for row, (size_bytes, group) in rows.wire.items():
        bytes_N[row] = min(max(size_bytes, 0), 2**62)
        if group:
            group_N[row] = rows.groups.setdefault(group, len(rows.groups))
    return bytes_N[order], group_N[order]


def _step_of(
    start: NDArray[np.int64], steps: tuple[tuple[int, int, int], ...]
) -> NDArray[np.int32]:
    """Return the step in which each span starts; work that lags behind its step stays in it."""
    if not steps:
        return np.broadcast_to(np.int32(-1), len(start))
    begins = np.array([s[1] for s in steps])
    numbers = np.array([s[0] for s in steps], dtype=np.int32)
    at: NDArray[np.int32] = numbers[np.maximum(np.searchsorted(begins, start, side="right") - 1, 0)]
    return at
