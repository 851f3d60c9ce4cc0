"""A rank's end of its link to the agent, its board, and wake-ups between ranks."""

from __future__ import annotations

import mmap
import os
import select
import socket
from typing import Any

from . import board as b
from . import system, talk


class Link:
    """Messages from the agent in order, and a poll that peers can wake."""

    def __init__(self) -> None:
        self.sock = socket.socket(fileno=int(os.environ["LIGHTLOOM_LINK"]))
        self.board_fd = int(os.environ["LIGHTLOOM_BOARD"])
        self.board = b.Board(mmap.mmap(self.board_fd, b.SIZE))
        self.uid = int(os.environ["LIGHTLOOM_UID"])
        self.bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.bell.bind(b"\0lightloom-" + os.urandom(12).hex().encode())
        self.address = bytes(self.bell.getsockname()).hex()
        self._poll = select.poll()
        self._poll.register(self.sock, select.POLLIN)
        self._poll.register(self.bell, select.POLLIN)
        self.waiting: list[Any] = []

    def mark(self, phase: int, step: int | None = None) -> None:
        """Say where this rank is; each call counts as progress."""
        board = self.board
        board.set(b.AT, system.now_ns())
        board.set(b.PHASE, phase)
        if step is not None:
            board.set(b.STEP, step)
        board.set(b.MARK, board.get(b.MARK) + 1)

    def send(self, message: Any) -> None:
        """Tell the agent; without an agent this process has no reason to live."""
        if not talk.send(self.sock, message):
            os._exit(9)

    def wait(self, timeout_s: float) -> None:
        """Sleep until a peer rings, the agent speaks or time is up."""
        for fd, _ in self._poll.poll(max(int(timeout_s * 1000), 0)):
            if fd == self.bell.fileno():
                self._silence()
            else:
                message = talk.receive(self.sock, at_agent=False)
                if message is None:
                    os._exit(9)
                self.waiting.append(message)

    def _silence(self) -> None:
        while True:
            try:
                self.bell.recv(16)
            except BlockingIOError:
                return

    def messages(self, timeout_s: float = 0.0) -> list[Any]:
        """Return what the agent said, waiting at most this long for the first."""
        if not self.waiting:
            self.wait(timeout_s)
        taken, self.waiting = self.waiting, []
        return taken

    def ring(self, addresses: list[bytes]) -> None:
        """Wake peers. A full or dead bell needs no ring: it wakes anyway, or never will."""
        for address in addresses:
            try:
                self.bell.sendto(b"!", address)
            except (BlockingIOError, ConnectionRefusedError):
                continue
