"""Snapshots seen from a rank: copy to a warm buffer while the next step computes.

Parameters and optimiser state do not change between two optimiser steps, so the copy runs in a
thread during forward and backward and is waited for before the next update. Buffers of the model
(running statistics) may change in forward: they are copied at once.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from lightloom.core.errors import InputError
from lightloom.recover.record import Epoch

from . import board as b
from . import handover, joined, sharded, talk
from . import state as st
from .link import Link

if TYPE_CHECKING:
    from .exchange import Exchange
    from .member import Session

BUFFERS = 2


Key = tuple[str, int]
"""Folder of the shard and step of a snapshot."""


class Saver:
    """Two warm buffers in turn; a buffer is free again when the writer has finished with it."""

    def __init__(self, link: Link, tracked: st.Tracked, folder: Path) -> None:
        self.link, self.tracked, self.folder = link, tracked, folder
        self.lives = len(list(folder.glob("life-*")))
        self.buffers = [handover.Buffer(f"ll-snapshot-{i}") for i in range(BUFFERS)]
        self.busy: dict[Key, int] = {}
        """Snapshot in flight -> buffer."""
        self.warmed = False
        self.thread: threading.Thread | None = None
        self.message: talk.Save | None = None
        self.done: dict[Key, str] = {}
        """Snapshot -> why it failed, empty for success."""
        self.error: BaseException | None = None
        self.loaded = (-1, "")
        """Step of the snapshot this rank began with, and its course."""

    def full(self, step: int) -> bool:
        """Return whether a snapshot of `step` could not begin now."""
        return len(self.busy) >= BUFFERS or any(s == step for _, s in self.busy)

    def due(self, session: Session, ex: Exchange) -> None:
        """Begin a snapshot if one is due after the step just applied."""
        every, step = session.spec.snapshot_every, session.applied
        if not every or not ex.owner:
            return
        if not self.warmed:
            self.warmed = True
            self._warm()
        if step % every or step == session.total:
            return
        if ex.full or not self.begin(ex, step):
            ex.note("snapshot-skipped", f"step {step}: the writer is still busy")

    def _warm(self) -> None:
        """Allocate and touch a buffer before it is needed."""
        layout, _ = self.tracked.pack(0, 0)
        self.buffers[0].room(len(st.encode(layout)) * 2 + layout.total + 8192)

    def begin(self, ex: Exchange, step: int, urgent: bool = False) -> bool:
        """Start a snapshot of the state after `step`; False if both buffers are in use."""
        assert ex.epoch is not None
        if self.full(step) or self.thread is not None:
            return False
        index = next(i for i in range(BUFFERS) if i not in self.busy.values())
        cursor = ex.epoch.position(step + 1)
        layout, tensors = self.tracked.pack(step, cursor)
        same, mark = self.loaded
        layout = msgspec.structs.replace(
            layout, mark=mark if same == step else f"{self.lives}.{ex.epoch.life}"
        )
        memory, start = handover.begin(self.buffers[index], layout)
        place = sharded.place(*ex.shard)
        self.busy[place, step] = index
        path = self.buffers[index].path(os.getpid())
        self.message = talk.Save(step, cursor, path, urgent, place)
        now, later = split(layout, tensors)
        st.copy_pairs(now, memory, start)
        self.thread = threading.Thread(target=self._copy, args=(later, memory, start), daemon=True)
        self.thread.start()
        return True

    def last(self, session: Session, ex: Exchange) -> bool:
        """Save the final state and wait for the other shards; False if the members changed."""
        step, tries = session.applied, 0
        if not session.spec.snapshot_every:
            return True
        self.settle()
        key = (sharded.place(*ex.shard), step)

        def here() -> bool:
            return session.applied == step and ex.owner and not session.finished

        while here() and (key in self.busy or (key not in self.done and tries < 3)):
            if key not in self.busy:
                tries += 1
                if self.begin(ex, step, urgent=True):
                    self.settle()
            session._hear(ex, ex.link.messages(1.0))
            if self.done.get(key):
                ex.note("snapshot-failed", f"step {step}: {self.done.pop(key)}")
        if here():
            ex.link.board.set(b.LAST, step + 1)
            ex.ring([p.uid for p in ex.others])
        while here() and any(p.board.get(b.LAST) != step + 1 for p in ex.others):
            session._hear(ex, ex.link.messages(0.2))
        return here()

    def load(self, session: Session, ex: Exchange, epoch: Epoch) -> bool:
        """Load this rank's part of the snapshot an epoch starts from; False if it is damaged."""
        step = epoch.base
        where = sharded.at_step(self.folder, session.spec.resume, step, ex.shard[1])
        self.done.clear()
        ex.link.board.set(b.LAST, 0)
        try:
            self.loaded = (step, joined.load(self.tracked, where, *ex.shard))
        except InputError as error:
            ex.link.send(talk.BadSnapshot(step, str(error)))
            ex.idle = True
            return False
        return True

    def _copy(self, pairs: list[Any], memory: Any, start: int) -> None:
        try:
            st.copy_pairs(pairs, memory, start)
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
        elif self.busy.pop((said.place, said.step), None) is not None:
            self.done[said.place, said.step] = said.why


def split(layout: st.Layout, tensors: list[torch.Tensor]) -> tuple[list[Any], list[Any]]:
    """Return what to copy at once (small tensors of the model may be running statistics)."""
    pairs = list(zip(layout.pieces, tensors, strict=True))
    small = [p for p in pairs if p[0].name.startswith("model.") and p[0].size < 1 << 16]
    large = [p for p in pairs if not (p[0].name.startswith("model.") and p[0].size < 1 << 16)]
    return small, large
