"""A step of ranks that are shards of replicas: each sums with the same shard of the others."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import torch
from torch.distributed.tensor import DTensor

from lightloom.core.errors import RunError
from lightloom.recover.decide import REROUTE
from lightloom.recover.record import Epoch

from . import arena as ar
from . import board as b
from . import exchange, system, talk
from .link import Link
from .spec import Spec

if TYPE_CHECKING:
    from .axes import Axes
    from .member import Session

PATIENCE_S = 30.0
"""A replica whose groups broke though nobody died gives up after this: the rank is replaced."""


class ShardArena(ar.Arena):
    """Gradients of whichever part this rank holds; all ranks share the size of the largest."""

    def __init__(self, largest: int, slots: int) -> None:
        self.device, self.numel, self.slots = torch.device("cpu"), largest, slots
        self.fd, self.memory = system.shared("ll-arena", (slots + 1) * largest * 4)
        flat = torch.frombuffer(self.memory, dtype=torch.float32)
        self.flat = [flat[i * largest : (i + 1) * largest] for i in range(slots + 1)]
        self.views = []
        self.parameters = []
        self.used, self.aimed = 0, 0

    def bind(self, own: list[torch.nn.Parameter]) -> None:
        """Hold the gradients of these parameters from now on."""
        self.used = sum(p.numel() for p in own)
        if self.used > self.numel:
            raise RunError(f"axes: this part has {self.used} elements, largest={self.numel}")
        if any(p.dtype != torch.float32 for p in own):
            raise RunError("axes: parameters must be float32 in this release")
        self.parameters = own
        self.views = [self._cut(self.flat[i]) for i in range(self.slots)]

    def aim(self, slot: int, clear: bool) -> None:
        """Let the next micro-batch add to a slot."""
        self.aimed = slot
        if clear:
            self.flat[slot][: self.used].zero_()

    def take(self, shared: list[torch.nn.Parameter]) -> None:
        """Add what backward left on the module's parameters to the slot, and clear it."""
        for p, place in zip(shared, self.views[self.aimed], strict=True):
            grad = p.grad
            if isinstance(grad, DTensor):
                assert isinstance(p, DTensor)
                if grad.placements != p.placements:
                    grad = grad.redistribute(placements=p.placements)
                grad = grad.to_local()
            if grad is not None:
                place.add_(grad)
            p.grad = None

    def publish(self, slot: int) -> None:
        """Nothing: `take` has brought the gradients, while the groups were whole."""


class AxesExchange(exchange.Exchange):
    """The members of an epoch, of which those with the same shard are this rank's column."""

    def __init__(self, axes: Axes, link: Link, arena: ShardArena, spec: Spec, folder: Path
                 ) -> None:  # fmt: skip
        super().__init__(link, arena, spec, folder)
        if self.group.kind != "shm":
            raise RunError(f"axes: replicas are summed through shm here, not {self.group.kind}",
                           out="--fabric shm")  # fmt: skip
        self.axes, self.shard_arena, self.folder = axes, arena, folder
        self.column: list[ar.Peer] = []

    @property
    def owner(self) -> bool:
        """Whether this rank takes snapshots of its shard: those of the first replica do."""
        first = self.epoch.uids[: self.axes.shards] if self.epoch is not None else ()
        return not self.idle and self.link.uid in first

    @property
    def shard(self) -> tuple[int, int]:
        """Which part of a replica this rank holds, and of how many."""
        return self.slot % self.axes.shards, self.axes.shards

    @property
    def others(self) -> list[ar.Peer]:
        """The ranks that take snapshots of the other shards."""
        return [p for p in self.peers[: self.axes.shards] if p is not self.own]

    def enter(self, epoch: Epoch) -> bool:
        """Put an epoch in force: groups of the old one end, the step is begun again."""
        self.axes.take_layout(epoch.layout)
        whole = super().enter(epoch)
        self.axes.drop()
        self.axes.session._forget()
        if not whole:
            return False
        shards = self.axes.shards
        self.column = [
            peer
            for member, peer in zip(epoch.members, self.peers, strict=True)
            if member.slot % shards == self.slot % shards
        ]
        self.axes.bind(self.slot % shards)
        return True

    def cut_links(self, how: str) -> None:
        """Break the links of this rank's groups inside its replica."""
        self.axes.cut_links(how)

    def leave(self, epoch: Epoch) -> None:
        """Stay outside an epoch."""
        self.axes.drop()
        super().leave(epoch)

    def mine(self, step: int) -> list[int]:
        """Return the micro-batches of this rank's replica: those of its first rank."""
        assert self.epoch is not None
        first = self.slot - self.slot % self.axes.shards
        lead = next(m.uid for m in self.epoch.members if m.slot == first)
        return [m for m, uid in enumerate(self.epoch.work(step)) if uid == lead]

    def wait_change(self, session: Session, step: int, why: str) -> str:
        """Wait for the epoch that follows the loss of a rank of this replica, or of a link."""
        assert self.epoch is not None
        self.link.mark(b.WAITING, step)
        self.link.send(talk.Broken(self.epoch.number, why))
        end = time.monotonic() + PATIENCE_S
        if self.epoch.regroups > REROUTE and self.shard[0] == self.shard[1] - 1:
            self._give_up(step)
        while time.monotonic() < end:
            outcome = self._hear(session, step)
            if outcome:
                return outcome
            if not all(system.started(p.info.pid) for p in self.peers):
                end = time.monotonic() + PATIENCE_S  # somebody did die: a replacement will come
        return self._give_up(step)

    def _give_up(self, step: int) -> NoReturn:
        """End this rank, so that another takes its place and makes the groups with new links."""
        self.note("replica-broke", f"slot {self.slot}: the groups of its replica broke in step "
                  f"{step} and nobody died; the rank is replaced")  # fmt: skip
        os._exit(87)

    def _reduce(self, step: int) -> float | None:
        """Sum the own slice over the column."""
        assert self.epoch is not None
        saver = self.axes.session.saver
        self.link.board.set(b.FULL, int(saver is not None and saver.full(step)))
        work = self.epoch.work(step)
        if self.spec.deterministic:
            shards, by_slot = self.axes.shards, {m.uid: m.slot for m in self.epoch.members}
            by_replica = {by_slot[p.uid] // shards: p for p in self.column}
            terms = [by_replica[by_slot[uid] // shards].slots[m] for m, uid in enumerate(work)]
        else:
            terms = [p.slots[0] for p in self.column]
        at = [p.uid for p in self.column].index(self.link.uid)
        lo, hi = ar.slice_of(self.shard_arena.used, at, len(self.column))
        return ar.reduce_slice(terms, self.own.result, lo, hi, 1.0 / len(work))

    def _collect(self) -> None:
        self.last_marks = (system.now_ns(), 0)
        ar.collect(self.column, self.arena.flat[0][: self.shard_arena.used])
        self._keep_gradient(self.column, self.shard_arena.used)
        self.arena.deliver(0)
        self._norm = exchange.whole_norm([p.board for p in self.peers])
        self.full = any(p.board.get(b.FULL) for p in self.peers[: self.axes.shards])

    @property
    def alone(self) -> bool:
        """Whether this rank has no twin in another replica."""
        return len(self.column) == 1

    def _compare(self) -> None:
        """Compare checksums within the column: other shards have other parameters."""
        everyone, self.peers = self.peers, self.column
        try:
            super()._compare()
        finally:
            self.peers = everyone
