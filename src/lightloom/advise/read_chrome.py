"""Kineto (CUDA, ROCm) and torch_npu ``trace_view.json``: Chrome events to one rank's spans."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from lightloom.core.errors import InputError
from lightloom.core.timeline import COMM, COMPUTE, COPY, MARK

from .profile import COMM_NAME, RankProfile, Rows, dtype_bytes
from .stream import Event, Trace, nanoseconds

DEVICE = {
    "kernel": COMPUTE, "gpu_memcpy": COPY, "gpu_memset": COPY, "Kernel": COMPUTE, "Memcpy": COPY,
    "Memset": COPY,
}  # fmt: skip
"""Kineto categories of work on the device, new and old spelling."""
_SPOKEN = ("ProfilerStep#", "nccl:", "record_param_comms")
"""Beginnings of the host events that are read."""
STEP = re.compile(r"ProfilerStep#(\d+)")
_TASK = re.compile(rb'"Task Type"\s*:\s*"([^"]*)"')
_COMPUTE_TASK = re.compile(r"AI_?CORE|AI_?VEC|AIV|AIC|MIX|AI_?CPU|DSA|STARS_COMMON|KERNEL", re.I)
_RANK_IN_NAME = re.compile(r"(?:rank|worker|device)[-_.]?(\d+)", re.IGNORECASE)
_FURTHEST = 2**61
"""Nanoseconds of any time of day: year 2043."""
_LONGEST = 2**58
"""Nanoseconds of any span: nine years."""


@dataclass(slots=True)
class _Collector:
    """State of one pass over a trace."""

    rows: Rows = field(default_factory=Rows)
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    process: dict[bytes, str] = field(default_factory=dict)
    thread: dict[tuple[bytes, bytes], str] = field(default_factory=dict)
    calls: list[tuple[int, str, int, str]] = field(default_factory=list)
    """Host calls of collectives: (start, name, bytes, group)."""
    marks: list[tuple[int, str, int, str]] = field(default_factory=list)
    """Annotations ``nccl:all_reduce``: the same, from older profilers."""
    loose: dict[tuple[bytes, bytes], _Loose] = field(default_factory=dict)
    """Events without a category (torch_npu device side), by process and thread."""
    comm: dict[str, bool] = field(default_factory=dict)
    """Kernel name -> whether it communicates."""
    spoken: dict[str, bool] = field(default_factory=dict)
    """Name of a host event -> whether it is read."""
    streams: dict[bytes, str] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Loose:
    start: array[int] = field(default_factory=lambda: array("q"))
    end: array[int] = field(default_factory=lambda: array("q"))
    name: list[str] = field(default_factory=list)
    task: list[str] = field(default_factory=list)
    args: list[bytes] = field(default_factory=list)


def read_chrome(path: Path) -> RankProfile:
    """Return the spans of the rank that wrote a Chrome trace."""
    trace, c = Trace(path), _Collector()
    for events in trace.events():
        _take(events, c)
    source = "kineto"
    if c.loose and _ascend(c):
        source = "torch_npu"
    else:
        _wire_calls(c)
    if not len(c.rows.start):
        _host_only(path, c)
        source = "kineto-cpu"
    return _profile(path, trace, c, source)


def _profile(path: Path, trace: Trace, c: _Collector, source: str) -> RankProfile:
    info = trace.head.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    named = re.search(_RANK_IN_NAME, path.name) or re.search(_RANK_IN_NAME, path.parent.name)
    rank = info.get("rank", int(named.group(1)) if named else None)
    base = trace.head.get("baseTimeNanoseconds", 0)
    base = base if isinstance(base, int) and 0 <= base < _FURTHEST else 0
    number = rank if isinstance(rank, int) and 0 <= rank < 2**31 else 0
    timeline, steps = c.rows.timeline(number, source, base, c.steps)
    world = info.get("world_size", 0)
    world = world if isinstance(world, int) and 0 < world < 2**31 else 0
    notes = [f"{path.name}: {text} ({n})" for text, n in (trace.notes + c.notes).items()]
    groups = info.get("pg_config")
    return RankProfile(
        rank=number,
        source=source,
        path=str(path),
        chrome=str(path),
        timeline=timeline,
        steps=steps,
        world_size=world,
        device=_device(trace.head),
        base_ns=base,
        named=isinstance(rank, int),
        job=f"{world}/{len(groups) if isinstance(groups, list) else 0}" if world else "",
        notes=tuple(notes),
    )


def _device(head: dict[str, Any]) -> str:
    match head.get("deviceProperties"):
        case [{"name": str(name)}, *_]:
            return name
        case _:
            return ""


def _take(events: list[Event], c: _Collector) -> None:
    """File what one list of events says."""
    add, device, is_comm, spoken, streams = c.rows.add, DEVICE, c.comm, c.spoken, c.streams
    for e in events:
        cat, name = e.cat, e.name
        if cat in device:
            kind = device[cat]
            if kind == COMPUTE:
                told = is_comm.get(name)
                if told is None:
                    told = is_comm[name] = COMM_NAME.search(name) is not None
                kind = COMM if told else COMPUTE
            if (span := _span(e, c.notes)) is None:
                continue
            tid = bytes(e.tid)
            lane = streams.get(tid)
            if lane is None:
                lane = streams[tid] = f"stream {tid.decode(errors='replace')}"
            if kind == COMM:
                _take_comm(e, span, lane, c.rows)
            else:
                add(span[0], span[1], lane, kind, name)
        elif cat == "cpu_op" or cat == "user_annotation":
            heard = spoken.get(name)
            if heard is None:
                heard = spoken[name] = name.startswith(_SPOKEN)
            if heard and e.ph == "X":
                _take_host(e, c)
        elif not cat and e.ph == "X":
            _take_loose(e, c)
        elif e.ph == "M":
            _take_name(e, c)


def _span(e: Event, notes: Counter[str]) -> tuple[int, int] | None:
    """Return (start, end) of an event in nanoseconds; None, and a note, when it makes no sense."""
    try:
        start = nanoseconds(e.ts)
        length = round(e.dur * 1000)
    except (ValueError, OverflowError):
        try:
            text = float(bytes(e.ts).strip(b'"'))
            start, length = round(text * 1000), round(e.dur * 1000)
        except (ValueError, OverflowError):
            notes["events without a usable time were skipped"] += 1
            return None
    if not (0 <= length <= _LONGEST and -_LONGEST <= start <= _FURTHEST):
        notes["events with an impossible time were skipped"] += 1
        return None
    return start, start + length


def _take_host(e: Event, c: _Collector) -> None:
    span = _span(e, c.notes)
    if span is None:
        return
    if match := STEP.match(e.name):
        if len(match.group(1)) < 10:
            c.steps.append((int(match.group(1)), *span))
        return
    args = _json(bytes(e.args))
    if e.name.startswith("nccl:"):
        size = _dims_bytes(args.get("Input Dims"), args.get("Input type"))
        c.marks.append((span[0], e.name[5:], size, ""))
    else:
        name = args.get("Collective name")
        if isinstance(name, str) and name not in ("wait", "barrier", "init"):
            c.calls.append((span[0], name, *_payload(args)))


def _payload(args: dict[str, Any]) -> tuple[int, str]:
    """Return (bytes as nccl-tests count them, group name) of a record_param_comms or kernel."""
    elements = [args.get("In msg nelems"), args.get("Out msg nelems")]
    most = max((n for n in elements if isinstance(n, int)), default=0)
    size = most * dtype_bytes(str(args.get("dtype", "")))
    group = args.get("Process Group Ranks") or args.get("Process Group Name") or ""
    axis = str(args.get("Process Group Description") or "")
    text = str(group).strip("[]").replace(" ", "")
    axis = "" if axis in ("default_pg", "undefined") else axis
    return size, f"{axis}:{text}" if axis else text


def _take_comm(e: Event, span: tuple[int, int], lane: str, rows: Rows) -> None:
    """File a collective with the bytes and group that newer profilers write on the kernel."""
    args, name = bytes(e.args), e.name
    told = b"msg nelems" in args or b"Process Group" in args
    fields = _json(args) if told else {}
    call = fields.get("Collective name")
    if isinstance(call, str) and "generic" in name.lower():
        name = f"{call}: {name}"
    row = rows.add(*span, lane, COMM, name)
    if told:
        rows.wire[row] = _payload(fields)


def _wire_calls(c: _Collector) -> None:
    """Give kernels the payload of their host calls, where each call has exactly one kernel."""
    comm = [i for i in range(len(c.rows.kind)) if c.rows.kind[i] == COMM]
    comm = sorted((i for i in comm if i not in c.rows.wire), key=lambda i: c.rows.start[i])
    own = c.rows.names
    names = list(own)
    for calls in (sorted(c.calls), sorted(c.marks)):
        if comm and len(calls) == len(comm):
            for row, (_, call, size, group) in zip(comm, calls, strict=True):
                c.rows.wire[row] = (size, group)
                name = names[c.rows.name[row]]
                if "generic" in name.lower():
                    c.rows.name[row] = own.setdefault(f"{call}: {name}", len(own))
            return


def _dims_bytes(dims: object, types: object) -> int:
    """Return bytes of the first tensor from ``[[394241]]`` and ``["float"]``."""
    match dims, types:
        case [[*shape], *_], [str(kind), *_]:
            sizes = [n for n in shape if isinstance(n, int)]
            return math.prod(sizes) * dtype_bytes(kind) if len(sizes) == len(shape) else 0
        case _:
            return 0


def _json(text: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text) if text else {}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _take_name(e: Event, c: _Collector) -> None:
    if e.name not in ("process_name", "thread_name"):
        return
    name, pid = str(_json(bytes(e.args)).get("name", "")), bytes(e.pid)
    if e.name == "process_name":
        c.process[pid] = name
    else:
        c.thread[pid, bytes(e.tid)] = name


def _take_loose(e: Event, c: _Collector) -> None:
    if (span := _span(e, c.notes)) is None:
        return
    loose = c.loose.setdefault((bytes(e.pid), bytes(e.tid)), _Loose())
    loose.start.append(span[0])
    loose.end.append(span[1])
    loose.name.append(e.name)
    args = bytes(e.args)
    task = _TASK.search(args)
    loose.task.append(task.group(1).decode(errors="replace") if task else "")
    loose.args.append(args if e.name.startswith("hcom") else b"")


def _ascend(c: _Collector) -> bool:
    """File the device side of a torch_npu trace; False when there is none.

    Computing is the profiler's own *Computing* lane (its names come from the hardware stream's
    task with the same times); communication the operations of the HCCL lane. Copies stay marks:
    torch_npu counts them as free time, and so do the figures compared with it.
    """
    hardware = _lanes(c, "ascend hardware")
    overlap = _lanes(c, "overlap analysis")
    hccl = _lanes(c, "hccl") or _lanes(c, "communication")
    if not hardware and not overlap and not hccl:
        return False
    known: dict[tuple[int, int], tuple[str, str]] = {}
    copies = 0
    for lane, loose in hardware:
        for i, task in enumerate(loose.task):
            if _COMPUTE_TASK.search(task):
                known[loose.start[i], loose.end[i]] = lane, loose.name[i]
            elif task.startswith("MEMCPY") or loose.name[i].startswith("MEMCPY"):
                c.rows.add(loose.start[i], loose.end[i], lane, MARK, loose.name[i])
                copies += 1
    computing = [pair for lane, pair in overlap if lane == "Computing"]
    spans = [(p.start[i], p.end[i]) for p in computing for i in range(len(p.start))]
    for span in spans or sorted(known):
        lane, name = known.get(span, ("Computing", "Computing"))
        c.rows.add(*span, lane, COMPUTE, name)
    _ascend_comm(c, hccl, overlap)
    if copies:
        c.notes["copies lie inside idle, as in torch_npu's own Free"] += copies
    return len(c.rows.start) > 0


def _ascend_comm(
    c: _Collector, hccl: list[tuple[str, _Loose]], overlap: list[tuple[str, _Loose]]
) -> None:
    found = False
    for lane, loose in hccl:
        for i, name in enumerate(loose.name):
            if name.startswith("hcom"):
                row = c.rows.add(loose.start[i], loose.end[i], lane, COMM, name)
                args = _json(loose.args[i])
                count = args.get("count")
                size = count if isinstance(count, int) else 0
                group = name.split("__")[1].split("_")[0] if "__" in name else ""
                c.rows.wire[row] = (size * dtype_bytes(str(args.get("data_type", ""))), group)
                found = True
    if not found:
        for lane, loose in overlap:
            if lane == "Communication":
                for i in range(len(loose.start)):
                    c.rows.add(loose.start[i], loose.end[i], lane, COMM, "Communication")


def _lanes(c: _Collector, process: str) -> list[tuple[str, _Loose]]:
    """Return (thread name, events) of every lane of the processes named so."""
    return [
        (c.thread.get(key, key[1].decode(errors="replace")), loose)
        for key, loose in c.loose.items()
        if c.process.get(key[0], "").lower().startswith(process)
    ]


def _host_only(path: Path, c: _Collector) -> None:
    """Read a trace without device events: operators of the processor stand for computing."""
    trace = Trace(path)
    for events in trace.events():
        for e in events:
            cat = e.cat
            if e.ph != "X" or cat not in ("cpu_op", "user_annotation"):
                continue
            comm = e.name.startswith(("gloo:", "mpi:", "nccl:", "hccl:"))
            compute = cat == "cpu_op" and not e.name.startswith(("c10d::", "record_param"))
            if not (comm or compute) or (span := _span(e, c.notes)) is None:
                continue
            kind = COMM if comm else COMPUTE
            row = c.rows.add(*span, f"thread {bytes(e.tid).decode(errors='replace')}", kind, e.name)
            if comm:
                args = _json(bytes(e.args))
                size = _dims_bytes(args.get("Input Dims"), args.get("Input type"))
                c.rows.wire[row] = (size, "")
    if not len(c.rows.start):
        raise InputError(
            f"{path}: no work on a device in it and no operators either",
            out="profile with ProfilerActivity.CUDA (or NPU) and at least one active step",
        )
    c.notes["no device events: operators of the processor stand for computing"] += 1


def host_work(path: Path, start_ns: int, end_ns: int) -> list[tuple[str, int]]:
    """Return (name, nanoseconds inside the window) of host events, outermost and longest first.

    `start_ns` and `end_ns` are on the trace's own clock (without its base).
    """
    found: list[tuple[str, int]] = []
    notes: Counter[str] = Counter()
    for events in Trace(path).events():
        for e in events:
            if e.ph == "X" and e.cat in ("cpu_op", "user_annotation", "python_function",
                                         "cuda_runtime", "Operator"):  # fmt: skip
                span = None if STEP.match(e.name) else _span(e, notes)
                if span is not None:
                    inside = min(span[1], end_ns) - max(span[0], start_ns)
                    longer = 4 * (end_ns - start_ns) < span[1] - span[0]
                    if inside > 0 and not longer:
                        found.append((e.name, inside))
    return sorted(found, key=lambda pair: -pair[1])[:5]
