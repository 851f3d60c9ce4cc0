"""Chrome traces of any size as a stream of typed events; the file is never held whole.

`Trace(path).events()` yields lists of `Event`, about one mebibyte of text at a time: the array of
events is found, cut at a boundary between two events, and decoded in one typed call. A cut in the
wrong place (an object inside an argument) cannot pass, because the decoder refuses it; then an
earlier boundary is tried, then the text is cleaned, then events are decoded one by one and what
cannot be read is counted in `notes`, never silently lost.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw

from lightloom.core.errors import InputError

PIECE = 1 << 20
HEAD = 64 << 20
"""Bytes in which the array of events must begin."""
LONGEST = 64 << 20
"""Bytes of one event beyond which the file is not taken for a trace."""
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(r"\}\s*,\s*\{")
_NEXT = re.compile(r'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts)")')
"""Where an event can begin again after damage (not an object inside an argument)."""
_CONTROL = bytes(range(9)) + b"\x0b\x0c" + bytes(range(14, 32))
_BLANK = bytes.maketrans(_CONTROL, b" " * len(_CONTROL))
_NONE = Raw(b"")


class Event(msgspec.Struct, gc=False):
    """The fields that analysis reads; the rest of an event is skipped unread."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Raw = _NONE
    tid: Raw = _NONE
    ts: Raw = _NONE
    dur: float = 0.0
    args: Raw = _NONE


_MANY = msgspec.json.Decoder(list[Event])


def nanoseconds(text: bytes | memoryview) -> int:
    """Return integer nanoseconds of a JSON number (or string) of microseconds; exact."""
    whole, _, part = bytes(text).strip(b'" \t').partition(b".")
    sign = -1 if whole.startswith(b"-") else 1
    return int(whole) * 1000 + sign * int((part + b"000")[:3])


