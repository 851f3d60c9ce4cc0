"""A set of profiles becomes one `Advice`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lightloom.core.advice import Advice, GroupSplit, RankSplit, Stop
from lightloom.core.cluster import Cluster
from lightloom.core.errors import InputError
from lightloom.core.timeline import COMM, COMPUTE, COPY, Timeline
from lightloom.core.timeline_file import merge

from .match import Block, collectives_of
from .outcomes import Case, usual_changes, what_ifs
from .profile import RankProfile
from .read_chrome import host_work
from .split import NS, device_rows, groups_of, split_of
from .sync import EXPLAINED, Waits, waits_of
from .triage import Evidence, causes_of
from .verdict import verdict_of
from .whatif import Change
from .wire import against, shortfall


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked of the profiles."""

    changes: tuple[str, ...] = ()
    steps: tuple[int, int] | None = None
    """First and last step to keep; None all."""
    cluster: Cluster | None = None
    other: Cluster | None = None


def analyse(profiles: list[RankProfile], ask: Questions, stop: Stop | None = None) -> Advice:
    """Return splits, waiting against transfer, what-ifs, verdict and causes of one job."""
    if not profiles:
        raise InputError("no profile among these files")
    kept, dropped, why = _steps(profiles, ask.steps)
    profiles = [_keep(p, set(kept), ask.steps is not None) for p in profiles]
    splits = tuple(_split(p) for p in profiles)
    if not any(s.span_s > 0 for s in splits):
        raise InputError("no work on a device in these profiles", out=why or "profile one step")
    timelines = {p.rank: p.timeline for p in profiles if p.timeline is not None}
    waits = waits_of(profiles)
    case = Case(timelines, splits, waits, max(len(kept), 1))
    outcomes = what_ifs(case, _changes(ask, waits))
    span = case.span_s
    evidence = Evidence(
        timelines=timelines,
        splits=splits,
        sync=waits.sync,
        clocks=waits.clocks,
        what_ifs={w.change: w for w in outcomes},
        steps={p.rank: p.steps for p in profiles if p.timeline is not None},
        host=_host_of_late(profiles, waits),
        ascend=any("npu" in p.source for p in profiles),
    )
    causes = causes_of(evidence)
    if ask.cluster is not None:
        slow = shortfall(ask.cluster, waits.blocks, waits.transfer_exposed or 0.0)
        causes = tuple(sorted([*causes, slow], key=lambda c: -c.weight)) if slow else causes
    return Advice(
        files=tuple(dict.fromkeys(p.path for p in profiles)),
        format="+".join(dict.fromkeys(p.source for p in profiles)),
        device=", ".join(dict.fromkeys(p.device for p in profiles if p.device)),
        ranks=tuple(p.rank for p in profiles),
        world_size=max(p.world_size for p in profiles),
        steps_kept=kept,
        steps_dropped=dropped,
        dropped_why=why,
        step_s=span / max(len(kept), 1),
        splits=splits,
        groups=_groups(timelines, waits.blocks),
        sync=waits.sync,
        clocks=waits.clocks,
        collectives=collectives_of(waits.blocks),
        what_ifs=outcomes,
        verdict=verdict_of(
            splits, waits.sync, outcomes, waits.transfer_exposed, waits.waiting_exposed
        ),
        causes=causes,
        stop=stop,
        notes=_notes(profiles, waits),
    )


def timeline_of_job(profiles: list[RankProfile]) -> Timeline:
    """Return all ranks as one Timeline, matched collectives carrying the same `match`."""
    found = {p.rank: p.timeline for p in profiles if p.timeline is not None}
    if not found:
        raise InputError("these profiles hold totals only: there is no timeline to write")
    waits = waits_of(profiles)
    columns = {rank: np.array(t.match_N) for rank, t in found.items()}
    number = 0
    for b in waits.blocks:
        for k in range(len(b.bytes_K)):
            for i, rank in enumerate(b.ranks):
                columns[rank][b.row_KR[k, i]] = number
            number += 1
    return merge([replace(t, match_N=columns[rank]) for rank, t in sorted(found.items())])


def _changes(ask: Questions, waits: Waits) -> list[Change]:
    changes = usual_changes(ask.changes)
    if ask.other is not None:
        if ask.cluster is None:
            raise InputError("--against needs --cluster, the machine that was profiled")
        changes.append(against(ask.cluster, ask.other, waits.blocks))
    return changes


