"""Who stopped first: NCCL watchdog and HCCL time-out text of many ranks, in any mixture of files.

A rank that reports a time-out was waiting; the one that everybody waited for is silent, or far
behind in its sequence of collectives, or died earlier of something else. So, in this order: an
own fault before the first time-out; the rank with the lowest last collective; the end of the
chain *r waits for s*; the rank that did not report.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from lightloom.core.advice import Cause, Stop
from lightloom.core.errors import InputError

from .tabular import read_text

_RANK = re.compile(r"\[rank\s?(\d{1,6})\]|\bRank\[?\s?(\d{1,6})\]|RankID:(\d{1,6})|"
                   r"\(rank (\d{1,6})\)", re.IGNORECASE)  # fmt: skip
_FILE_RANK = re.compile(r"(?:rank|worker|device)[-_]?(\d{1,6})", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d{4})-(\d\d)-(\d\d)[-T ])?(?<!\d)(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?")
_WATCHDOG = re.compile(
    r"WorkNCCL\(SeqNum=(\d+), OpType=(\w+).*?Timeout\(ms\)=(\d+)\) ran for (\d+) milli"
)
_LAST = re.compile(r"last enqueued (?:NCCL )?work: (-?\d+), last completed (?:NCCL )?work: (-?\d+)")
_GROUP = re.compile(r"\[PG (?:ID )?(\d+)")
_REMOTE = re.compile(r"remote ?rank:? ?\[(\d{1,6})", re.IGNORECASE)
_LOCAL = re.compile(r"(?:local ?rank|rankId|userRank):? ?\[(\d{1,6})", re.IGNORECASE)
_TAG = re.compile(r"tag\[([A-Za-z]+)_")
_SIZE = re.compile(r"rankSize:?\[(\d{1,6})\]|world_size[=: ]+(\d{1,6})")
_OWN = (
    ("out-of-memory", re.compile(r"out of memory|OutOfMemoryError|EL0004|NPU out of memory", re.I),
     "ran out of memory", "micro-batch, tensor parallelism, recompute: lightloom estimate"),
    ("device-fault", re.compile(r"\bXid\b|uncorrectable ECC|HBM.{0,20}(?:ECC|UCE)|device lost|"
                                r"illegal memory access|\bEZ9999\b|heartbeat lost|507053", re.I),
     "its card failed", "dcgmi diag -r 3, or npu-smi info -t ecc -i N; take the card out"),
    ("link", re.compile(r"link ?down|got completion.*error 12|LINK_ERROR_INFO|ERROR CQE|"
                        r"retry.{0,12}exceeded|ibv_poll_cq", re.I),
     "its link failed", "hccn_tool -i N -link_stat -g, or ibstat and the switch port's counters"),
    ("crash", re.compile(r"Segmentation fault|SIGKILL|SIGSEGV|exitcode ?: ?-\d+|core dumped|"
                         r"Killed process", re.I),
     "its process died", "dmesg of that host (out of memory killer), the last lines of that rank"),
    ("exception", re.compile(r"^(?:\S+:)?\s*(?:\[rank\d+\]:\s*)?(?:Assertion|Value|Key|Type|File"
                             r"NotFound|Index|ZeroDivision|Unicode\w*|OS|IO)Error\b", re.I),
     "raised an exception of its own", "the traceback above that line"),
)  # fmt: skip
_WAITED = re.compile(
    r"EI0002|EI0006|Watchdog caught collective|Timeout at NCCL work|5070(?:48|46|11)"
)
_CODES = {
    "EI0001": ("bad-environment", "an HCCL variable is out of its range",
               "lightloom emit --check env: the ranges of every HCCL variable"),
    "EI0004": ("rank-table", "the rank table does not fit the job", "lightloom emit --check"),
    "EI0005": ("mismatch", "ranks called the same collective with different arguments",
               "print shape and type of the tensor per rank before that call"),
    "EI0006": ("socket-timeout", "a peer did not answer while links were set up",
               "ping between the two NPU addresses: hccn_tool -i N -ping -g address A; then "
               "HCCL_CONNECT_TIMEOUT (120 s is short for large jobs)"),
    "EI0002": ("notify-timeout", "a peer did not arrive in a running collective",
               "link first, then the time-out: HCCL_EXEC_TIMEOUT must exceed the longest save"),
}  # fmt: skip


@dataclass(slots=True)
class _Rank:
    """What the logs say about one rank."""

    lines: int = 0
    timed_out: float | None = None
    """When it reported that it waited in vain, seconds of the day (or days)."""
    waits_for: set[int] = field(default_factory=set)
    last: dict[str, int] = field(default_factory=dict)
    """Group -> last collective that it enqueued."""
    completed: dict[str, int] = field(default_factory=dict)
    own: list[tuple[float, str, str]] = field(default_factory=list)
    """(time, code, line) of faults of its own."""


def read_logs(paths: list[Path] | tuple[Path, ...]) -> Stop:
    """Return who stopped first according to the logs of any number of ranks."""
    ranks: dict[int, _Rank] = {}
    seen: Counter[str] = Counter()
    events: list[tuple[float, str]] = []
    world, operation, notes = 0, "", Counter[str]()
    for path in paths:
        named = _FILE_RANK.search(path.name) or _FILE_RANK.search(path.parent.name)
        default = int(named.group(1)) if named else -1
        when = 0.0
        for line in read_text(path, notes).splitlines():
            when = _when(line, when)
            rank = _rank_of(line, default)
            world = max([world, *(int(a or b) for a, b in _SIZE.findall(line[:4000]))])
            operation = _file(line[:4000], rank, when, ranks, seen, events) or operation
    if not ranks:
        raise InputError(
            "no rank is named in these logs",
            out="name the files rank0.log ..., or log with TORCH_CPP_LOG_LEVEL=INFO",
        )
    first, confidence, why = _first(ranks, world)
    return Stop(
        files=tuple(str(p) for p in paths),
        ranks=tuple(sorted(ranks)),
        first=tuple(first),
        confidence=confidence,
        why=why,
        operation=operation,
        events=tuple(text for _, text in sorted(events, key=lambda e: e[0])[:20]),
        causes=_causes(ranks, first, seen, confidence),
    )


def _when(line: str, before: float) -> float:
    """Return seconds (days counted) of the first time stamp in a line."""
    match = _CLOCK.search(line[:200])
    if not match:
        return before
    year, month, day, hour, minute, second, part = match.groups()
    days = (int(year) * 12 + int(month)) * 31 + int(day) if year else 0
    fraction = float(f"0.{part.replace('.', '')}") if part else 0.0
    return days * 86400.0 + int(hour) * 3600 + int(minute) * 60 + int(second) + fraction


def _rank_of(line: str, default: int) -> int:
    match = _RANK.search(line[:400])
    if match:
        return int(next(g for g in match.groups() if g))
    if default < 0 and (match := _LOCAL.search(line[:4000])):
        return int(match.group(1))
    return default


def _file(
    line: str,
    rank: int,
    when: float,
    ranks: dict[int, _Rank],
    seen: Counter[str],
    events: list[tuple[float, str]],
) -> str:
    """File one line; returns the collective it names."""
    if rank < 0:
        return ""
    mine = ranks.setdefault(rank, _Rank())
    mine.lines += 1
    operation = ""
    if match := _WATCHDOG.search(line):
        operation = f"{match.group(2).strip('_')} #{match.group(1)}"
        seen["watchdog"] += 1
    if match := _LAST.search(line):
        group = _GROUP.search(line)
        key = group.group(1) if group else "0"
        mine.last[key] = max(int(match.group(1)), mine.last.get(key, -1))
        mine.completed[key] = max(int(match.group(2)), mine.completed.get(key, -1))
    for code in _CODES:
        seen[code] += int(code in line)
    if _WAITED.search(line):
        if mine.timed_out is None:
            mine.timed_out = when
            events.append((when, f"rank {rank}: {line.strip()[:160]}"))
        mine.waits_for |= {int(r) for r in _REMOTE.findall(line)} - {rank}
        tag = _TAG.search(line)
        return operation or (tag.group(1) if tag else "")
    for code, pattern, _, _ in _OWN:
        if pattern.search(line):
            mine.own.append((when, code, line.strip()[:160]))
            events.append((when, f"rank {rank}: {line.strip()[:160]}"))
            break
    return operation


def _first(ranks: dict[int, _Rank], world: int) -> tuple[list[int], float, str]:
    """Return (ranks that stopped first, confidence, why)."""
    waited = {r: s.timed_out for r, s in ranks.items() if s.timed_out is not None}
    start = min(waited.values(), default=float("inf"))
    early = {r: s.own[0] for r, s in ranks.items() if s.own and s.own[0][0] <= start}
    if early:
        rank = min(early, key=lambda r: early[r][0])
        known = next(text for code, _, text, _ in _OWN if code == early[rank][1])
        return [rank], 0.95, f"rank {rank} {known} before any rank timed out"
    if not waited:
        return [], 0.0, "no time-out and no fault in these logs"
    behind = _behind(ranks)
    if behind:
        return behind
    chain = _chain(ranks, waited, world)
    if chain:
        return chain
    everyone = set(range(world)) if world else set(ranks)
    silent = sorted(everyone - set(waited))
    if silent and len(silent) <= max(len(everyone) // 2, 1):
        return silent[:8], 0.7, f"rank {_list(silent)} did not report a time-out; all others waited"
    times = sorted((t, r) for r, t in waited.items())
    spread = times[-1][0] - times[0][0]
    return (
        [],
        0.2,
        (
            f"every rank timed out, {spread:,.1f} s apart, and none is behind: link or switch "
            "between them, or one card that hangs inside the collective"
        ),
    )


def _behind(ranks: dict[int, _Rank]) -> tuple[list[int], float, str] | None:
    """Return the ranks whose last collective is lower than everybody else's."""
    for group in sorted({g for s in ranks.values() for g in s.last}):
        last = {r: s.last[group] for r, s in ranks.items() if group in s.last}
        low, high = min(last.values()), max(last.values())
        slow = sorted(r for r, n in last.items() if n == low)
        stuck = max((s.completed.get(group, -1) for s in ranks.values()), default=-1) + 1
        if low < high and low <= stuck and len(slow) <= max(len(last) // 2, 1):
            return (
                slow[:8],
                0.85,
                (
                    f"rank {_list(slow)} stopped at collective {low} of group {group}, others had "
                    f"enqueued {high}"
                ),
            )
    return None


def _chain(
    ranks: dict[int, _Rank], waited: dict[int, float], world: int
) -> tuple[list[int], float, str] | None:
    """Return the end of the chains *r waits for s*."""
    votes: Counter[int] = Counter()
    for rank in waited:
        now, been = rank, {rank}
        while now in ranks and ranks[now].waits_for:
            later = min(ranks[now].waits_for)
            if later in been:
                break
            been.add(later)
            now = later
        if now != rank:
            votes[now] += 1
    if not votes:
        return None
    best, count = votes.most_common(1)[0]
    if count * 2 < sum(votes.values()):
        return None
    silent = best not in waited
    said = "which itself reported nothing" if silent else "which waited for nobody known"
    sure = 0.85 if silent else 0.6
    return [best], sure, f"{count} of {len(waited)} waiting ranks lead to rank {best}, {said}"


def _list(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"{shown} ..." if len(ranks) > 8 else shown


def _causes(
    ranks: dict[int, _Rank], first: list[int], seen: Counter[str], confidence: float
) -> tuple[Cause, ...]:
    causes = []
    for rank in first:
        for code, _, text, after in _OWN:
            if any(entry[1] == code for entry in ranks.get(rank, _Rank()).own):
                causes.append(
                    Cause(code=code, what=f"rank {rank} {text}", weight=confidence,
                          where=f"rank {rank}", next=after)
                )  # fmt: skip
    if first and not causes:
        causes.append(
            Cause(
                code="stopped", what=f"rank {_list(first)} stopped before its peers",
                weight=confidence, where=f"rank {_list(first)}",
                next="py-spy dump --pid of that rank (data loader, save, a branch that skips the "
                "collective); temperature and clock of its card",
            )
        )  # fmt: skip
    for code, (name, what, after) in _CODES.items():
        if seen[code]:
            causes.append(
                Cause(code=name, what=f"{code}: {what}", weight=0.3, next=after,
                      evidence={"lines": float(seen[code])})
            )  # fmt: skip
    if seen["watchdog"]:
        causes.append(
            Cause(
                code="watchdog", what="collectives outlasted the process group's time-out",
                weight=0.3, evidence={"lines": float(seen["watchdog"])},
                next="TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1: the "
                "flight recorder names the rank that never enqueued",
            )
        )  # fmt: skip
    return tuple(sorted(causes, key=lambda c: -c.weight))
