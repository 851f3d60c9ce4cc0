"""A timeline as other programs read it: Chrome/Perfetto trace events, and CSV.

The trace opens in ui.perfetto.dev and chrome://tracing: a process per rank, a thread per lane.
Format: "Trace Event Format" (Google), complete events ``X``, metadata ``M``, microseconds.
"""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from lightloom.core.errors import InputError
from lightloom.core.files import decode_json, read_bytes, write_bytes
from lightloom.core.timeline import KINDS, Timeline


class TraceEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One event, as strict as the format allows."""

    name: str
    ph: Literal["X", "M"]
    pid: int
    tid: int
    ts: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    dur: Annotated[float, msgspec.Meta(ge=0)] | None = None
    cat: str | None = None
    args: dict[str, str | int | float] | None = None


class Trace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    traceEvents: list[TraceEvent]  # the format's own spelling
    displayTimeUnit: Literal["ms", "ns"] = "ms"
    otherData: dict[str, str] = {}


def trace_of(timeline: Timeline, *, said: dict[str, str] | None = None) -> Trace:
    """Return the trace events of a timeline."""
    events: list[TraceEvent] = []
    for rank in timeline.ranks:
        events.append(TraceEvent("process_name", "M", rank, 0, args={"name": f"rank {rank}"}))
        events.append(TraceEvent("process_sort_index", "M", rank, 0, args={"sort_index": rank}))
        lanes = np.unique(timeline.lane_N[timeline.rank_N == rank])
        events += [
            TraceEvent("thread_name", "M", rank, int(lane), args={"name": timeline.lanes[lane]})
            for lane in lanes
        ]
    columns = zip(
        timeline.start_N.tolist(), timeline.end_N.tolist(), timeline.rank_N.tolist(),
        timeline.lane_N.tolist(), timeline.kind_N.tolist(), timeline.name_N.tolist(),
        timeline.bytes_N.tolist(), timeline.group_N.tolist(), strict=True,
    )  # fmt: skip
    for start, end, rank, lane, kind, name, size, group in columns:
        args: dict[str, str | int | float] = {}
        if size:
            args["bytes"] = size
        if group >= 0:
            args["group"] = timeline.groups[group]
        events.append(TraceEvent(timeline.names[name], "X", rank, lane, start / 1e3,
                                 (end - start) / 1e3, KINDS[kind], args or None))  # fmt: skip
    return Trace(events, "ms", {"source": timeline.source, **(said or {})})


def write_trace(path: Path | str, timeline: Timeline, said: dict[str, str] | None = None) -> int:
    """Write a trace (``.gz`` packs it), read it back and check it; return its events."""
    data = msgspec.json.encode(trace_of(timeline, said=said))
    write_bytes(path, gzip.compress(data, 6, mtime=0) if str(path).endswith(".gz") else data)
    return check_trace(path)


def check_trace(path: Path | str) -> int:
    """Return the number of events of a trace file that keeps the format, or say what breaks it.

    Complete events need a duration, every thread and process a name, and events of one thread
    must not overlap.
    """
    data = read_bytes(path, "trace")
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise InputError(f"trace {path}: broken gzip: {error}") from error
    trace = decode_json(data, Trace, f"trace {path}")
    named = {(e.pid, e.tid) for e in trace.traceEvents if e.name == "thread_name"}
    last: dict[tuple[int, int], float] = {}
    spans = [e for e in trace.traceEvents if e.ph == "X"]
    for event in sorted(spans, key=lambda e: e.ts):
        where = (event.pid, event.tid)
        if event.dur is None:
            raise InputError(f"trace {path}: {event.name} of rank {event.pid} has no duration")
        if where not in named:
            raise InputError(f"trace {path}: thread {event.tid} of rank {event.pid} has no name")
        if event.ts < last.get(where, 0.0) - 2e-3:
            raise InputError(f"trace {path}: rank {event.pid} does two things at {event.ts} us")
        last[where] = event.ts + event.dur
    return len(trace.traceEvents)


def csv_of(timeline: Timeline) -> str:
    """Return the timeline as CSV: one span a line, seconds and bytes."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["rank", "lane", "kind", "name", "start_s", "end_s", "bytes", "group"])
    for i in range(len(timeline)):
        group = int(timeline.group_N[i])
        writer.writerow([
            int(timeline.rank_N[i]), timeline.lanes[timeline.lane_N[i]],
            KINDS[timeline.kind_N[i]], timeline.names[timeline.name_N[i]],
            f"{timeline.start_N[i] / 1e9:.9f}", f"{timeline.end_N[i] / 1e9:.9f}",
            int(timeline.bytes_N[i]), timeline.groups[group] if group >= 0 else "",
        ])  # fmt: skip
    return stream.getvalue()
