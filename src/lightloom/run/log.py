"""What an agent writes down: the record of commits and epochs, events, one line per step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from .system import now_ns

_encode = msgspec.json.Encoder().encode


class Log:
    """Append-only files of one agent; a line is whole or absent after a crash of the process."""

    def __init__(self, folder: Path, agent: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.agent = agent
        self._events = os.open(folder / f"agent-{agent}.events", flags, 0o644)
        self._steps = os.open(folder / f"agent-{agent}.steps", flags, 0o644)
        self._record = os.open(folder / f"agent-{agent}.record", flags, 0o644)

    def event(self, kind: str, **fields: Any) -> None:
        """Write one event with the host's monotonic clock."""
        line = {"at_ns": now_ns(), "agent": self.agent, "kind": kind, **fields}
        os.write(self._events, _encode(line) + b"\n")

    def step(self, **fields: Any) -> None:
        """Write what a rank said of one step."""
        os.write(self._steps, _encode(fields) + b"\n")

    def append(self, entry: dict[str, Any], durable: bool) -> None:
        """Keep an entry of the record; epochs are synced to disk, commits to the kernel."""
        os.write(self._record, _encode(entry) + b"\n")
        if durable:
            os.fdatasync(self._record)

    def close(self) -> None:
        """Close the files."""
        for fd in (self._events, self._steps, self._record):
            os.close(fd)


def read_lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the lines of all agents' files of a kind, a torn last line left out."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob(f"agent-*.{kind}")):
        found += [msgspec.json.decode(line) for line in path.read_bytes().split(b"\n")[:-1]]
    return found