def _steps(
    profiles: list[RankProfile], wanted: tuple[int, int] | None
) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Return (kept steps, dropped steps, why) over all ranks."""
    found: Counter[int] = Counter()
    for p in profiles:
        if p.timeline is None:
            found.update({n for n, _, _ in p.steps})
            continue
        seen = set(np.unique(p.timeline.step_N[device_rows(p.timeline)]).tolist()) - {-1}
        found.update(seen)
    numbers = tuple(sorted(found))
    named = tuple(sorted({n for p in profiles for n, _, _ in p.steps}))
    empty = tuple(n for n in named if n not in found)
    if wanted is None:
        return numbers, empty, "no device work in them" if empty else ""
    kept = tuple(n for n in numbers if wanted[0] <= n <= wanted[1])
    if not kept:
        have = f"{numbers[0]}..{numbers[-1]}" if numbers else "none marked"
        raise InputError(f"--steps {wanted[0]}-{wanted[1]}: the profiles hold {have}")
    return kept, tuple(n for n in numbers if n not in kept) + empty, "not asked for"


def _keep(p: RankProfile, kept: set[int], choose: bool) -> RankProfile:
    """Return the profile with the spans of the kept steps only (all, unless steps were chosen)."""
    if not choose or p.timeline is None:
        return p
    t = p.timeline
    mask = np.isin(t.step_N, sorted(kept))
    names = ("start", "end", "rank", "lane", "kind", "name", "bytes", "group", "match", "step")
    timeline = replace(t, **{f"{n}_N": getattr(t, f"{n}_N")[mask] for n in names})
    steps = tuple(s for s in p.steps if s[0] in kept)
    return replace(p, timeline=timeline, split=None, steps=steps)


def _split(p: RankProfile) -> RankSplit:
    if p.timeline is not None and bool(np.isin(p.timeline.kind_N, (COMPUTE, COMM, COPY)).any()):
        return split_of(p.timeline, p.rank)
    if p.split is not None:
        return p.split
    return split_of(p.timeline, p.rank) if p.timeline is not None else _empty(p.rank)


def _empty(rank: int) -> RankSplit:
    return RankSplit(
        rank=rank, span_s=0.0, compute_s=0.0, comm_s=0.0, exposed_s=0.0, hidden_s=0.0,
        copy_s=0.0, idle_s=0.0,
    )  # fmt: skip


def _groups(timelines: dict[int, Timeline], blocks: list[Block]) -> tuple[GroupSplit, ...]:
    """Return communication per group with its matched waiting and transfer."""
    moved: dict[str, list[float]] = {}
    for b in blocks:
        inside = float((b.end_KR - b.start_KR).mean(axis=1).sum()) * NS
        transfer = float(b.transfer.sum()) * NS
        pair = moved.setdefault(b.group, [0.0, 0.0])
        pair[0], pair[1] = pair[0] + transfer, pair[1] + max(inside - transfer, 0.0)
    rows = []
    for g in groups_of(timelines):
        pair = moved.get(g.group, [])
        rows.append(
            GroupSplit(
                group=g.group, axis=g.axis, count=g.count, comm_s=g.comm_s, exposed_s=g.exposed_s,
                transfer_s=pair[0] if pair else None, waiting_s=pair[1] if pair else None,
                bytes=g.bytes,
            )
        )  # fmt: skip
    return tuple(rows)


def _host_of_late(profiles: list[RankProfile], waits: Waits) -> tuple[tuple[str, float], ...]:
    """Return what the late rank's host did while the first rank already waited for it."""
    late = next((p for p in profiles if p.rank == waits.sync.late_rank), None)
    if late is None or late.timeline is None or not late.chrome:
        return ()
    window = _gap_before(late, waits)
    if window is None:
        return ()
    return tuple((name, took * NS) for name, took in host_work(Path(late.chrome), *window))


def _gap_before(p: RankProfile, waits: Waits) -> tuple[int, int] | None:
    """Return (first arrival, own arrival when it was costliest), on the trace's clock."""
    worst, window = 0, None
    for b in waits.blocks:
        if p.rank not in b.ranks or not b.together:
            continue
        i = b.ranks.index(p.rank)
        cost = (b.last_start[:, None] - b.start_KR).sum(axis=1)
        cost = np.where(b.start_KR.argmax(axis=1) == i, cost, 0)
        k = int(cost.argmax())
        if cost[k] > worst:
            worst, window = int(cost[k]), (int(b.start_KR[k].min()), int(b.start_KR[k, i]))
    if window is None:
        return None
    shift = waits.origin_ns + round(waits.clocks.offsets_s.get(p.rank, 0.0) / NS) - p.base_ns
    return window[0] + shift, window[1] + shift


def _notes(profiles: list[RankProfile], waits: Waits) -> tuple[str, ...]:
    notes = [n for p in profiles for n in p.notes]
    world = max(p.world_size for p in profiles)
    if waits.sync.how in ("matched", "library") and world > len(profiles):
        notes.append(
            f"{len(profiles)} of {world} ranks are here: one that is not may be the late one, so "
            "the transfer is an upper bound"
        )
    explained = sum(waits.sync.blame.values())
    if waits.sync.how == "library" and explained < EXPLAINED * waits.sync.waiting_s * len(profiles):
        notes.append(
            f"the arrivals of these ranks explain only {explained * 1e3:,.1f} ms of the "
            f"{waits.sync.waiting_s * len(profiles) * 1e3:,.0f} ms that the library spent waiting: "
            "other ranks are late, or the operation waits inside itself"
        )
    if waits.clocks.state == "refused":
        notes.append(
            f"clocks: {waits.clocks.why}; arrivals are not compared, the shortest kernel of each "
            "collective bounds its transfer"
        )
    if waits.sync.how == "bounds" and len(profiles) == 1:
        notes.append("one rank alone cannot tell waiting from transfer: bounds are given")
    if waits.sync.how == "none":
        notes.append("there is no communication in these profiles")
    numbers: Counter[str] = Counter(notes)
    return tuple(text if n == 1 else f"{text} (x{n})" for text, n in numbers.items())
