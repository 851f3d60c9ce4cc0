"""Waiting against transfer: from the library's own account, matched arrivals, or bounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lightloom.core.advice import Clocks, Sync
from lightloom.core.timeline import COMM, COMPUTE, COPY, Timeline

from .match import Block, coherent, match, shifted
from .match import clocks_of as judge_clocks
from .profile import Library, RankProfile
from .split import NS, Union, both, length, of_kind, split_of, union
from .whatif import Account

EXPLAINED = 0.25
"""Part of the library's waiting that arrivals must explain before a rank is named."""


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """All that is known about arrivals."""

    sync: Sync
    clocks: Clocks
    blocks: list[Block]
    """Matched collectives on trusted clocks; empty when they cannot be used."""
    own: dict[int, Account]
    """The library's account per rank and row."""
    transfer_exposed: float | None
    """Share of the span, mean over ranks."""
    waiting_exposed: float | None
    origin_ns: int = 0
    """What the blocks' times count from."""


def waits_of(profiles: list[RankProfile]) -> Waits:
    """Return waiting and transfer of the ranks, from the best evidence there is."""
    timelines = {p.rank: p.timeline for p in profiles if p.timeline is not None}
    own = {p.rank: account_of(p.timeline, p.library) for p in profiles
           if p.timeline is not None and p.library}  # fmt: skip
    blocks, alone = match(timelines) if len(timelines) > 1 else ([], 0)
    if not _spans(timelines.values()) and not any(p.library for p in profiles):
        return _stated(profiles)
    clocks = judge_clocks(blocks) if blocks else Clocks(state="unknown", why="one rank")
    if not blocks and len(timelines) > 1:
        clocks = Clocks(state="unknown", why="no collective is shared by two of these ranks")
    blocks = coherent(shifted(blocks, clocks))
    origin = min((t.origin_ns for t in timelines.values()), default=0)
    late = _late(blocks) if clocks.state in ("verified", "corrected") else {}
    if any(p.library for p in profiles):
        sync = _library(profiles, late, sum(len(b.bytes_K) for b in blocks))
        kept = blocks if clocks.state != "refused" else []
        return Waits(sync, clocks, kept, own, *_exposed_share(profiles, sync), origin)
    if blocks and clocks.state in ("verified", "corrected"):
        sync = _matched(blocks, alone, late, profiles)
        return Waits(sync, clocks, blocks, own, *_exposed(timelines, blocks), origin)
    sync = _shortest(blocks) if blocks else _bounds(timelines, alone)
    return Waits(sync, clocks, [], own, None, None)


def _spans(timelines: Iterable[Timeline]) -> bool:
    return any(bool((t.kind_N == COMM).any()) for t in timelines)


def account_of(timeline: Timeline, library: tuple[Library, ...]) -> Account:
    """Return wait and transfer of each collective that the library names, by its row."""
    known = {entry.name.split("@")[0]: entry for entry in library}
    account: Account = {}
    for row in np.flatnonzero(timeline.kind_N == COMM).tolist():
        entry = known.get(timeline.names[timeline.name_N[row]])
        if entry is not None and entry.elapse_s > 0:
            took = float(timeline.end_N[row] - timeline.start_N[row])
            transfer = took * min(entry.transit_s / entry.elapse_s, 1.0)
            account[row] = (-1, took - transfer, transfer, 0.0)
    return account


def _late(blocks: list[Block]) -> dict[int, tuple[int, float]]:
    """Return rank -> (times last, seconds that all others waited for it)."""
    times: dict[int, int] = {}
    blame: dict[int, float] = {}
    for b in blocks:
        if not b.together:
            continue
        last = b.start_KR.argmax(axis=1)
        cost = (b.last_start[:, None] - b.start_KR).sum(axis=1)
        for i, r in enumerate(b.ranks):
            mine = last == i
            times[r] = times.get(r, 0) + int(mine.sum())
            blame[r] = blame.get(r, 0.0) + float(cost[mine].sum()) * NS
    return {r: (n, blame[r]) for r, n in times.items() if n}