class Trace:
    """One trace file: its events as a stream, then what stood before and after them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: Counter[str] = Counter()
        self.head: dict[str, Any] = {}
        """Keys beside the events (distributedInfo, deviceProperties, baseTimeNanoseconds ...)."""

    def events(self) -> Iterator[list[Event]]:
        """Yield lists of events in file order."""
        pieces = read_pieces(self.path, self.notes)
        buffer = self._find_array(pieces)
        separator = _separator(buffer)
        for piece in pieces:
            buffer = buffer + piece if buffer else piece
            separator = separator or _separator(buffer)
            if not separator:
                continue
            if len(buffer) > LONGEST:
                raise InputError(f"{self.path}: one event is longer than 64 MiB: not a trace")
            events, buffer, done = self._cut(buffer, separator)
            if events:
                yield events
            if done:
                break
        else:
            done = False
            if separator:
                events, buffer, done = self._cut(buffer, separator)
                yield events
            if not done:
                events, buffer, done = self._one_by_one(buffer, last=True)
                yield events
        if not done:
            self.notes["cut off before its end: the events up to there are used"] += 1
        for piece in pieces:
            if len(buffer) < HEAD:
                buffer += piece
        self._side_keys(b"{" + buffer.lstrip().lstrip(b","))

    def _find_array(self, pieces: Iterator[bytes]) -> bytes:
        buffer = b""
        for piece in pieces:
            buffer += piece
            text = buffer.lstrip(b"\xef\xbb\xbf \t\r\n")
            if text[:1] == b"[":
                return text[1:]
            if text[:1] not in (b"{", b""):
                break
            if match := _ARRAY.search(buffer):
                self._side_keys(buffer[: match.start()].rstrip().rstrip(b",") + b"}")
                return buffer[match.end() :]
            if len(buffer) > HEAD:
                break
        raise InputError(
            f"{self.path} is not a trace: no array of events in it",
            out="give a Chrome/Kineto/torch_npu trace, a profiler database, CSV or folder",
        )

    def _side_keys(self, text: bytes) -> None:
        try:
            keys = json.loads(text.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            if len(text.strip()) > 2:
                self.notes["keys beside the events cannot be read"] += 1
            return
        if isinstance(keys, dict):
            self.head |= keys

    def _cut(self, buffer: bytes, separator: bytes) -> tuple[list[Event], bytes, bool]:
        end = len(buffer)
        for _attempt in range(3):
            end = buffer.rfind(separator, 0, end)
            if end < 0:
                break
            try:
                return _MANY.decode(b"[" + buffer[: end + 1] + b"]"), _after(buffer, end + 1), False
            except (msgspec.MsgspecError, ValueError, RecursionError):
                continue
        end = buffer.rfind(separator)
        if end < 0:
            far = len(buffer) > 4 * PIECE
            return self._one_by_one(buffer, last=False) if far else ([], buffer, False)
        clean = buffer[: end + 1].decode("utf-8", "replace").encode().translate(_BLANK)
        try:
            events = _MANY.decode(b"[" + clean + b"]")
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return self._one_by_one(buffer, last=False)
        self.notes["text that is not UTF-8 or holds control characters was cleaned"] += 1
        return events, _after(buffer, end + 1), False

    def _one_by_one(self, buffer: bytes, *, last: bool) -> tuple[list[Event], bytes, bool]:
        """Decode event by event; returns the events, the unread rest, whether the array ended."""
        text, at = buffer.decode("utf-8", "replace"), 0
        events: list[Event] = []
        decoder = json.JSONDecoder(strict=False)
        while True:
            while at < len(text) and text[at] in " \t\r\n,":
                at += 1
            if at >= len(text):
                return events, b"", False
            if text[at] == "]":
                return events, text[at + 1 :].encode(), True
            try:
                item, at = decoder.raw_decode(text, at)
                event = _event(item)
            except (ValueError, RecursionError, OverflowError):
                event = None
                skip = _NEXT.search(text, at)
                if skip is None:
                    rest = text[at:].encode()
                    if last:
                        self.notes["events that cannot be read were skipped"] += 1
                    return events, b"" if last else rest, False
                at = skip.end()
            if event is None:
                self.notes["events that cannot be read were skipped"] += 1
            else:
                events.append(event)


def _after(buffer: bytes, at: int) -> bytes:
    """Return what follows the comma at or after `at`."""
    return buffer[buffer.index(b",", at) + 1 :]


def _event(item: object) -> Event | None:
    """Return an event from plain JSON, or None when it is not one."""
    if not isinstance(item, dict) or "ph" not in item:
        return None
    duration = item.get("dur", 0)
    raw = [
        Raw(json.dumps(item[key]).encode()) if key in item else _NONE
        for key in ("pid", "tid", "ts", "args")
    ]
    ph, cat, name = (str(item.get(key) or "") for key in ("ph", "cat", "name"))
    return Event(ph, cat, name, raw[0], raw[1], raw[2], float(duration or 0), raw[3])


def _separator(buffer: bytes) -> bytes:
    """Return the bytes between two events as this file writes them (``},\\n  {``).

    Empty while the first event is not whole; a usual one when the first event is damaged.
    """
    text = buffer[: 2 * PIECE].decode("utf-8", "replace")
    start = text.find("{")
    if start < 0:
        return b""
    try:
        _, end = json.JSONDecoder(strict=False).raw_decode(text, start)
    except (ValueError, RecursionError):
        match = _NEXT.search(text) if len(buffer) > PIECE else None
        return match.group().encode() + b"{" if match else b""
    between = _BETWEEN.match(text, end - 1)
    return between.group().encode() if between else b""


def read_pieces(path: Path, notes: Counter[str]) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked when it is gzip, about one mebibyte at a time."""
    try:
        with path.open("rb") as stream:
            start = stream.read(2)
            stream.seek(0)
            yield from _unpack(stream, notes) if start == b"\x1f\x8b" else _plain(stream)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _plain(stream: BinaryIO) -> Iterator[bytes]:
    while piece := stream.read(PIECE):
        yield piece


def _unpack(stream: BinaryIO, notes: Counter[str]) -> Iterator[bytes]:
    unpacker, packed = zlib.decompressobj(31), b""
    try:
        while True:
            packed = unpacker.unconsumed_tail or unpacker.unused_data or stream.read(PIECE)
            if not packed:
                break
            if unpacker.eof:
                unpacker = zlib.decompressobj(31)
            if piece := unpacker.decompress(packed, PIECE):
                yield piece
        if piece := unpacker.flush():
            yield piece
    except zlib.error as error:
        notes[f"gzip is damaged ({error}): the part before is used"] += 1
    if not unpacker.eof:
        notes["gzip is cut off: the part before is used"] += 1
