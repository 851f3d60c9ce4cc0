"""Advice: what a profile says about a run. Seconds, bytes, shares of one; times per rank.

`Advice` is what ``lightloom advise TRACE`` prints, `Comparison` what ``advise compare`` prints.
"""

from __future__ import annotations

from typing import Literal

import msgspec

VerdictCode = Literal[
    "fabric-helps",
    "stragglers-first",
    "host-first",
    "strategy-first",
    "compute-bound",
    "not-enough-data",
]
ClockState = Literal["verified", "corrected", "refused", "not-needed", "unknown"]


class RankSplit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the time of one rank went, all kept steps together. Seconds.

    compute, comm and copy are unions of device spans; hidden = comm AND compute, exposed = comm -
    hidden, idle = span - union of all; span = first start to last end of device work.
    """

    rank: int
    span_s: float
    compute_s: float
    comm_s: float
    exposed_s: float
    hidden_s: float
    copy_s: float
    idle_s: float
    bubble_s: float = 0.0
    """Waiting for a pipeline neighbour, where the profiler states it (part of exposed)."""


class GroupSplit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Communication of one group or axis, summed over collectives, mean over ranks."""

    group: str
    axis: str = ""
    count: int
    comm_s: float
    exposed_s: float
    transfer_s: float | None = None
    waiting_s: float | None = None
    bytes: float = 0.0


class Collective(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One collective matched over ranks."""

    name: str
    group: str = ""
    step: int = -1
    index: int
    ranks: int
    bytes: float = 0.0
    mean_s: float
    """Mean time inside the collective over ranks."""
    transfer_s: float
    """Last end minus last start."""
    start_skew_s: float
    end_skew_s: float
    last_rank: int


class Clocks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether the ranks' clocks can be compared."""

    state: ClockState
    end_skew_s: float = 0.0
    """Median over collectives of (last end - first end)."""
    worst_end_skew_s: float = 0.0
    offsets_s: dict[int, float] = {}
    """Rank -> seconds its clock was found to be ahead; only when corrected."""
    why: str = ""


class Sync(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Waiting for the last arrival against transfer after it."""

    how: Literal["library", "matched", "durations", "bounds", "stated", "none"]
    """The library's own account; matched arrivals; shortest kernel of each collective (clocks
    unusable); bounds of a lone rank; nothing to split."""
    transfer_share: float | None = None
    """Transfer over time inside collectives."""
    low: float = 0.0
    high: float = 1.0
    transfer_s: float = 0.0
    """Sum over collectives, mean over ranks."""
    waiting_s: float = 0.0
    by_rank: dict[int, float] = {}
    """Transfer share per rank."""
    collectives: int = 0
    unmatched: int = 0
    last: dict[int, int] = {}
    """Rank -> collectives in which it arrived last."""
    late_rank: int = -1
    """The rank that is most often last; -1 none or unknown."""
    late_same: bool = False
    """The same rank is last in more than half, or costs more than half of the waiting."""
    blame: dict[int, float] = {}
    """Rank -> seconds of waiting of all others that ended with its arrival."""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Step time if one thing were different, by replay of the dependency structure."""

    change: str
    """``bandwidth=2x``, ``skew=0``, ``overlap=1``, ``host=0``."""
    step_s: float | None
    saved: float | None
    """Share of the step that is saved (negative: slower); None where only bounds are known."""
    low: float
    """Least share saved that the evidence allows."""
    high: float
    why: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do first, and the figure that proves it."""

    code: VerdictCode
    text: str
    proof: str = ""
    """The what-if that carries the verdict."""
    transfer_exposed: float | None = None
    """Share of the step: exposed and moving bytes. The share on which the verdict stands."""
    waiting_exposed: float | None = None
    naive: str
    """What the rule on the communication share alone would say."""
    naive_share: float
    subject: int = -1
    """Rank that the verdict is about; -1 all."""


class Cause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One possible cause, with its evidence and the measurement that would separate it."""

    code: str
    what: str
    weight: float
    """Share of the step it can explain, or confidence 0..1 for a cause read from a log."""
    evidence: dict[str, float] = {}
    where: str = ""
    next: str = ""


class Stop(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who stopped first, read from the logs of a job that hung or died."""

    files: tuple[str, ...]
    ranks: tuple[int, ...]
    """Ranks that the logs name."""
    first: tuple[int, ...]
    """Ranks that stopped first; empty when the logs cannot tell."""
    confidence: float
    why: str
    operation: str = ""
    """The collective that never finished: ``ALLREDUCE #1580``."""
    events: tuple[str, ...] = ()
    """The decisive lines in order, cut to 160 characters."""
    causes: tuple[Cause, ...] = ()


class Advice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that one set of profiles says."""

    version: int = 1
    kind: Literal["advice"] = "advice"
    files: tuple[str, ...]
    format: str
    device: str = ""
    ranks: tuple[int, ...]
    world_size: int = 0
    """Ranks of the job where the profile says so; 0 unknown."""
    steps_kept: tuple[int, ...] = ()
    steps_dropped: tuple[int, ...] = ()
    dropped_why: str = ""
    step_s: float
    """Span of the kept steps over their number, mean over ranks."""
    splits: tuple[RankSplit, ...]
    groups: tuple[GroupSplit, ...] = ()
    sync: Sync
    clocks: Clocks
    collectives: tuple[Collective, ...] = ()
    """The matched collectives, those with most waiting first (at most 200)."""
    what_ifs: tuple[WhatIf, ...] = ()
    verdict: Verdict
    causes: tuple[Cause, ...] = ()
    stop: Stop | None = None
    notes: tuple[str, ...] = ()

    def share(self, field: str) -> float:
        """Return the mean over ranks of a `RankSplit` field as share of the span."""
        spans = [s for s in self.splits if s.span_s > 0]
        values = [float(getattr(s, field)) / s.span_s for s in spans]
        return sum(values) / len(values) if values else 0.0


class OperatorRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One class of operators in two runs, seconds of one step."""

    name: str
    kind: str
    a_s: float
    b_s: float
    a_count: float
    b_count: float
    why: str = ""

    @property
    def change_s(self) -> float:
        """Seconds that B takes longer."""
        return self.b_s - self.a_s


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two runs, operator by operator; seconds of one step, mean over ranks."""

    version: int = 1
    kind: Literal["comparison"] = "comparison"
    a: str
    b: str
    a_device: str = ""
    b_device: str = ""
    a_step_s: float
    b_step_s: float
    parts: dict[str, tuple[float | None, float | None]]
    """None: the profiles cannot tell. compute, exposed, waiting, transfer, copy, idle -> (A, B)."""
    rows: tuple[OperatorRow, ...]
    text: str
    notes: tuple[str, ...] = ()


def percent(value: float | None) -> str:
    """Return a share with one decimal: ``1.5 %``."""
    return "-" if value is None else f"{100 * value:.1f} %"


def saving(what: WhatIf | None) -> str:
    """Return what a what-if saves, as a range where that is all that is known."""
    if what is None:
        return "-"
    if what.saved is None:
        return f"{100 * what.low:.0f} .. {percent(what.high)}"
    return percent(what.saved)