def _late_fields(late: dict[int, tuple[int, float]]) -> dict[str, object]:
    if not late:
        return {}
    total, cost = sum(n for n, _ in late.values()), sum(c for _, c in late.values())
    rank = max(late, key=lambda r: late[r])
    worst = max(late, key=lambda r: late[r][1])
    rank = worst if late[worst][1] > 0.5 * cost else rank
    same = late[rank][0] > 0.5 * total or late[rank][1] > 0.5 * cost
    return {
        "last": {r: n for r, (n, _) in sorted(late.items())},
        "blame": {r: c for r, (_, c) in sorted(late.items())},
        "late_rank": rank if same or late[rank][0] > total / 3 else -1,
        "late_same": same,
    }


def _matched(
    blocks: list[Block],
    alone: int,
    late: dict[int, tuple[int, float]],
    profiles: list[RankProfile],
) -> Sync:
    transfer = sum(float(b.transfer.sum()) for b in blocks)
    inside = sum(float((b.end_KR - b.start_KR).mean(axis=1).sum()) for b in blocks)
    by_rank: dict[int, list[float]] = {}
    for b in blocks:
        took = np.clip(b.end_KR - np.maximum(b.start_KR, b.last_start[:, None]), 0, None)
        for i, r in enumerate(b.ranks):
            by_rank.setdefault(r, []).extend(
                (float(took[:, i].sum()), float((b.end_KR - b.start_KR)[:, i].sum()))
            )
    share = min(transfer / inside, 1.0) if inside else None
    world = max((p.world_size for p in profiles), default=0)
    whole = world <= len(profiles)
    return Sync(
        how="matched",
        transfer_share=share,
        low=(share or 0.0) if whole else 0.0,
        high=share or 0.0,
        transfer_s=transfer * NS,
        waiting_s=max(inside - transfer, 0.0) * NS,
        by_rank={r: sum(v[::2]) / sum(v[1::2]) for r, v in by_rank.items() if sum(v[1::2])},
        collectives=sum(len(b.bytes_K) for b in blocks),
        unmatched=alone,
        **_late_fields(late),  # type: ignore[arg-type]
    )


def _library(profiles: list[RankProfile], late: dict[int, tuple[int, float]], matched: int) -> Sync:
    parts = [p for p in profiles if p.library]
    transit = [sum(e.transit_s for e in p.library) for p in parts]
    elapse = [sum(e.elapse_s for e in p.library) for p in parts]
    shares = {p.rank: t / e for p, t, e in zip(parts, transit, elapse, strict=True) if e > 0}
    share = min(sum(transit) / sum(elapse), 1.0) if sum(elapse) else None
    fields = _late_fields(late)
    if sum(c for _, c in late.values()) < EXPLAINED * (sum(elapse) - sum(transit)):
        fields |= {"late_rank": -1, "late_same": False}
    return Sync(
        how="library",
        transfer_share=share,
        low=share or 0.0,
        high=share or 0.0,
        transfer_s=sum(transit) / len(parts),
        waiting_s=max(sum(elapse) - sum(transit), 0.0) / len(parts),
        by_rank=shares,
        collectives=max(len(p.library) for p in parts),
        unmatched=max(max(len(p.library) for p in parts) - matched, 0),
        **fields,  # type: ignore[arg-type]
    )


def _shortest(blocks: list[Block]) -> Sync:
    """Clocks unusable: no transfer is longer than the shortest kernel of its collective."""
    spans = [b.end_KR - b.start_KR for b in blocks]
    inside = sum(float(s.mean(axis=1).sum()) for s in spans)
    short = sum(float(s.min(axis=1).sum()) for s in spans)
    share = short / inside if inside else 1.0
    return Sync(
        how="durations",
        low=0.0,
        high=share,
        transfer_s=short * NS,
        waiting_s=(inside - short) * NS,
        collectives=sum(len(s) for s in spans),
    )


