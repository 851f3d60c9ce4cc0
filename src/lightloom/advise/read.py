"""What a file or folder is, and the ranks in it; big sets are read by two processes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from lightloom.core.errors import InputError

from .profile import RankProfile
from .read_ascend import (
    OUTPUT,
    is_ascend_folder,
    read_ascend_db,
    read_ascend_folder,
    read_kernel_details,
    read_step_trace,
)
from .read_chrome import read_chrome
from .read_others import (
    CLUSTER_CSV,
    read_cluster,
    read_nsight,
    read_table,
    read_timeline_ranks,
)
from .stream import read_pieces
from .tabular import database, tables

BIG = 24 << 20
"""Bytes of a set from which a second process is worth its start."""
MOST_FILES = 20_000
_TRACE_NAME = re.compile(r"\.(json|json\.gz|sqlite|sqlite3|db|db\.gz|log|txt)$", re.IGNORECASE)
_LOG_LINE = re.compile(
    rb"NCCL (INFO|WARN|ERROR)|ProcessGroupNCCL|Watchdog|\bEI\d{4}\b|\bHCCL\b|hccl|plog",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Sources:
    """What was found: profiles to read, logs to triage."""

    profiles: tuple[tuple[str, Path], ...]
    """(kind, path)."""
    logs: tuple[Path, ...]


READERS: dict[str, Callable[[Path], list[RankProfile]]] = {
    "chrome": lambda path: [read_chrome(path)],
    "timeline": read_timeline_ranks,
    "ascend-folder": lambda path: [read_ascend_folder(path)],
    "ascend-db": lambda path: [read_ascend_db(path)],
    "kernel-details": lambda path: [read_kernel_details(path)],
    "step-trace": lambda path: [read_step_trace(path)],
    "cluster": read_cluster,
    "nsight": read_nsight,
    "table": lambda path: [read_table(path)],
}
"""Kind of source -> reader."""


def find(paths: Sequence[str | Path]) -> Sources:
    """Return every profile and log under the given files and folders."""
    profiles: list[tuple[str, Path]] = []
    logs: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"{path} does not exist")
        before = len(profiles) + len(logs)
        if path.is_dir():
            _walk(path, profiles, logs, itertools.count())
        else:
            kind = kind_of(path)
            if kind == "log":
                logs.append(path)
            else:
                profiles.append((kind, path))
        if len(profiles) + len(logs) == before:
            raise InputError(f"{path}: no profile and no NCCL or HCCL log in this folder")
    return Sources(tuple(dict.fromkeys(profiles)), tuple(dict.fromkeys(logs)))


def _walk(
    folder: Path, profiles: list[tuple[str, Path]], logs: list[Path], seen: itertools.count[int]
) -> None:
    if is_ascend_folder(folder):
        profiles.append(("ascend-folder", folder))
        return
    if any((folder / name).exists() for name in (CLUSTER_CSV, f"{CLUSTER_CSV}.gz")):
        profiles.append(("cluster", folder))
        return
    for path in sorted(folder.iterdir()):
        if next(seen) > MOST_FILES:
            raise InputError(f"{folder}: more than {MOST_FILES:,} files", out="name the traces")
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            if path.name != "cluster_analysis_output" or not profiles:
                _walk(path, profiles, logs, seen)
        elif path.is_file() and _TRACE_NAME.search(path.name):
            kind = _kind_if_known(path)
            if kind == "log":
                logs.append(path)
            elif kind is not None:
                profiles.append((kind, path))


def _kind_if_known(path: Path) -> str | None:
    """Return the kind of a file met in a folder; None for files that are something else."""
    try:
        kind = kind_of(path)
    except InputError:
        return None
    if kind == "chrome":
        head = next(read_pieces(path, Counter()), b"")
        return kind if b'"traceEvents"' in head or b'"ph"' in head else None
    return None if kind == "table" else kind


def kind_of(path: Path) -> str:
    """Return the kind of a file from its first bytes and its name."""
    head = next(read_pieces(path, Counter()), b"")
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    name = path.name.lower()
    if not text:
        raise InputError(f"{path} is empty")
    if head.startswith(b"SQLite format 3\x00"):
        return _database_kind(path)
    if text[:1] == b"{" or re.match(rb"\[\s*[\{\]]", text):
        return _json_kind(path, text)
    if name.startswith("kernel_details"):
        return "kernel-details"
    if name.startswith("step_trace_time"):
        return "step-trace"
    first = text.split(b"\n", 1)[0]
    if b"Type,Index" in first and b"Computing" in first:
        raise InputError(f"{path}: give the folder that holds it", out=str(path.parent))
    if b"Start Time(us)" in first and b"Duration(us)" in first:
        return "kernel-details"
    if first.startswith((b"Step,Computing", b"Device_id,Step,Computing")):
        return "step-trace"
    return "log" if _LOG_LINE.search(head) else "table"


def _json_kind(path: Path, text: bytes) -> str:
    if re.match(rb'\{\s*"version"\s*:\s*\d+\s*,\s*"kind"\s*:\s*"timeline"', text):
        return "timeline"
    ours = re.match(rb'\{\s*"version"\s*:\s*\d+\s*,\s*"kind"\s*:\s*"([a-z-]{1,20})"', text)
    if ours:
        raise InputError(f"{path} is a lightloom {ours.group(1).decode()}, not a profile")
    beside = ("communication.json", "communication_matrix.json", "cluster_communication.json")
    if path.name.removesuffix(".gz") in beside or path.name.startswith("profiler_"):
        raise InputError(f"{path} is a part of a profile: give the folder that holds it",
                         out=str(path.parent))  # fmt: skip
    return "chrome"


def _database_kind(path: Path) -> str:
    with database(path, Counter()) as base:
        there = tables(base)
    if {"StringIds", "CUPTI_ACTIVITY_KIND_KERNEL"} <= there:
        return "nsight"
    if {"STRING_IDS", "TASK"} <= there:
        return "ascend-db"
    if "StepTraceTime" in there:
        raise InputError(f"{path} is a part of a profile: give its {OUTPUT} folder")
    raise InputError(f"{path}: a database, but neither torch_npu's nor Nsight Systems'")


def load(sources: Sources, progress: Callable[[str], None] = lambda _: None) -> list[RankProfile]:
    """Return the ranks of all sources, ascending; two processes read when there is much to read."""
    jobs = list(sources.profiles)
    sizes = [_size(path) for _, path in jobs]
    if len(jobs) > 1 and sum(sizes) >= BIG and (os.cpu_count() or 1) > 1:
        order = sorted(range(len(jobs)), key=lambda i: -sizes[i])
        context = multiprocessing.get_context("spawn")
        results: dict[int, list[RankProfile]] = {}
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            futures = {i: pool.submit(_read, jobs[i]) for i in order}
            for done, i in enumerate(order):
                results[i] = futures[i].result()
                progress(f"read {done + 1} of {len(jobs)} profiles")
        parts = [results[i] for i in range(len(jobs))]
    else:
        parts = [_read(job) for job in jobs]
    return _number([p for part in parts for p in part])


def _read(job: tuple[str, Path]) -> list[RankProfile]:
    kind, path = job
    return READERS[kind](path)


def _size(path: Path) -> int:
    """Return bytes to read; packed files count tenfold."""
    if path.is_dir():
        files = [p for p in path.rglob("trace_view.json*") if p.is_file()]
        return sum(_size(p) for p in files)
    return path.stat().st_size * (10 if path.suffix == ".gz" else 1)


def _number(profiles: list[RankProfile]) -> list[RankProfile]:
    """Give ranks without a number the free ones, and refuse sets that are not one job."""
    jobs = {p.job for p in profiles if p.job}
    if len(jobs) > 1:
        worlds = sorted({p.world_size for p in profiles if p.job})
        raise InputError(
            f"these profiles are of different jobs: worlds of {', '.join(map(str, worlds))} ranks",
            out="give the ranks of one job; two jobs are compared by: lightloom advise compare A B",
        )
    taken: dict[int, str] = {}
    for p in profiles:
        if p.named:
            if p.rank in taken:
                raise InputError(
                    f"rank {p.rank} appears twice: {taken[p.rank]} and {p.path}",
                    out="give one profile per rank; two runs are compared by: advise compare A B",
                )
            taken[p.rank] = p.path
    free = (n for n in itertools.count() if n not in taken)
    numbered = [p if p.named else replace(p.as_rank(next(free)), notes=p.notes) for p in profiles]
    return sorted(numbered, key=lambda p: p.rank)
