"""How agents talk: framed msgpack over TCP, each side proving that it knows the run's token.

Challenge and response: HMAC-SHA256 over the other side's nonce, so the token never travels.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
from typing import Any

import msgspec

from lightloom.recover import messages as m

_HEAD = struct.Struct("<I")
LARGEST = 64 * 2**20


class Hello(msgspec.Struct, frozen=True, tag=True):
    """First frame of a connection: who speaks, and a challenge."""

    agent: int
    nonce: bytes


class Proof(msgspec.Struct, frozen=True, tag=True):
    """Second frame: the answer to the challenge."""

    mac: bytes


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Stop after the commit of step `at`; -1 means at once."""

    at: int


class Waiting(msgspec.Struct, frozen=True, tag=True):
    """All members of the sender have waited for others in `step` this long."""

    number: int
    step: int
    seconds: float


class Damaged(msgspec.Struct, frozen=True, tag=True):
    """A rank of the sender could not load its part of the snapshot of `step`."""

    step: int


Frame = (
    Hello | Proof | Stop | Waiting | Damaged | m.Beat | m.Prepare | m.Promise | m.Refuse | m.Accept
    | m.Accepted | m.Decided
)  # fmt: skip
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Frame)


def prove(token: bytes, nonce: bytes) -> bytes:
    """Return the answer to a challenge."""
    return hmac.new(token, nonce, hashlib.sha256).digest()


class Peer:
    """A connection to another agent; trusted once `proved`."""

    def __init__(self, sock: socket.socket, me: int, token: bytes) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock, self.token = sock, token
        self.nonce = os.urandom(16)
        self.agent, self.proved, self.open = -1, False, True
        self._in, self.out = bytearray(), bytearray()
        self.send(Hello(me, self.nonce))

    def send(self, frame: Any) -> None:
        """Queue a frame and write what the socket takes."""
        body = _encoder.encode(frame)
        self.out += _HEAD.pack(len(body)) + body
        self.flush()

    def flush(self) -> None:
        """Write queued bytes without blocking."""
        while self.out and self.open:
            try:
                sent = self.sock.send(self.out)
            except BlockingIOError:
                return
            except OSError:
                self.open = False
                return
            del self.out[:sent]

    def read(self) -> list[Any]:
        """Return whole frames that arrived after the handshake; closes on anything wrong."""
        try:
            data = self.sock.recv(1 << 20)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.open = False
        self._in += data
        frames: list[Any] = []
        while len(self._in) >= 4:
            size = _HEAD.unpack_from(self._in)[0]
            if size > (LARGEST if self.proved else 1024):
                self.open = False
                return frames
            if len(self._in) < 4 + size:
                break
            body = bytes(self._in[4 : 4 + size])
            del self._in[: 4 + size]
            if not self._take(body, frames):
                self.open = False
                return frames
        return frames

    def _take(self, body: bytes, frames: list[Any]) -> bool:
        try:
            frame = _decoder.decode(body)
        except msgspec.MsgspecError:
            return False
        if self.proved:
            frames.append(frame)
            return True
        if isinstance(frame, Hello) and self.agent < 0:
            self.agent = frame.agent
            self.send(Proof(prove(self.token, frame.nonce)))
            return True
        if isinstance(frame, Proof) and self.agent >= 0:
            self.proved = hmac.compare_digest(frame.mac, prove(self.token, self.nonce))
            return self.proved
        return False
