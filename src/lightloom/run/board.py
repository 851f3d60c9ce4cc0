"""The board: one page of shared words per rank that its agent and its peers can read.

A rank writes only its own board; each word is one aligned 8-byte store.
"""

from __future__ import annotations

import mmap
from typing import Final

import msgspec

SIZE: Final = 3 * mmap.PAGESIZE
MARK, PHASE, STEP, EPOCH, READY, AT, KILLED, OFFER, NORM, PRINT, FULL, LAST = range(12)
"""Words: progress counter; phase; step; epoch; key of the published gradients; time of the mark;
time of an injected kill; epoch for which state is offered; sum of squares of the own slice (bits);
step and checksum of the parameters; whether no snapshot can begin; last step of the run whose
snapshot is written, or given up, plus one."""
TEXT: Final = 512
"""Offset of the text region."""
TEXT_SIZE: Final = 1024
MAIL: Final = 2048
"""Offset of the mailbox of small collectives."""
MAIL_SIZE: Final = SIZE - MAIL

PHASES: Final = (
    "starting", "computing", "waiting", "joining", "idle", "applying", "ended", "saving",
)  # fmt: skip
STARTING, COMPUTING, WAITING, JOINING, IDLE, APPLYING, ENDED, SAVING = range(8)


class Info(msgspec.Struct, frozen=True):
    """How peers and agents reach a rank's board and arena."""

    pid: int
    board_fd: int
    arena_fd: int
    address: str
    numel: int
    slots: int


class Board:
    """Words and text over shared memory."""

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self.words = memoryview(memory)[:TEXT].cast("Q")

    def get(self, word: int) -> int:
        """Return one word."""
        return self.words[word]

    def set(self, word: int, value: int) -> None:
        """Store one word."""
        self.words[word] = value

    def write(self, text: str) -> None:
        """Store a short text: a path, a call site."""
        data = text.encode()[: TEXT_SIZE - 2]
        self.memory[TEXT + 2 : TEXT + 2 + len(data)] = data
        self.memory[TEXT : TEXT + 2] = len(data).to_bytes(2, "little")

    def read(self) -> str:
        """Return the text."""
        size = int.from_bytes(self.memory[TEXT : TEXT + 2], "little")
        return self.memory[TEXT + 2 : TEXT + 2 + size].decode(errors="replace")

    def close(self) -> None:
        """Drop the mapping."""
        self.words.release()
        self.memory.close()
