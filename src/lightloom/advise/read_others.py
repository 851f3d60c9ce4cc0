"""msprof-analyze cluster results, Nsight Systems SQLite, profiler tables, our own Timeline."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from lightloom.core.advice import RankSplit
from lightloom.core.errors import InputError
from lightloom.core.timeline import COMM, COMPUTE, COPY, IDLE, Timeline
from lightloom.core.timeline_file import read_timeline

from .profile import COMM_NAME, Library, RankProfile, Rows
from .read_ascend import library_of, load_json, split_of_row, sum_splits
from .tabular import csv_rows, database, number, read_text, tables, whole

CLUSTER_CSV = "cluster_step_trace_time.csv"
_TIME = re.compile(r"^([\d.]+)(ns|us|ms|s)$")
_UNIT = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_STEP_RANGE = re.compile(r"(?:ProfilerStep#|step|iter(?:ation)?)\D{0,3}(\d{1,9})", re.IGNORECASE)


def read_cluster(folder: Path) -> list[RankProfile]:
    """Return all ranks of a ``cluster_analysis_output`` folder: totals and HCCL's account."""
    notes: Counter[str] = Counter()
    path = next(p for p in (folder / CLUSTER_CSV, folder / f"{CLUSTER_CSV}.gz") if p.exists())
    per_rank: dict[int, list[RankSplit]] = {}
    steps: dict[int, list[int]] = {}
    for row in csv_rows(path, notes):
        index = row.get("Index", "")
        if row.get("Type") != "rank" or not index.isdigit() or len(index) > 8:
            continue
        per_rank.setdefault(int(index), []).append(split_of_row(row, int(index)))
        if row.get("Step", "").isdigit() and len(row["Step"]) < 9:
            steps.setdefault(int(index), []).append(int(row["Step"]))
    if not per_rank:
        raise InputError(f"{path}: no row of type rank in it")
    library = _cluster_library(folder, notes)
    said = tuple(f"{folder.name}: {text} ({n})" for text, n in notes.items())
    return [
        RankProfile(
            rank=rank, source="msprof-cluster", path=str(folder), split=sum_splits(splits),
            library=_if_whole(library.get(rank, ()), splits), world_size=len(per_rank),
            steps=tuple((n, 0, 0) for n in steps.get(rank, [])), notes=said if rank == 0 else (),
        )
        for rank, splits in sorted(per_rank.items())
    ]  # fmt: skip


def _if_whole(library: tuple[Library, ...], splits: list[RankSplit]) -> tuple[Library, ...]:
    """Return the account only where it covers at least half of the communication."""
    covered = sum(entry.elapse_s for entry in library)
    return library if covered >= 0.5 * sum(s.comm_s for s in splits) > 0 else ()


def _cluster_library(folder: Path, notes: Counter[str]) -> dict[int, tuple[Library, ...]]:
    path = folder / "cluster_communication.json"
    found: dict[int, list[Library]] = {}
    if not path.exists():
        return {}
    for per_step in load_json(path, notes).values():
        for operations in per_step.values() if isinstance(per_step, dict) else ():
            for name, ranks in operations.items() if isinstance(operations, dict) else ():
                for rank, info in ranks.items() if isinstance(ranks, dict) else ():
                    if rank.isdigit() and len(rank) < 9:
                        found.setdefault(int(rank), []).extend(library_of({name: info}))
    return {rank: tuple(entries) for rank, entries in found.items()}


def read_nsight(path: Path) -> list[RankProfile]:
    """Return one rank per (process, device) of an Nsight Systems SQLite export.

    Schema as NVIDIA publishes it (CUPTI_ACTIVITY_KIND_*, StringIds, NVTX_EVENTS).
    """
    notes: Counter[str] = Counter()
    ranks: dict[tuple[int, int], Rows] = {}
    with database(path, notes) as base:
        there = tables(base)
        if not {"StringIds", "CUPTI_ACTIVITY_KIND_KERNEL"} <= there:
            raise InputError(
                f"{path}: not an Nsight Systems export with kernels",
                out="nsys profile -t cuda,nvtx, then nsys export --type sqlite",
            )
        text = {whole(k): str(v) for k, v in base.execute("SELECT id, value FROM StringIds")}
        _nsight_spans(base, there, text, ranks)
        steps = _nsight_steps(base, text) if "NVTX_EVENTS" in there else []
    if not ranks:
        raise InputError(f"{path}: no kernel in it", out="export with CUDA tracing (-t cuda,nvtx)")
    out = []
    for i, (_, rows) in enumerate(sorted(ranks.items())):
        timeline, moved = rows.timeline(i, "nsight", 0, steps)
        said = tuple(f"{path.name}: {t} ({n})" for t, n in notes.items())
        out.append(RankProfile(rank=i, source="nsight", path=str(path), timeline=timeline,
                               steps=moved, named=len(ranks) > 1, notes=said))  # fmt: skip
    return out


