"""What a rank and its agent say over their private socket pair (one datagram a message)."""

from __future__ import annotations

import socket
from typing import Any

import msgspec

from lightloom.recover.record import Epoch


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Rank: it waits in ``steps``; `info` tells peers how to reach it."""

    info: str


class Voted(msgspec.Struct, frozen=True, tag=True):
    """Rank: it has the reduced gradients of `step`. Nanosecond marks of its phases go along."""

    number: int
    step: int
    marks: tuple[int, ...] = ()
    """begin, computed, all published, reduced; and of the step before: go, applied."""
    loss: float | None = None
    samples: tuple[int, int] = (0, 0)


class Holds(msgspec.Struct, frozen=True, tag=True):
    """Rank: its state is complete in epoch `number`."""

    number: int


class Broken(msgspec.Struct, frozen=True, tag=True):
    """Rank: a group of epoch `number` broke under it."""

    number: int
    why: str


class BadSnapshot(msgspec.Struct, frozen=True, tag=True):
    """Rank: the snapshot of `step` did not verify while loading."""

    step: int
    why: str


class Save(msgspec.Struct, frozen=True, tag=True):
    """Rank: a snapshot of `step` lies in shared memory; have it written."""

    step: int
    cursor: int
    path: str
    """/proc/PID/fd/N of the memory."""
    urgent: bool = False
    place: str = ""
    """Folder of the shard inside ``snapshots``; empty for a whole replica."""


class Note(msgspec.Struct, frozen=True, tag=True):
    """Rank: something worth keeping; `kind` is a finding's code."""

    kind: str
    text: str
    numbers: dict[str, float] = {}
    fatal: bool = False


class Applied(msgspec.Struct, frozen=True, tag=True):
    """Rank: the first step of an epoch is applied (closes a recovery's clock)."""

    number: int
    step: int
    at_ns: int


class End(msgspec.Struct, frozen=True, tag=True):
    """Rank: nothing is left to train after `step`."""

    step: int


class NewEpoch(msgspec.Struct, frozen=True, tag=True):
    """Agent: an epoch is in force."""

    epoch: Epoch


class Commit(msgspec.Struct, frozen=True, tag=True):
    """Agent: the commit of `step` is durable; apply."""

    number: int
    step: int


class Saved(msgspec.Struct, frozen=True, tag=True):
    """Agent: the snapshot of `step` is complete, or failed (`why`)."""

    step: int
    why: str = ""
    place: str = ""


class Halt(msgspec.Struct, frozen=True, tag=True):
    """Agent: stop after the commit of step `at`; -1 now."""

    at: int


class Finish(msgspec.Struct, frozen=True, tag=True):
    """Agent: the job is done; leave."""


FromRank = Ready | Voted | Holds | Broken | BadSnapshot | Save | Note | Applied | End
ToRank = NewEpoch | Commit | Saved | Halt | Finish
_encoder = msgspec.msgpack.Encoder()
_from_rank: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(FromRank)
_to_rank: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(ToRank)


def send(sock: socket.socket, message: Any) -> bool:
    """Send one message; False if the other side is gone."""
    try:
        sock.send(_encoder.encode(message))
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def receive(sock: socket.socket, at_agent: bool) -> Any | None:
    """Return one message, or None when the other side is gone."""
    try:
        data = sock.recv(1 << 18)
    except ConnectionResetError:
        return None
    if not data:
        return None
    return (_from_rank if at_agent else _to_rank).decode(data)
