"""Timelines on disk: versioned JSON columns, gzip when the name ends in ``.gz``.

::

    write_timeline("step.json.gz", timeline_of(spans, source="run"))
    timeline = read_timeline("step.json.gz")

Column names in the file are the field names of `Timeline` without the axis suffix. Integers are
nanoseconds; a file written and read is equal to the last one.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .files import LARGEST, decode_json, read_bytes, write_bytes
from .timeline import KINDS, Timeline

COLUMNS = {
    "start": np.int64, "end": np.int64, "rank": np.int32, "lane": np.int32, "kind": np.int32,
    "name": np.int32, "bytes": np.int64, "group": np.int32, "match": np.int64, "step": np.int32,
}  # fmt: skip
"""Column of the file -> type of the array ``<column>_N``."""


class Span(NamedTuple):
    """One row of a timeline while it is being made; strings are interned by `timeline_of`."""

    start_ns: int
    end_ns: int
    rank: int
    lane: str
    kind: int
    """Index into `KINDS`: COMPUTE, COMM, COPY, HOST, IDLE or MARK."""
    name: str
    bytes: int = 0
    group: str = ""
    """``axis:ranks`` where known (``dp:0,4,8,12``); empty where there is none."""
    match: int = -1
    step: int = -1


class TimelineFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file holds."""

    version: int = 1
    kind: Literal["timeline"] = "timeline"
    source: str = ""
    origin_ns: int = 0
    meta: dict[str, str] = {}
    names: tuple[str, ...]
    lanes: tuple[str, ...]
    groups: tuple[str, ...] = ()
    columns: dict[str, list[int]]


class _Table:
    """Interns strings in the order in which they are first seen."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def of(self, text: str) -> int:
        return self.index.setdefault(text, len(self.index))


def timeline_of(
    spans: Iterable[Span],
    *,
    source: str,
    origin_ns: int = 0,
    meta: dict[str, str] | None = None,
) -> Timeline:
    """Return a timeline of `spans`, ordered by start then rank (ties keep their order)."""
    names, lanes, groups = _Table(), _Table(), _Table()
    rows = [
        (
            s.start_ns, s.end_ns, s.rank, lanes.of(s.lane), s.kind, names.of(s.name), s.bytes,
            groups.of(s.group) if s.group else -1, s.match, s.step,
        )
        for s in sorted(spans, key=lambda s: (s.start_ns, s.rank))
    ]  # fmt: skip
    table = np.array(rows, dtype=np.int64).reshape(-1, len(COLUMNS))
    columns = {
        f"{name}_N": table[:, i].astype(kind) for i, (name, kind) in enumerate(COLUMNS.items())
    }
    return Timeline(
        **columns, names=tuple(names.index), lanes=tuple(lanes.index), groups=tuple(groups.index),
        origin_ns=origin_ns, source=source, meta=dict(meta or {}),
    )  # fmt: skip


def merge(timelines: Sequence[Timeline]) -> Timeline:
    """Return one timeline of several (one a rank, say), on the earliest origin among them."""
    if not timelines:
        raise InputError("no timeline to merge")
    if len(timelines) == 1:
        return timelines[0]
    origin = min(t.origin_ns for t in timelines)
    names, lanes, groups = _Table(), _Table(), _Table()
    parts: dict[str, list[NDArray[np.int64]]] = {name: [] for name in COLUMNS}
    meta: dict[str, str] = {}
    for t in timelines:
        shift = t.origin_ns - origin
        swap = {"name": [names.of(x) for x in t.names], "lane": [lanes.of(x) for x in t.lanes],
                "group": [groups.of(x) for x in t.groups]}  # fmt: skip
        for column, part in parts.items():
            values = getattr(t, f"{column}_N").astype(np.int64)
            if column in swap:
                values = np.array([*swap[column], -1], dtype=np.int64)[values]
            part.append(values + shift if column in ("start", "end") else values)
        meta |= t.meta
    whole = {name: np.concatenate(part) for name, part in parts.items()}
    order = np.lexsort((whole["rank"], whole["start"]))
    columns = {f"{name}_N": whole[name][order].astype(kind) for name, kind in COLUMNS.items()}
    sources = dict.fromkeys(t.source for t in timelines)
    return Timeline(
        **columns, names=tuple(names.index), lanes=tuple(lanes.index), groups=tuple(groups.index),
        origin_ns=origin, source="+".join(sources), meta=meta,
    )  # fmt: skip


def encode_timeline(timeline: Timeline) -> bytes:
    """Return the JSON of a timeline (one line; the same timeline gives the same bytes)."""
    return msgspec.json.encode(
        TimelineFile(
            source=timeline.source,
            origin_ns=timeline.origin_ns,
            meta=timeline.meta,
            names=timeline.names,
            lanes=timeline.lanes,
            groups=timeline.groups,
            columns={name: getattr(timeline, f"{name}_N").tolist() for name in COLUMNS},
        )
    )


def decode_timeline(data: bytes, where: str) -> Timeline:
    """Return the timeline in `data` after checking lengths, indices and order of times."""
    file = decode_json(data, TimelineFile, where)
    if file.version != 1:
        raise InputError(f"{where}: timeline version {file.version}, this program reads 1")
    missing = [name for name in COLUMNS if name not in file.columns]
    if missing or len(file.columns) != len(COLUMNS):
        raise InputError(f"{where}: columns must be {', '.join(COLUMNS)}", out=f"not {missing}")
    if len({len(values) for values in file.columns.values()}) != 1:
        raise InputError(f"{where}: columns differ in length")
    try:
        columns = {
            f"{name}_N": np.array(file.columns[name], dtype=kind) for name, kind in COLUMNS.items()
        }
    except OverflowError as error:
        raise InputError(f"{where}: a number does not fit its column: {error}") from error
    for name, size, low in (("name", len(file.names), 0), ("lane", len(file.lanes), 0),
                            ("group", len(file.groups), -1), ("kind", len(KINDS), 0)):  # fmt: skip
        values = columns[f"{name}_N"]
        if len(values) and (values.min() < low or values.max() >= size):
            raise InputError(f"{where}: column {name} points outside its table of {size}")
    if bool(np.any(columns["end_N"] < columns["start_N"])):
        raise InputError(f"{where}: a span ends before it starts")
    return Timeline(
        **columns, names=file.names, lanes=file.lanes, groups=file.groups,
        origin_ns=file.origin_ns, source=file.source, meta=file.meta,
    )  # fmt: skip


def write_timeline(path: Path | str, timeline: Timeline) -> None:
    """Write a timeline atomically; ``.gz`` at the end of the name packs it (no time stamp)."""
    data = encode_timeline(timeline)
    write_bytes(path, gzip.compress(data, 6, mtime=0) if str(path).endswith(".gz") else data)


def read_timeline(path: Path | str) -> Timeline:
    """Return the timeline in a ``.json`` or ``.json.gz`` file."""
    data = read_bytes(path, "timeline")
    if data[:2] == b"\x1f\x8b":
        try:
            unpack = zlib.decompressobj(31)
            data = unpack.decompress(data, LARGEST)
        except zlib.error as error:
            raise InputError(f"timeline {path}: broken gzip: {error}") from error
        if unpack.unconsumed_tail:
            raise InputError(f"timeline {path} is larger than 512 MiB when unpacked")
    return decode_timeline(data, f"timeline {path}")
