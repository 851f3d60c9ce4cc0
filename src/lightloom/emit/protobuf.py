"""The little of protobuf's wire format that Chakra's schema needs (proto3, et_def.proto 0.0.4)."""

from __future__ import annotations

import struct
from collections.abc import Iterable


def varint(value: int) -> bytes:
    """Return a base-128 varint; negative numbers take ten bytes, as protobuf has it."""
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """Return an integer, enum or boolean field."""
    return varint(field << 3) + varint(value)


def data(field: int, value: bytes) -> bytes:
    """Return a length-delimited field: text, bytes or a message."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def packed(field: int, values: Iterable[int]) -> bytes:
    """Return a packed repeated integer field."""
    body = b"".join(varint(v) for v in values)
    return data(field, body) if body else b""


def double(field: int, value: float) -> bytes:
    """Return a double field."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


def attribute(name: str, value: int | bool | str) -> bytes:
    """Return Chakra's AttributeProto: bool_val 27, string_val 29, int64_val 9."""
    head = data(1, name.encode())
    if isinstance(value, bool):
        return head + number(27, value)
    if isinstance(value, str):
        return head + data(29, value.encode())
    return head + number(9, value)


def delimited(messages: Iterable[bytes]) -> bytes:
    """Return messages each after its length, as Chakra's files hold them."""
    return b"".join(varint(len(m)) + m for m in messages)
