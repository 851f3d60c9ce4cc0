"""A reader of Chakra traces, independent of the writer, and the rules a replayer relies on."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from lightloom.core.errors import InputError
from lightloom.core.finding import Finding

KINDS = {1: "metadata", 2: "load", 3: "store", 4: "compute", 5: "send", 6: "receive",
         7: "collective"}  # fmt: skip
NEEDS = {5: {"comm_dst", "comm_size", "comm_tag"}, 6: {"comm_src", "comm_size", "comm_tag"},
         7: {"comm_type", "comm_size"}}  # fmt: skip


class Read(NamedTuple):
    """One node as read back."""

    identity: int
    name: str
    kind: int
    after: tuple[int, ...]
    micros: int
    attributes: dict[str, int | str | bool | float]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (value, next place)."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            break
    raise InputError(f"byte {at}: a number is cut off")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field, value) of one message; bytes for length-delimited fields."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
            yield key >> 3, value
        elif kind in (1, 2, 5):
            size = {1: 8, 5: 4}.get(kind, 0)
            if kind == 2:
                size, at = varint(data, at)
            if at + size > len(data):
                raise InputError(f"a field of {size} bytes is cut off")
            yield key >> 3, data[at : at + size]
            at += size
        else:
            raise InputError(f"wire type {kind} is not protobuf")


def messages(data: bytes) -> Iterator[bytes]:
    """Yield each length-prefixed message."""
    at = 0
    while at < len(data):
        size, at = varint(data, at)
        if at + size > len(data):
            raise InputError(f"the file ends inside a message of {size} bytes at byte {at}")
        yield data[at : at + size]
        at += size


def attribute(data: bytes) -> tuple[str, int | str | bool | float]:
    """Return (name, value) of an AttributeProto."""
    name, value = "", 0  # type: str, int | str | bool | float
    for field, raw in fields(data):
        if field == 1 and isinstance(raw, bytes):
            name = raw.decode(errors="replace")
        elif field == 29 and isinstance(raw, bytes):
            value = raw.decode(errors="replace")
        elif field == 27:
            value = bool(raw)
        elif isinstance(raw, int):
            value = raw
    return name, value


def node(data: bytes) -> Read:
    """Return one node."""
    identity, name, kind, micros = 0, "", 0, 0
    after: list[int] = []
    attributes: dict[str, int | str | bool | float] = {}
    for field, raw in fields(data):
        if isinstance(raw, int):
            identity = raw if field == 1 else identity
            kind = raw if field == 3 else kind
            micros = raw if field == 7 else micros
            after += [raw] if field in (4, 5) else []
        elif field == 2:
            name = raw.decode(errors="replace")
        elif field in (4, 5):
            at = 0
            while at < len(raw):
                value, at = varint(raw, at)
                after.append(value)
        elif field == 10:
            key, value_ = attribute(raw)
            attributes[key] = value_
    return Read(identity, name, kind, tuple(after), micros, attributes)


def read(data: bytes) -> list[Read]:
    """Return the nodes of a trace, gzipped or not."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"not gzip: {error}") from error
    parts = messages(data)
    head = next(parts, b"")
    if not any(field == 1 and isinstance(raw, bytes) for field, raw in fields(head)):
        raise InputError("no metadata at the start: not a Chakra trace")
    return [node(part) for part in parts]


def check(name: str, data: bytes) -> list[Finding]:
    """Return findings about one trace."""
    out: list[Finding] = []

    def say(place: int, code: str, what: str) -> None:
        out.append(Finding(severity="error", code=code, subject=f"{name}:{place}", what=what))

    try:
        nodes = read(data)
    except InputError as error:
        say(0, "unreadable", error.what)
        return out
    if not nodes:
        say(0, "empty", "the trace has no node")
    known = {n.identity for n in nodes}
    if len(known) != len(nodes):
        say(0, "twice", "a node id stands twice")
    for place, n in enumerate(nodes):
        if n.kind not in KINDS:
            say(place, "kind", f"node {n.identity}: type {n.kind} is unknown")
        lost = [d for d in n.after if d not in known or d == n.identity]
        if lost:
            say(place, "dependency", f"node {n.identity} waits for {lost[0]}, which is not there")
        missing = NEEDS.get(n.kind, set()) - set(n.attributes)
        if missing:
            say(place, "attribute", f"node {n.identity}: no {', '.join(sorted(missing))}")
        size = n.attributes.get("comm_size", 1)
        if isinstance(size, int) and not 0 < size < 2**62:
            say(place, "size", f"node {n.identity}: {size} bytes")
        if n.kind == 4 and n.micros < 1:
            say(place, "duration", f"node {n.identity}: computes for {n.micros} us")
    return out
