"""Collectives matched over ranks: who waited, who was last, whether the clocks can be trusted.

Axes: K collectives of one kind and group, R ranks. Times integer nanoseconds on a common origin.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.advice import Clocks, Collective
from lightloom.core.timeline import COMM, Timeline

I64 = NDArray[np.int64]
NS = 1e-9
_TOGETHER = re.compile(
    r"all.?reduce|all.?gather|reduce.?scatter|all.?to.?all|sendrecv|barrier", re.IGNORECASE
)
"""Collectives that no rank can leave before the last has come."""
_ALONE = re.compile(r"send|recv|receive|p2p|broadcast|scatter$|^gather|copy", re.IGNORECASE)
_PAIR = re.compile(r"send|receive|recv", re.IGNORECASE)
_SMALLEST_SKEW = 20_000
"""Nanoseconds of end skew that prove nothing against a clock (a kernel's own exit)."""
_ENOUGH = 2 / 3


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Collectives of the same kind and group, in order."""

    name: str
    group: str
    ranks: tuple[int, ...]
    start_KR: I64
    end_KR: I64
    row_KR: I64
    """Row in each rank's own timeline."""
    bytes_K: I64
    step_K: I64
    together: bool
    """No rank can leave before the last has arrived."""

    @property
    def last_start(self) -> I64:
        """Arrival of the last rank, shape K."""
        return np.asarray(self.start_KR.max(axis=1))

    @property
    def transfer(self) -> I64:
        """Last end minus last arrival, never negative, shape K."""
        return np.asarray(np.maximum(self.end_KR.max(axis=1) - self.last_start, 0))


def match(timelines: dict[int, Timeline]) -> tuple[list[Block], int]:
    """Return the collectives that at least two ranks share, and how many spans found no partner.

    Key: the timeline's own `match`, else group and name in order of start. Ranks whose windows
    hold a different number are laid on one another where their ends agree best.
    """
    origin = min(t.origin_ns for t in timelines.values())
    table: dict[tuple[str, str], dict[int, I64]] = {}
    for rank, t in timelines.items():
        for key, rows in _keys(t).items():
            table.setdefault(key, {})[rank] = rows
    blocks, alone = [], 0
    for (group, name), per_rank in sorted(table.items()):
        if len(per_rank) < 2:
            alone += sum(len(rows) for rows in per_rank.values())
            continue
        times = {
            r: (timelines[r].end_N[rows] + (timelines[r].origin_ns - origin))
            for r, rows in per_rank.items()
        }
        chosen = _lay(times)
        ranks = tuple(sorted(chosen))
        size = min(len(chosen[r]) for r in ranks)
        alone += sum(len(per_rank[r]) - size for r in per_rank)
        picked = {r: per_rank[r][chosen[r][:size]] for r in ranks}
        blocks.append(_block(timelines, origin, group, name, picked))
    return blocks, alone


def _keys(t: Timeline) -> dict[tuple[str, str], I64]:
    """Return rows of communication by (group, canonical name), each in order of start."""
    rows = np.flatnonzero(t.kind_N == COMM)
    rows = rows[np.argsort(t.start_N[rows], kind="stable")]
    own = t.match_N[rows]
    if bool((own >= 0).any()):
        rows, own = rows[own >= 0], own[own >= 0]
    found: dict[tuple[str, str], list[int]] = {}
    groups = [t.groups[g] if g >= 0 else "" for g in t.group_N[rows]]
    for row, group, number in zip(rows.tolist(), groups, own.tolist(), strict=True):
        name = _PAIR.sub("p2p", t.names[t.name_N[row]].split("(")[0])
        if "sendrecv" in t.names[t.name_N[row]].lower():
            name = t.names[t.name_N[row]].split("(")[0]
        found.setdefault((group, name if number < 0 else f"{name} #{number}"), []).append(row)
    return {key: np.array(rows, dtype=np.int64) for key, rows in found.items()}


def _lay(end: dict[int, I64]) -> dict[int, I64]:
    """Return, per rank, which of its collectives belong together, the k-th with the k-th."""
    fewest = min(end, key=lambda r: len(end[r]))
    reference, size = end[fewest], len(end[fewest])
    chosen = {}
    for rank, ends in end.items():
        shifts = range(min(len(ends) - size + 1, 64))
        best = min(shifts, key=lambda s: float(np.median(np.abs(ends[s : s + size] - reference))))
        chosen[rank] = np.arange(best, best + size)
    return chosen


def _block(
    timelines: dict[int, Timeline], origin: int, group: str, name: str, rows: dict[int, I64]
) -> Block:
    ranks = tuple(sorted(rows))
    shift = {r: timelines[r].origin_ns - origin for r in ranks}
    first = timelines[ranks[0]]
    return Block(
        name=name.split(" #")[0],
        group=group,
        ranks=ranks,
        start_KR=np.stack([timelines[r].start_N[rows[r]] + shift[r] for r in ranks], axis=1),
        end_KR=np.stack([timelines[r].end_N[rows[r]] + shift[r] for r in ranks], axis=1),
        row_KR=np.stack([rows[r] for r in ranks], axis=1),
        bytes_K=np.max([timelines[r].bytes_N[rows[r]] for r in ranks], axis=0),
        step_K=first.step_N[rows[ranks[0]]].astype(np.int64),
        together=bool(_TOGETHER.search(name))
        or (" #" in name and not _ALONE.search(name.split(" #")[0])),
    )


def clocks_of(blocks: list[Block]) -> Clocks:
    """Return whether arrivals of different ranks can be compared, from how their ends agree.

    A collective that ends together shows the clock error in its end skew: verified when in two
    thirds of them the skew is below half of the shortest kernel (the last rank's own time), or
    20 us; else the constant offset of each rank is taken out, once, and judged again.
    """
    together = [b for b in blocks if b.together]
    if not together:
        return Clocks(state="unknown", why="no collective that all ranks leave together")
    skew, short = _skews(together, {})
    if _agree(skew, short):
        return Clocks(
            state="verified",
            end_skew_s=float(np.median(skew)) * NS,
            worst_end_skew_s=float(skew.max()) * NS,
            why=f"{len(skew)} collectives end together",
        )
    offsets = _offsets(together)
    after, _ = _skews(together, offsets)
    if len(skew) >= 3 and _agree(after, short):
        return Clocks(
            state="corrected",
            end_skew_s=float(np.median(after)) * NS,
            worst_end_skew_s=float(after.max()) * NS,
            offsets_s={r: o * NS for r, o in offsets.items()},
            why=f"constant offsets up to {max(map(abs, offsets.values())) * NS * 1e6:,.0f} us "
            "taken out",
        )
    return Clocks(
        state="refused",
        end_skew_s=float(np.median(skew)) * NS,
        worst_end_skew_s=float(skew.max()) * NS,
        why="ranks leave the same collective at times further apart than it lasts",
    )


def _skews(blocks: list[Block], offsets: dict[int, float]) -> tuple[I64, I64]:
    skew, short = [], []
    for b in blocks:
        shift = np.array([offsets.get(r, 0.0) for r in b.ranks])
        ends = b.end_KR - shift
        skew.append(ends.max(axis=1) - ends.min(axis=1))
        short.append((b.end_KR - b.start_KR).min(axis=1))
    return np.concatenate(skew), np.concatenate(short)


def _agree(skew: I64, short: I64) -> bool:
    return float(np.mean(skew <= np.maximum(short / 2, _SMALLEST_SKEW))) >= _ENOUGH


def _offsets(blocks: list[Block]) -> dict[int, float]:
    """Return nanoseconds by which each rank's clock is ahead of the median rank."""
    seen: dict[int, list[I64]] = {}
    for b in blocks:
        middle = np.median(b.end_KR, axis=1)
        for i, rank in enumerate(b.ranks):
            seen.setdefault(rank, []).append(b.end_KR[:, i] - middle)
    return {rank: float(np.median(np.concatenate(parts))) for rank, parts in seen.items()}


def shifted(blocks: list[Block], clocks: Clocks) -> list[Block]:
    """Return the blocks on corrected clocks."""
    if clocks.state != "corrected":
        return blocks
    moved = []
    for b in blocks:
        shift = np.array([round(clocks.offsets_s[r] / NS) for r in b.ranks], dtype=np.int64)
        moved.append(
            Block(b.name, b.group, b.ranks, b.start_KR - shift, b.end_KR - shift, b.row_KR,
                  b.bytes_K, b.step_K, b.together)
        )  # fmt: skip
    return moved


def coherent(blocks: list[Block]) -> list[Block]:
    """Return the blocks whose ranks are inside at the same time in at least half of the cases.

    Messages between pairs carry one name on all ranks; the k-th of one rank need not be the k-th
    of another. What no common moment holds together is left unmatched.
    """
    return [
        b
        for b in blocks
        if b.together or float(np.mean(b.last_start <= b.end_KR.min(axis=1))) >= 0.5
    ]


def collectives_of(blocks: list[Block], limit: int = 200) -> tuple[Collective, ...]:
    """Return the matched collectives as nouns, those with most waiting first."""
    rows: list[tuple[float, Collective]] = []
    for b in blocks:
        mean = (b.end_KR - b.start_KR).mean(axis=1)
        order = np.argsort(-(mean - b.transfer))[:limit]
        for k in order.tolist():
            noun = Collective(
                name=b.name,
                group=b.group,
                step=int(b.step_K[k]),
                index=k,
                ranks=len(b.ranks),
                bytes=float(b.bytes_K[k]),
                mean_s=float(mean[k]) * NS,
                transfer_s=float(b.transfer[k]) * NS,
                start_skew_s=float(np.ptp(b.start_KR[k])) * NS,
                end_skew_s=float(np.ptp(b.end_KR[k])) * NS,
                last_rank=b.ranks[int(b.start_KR[k].argmax())],
            )
            rows.append((noun.mean_s - noun.transfer_s, noun))
    return tuple(noun for _, noun in sorted(rows, key=lambda r: -r[0])[:limit])