def _nsight_spans(
    base: sqlite3.Connection,
    there: set[str],
    text: dict[int, str],
    ranks: dict[tuple[int, int], Rows],
) -> None:
    columns = {r[1] for r in base.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")}
    pid = "globalPid" if "globalPid" in columns else "0"
    label = "demangledName" if "demangledName" in columns else "shortName"
    for table in ("KERNEL", "MEMCPY", "MEMSET"):
        name = label if table == "KERNEL" else "0"
        if f"CUPTI_ACTIVITY_KIND_{table}" not in there:
            continue
        query = f"SELECT start, end, {pid}, deviceId, streamId, {name} "
        for row in base.execute(f"{query} FROM CUPTI_ACTIVITY_KIND_{table}"):
            a, b, process, device, stream, name_id = (whole(v) for v in row)
            said = text.get(name_id, "?") if table == "KERNEL" else table.lower()
            kind = COPY if table != "KERNEL" else COMM if COMM_NAME.search(said) else COMPUTE
            if 0 <= a <= b:
                mine = ranks.setdefault((process, device), Rows())
                mine.add(a, b, f"stream {stream}", kind, said)


def _nsight_steps(base: sqlite3.Connection, text: dict[int, str]) -> list[tuple[int, int, int]]:
    query = "SELECT start, end, text, textId FROM NVTX_EVENTS WHERE end IS NOT NULL"
    named = (
        (_STEP_RANGE.fullmatch(str(said or text.get(whole(said_id), ""))), whole(a), whole(b))
        for a, b, said, said_id in base.execute(query)
    )
    return [(int(match.group(1)), a, b) for match, a, b in named if match]


def read_timeline_ranks(path: Path) -> list[RankProfile]:
    """Return the ranks of a lightloom Timeline (simulated, or recorded by ``run``)."""
    whole_timeline = read_timeline(path)
    if not len(whole_timeline):
        raise InputError(f"{path}: the timeline is empty")
    times = (int(whole_timeline.start_N.min()), int(whole_timeline.end_N.max()))
    if max(map(abs, (*times, whole_timeline.origin_ns))) >= 2**61:
        raise InputError(f"{path}: times beyond the year 2043")
    out = []
    for rank in whole_timeline.ranks:
        t = _of_rank(whole_timeline, rank)
        steps = [
            (int(n), int(t.start_N[t.step_N == n].min()), int(t.end_N[t.step_N == n].max()))
            for n in np.unique(t.step_N[t.step_N >= 0])
        ]
        out.append(
            RankProfile(
                rank=rank, source=t.source or "timeline", path=str(path), timeline=t,
                steps=tuple(steps), library=_pure(t), world_size=whole(t.meta.get("world_size", 0)),
                device=t.meta.get("device", ""),
            )
        )  # fmt: skip
    return out


def _pure(t: Timeline) -> tuple[Library, ...]:
    """Return the account of a simulated timeline: its communication holds transfer only."""
    if t.source != "simulated":
        return ()
    took = np.where(t.kind_N == COMM, t.end_N - t.start_N, 0).astype(float) * 1e-9
    seconds = np.bincount(t.name_N, took, len(t.names)).tolist()
    return tuple(Library(n, s, s, 0.0, 0.0) for n, s in zip(t.names, seconds, strict=True) if s)


def _of_rank(t: Timeline, rank: int) -> Timeline:
    mask = t.rank_N == rank
    order = np.argsort(t.start_N[mask], kind="stable")
    columns = {
        f"{name}_N": getattr(t, f"{name}_N")[mask][order]
        for name in ("start", "end", "rank", "lane", "kind", "name", "bytes", "group", "match",
                     "step")
    }  # fmt: skip
    return _with_waits(replace(t, **columns))


def _with_waits(t: Timeline) -> Timeline:
    """Return the timeline with each collective begun at the wait that ends in it.

    A recorded run marks *wait for the others* and *reduce*; a profiler's collective holds both.
    """
    waits = {int(t.end_N[i]): int(t.start_N[i]) for i in np.flatnonzero(t.kind_N == IDLE)}
    start = np.array(t.start_N)
    for i in np.flatnonzero(t.kind_N == COMM).tolist():
        start[i] = waits.get(int(start[i]), start[i])
    order = np.argsort(start, kind="stable")
    names = ("end", "rank", "lane", "kind", "name", "bytes", "group", "match", "step")
    columns = {f"{name}_N": getattr(t, f"{name}_N")[order] for name in names}
    return replace(t, start_N=start[order], **columns)


def read_table(path: Path) -> RankProfile:
    """Return totals from a profiler table: torch ``key_averages``, nsys stats, op_statistic.csv.

    A table holds no times of day: overlap and idle are unknown and left at zero.
    """
    notes: Counter[str] = Counter()
    text = read_text(path, notes)
    pairs = _torch_table(text) or _csv_table(path, notes)
    if not pairs:
        raise InputError(
            f"{path} is not a profile that can be read",
            out="Kineto or torch_npu traces and folders, torch_npu or Nsight databases, "
            "msprof-analyze results, profiler tables, lightloom timelines, NCCL or HCCL logs",
        )
    comm = sum(seconds for name, seconds in pairs if COMM_NAME.search(name))
    copies = sum(
        s for name, s in pairs if re.match(r"\[?(CUDA )?mem(cpy|set)", name, re.IGNORECASE)
    )
    compute = sum(seconds for _, seconds in pairs) - comm - copies
    split = RankSplit(
        rank=0, span_s=comm + compute + copies, compute_s=compute, comm_s=comm, exposed_s=comm,
        hidden_s=0.0, copy_s=copies, idle_s=0.0,
    )  # fmt: skip
    said = "a table has no clock: overlap and idle are unknown, all communication counts as exposed"
    return RankProfile(
        rank=0, source="table", path=str(path), split=split, named=False,
        notes=(f"{path.name}: {said}", *(f"{path.name}: {t} ({n})" for t, n in notes.items())),
    )  # fmt: skip


def _torch_table(text: str) -> list[tuple[str, float]]:
    """Return (name, self device seconds) of a torch table; processor time without a device."""
    lines = text.splitlines()
    rulers = (i for i, x in enumerate(lines[:200]) if re.match(r"^-{5,}( +-{5,}){3,}", x))
    ruler = next(rulers, None)
    if ruler is None or ruler + 1 >= len(lines):
        return []
    cuts = [m.span() for m in re.finditer(r"-+", lines[ruler])]
    header = [lines[ruler + 1][a:b].strip() for a, b in cuts]
    wanted = [h for h in ("Self CUDA", "Self NPU", "Self XPU", "Self CPU") if h in header]
    if not wanted or "Name" not in header:
        return []
    at, name_at = cuts[header.index(wanted[0])], cuts[header.index("Name")]
    pairs = []
    for line in lines[ruler + 3 :]:
        match = _TIME.match(line[at[0] - 2 : at[1]].strip())
        value = number(match.group(1)) * _UNIT[match.group(2)] if match else 0.0
        name = line[name_at[0] : name_at[1]].strip()
        if name and value and not name.startswith("ProfilerStep"):
            pairs.append((name, value))
    return pairs


def _csv_table(path: Path, notes: Counter[str]) -> list[tuple[str, float]]:
    """Return (name, seconds) of nsys stats kernel sums or torch_npu op_statistic.csv."""
    pairs = []
    for row in csv_rows(path, notes):
        for name, total, scale in (("Name", "Total Time (ns)", 1e-9),
                                   ("OP Type", "Total Time(us)", 1e-6),
                                   ("Operation", "Total Time (ns)", 1e-9)):  # fmt: skip
            if row.get(name) and number(row.get(total)) > 0:
                pairs.append((row[name], number(row[total]) * scale))
                break
    return pairs
