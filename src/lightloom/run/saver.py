"""Snapshots seen from a rank: copy to a warm buffer while the next step computes.

Parameters and optimiser state do not change between two optimiser steps, so the copy runs in a
thread during forward and backward and is waited for before the next update. Buffers of the model
(running statistics) may change in forward: they are copied at once.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import torch

from . import handover, talk
from . import state as st
from .link import Link

BUFFERS = 2


class Saver:
    """Two warm buffers in turn; a buffer is free again when the writer has finished with it."""

    def __init__(self, link: Link, tracked: st.Tracked) -> None:
        self.link, self.tracked = link, tracked
        self.buffers = [handover.Buffer(f"ll-snapshot-{i}") for i in range(BUFFERS)]
        self.busy: dict[int, int] = {}
        """Step in flight -> buffer."""
        self.thread: threading.Thread | None = None
        self.message: talk.Save | None = None
        self.done: dict[int, str] = {}
        """Step -> why it failed, empty for success."""
        self.error: BaseException | None = None

    def warm(self) -> None:
        """Allocate and touch a buffer before it is needed."""
        layout, _ = self.tracked.pack(0, 0)
        self.buffers[0].room(len(st.encode(layout)) * 2 + layout.total + 8192)

    def begin(self, step: int, cursor: int, urgent: bool = False) -> bool:
        """Start a snapshot of the state after `step`; False if both buffers are in use."""
        free = [i for i in range(BUFFERS) if i not in self.busy.values()]
        if not free or self.thread is not None:
            return False
        index = free[0]
        layout, tensors = self.tracked.pack(step, cursor)
        memory, start = handover.begin(self.buffers[index], layout)
        self.busy[step] = index
        path = self.buffers[index].path(os.getpid())
        self.message = talk.Save(step, cursor, path, urgent)
        now, later = _split(layout, tensors)
        _copy(now, memory, start)
        self.thread = threading.Thread(target=self._copy, args=(later, memory, start), daemon=True)
        self.thread.start()
        return True

    def _copy(self, pairs: list[Any], memory: Any, start: int) -> None:
        try:
            _copy(pairs, memory, start)
        except BaseException as error:
            self.error = error

    def settle(self) -> None:
        """Wait until the copy is whole, then hand it to the writer. Call before an update."""
        if self.thread is None:
            return
        self.thread.join()
        self.thread = None
        if self.error is not None:
            raise self.error
        if self.message is not None:
            self.link.send(self.message)
            self.message = None

    def saved(self, said: talk.Saved) -> None:
        """Note the end of a snapshot; -1 frees all buffers (the writer died)."""
        if said.step < 0:
            self.done |= dict.fromkeys(self.busy, said.why)
            self.busy.clear()
        else:
            self.done[said.step] = said.why
            self.busy.pop(said.step, None)


def _split(layout: st.Layout, tensors: list[torch.Tensor]) -> tuple[list[Any], list[Any]]:
    """Return what to copy at once (small tensors of the model may be running statistics)."""
    pairs = list(zip(layout.pieces, tensors, strict=True))
    small = [p for p in pairs if p[0].name.startswith("model.") and p[0].size < 1 << 16]
    large = [p for p in pairs if not (p[0].name.startswith("model.") and p[0].size < 1 << 16)]
    return small, large


def _copy(pairs: list[Any], memory: Any, start: int) -> None:
    for piece, tensor in pairs:
        st.view(memory, piece, start).copy_(tensor)
