"""Table of contents of a training state (no torch here: agents and tools read it too)."""

from __future__ import annotations

from typing import Any

import msgspec

from lightloom.core.errors import InputError

ALIGN = 64
WIDTH = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2,
    "int8": 1, "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16, "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}  # fmt: skip
"""Bytes of one element."""


class Piece(msgspec.Struct, frozen=True):
    """One tensor: where it lies and what it is."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int
    """Bytes."""


class Box(msgspec.Struct, frozen=True):
    """Where one rank's part of a parameter lies in the whole parameter."""

    name: str
    whole: tuple[int, ...]
    """Shape of the whole parameter."""
    at: tuple[int, ...]
    """First element of the part along each dimension."""
    shape: tuple[int, ...]
    """Shape of the part."""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Table of contents of a state, plus everything in it that is not a tensor."""

    step: int = 0
    cursor: int = 0
    pieces: tuple[Piece, ...] = ()
    tree: Any = None
    """The nested state: ``["t", i]`` is piece i, ``["d", pairs]``, ``["l"|"u", items]``."""
    total: int = 0
    """Bytes of all pieces."""
    boxes: tuple[Box, ...] = ()
    """Parameters of a part that axes made; empty for whole replicas."""
    order: tuple[str, ...] = ()
    """Names of those parameters in the order of the optimiser."""
    mark: str = ""
    """Which course of the training this is: equal on all shards that belong together."""


def encode(layout: Layout) -> bytes:
    """Return the table of contents as bytes."""
    return msgspec.msgpack.encode(layout)


def decode(data: bytes, where: str = "state") -> Layout:
    """Return the table of contents from bytes."""
    try:
        return msgspec.msgpack.decode(data, type=Layout)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InputError(f"{where}: the table of contents cannot be read: {error}") from error
