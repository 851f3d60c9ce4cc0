"""State from a survivor to a newcomer, through anonymous shared memory."""

from __future__ import annotations

import mmap
import struct
from typing import Any

from lightloom.core.errors import RunError

from . import board as b
from . import state as st
from . import system
from .link import Link

_HEAD = struct.Struct("<QQ")


class Buffer:
    """Warm shared memory that holds one packed state: sizes, table of contents, tensors."""

    def __init__(self, name: str) -> None:
        self.name, self.fd, self.size = name, -1, 0
        self.memory: mmap.mmap | None = None

    def room(self, size: int) -> mmap.mmap:
        """Return memory of at least `size` bytes, touched once so that later copies are fast."""
        if self.memory is None or self.size < size:
            self.fd, self.memory = system.shared(self.name, size)
            self.size = size
            for at in range(0, size, mmap.PAGESIZE):
                self.memory[at] = 0
        return self.memory

    def path(self, pid: int) -> str:
        """Return where another process of this host can map the memory."""
        return f"/proc/{pid}/fd/{self.fd}"


def begin(buffer: Buffer, layout: st.Layout) -> tuple[mmap.mmap, int]:
    """Write sizes and table of contents; returns the memory and where the tensors start."""
    toc = st.encode(layout)
    start = -(-(_HEAD.size + len(toc)) // 4096) * 4096
    memory = buffer.room(start + layout.total)
    _HEAD.pack_into(memory, 0, len(toc), start)
    memory[_HEAD.size : _HEAD.size + len(toc)] = toc
    return memory, start


def read_head(memory: Any) -> tuple[st.Layout, int]:
    """Return (table of contents, where the tensors start)."""
    size, start = _HEAD.unpack_from(memory, 0)
    return st.decode(bytes(memory[_HEAD.size : _HEAD.size + size])), start


def offer(link: Link, buffer: Buffer, tracked: st.Tracked, number: int, step: int, cursor: int,
          pid: int) -> None:  # fmt: skip
    """Lay the state at `step` out for newcomers of epoch `number`."""
    layout, tensors = tracked.pack(step, cursor)
    memory, start = begin(buffer, layout)
    st.copy_in(layout, tensors, memory, start)
    link.board.write(buffer.path(pid))
    link.board.set(b.OFFER, number)


def accept(donor: b.Board, tracked: st.Tracked, number: int, step: int) -> bool:
    """Load the state a donor offers for epoch `number`; False while it is not there yet."""
    if donor.get(b.OFFER) != number:
        return False
    memory = system.attach(donor.read())
    if memory is None:
        return False
    layout, start = read_head(memory)
    if layout.step != step:
        raise RunError(f"the donor offers step {layout.step}, epoch {number} starts at {step}")
    tracked.unpack(layout, memory, start)
    return True
