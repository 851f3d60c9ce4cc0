"""Timeline: spans of work on lanes of ranks, predicted or profiled: one noun for both.

Axes: N spans. Times are integer nanoseconds, so that a profile read and written is unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

COMPUTE, COMM, COPY, HOST, IDLE, MARK = 0, 1, 2, 3, 4, 5
KINDS = ("compute", "communication", "copy", "host", "idle", "mark")

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Spans as columns; strings are interned in tables."""

    start_N: I64
    """Nanoseconds from `origin_ns`."""
    end_N: I64
    rank_N: I32
    lane_N: I32
    """Index into `lanes` (a stream, a communication class, a host thread)."""
    kind_N: I32
    """Index into KINDS."""
    name_N: I32
    """Index into `names`."""
    bytes_N: I64
    """Payload of a communication or copy; 0 unknown."""
    group_N: I32
    """Index into `groups`; -1 where there is none."""
    match_N: I64
    """Equal on every rank that takes part in the same collective; -1 where there is none."""
    step_N: I32
    """Training step; -1 outside any."""
    names: tuple[str, ...]
    lanes: tuple[str, ...]
    groups: tuple[str, ...] = ()
    """Name of a group, ``axis:ranks`` where known, for example ``dp:0,4,8,12``."""
    origin_ns: int = 0
    source: str = ""
    """kineto, torch_npu, nsight, simulated, run ..."""
    meta: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start_N)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that have spans, ascending."""
        return tuple(int(r) for r in np.unique(self.rank_N))
