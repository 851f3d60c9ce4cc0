"""torch_npu results: text folders, databases, kernel_details.csv, step_trace_time.csv."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from lightloom.core.advice import RankSplit
from lightloom.core.errors import InputError
from lightloom.core.timeline import COMM, COMPUTE

from .profile import COMM_NAME, Library, RankProfile, Rows, dtype_bytes
from .read_chrome import read_chrome
from .stream import nanoseconds
from .tabular import csv_rows, database, number, read_text, tables, whole

OUTPUT = "ASCEND_PROFILER_OUTPUT"
_INFO = re.compile(r"profiler_info_(\d+)\.json")
_RANK = re.compile(r"rank[-_]?(\d+)", re.IGNORECASE)


def is_ascend_folder(folder: Path) -> bool:
    """Return whether a folder is one rank's ``*_ascend_pt`` or its output."""
    return (folder / OUTPUT).is_dir() or any(
        (folder / name).exists() for name in ("trace_view.json", "trace_view.json.gz")
    )


def read_ascend_folder(folder: Path) -> RankProfile:
    """Return one rank from a ``*_ascend_pt`` folder, text or database, with HCCL's account."""
    output = folder / OUTPUT if (folder / OUTPUT).is_dir() else folder
    rank = _rank_of(folder)
    profile = _spans(output)
    notes: Counter[str] = Counter()
    library = profile.library or _library(output, notes)
    stated = _first(output, "step_trace_time.csv")
    split = None
    if profile.timeline is None and stated is None:
        raise InputError(f"{folder}: no trace_view.json, database, kernel_details.csv or "
                         "step_trace_time.csv in it")  # fmt: skip
    if stated is not None and profile.timeline is None:
        split = read_step_trace(stated).split
    profile = replace(
        profile,
        library=library,
        split=split,
        path=str(folder),
        notes=profile.notes + tuple(f"{folder.name}: {t} ({n})" for t, n in notes.items()),
    )
    if rank is not None:
        profile = replace(profile.as_rank(rank), named=True)
    return profile


def _first(folder: Path, *patterns: str) -> Path | None:
    for pattern in patterns:
        for path in sorted([*folder.glob(pattern), *folder.glob(pattern + ".gz")]):
            return path
    return None


def _spans(output: Path) -> RankProfile:
    if path := _first(output, "trace_view.json"):
        return read_chrome(path)
    if path := _first(output, "ascend_pytorch_profiler*.db", "msprof_*.db"):
        profile = read_ascend_db(path)
        analysis = _first(output, "analysis.db")
        return replace(profile, library=read_analysis_db(analysis)) if analysis else profile
    if path := _first(output, "kernel_details.csv"):
        return read_kernel_details(path)
    return RankProfile(rank=0, source="torch_npu", path=str(output), named=False)


def _rank_of(folder: Path) -> int | None:
    for place in (folder, folder.parent):
        for path in sorted(place.glob("profiler_info_*.json")):
            if match := _INFO.fullmatch(path.name):
                return int(match.group(1)) if len(match.group(1)) < 9 else None
    for place in (folder, folder.parent):
        if match := _RANK.search(place.name):
            return int(match.group(1)) if len(match.group(1)) < 9 else None
    return None


def _library(output: Path, notes: Counter[str]) -> tuple[Library, ...]:
    path = _first(output, "communication.json")
    if path is None:
        return ()
    steps = load_json(path, notes)
    found: list[Library] = []
    for kinds in steps.values():
        for operations in kinds.values() if isinstance(kinds, dict) else ():
            found.extend(library_of(operations))
    return tuple(found)


def load_json(path: Path, notes: Counter[str]) -> dict[str, Any]:
    """Return the object in a JSON file; empty, and a note, when it cannot be read."""
    try:
        value = msgspec.json.decode(read_text(path, notes))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        notes[f"{path.name} cannot be read as JSON"] += 1
        return {}
    return value if isinstance(value, dict) else {}