def _bounds(timelines: dict[int, Timeline], alone: int) -> Sync:
    """A lone rank: the shortest of equal collectives bounds the transfer of all of them."""
    inside, short = 0.0, 0.0
    for t in timelines.values():
        rows = np.flatnonzero(t.kind_N == COMM)
        took = (t.end_N[rows] - t.start_N[rows]).astype(float)
        key = np.stack([t.name_N[rows].astype(np.int64), t.bytes_N[rows],
                        t.group_N[rows].astype(np.int64)])  # fmt: skip
        _, which = np.unique(key, axis=1, return_inverse=True)
        which = which.reshape(-1)
        least = np.full(which.max() + 1 if len(which) else 0, np.inf)
        np.minimum.at(least, which, took)
        inside, short = inside + float(took.sum()), short + float(least[which].sum())
    if not inside:
        return Sync(how="none", low=0.0, high=0.0)
    return Sync(
        how="bounds",
        low=0.0,
        high=short / inside,
        transfer_s=short * NS / len(timelines),
        waiting_s=(inside - short) * NS / len(timelines),
        unmatched=sum(int((t.kind_N == COMM).sum()) for t in timelines.values()),
    )


def _stated(profiles: list[RankProfile]) -> Waits:
    """Only totals: the rank with least communication bounds what the others' can move."""
    splits = [p.split for p in profiles if p.split is not None]
    comm = [s.comm_s for s in splits]
    nothing = not any(comm)
    least = min(comm) / (sum(comm) / len(comm)) if comm and not nothing else 0.0
    many: Literal["stated", "bounds"] = "stated" if len(comm) > 1 else "bounds"
    how: Literal["none", "stated", "bounds"] = "none" if nothing else many
    sync = Sync(
        how=how,
        low=0.0,
        high=least if how == "stated" else 0.0 if nothing else 1.0,
        transfer_s=min(comm, default=0.0),
        waiting_s=(sum(comm) / len(comm) - min(comm)) if comm else 0.0,
    )
    clocks = Clocks(state="not-needed", why="the files hold totals, not times")
    return Waits(sync, clocks, [], {}, None, None)


def _exposed_share(profiles: list[RankProfile], sync: Sync) -> tuple[float | None, float | None]:
    """Spread the library's transfer share over the exposed part."""
    pairs = []
    for p in profiles:
        split = p.split or (split_of(p.timeline, p.rank) if p.timeline is not None else None)
        if split is not None and split.span_s > 0 and p.rank in sync.by_rank:
            share = split.exposed_s / split.span_s
            pairs.append((share * sync.by_rank[p.rank], share))
    if not pairs:
        return None, None
    moving = sum(a for a, _ in pairs) / len(pairs)
    return moving, sum(b for _, b in pairs) / len(pairs) - moving


def _exposed(timelines: dict[int, Timeline], blocks: list[Block]) -> tuple[float, float]:
    """Return exposed transfer and exposed waiting as shares of the span, mean over ranks."""
    moving: dict[int, list[Union]] = {}
    origin = min(t.origin_ns for t in timelines.values())
    for b in blocks:
        begin = np.minimum(np.maximum(b.start_KR, b.last_start[:, None]), b.end_KR)
        for i, r in enumerate(b.ranks):
            moving.setdefault(r, []).append((begin[:, i], b.end_KR[:, i]))
    shares = []
    for rank, t in timelines.items():
        compute, comm = of_kind(t, COMPUTE), of_kind(t, COMM)
        all_rows = of_kind(t, COMPUTE, COMM, COPY)
        span = int(all_rows[1][-1] - all_rows[0][0]) if len(all_rows[0]) else 0
        if not span:
            continue
        parts = moving.get(rank, [])
        shift = t.origin_ns - origin
        u = union(
            np.concatenate([p[0] for p in parts] or [np.zeros(0, np.int64)]) - shift,
            np.concatenate([p[1] for p in parts] or [np.zeros(0, np.int64)]) - shift,
        )
        exposed = length(comm) - both(comm, compute)
        sent = length(u) - both(u, compute)
        shares.append((sent / span, max(exposed - sent, 0) / span))
    if not shares:
        return 0.0, 0.0
    return (sum(a for a, _ in shares) / len(shares), sum(b for _, b in shares) / len(shares))
