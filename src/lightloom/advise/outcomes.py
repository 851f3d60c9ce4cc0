"""What-ifs of a whole set: replay where there are spans, bounds where there are only totals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from lightloom.core.advice import RankSplit, WhatIf
from lightloom.core.timeline import Timeline

from .sync import Waits
from .whatif import Change, Graph, graph_of, parse_change, replay

NS = 1e-9
USUAL = ("bandwidth=2x", "bandwidth=5x", "bandwidth=inf", "skew=0", "overlap=1", "host=0")


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """What the what-ifs are asked of."""

    timelines: dict[int, Timeline]
    splits: tuple[RankSplit, ...]
    waits: Waits
    steps: int
    graphs: dict[tuple[float, bool], Graph] = field(default_factory=dict)
    """Dependency structures already made, by (transfer share of lone collectives, host kept)."""

    @property
    def span_s(self) -> float:
        """Seconds of the window, mean over ranks."""
        return sum(s.span_s for s in self.splits) / max(len(self.splits), 1)


def what_ifs(case: Case, changes: list[Change]) -> tuple[WhatIf, ...]:
    """Return the step time under each change, with the range that the evidence allows."""
    if case.span_s <= 0:
        return ()
    return tuple(_one(case, change) for change in changes)


def usual_changes(asked: tuple[str, ...]) -> list[Change]:
    """Return the standard questions and those that were asked, each once."""
    return [parse_change(text) for text in dict.fromkeys((*USUAL, *asked))]


def _one(case: Case, change: Change) -> WhatIf:
    if not case.timelines:
        return _from_totals(case, change)
    if change.overlap:
        return _overlap(case, change)
    if case.waits.blocks or case.waits.own:
        return _known(case, change)
    return _bounded(case, change)


def _noun(
    case: Case, change: Change, saved: float | None, low: float, high: float, why: str
) -> WhatIf:
    step = case.span_s / case.steps
    low, high = (0.0 if abs(x) < 5e-4 else x for x in (low, high))
    return WhatIf(
        change=change.text,
        step_s=None if saved is None else step * (1 - saved),
        saved=saved,
        low=min(low, high),
        high=max(low, high),
        why=why,
    )


def _graph(case: Case, change: Change, alone: float = 0.0) -> Graph:
    key = (alone, not change.no_host)
    if key not in case.graphs:
        case.graphs[key] = graph_of(
            case.timelines, case.waits.blocks, case.steps,
            own=case.waits.own, alone=alone, host=key[1],
        )  # fmt: skip
    return case.graphs[key]


def _saved(case: Case, change: Change, alone: float = 0.0) -> float:
    return 1 - replay(_graph(case, change, alone), change) * NS / case.span_s


def _known(case: Case, change: Change) -> WhatIf:
    """Waiting and transfer are known: the replay is the answer."""
    saved = _saved(case, change)
    low = high = saved
    why = "replay"
    if math.isinf(change.bandwidth):
        low = _saved(case, replace(change, latency=True))
        high = max(saved, case.waits.sync.transfer_s / case.span_s)
        why = "transfers vanish; low: latency stays"
    elif change.bandwidth != 1:
        why = "transfers shrink, latency stays"
    elif change.no_skew:
        why = "all arrive when the median rank did"
        if case.waits.own:
            why, low = "bound: the library's wait vanishes", 0.0
    elif change.no_host:
        why, low = "bound: every device gap closes", 0.0
    return _noun(case, change, saved, low, high, why)


def _bounded(case: Case, change: Change) -> WhatIf:
    """Only bounds of the transfer are known: replay with none and with the most of it."""
    most = case.waits.sync.high
    if change.no_host and change.bandwidth == 1 and not change.no_skew:
        saved = _saved(case, change)
        return _noun(case, change, saved, 0.0, saved, "bound: every device gap closes")
    ends = [_saved(case, change, alone) for alone in (0.0, most)]
    why = "bounds: no transfer .. shortest equal one"
    if change.no_skew:
        why = "bounds: all of it is waiting, or none"
    point = ends[0] if abs(ends[0] - ends[1]) < 0.005 else None
    return _noun(case, change, point, min(ends), max(ends), why)


def _overlap(case: Case, change: Change) -> WhatIf:
    """All communication hidden: a rank needs its own work, or its transfers if longer."""
    share = case.waits.sync.transfer_share
    share = case.waits.sync.high if share is None else share
    needs = [max(s.span_s - s.exposed_s, s.comm_s * share) for s in case.splits]
    saved = max(1 - max(needs) / case.span_s, 0.0)
    return _noun(case, change, saved, 0.0, saved, "bound: the rank with most own work")


def _from_totals(case: Case, change: Change) -> WhatIf:
    """Totals only: shares of the window, from nothing to all that the totals allow."""
    sync, n = case.waits.sync, len(case.splits)
    exposed = sum(s.exposed_s for s in case.splits) / n / case.span_s
    idle = sum(s.idle_s for s in case.splits) / n / case.span_s
    if change.overlap:
        return _overlap(case, change)
    if change.no_host:
        return _noun(case, change, idle, 0.0, idle, "all idle time vanishes")
    if change.no_skew:
        least = min(s.comm_s for s in case.splits)
        spread = sum(s.comm_s - least for s in case.splits) / n / case.span_s
        low = min(spread, exposed)
        why = f"totals only: {low:.0%} is communication beyond the rank with least"
        return _noun(case, change, None, 0.0, exposed, why)
    part = 1 - (0.0 if math.isinf(change.bandwidth) else 1 / change.bandwidth)
    share = sync.transfer_share
    if share is not None:
        saved, why = exposed * share * part, "the library's transfer share of the exposed time"
        return _noun(case, change, saved, 0.0, saved, why)
    bound = exposed * sync.high * part
    return _noun(case, change, 0.0 if bound == 0 else None, 0.0, bound, "totals only")
