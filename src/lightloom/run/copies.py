"""A copy of each rank's state in memory that agents keep: the holder when no replica is left.

After each update the state is copied into one of two warm buffers while the next step computes.
The agent of the rank and the next agent keep the buffers open, so they outlive the rank and either
agent. A step is reduced only when all copies of the step before are whole and kept; and the reduced
gradient stays where it is until then. So at any moment the memory of a rank yields its state at the
last committed step: whole, or one update away.
"""

from __future__ import annotations

import math
import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch

from lightloom.core.errors import RunError
from lightloom.recover.record import Epoch

from . import board as b
from . import handover, keeper, saver, system
from . import state as st
from .link import Link

if TYPE_CHECKING:
    from .exchange import Exchange


class Rebuilt(NamedTuple):
    """A state read from a lost rank's memory."""

    layout: st.Layout
    memory: Any
    start: int
    gradient: torch.Tensor | None
    """Reduced gradient still to be applied; None when the state is whole."""


class Copies:
    """The rank's side: two buffers in turn, and whether the agents have them."""

    def __init__(self, link: Link, tracked: st.Tracked, mode: str) -> None:
        self.link, self.tracked, self.mode = link, tracked, mode
        self.buffers = [handover.Buffer(f"ll-copy-{i}") for i in range(keeper.BUFFERS)]
        self.on = False
        self.agent = int(os.environ["LIGHTLOOM_AGENT"])
        self.thread: threading.Thread | None = None
        self.error: BaseException | None = None
        self.tag = (0, 0, 0)
        self.last = (-1, 0, 0, 0)
        self.index = 0
        """Buffer of the newest copy."""

    def enter(self, epoch: Epoch, slot: int) -> None:
        """Take part in an epoch: after each commit a copy is made if no replica holds the state."""
        alone = len(epoch.members) == epoch.shards
        self.on = self.mode == "on" or (self.mode == "auto" and alone)
        self.tag = (slot % epoch.shards, epoch.layout, epoch.life)

    def ensure(self, step: int) -> None:
        """Start the copy of the present state unless there is one: copies have just begun."""
        if self.last != (step, *self.tag):
            self.begin(step)

    def begin(self, step: int) -> None:
        """Start the copy of the state after `step`, over the older of the two."""
        if not self.on:
            return
        self.settle()
        self.last = (step, *self.tag)
        board = self.link.board
        index = self.index = min(range(keeper.BUFFERS), key=self._worth)
        board.set(keeper.word(index, keeper.STEP), 0)
        layout, tensors = self.tracked.pack(step, 0)
        buffer = self.buffers[index]
        before = buffer.fd
        memory, start = handover.begin(buffer, layout)
        if buffer.fd != before:
            generation = board.get(keeper.GENERATION) + 1
            board.set(keeper.word(index, keeper.FD), buffer.fd)
            board.set(keeper.word(index, keeper.MADE), generation)
            board.set(keeper.GENERATION, generation)
            if before >= 0:
                os.close(before)
        for at, value in enumerate(self.tag):
            board.set(keeper.word(index, keeper.SHARD + at), value)
        now, later = saver.split(layout, tensors)
        st.copy_pairs(now, memory, start)
        self.thread = threading.Thread(
            target=self._copy, args=(later, memory, start, index, step), daemon=True
        )
        self.thread.start()

    def _worth(self, index: int) -> tuple[bool, int]:
        """Return how much a buffer's copy is still needed: older ones, and other parts, less."""
        board = self.link.board
        fields = (keeper.SHARD, keeper.LAYOUT, keeper.LIFE)
        held = tuple(board.get(keeper.word(index, f)) for f in fields)
        return held == self.tag, board.get(keeper.word(index, keeper.STEP))

    def _copy(self, pairs: list[Any], memory: Any, start: int, index: int, step: int) -> None:
        try:
            st.copy_pairs(pairs, memory, start)
        except BaseException as error:
            self.error = error
            return
        self.link.board.set(keeper.word(index, keeper.STEP), step + 1)

    def settle(self) -> None:
        """Wait until the copy in progress is whole. Call before an update."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        if self.error is not None:
            raise self.error

    def kept(self, epoch: Epoch) -> bool:
        """Return whether the agents that should have the buffers have them."""
        if not self.on:
            return True
        generation = self.link.board.get(keeper.GENERATION)
        return not generation or all(
            self.link.board.get(keeper.ACKS + at) == keeper.ack(agent, generation)
            for at, agent in enumerate(keeper.ring(self.agent, epoch.agents))
        )

    def reducing(self) -> None:
        """Say that the gradient of the step before is being overwritten."""
        self.link.board.set(keeper.GRADIENT, 0)

    def reduced(self, step: int, number: int, ex: Exchange) -> None:
        """Say that the whole reduced gradient of `step` lies in the arena's result."""
        if self.on and ex.arena.device.type == "cpu":
            self.link.board.set(keeper.NUMBER, number)
            self.link.board.set(keeper.AFTER, self.index)
            self.link.board.set(keeper.GRADIENT, step + 1)


def rebuild(text: str, epoch: Epoch, part: tuple[int, int], used: int) -> Rebuilt | None:
    """Return the state at the epoch's base out of a lost rank's memory; `part`: shard, layout.

    None when the agents that kept it have gone; `used` is how many elements its gradient has, 0
    when that is not known here.
    """
    lost = msgspec.json.decode(text, type=keeper.Lost)
    page = system.attach(lost.path(lost.board))
    if page is None:
        return None
    board = b.Board(page)
    try:
        for step in (epoch.base, epoch.base - 1):
            index = lost.find(board, step, (*part, epoch.life))
            if index is None:
                continue
            due = board.get(keeper.GRADIENT), board.get(keeper.AFTER)
            if step < epoch.base and due != (epoch.base + 1, index):
                break
            memory = system.attach(lost.path(lost.buffers[index]))
            if memory is None:
                return None
            toc, start = handover.read_head(memory)
            gradient = None if step == epoch.base else _gradient(lost, used or numel_of(toc))
            return Rebuilt(toc, memory, start, gradient)
    finally:
        board.close()
    raise RunError(f"the copy kept of rank {lost.uid} has not the state at step {epoch.base}")


def board_of(text: str) -> b.Board | None:
    """Return a lost rank's board, through the agent that keeps it."""
    lost = msgspec.json.decode(text, type=keeper.Lost)
    page = system.attach(lost.path(lost.board))
    return None if page is None else b.Board(page)


def numel_of(layout: st.Layout) -> int:
    """Return the elements of a part's parameters."""
    return sum(math.prod(box.shape) for box in layout.boxes)


def _gradient(lost: keeper.Lost, used: int) -> torch.Tensor | None:
    memory = system.attach(lost.path(lost.arena))
    if memory is None:
        return None
    flat = torch.frombuffer(memory, dtype=torch.float32)
    begin = lost.slots * lost.numel
    return flat[begin : begin + used].clone()