def library_of(operations: object) -> list[Library]:
    """Return HCCL's account of ``{operation: {"Communication Time Info": {...}}}``."""
    found = []
    for name, info in operations.items() if isinstance(operations, dict) else ():
        times = info.get("Communication Time Info") if isinstance(info, dict) else None
        if name == "Total Op Info" or not isinstance(times, dict):
            continue
        moved = info.get("Communication Bandwidth Info")
        sizes = [
            number(link.get("Transit Size(MB)")) if isinstance(link, dict) else 0.0
            for kind, link in (moved.items() if isinstance(moved, dict) else ())
            if kind in ("RDMA", "SDMA", "SIO")
        ]
        ms = {key: max(number(times.get(f"{key} Time(ms)")), 0.0) * 1e-3
              for key in ("Elapse", "Transit", "Wait", "Idle")}  # fmt: skip
        found.append(
            Library(name, ms["Elapse"], ms["Transit"], ms["Wait"], ms["Idle"], sum(sizes) * 1e6)
        )
    return found


def read_kernel_details(path: Path) -> RankProfile:
    """Return the spans in ``kernel_details.csv``: computing cores and HCCL rows."""
    rows, notes, steps = Rows(), Counter[str](), set()
    seen: set[tuple[int, str]] = set()
    for row in csv_rows(path, notes):
        try:
            start = nanoseconds(row.get("Start Time(us)", "").encode())
            length = round(float(row.get("Duration(us)", "")) * 1000)
        except (ValueError, OverflowError):
            notes["rows without a usable time were skipped"] += 1
            continue
        name, core = row.get("Name", ""), row.get("Accelerator Core", "")
        comm = core.upper() in ("HCCL", "COMMUNICATION") or bool(COMM_NAME.match(name))
        if not (0 <= length < 2**58 and 0 <= start < 2**61) or (start, name) in seen:
            notes["rows that repeat or make no sense were skipped"] += 1
            continue
        seen.add((start, name))
        lane = "hccl" if comm else f"stream {row.get('Stream ID', '')}"
        at = rows.add(start, start + length, lane, COMM if comm else COMPUTE, name)
        if comm and "__" in name:
            rows.wire[at] = (0, name.split("__")[1].split("_")[0])
        if row.get("Step Id", "").isdigit() and len(row["Step Id"]) < 9:
            steps.add(int(row["Step Id"]))
    if not len(rows.start):
        raise InputError(f"{path}: no kernel in it", out="columns Start Time(us), Duration(us)")
    first, last = min(rows.start), max(rows.end)
    ids = [(n, first, last) for n in sorted(steps)[:1]] if len(steps) == 1 else []
    timeline, moved = rows.timeline(0, "torch_npu", 0, ids)
    return RankProfile(
        rank=0, source="torch_npu", path=str(path), timeline=timeline, steps=moved, named=False,
        notes=tuple(f"{path.name}: {t} ({n})" for t, n in notes.items()),
    )  # fmt: skip


def split_of_row(row: dict[str, str], rank: int) -> RankSplit:
    """Return the totals of one row of step_trace_time (microseconds)."""
    us = {key: max(number(value), 0.0) * 1e-6 for key, value in row.items()}
    compute, exposed = us.get("Computing", 0.0), us.get("Communication(Not Overlapped)", 0.0)
    hidden, idle = us.get("Overlapped", 0.0), us.get("Free", 0.0)
    return RankSplit(
        rank=rank,
        span_s=compute + exposed + idle,
        compute_s=compute,
        comm_s=us.get("Communication", exposed + hidden),
        exposed_s=exposed,
        hidden_s=hidden,
        copy_s=0.0,
        idle_s=idle,
        bubble_s=us.get("Bubble", 0.0),
    )


def sum_splits(splits: list[RankSplit]) -> RankSplit:
    """Return the sum over steps of one rank's totals."""
    total = {name: sum(getattr(s, name) for s in splits)
             for name in RankSplit.__struct_fields__ if name != "rank"}  # fmt: skip
    return RankSplit(rank=splits[0].rank, **total)


def read_step_trace(path: Path) -> RankProfile:
    """Return the totals in one rank's ``step_trace_time.csv``."""
    notes: Counter[str] = Counter()
    rows = [row for row in csv_rows(path, notes) if "Computing" in row]
    if not rows:
        raise InputError(f"{path}: no step in it", out="columns Step, Computing, Communication ...")
    steps = [int(row.get("Step", "")) for row in rows
             if row.get("Step", "").isdigit() and len(row["Step"]) < 9]  # fmt: skip
    return RankProfile(
        rank=0, source="torch_npu", path=str(path), named=False,
        split=sum_splits([split_of_row(row, 0) for row in rows]),
        steps=tuple((n, 0, 0) for n in steps),
        notes=tuple(f"{path.name}: {t} ({n})" for t, n in notes.items()),
    )  # fmt: skip


def read_ascend_db(path: Path) -> RankProfile:
    """Return the spans in ``ascend_pytorch_profiler_<rank>.db`` (times are integers there)."""
    notes: Counter[str] = Counter()
    with database(path, notes) as base:
        there = tables(base)
        if not {"STRING_IDS", "TASK"} <= there:
            raise InputError(f"{path}: not a torch_npu database (no STRING_IDS and TASK)")
        rows = Rows()
        text = {whole(k): str(v) for k, v in base.execute("SELECT id, value FROM STRING_IDS")}
        _db_compute(base, there, text, rows)
        _db_comm(base, there, text, rows)
        steps = []
        if "STEP_TIME" in there:
            query = "SELECT id, startNs, endNs FROM STEP_TIME"
            steps = [(whole(a) % 2**31, whole(b), whole(c)) for a, b, c in base.execute(query)]
        rank = None
        if "RANK_DEVICE_MAP" in there:
            ids = [whole(row[0]) for row in base.execute("SELECT rankId FROM RANK_DEVICE_MAP")]
            rank = ids[0] if len(ids) == 1 and 0 <= ids[0] < 2**31 else None
        device = ""
        if "NPU_INFO" in there:
            device = ", ".join(
                sorted({str(r[0]) for r in base.execute("SELECT name FROM NPU_INFO")})
            )
    if not len(rows.start):
        raise InputError(f"{path}: no computing and no communication in it")
    if rank is None and (match := re.search(r"profiler_(\d{1,8})\.db", path.name)):
        rank = int(match.group(1))
    timeline, moved = rows.timeline(rank or 0, "torch_npu-db", 0, steps)
    return RankProfile(
        rank=rank or 0, source="torch_npu-db", path=str(path), timeline=timeline, steps=moved,
        device=device, named=rank is not None,
        notes=tuple(f"{path.name}: {t} ({n})" for t, n in notes.items()),
    )  # fmt: skip


def _db_compute(
    base: sqlite3.Connection, there: set[str], text: dict[int, str], rows: Rows
) -> None:
    if "COMPUTE_TASK_INFO" not in there:
        return
    query = ("SELECT t.startNs, t.endNs, t.streamId, c.name FROM TASK t "
             "JOIN COMPUTE_TASK_INFO c ON c.globalTaskId = t.globalTaskId")  # fmt: skip
    for start, end, stream, name in base.execute(query):
        a, b = whole(start), whole(end)
        if 0 < a <= b:
            rows.add(a, b, f"stream {whole(stream)}", COMPUTE, text.get(whole(name), "?"))


def _db_comm(base: sqlite3.Connection, there: set[str], text: dict[int, str], rows: Rows) -> None:
    if "COMMUNICATION_OP" not in there:
        return
    kinds = {}
    if "ENUM_HCCL_DATA_TYPE" in there:
        query = "SELECT id, name FROM ENUM_HCCL_DATA_TYPE"
        kinds = {whole(k): dtype_bytes(str(v)) for k, v in base.execute(query)}
    query = "SELECT startNs, endNs, opName, groupName, count, dataType FROM COMMUNICATION_OP"
    for start, end, name, group, count, kind in base.execute(query):
        a, b = whole(start), whole(end)
        if 0 < a <= b:
            row = rows.add(a, b, "hccl", COMM, text.get(whole(name), "?"))
            size = max(whole(count), 0) * kinds.get(whole(kind), 0)
            rows.wire[row] = (size, text.get(whole(group), ""))


def read_analysis_db(path: Path) -> tuple[Library, ...]:
    """Return HCCL's account from ``analysis.db`` (CommAnalyzerTime, milliseconds)."""
    notes: Counter[str] = Counter()
    with database(path, notes) as base:
        if "CommAnalyzerTime" not in tables(base):
            return ()
        query = ("SELECT hccl_op_name, elapse_time, transit_time, wait_time, idle_time "
                 "FROM CommAnalyzerTime")  # fmt: skip
        return tuple(
            Library(str(name), *(max(number(v), 0.0) * 1e-3 for v in values))
            for name, *values in base.execute(query)
            if name != "Total Op Info"
        )
