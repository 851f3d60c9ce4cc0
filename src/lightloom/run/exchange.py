"""One rank's part in a step: publish, wait for all, reduce a slice, vote, wait for the commit."""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from lightloom.recover.decide import REROUTE
from lightloom.recover.record import RECUT, Epoch

from . import arena as ar
from . import board as b
from . import checks, handover, system, talk
from . import group as grouping
from .copies import Copies
from .link import Link
from .spec import Spec

if TYPE_CHECKING:
    from .member import Session

COMMITTED, CHANGED, HALTED = "committed", "changed", "halted"
_LOSS = struct.Struct("<Qd")
LOSSES = 256
"""Losses of one rank's micro-batches that fit the mailbox; more are not averaged."""


class Exchange:
    """The members of the epoch in force and what has been agreed with them."""

    def __init__(self, link: Link, arena: ar.Arena, spec: Spec, folder: Path) -> None:
        self.link, self.arena, self.spec = link, arena, spec
        self.epoch: Epoch | None = None
        self.postponed: Epoch | None = None
        self.peers: list[ar.Peer] = []
        self.known: dict[int, ar.Peer] = {}
        self.slot, self.index = -1, -1
        self.idle = True
        self.voted = (0, 0)
        self.marks: list[int] = []
        self.last_marks: tuple[int, int] = (0, 0)
        self.group = grouping.Group(
            grouping.kind_of(spec.fabric, arena.device), folder, self.changed
        )
        self.offered = handover.Buffer("ll-handover")
        self._print = (0, 0)
        self._norm = 0.0
        self.copies: Copies | None = None
        """Copies of the state in the agents' memory; None outside a session."""
        self.held: list[Any] = []
        """Messages that came during a small collective; heard at the next safe point."""
        self.loss: float | None = None
        """Mean loss of the step last voted for."""
        self.full = False
        """Whether some shard cannot begin a snapshot of the step committed: then none does."""
        own = msgspec.json.decode(self.info(), type=b.Info)
        self.own = ar.Peer(link.uid, own, link.board, arena.memory)
        self.known[link.uid] = self.own

    def info(self) -> str:
        """Return how peers reach this rank."""
        info = b.Info(
            os.getpid(), self.link.board_fd, self.arena.fd, self.link.address,
            self.arena.numel, self.arena.slots,
        )  # fmt: skip
        return msgspec.json.encode(info).decode()

    def changed(self) -> bool:
        """Return whether a newer epoch has come; what else was said is heard later."""
        self.held += self.link.messages()
        return any(isinstance(x, talk.NewEpoch | talk.Finish) for x in self.held)

    def cut_links(self, how: str) -> None:
        """Break this rank's links, as a drill asks."""
        self.group.cut_links(how)

    @property
    def owner(self) -> bool:
        """Whether this rank takes the snapshots: the first member does."""
        return self.epoch is not None and not self.idle and self.epoch.uids[0] == self.link.uid

    @property
    def shard(self) -> tuple[int, int]:
        """Which part of a replica this rank holds, and of how many."""
        return 0, 1

    @property
    def others(self) -> list[ar.Peer]:
        """The ranks that take snapshots of the other shards."""
        return []

    @property
    def lead(self) -> int:
        """Slot of the first member, which speaks for all where all know the same."""
        return self.epoch.members[0].slot if self.epoch else 0

    def mine(self, step: int) -> list[int]:
        """Return the micro-batches of `step` that are this rank's."""
        assert self.epoch is not None
        return [m for m, uid in enumerate(self.epoch.work(step)) if uid == self.link.uid]

    def todo(self, step: int, done: set[int]) -> list[int]:
        """Return those of `mine` not yet computed."""
        return [m for m in self.mine(step) if m not in done]

    def meet(self, uid: int) -> ar.Peer | None:
        """Return a rank named by the epoch, mapped; None if it is dead."""
        if uid not in self.known and self.epoch is not None:
            info = dict(self.epoch.infos).get(uid)
            peer = ar.meet(uid, info) if info else None
            if peer is not None:
                self.known[uid] = peer
        return self.known.get(uid)

    def enter(self, epoch: Epoch) -> bool:
        """Put an epoch in force; False if a member died already (a newer one will come)."""
        self.epoch = epoch
        member = next(m for m in epoch.members if m.uid == self.link.uid)
        self.slot = member.slot
        found = [self.meet(uid) for uid in epoch.uids]
        self.idle = any(peer is None for peer in found)
        if self.idle:
            self.link.mark(b.JOINING, max(epoch.base, 0))
            return False
        self.peers = [p for p in found if p is not None]
        self.index = epoch.uids.index(self.link.uid)
        near = {*dict(epoch.infos), self.link.uid}
        self.known = {u: p for u, p in self.known.items() if u in near}
        for peer in self.peers:
            if peer.info.numel != self.arena.numel:
                self.note("other-model", f"rank {peer.uid} has {peer.info.numel} gradient elements,"
                          f" this one {self.arena.numel}", fatal=True)  # fmt: skip
        if epoch.rerouted and self.group.kind == "gloo" and self.arena.device.type == "cpu":
            self.group.drop()
            self.group = grouping.Group("shm", self.group.folder, self.changed)
            if self.slot == self.lead:
                self.note("rerouted", f"gloo's links broke again and again in step "
                      f"{epoch.base + 1}; gradients go through shared memory now")  # fmt: skip
        elif epoch.regroups > REROUTE and self.group.kind not in ("shm", "gloo"):
            self.note("links-broken", f"{self.group.kind}'s links broke {epoch.regroups} times in "
                      f"step {epoch.base + 1} and there is no other way", fatal=True)  # fmt: skip
        if self.copies is not None:
            self.copies.enter(epoch, self.slot)
        self.link.board.set(b.EPOCH, epoch.number)
        return True

    def leave(self, epoch: Epoch) -> None:
        """Stay outside an epoch."""
        self.epoch, self.idle, self.slot = epoch, True, -1
        self.link.mark(b.IDLE, epoch.base)

    def ring(self, uids: list[int] | None = None) -> None:
        """Wake all other members, or some ranks."""
        peers = self.peers if uids is None else [p for p in map(self.meet, uids) if p]
        self.link.ring([p.address for p in peers if p is not self.own])

    def note(self, code: str, text: str, fatal: bool = False) -> None:
        """Have the agent write a finding down; a fatal one ends the job."""
        self.link.send(talk.Note(code, text, fatal=fatal))

    # ---- a step --------------------------------------------------------------------------------

    def settle(self, session: Session, step: int) -> str:
        """Reduce and commit `step`; says COMMITTED, CHANGED (a new epoch is in force) or HALTED."""
        assert self.epoch is not None
        self.marks = [*self.marks[:1], system.now_ns()]
        outcome = self._await_kept(session, step)
        if outcome:
            return outcome
        key = self.epoch.number << 32 | step
        if not self.idle:
            self.link.board.set(b.READY, key)
            self.link.mark(b.WAITING, step)
            self.ring()
        while self.idle or any(p.board.get(b.READY) != key for p in self.peers):
            outcome = self._hear(session, step)
            if outcome:
                return outcome
        self._compare()
        self.marks.append(system.now_ns())
        if self.copies is not None:
            self.copies.reducing()
        squares = self._reduce(step)
        if squares is None:
            self.link.send(talk.Broken(self.epoch.number, self.group.why))
        while squares is None:
            outcome = self._hear(session, step)
            if outcome:
                return outcome
        self.link.board.set(b.NORM, _bits(squares))
        if self.copies is not None and self.alone:
            self.copies.reduced(step, self.epoch.number, self)
        self.marks.append(system.now_ns())
        self.voted = (self.epoch.number, step)
        number = len(self.mine(step))
        self.loss = self.mean_loss()
        said = talk.Voted(
            self.epoch.number, step, (*self.marks, *self.last_marks), self.loss,
            (step, number),
        )  # fmt: skip
        self.link.send(said)
        while True:
            outcome = self._hear(session, step)
            if outcome:
                return outcome

    def _await_kept(self, session: Session, step: int) -> str:
        """Wait until the copy of the state before `step` is whole and kept by the agents."""
        while self.copies is not None and not self.idle:
            self.copies.settle()
            assert self.epoch is not None
            if self.copies.kept(self.epoch):
                break
            self.link.mark(b.WAITING, step)
            outcome = self._hear(session, step, 0.005)
            if outcome:
                return outcome
        return ""

    def _hear(self, session: Session, step: int, wait_s: float = 0.5) -> str:
        """Wait for one piece of news; says how the step ended, or an empty string."""
        taken = self.held or self.link.messages(wait_s)
        self.held = []
        for at, said in enumerate(taken):
            if isinstance(said, talk.Commit):
                if self.epoch and (said.number, said.step) == (self.epoch.number, step):
                    self.link.waiting = taken[at + 1 :] + self.link.waiting
                    self._collect()
                    return COMMITTED
            elif isinstance(said, talk.NewEpoch):
                self.link.waiting = taken[at + 1 :] + self.link.waiting
                return self._changed(session, said.epoch, step)
            elif isinstance(said, talk.Halt):
                session.stop_at = said.at
                if said.at < step:
                    return HALTED
            else:
                session._hear(self, [said])
                if session.finished:
                    return HALTED
        return ""

    def _changed(self, session: Session, epoch: Epoch, step: int) -> str:
        """A new epoch: it either commits this step or begins before it."""
        assert self.epoch is not None
        if epoch.number <= self.epoch.number:
            return ""
        joins = dict(epoch.joins)
        uid = self.link.uid
        gives = uid in {*joins.values(), *(source for _, source in epoch.sources)}
        stays = (uid in epoch.uids or gives) and joins.get(uid, RECUT) == RECUT
        if epoch.base == step and self.voted[1] == step and stays:
            self.postponed = epoch
            self._collect()
            return COMMITTED
        session.enter(self, epoch)
        return CHANGED if not self.idle or self.link.uid in epoch.uids else HALTED

    def _reduce(self, step: int) -> float | None:
        """Sum the own slice over all members (or micro-batches in order); None if one died."""
        assert self.epoch is not None
        work = self.epoch.work(step)
        if self.group.kind != "shm":
            return self._through_group(len(work))
        if self.spec.deterministic:
            by_uid = {p.uid: p for p in self.peers}
            terms = [by_uid[uid].slots[m] for m, uid in enumerate(work)]
        else:
            terms = [p.slots[0] for p in self.peers]
        lo, hi = ar.slice_of(self.arena.numel, self.index, len(self.peers))
        return ar.reduce_slice(terms, self.own.result, lo, hi, 1.0 / len(work))

    def _through_group(self, count: int) -> float | None:
        """Sum through the process group into the result; the slot stays as it was for a redo."""
        assert self.epoch is not None
        result = self.arena.flat[-1]
        result.copy_(self.arena.flat[0])
        try:
            self.group.form(self.epoch.number, self.index, len(self.peers))
        except RuntimeError as error:
            self.group.why = str(error).splitlines()[0][:200]
            return None
        if not self.group.sum(result):
            return None
        result.mul_(1.0 / count)
        return float(torch.dot(result, result)) / len(self.peers)

    def _collect(self) -> None:
        """Bring the whole reduced gradient home."""
        self.last_marks = (system.now_ns(), 0)
        if self.group.kind == "shm":
            ar.collect(self.peers, self.arena.flat[0])
            self._keep_gradient(self.peers, self.arena.numel)
        else:
            self.arena.flat[0].copy_(self.arena.flat[-1])
        self.arena.deliver(0)
        self._norm = whole_norm([p.board for p in self.peers])

    @property
    def alone(self) -> bool:
        """Whether the whole reduced gradient lies in this rank's result without a collection."""
        return len(self.peers) == 1 or self.group.kind != "shm"

    def _keep_gradient(self, peers: list[ar.Peer], numel: int) -> None:
        """Bring the others' slices into the own result, too, so that the step can be redone."""
        if self.copies is None or not self.copies.on or self.alone or self.epoch is None:
            return
        own = self.own.result[:numel]
        for index, peer in enumerate(peers):
            lo, hi = ar.slice_of(numel, index, len(peers))
            if peer is not self.own:
                own[lo:hi].copy_(peer.result[lo:hi])
        self.copies.reduced(self.voted[1], self.voted[0], self)

    def norm(self) -> float:
        """Return the norm of the whole reduced gradient, equal on all ranks."""
        return self._norm

    def applied(self, step: int) -> None:
        """Note when the update was done."""
        self.last_marks = (self.last_marks[0], system.now_ns())

    # ---- losses and fingerprints ---------------------------------------------------------------

    def losses(self, pairs: list[tuple[int, float]]) -> None:
        """Publish (micro-batch, loss) of the own work."""
        memory = self.link.board.memory
        for at, (m, value) in enumerate(pairs[-1:], start=max(len(pairs) - 1, 0)):
            if at < LOSSES:
                _LOSS.pack_into(memory, b.MAIL + 16 + at * 16, m, value)
        memory[b.MAIL : b.MAIL + 8] = min(len(pairs), LOSSES).to_bytes(8, "little")

    def mean_loss(self) -> float | None:
        """Return the mean loss over the step's micro-batches, summed in their order."""
        return mean_of([peer.board for peer in self.peers])

    def fingerprint(self, value: int, step: int) -> None:
        """Publish the checksum of the parameters after `step`."""
        self._print = (step, value)
        self.link.board.set(b.PRINT, step << 32 | value)

    def _compare(self) -> None:
        """Compare checksums that all members published for the same step."""
        step, _ = self._print
        words = {p.uid: p.board.get(b.PRINT) for p in self.peers}
        if not step or any(w >> 32 != step for w in words.values()):
            return
        self._print = (0, 0)
        how = checks.minority({u: w & 0xFFFFFFFF for u, w in words.items()}, self.link.uid)
        if how == "odd":
            self.note("replica-differs", f"slot {self.slot}: parameters differ from the majority"
                      f" after step {step}; the rank is replaced")  # fmt: skip
            os._exit(86)
        if how == "split":
            self.note("replicas-differ", f"after step {step} no majority of replicas agrees",
                      fatal=True)  # fmt: skip


def whole_norm(pages: list[b.Board]) -> float:
    """Return the norm of the whole gradient, from each member's share."""
    return math.sqrt(sum(_float(page.get(b.NORM)) for page in pages))


def mean_of(pages: list[b.Board]) -> float | None:
    """Return the mean loss over the micro-batches that members published, summed in their order."""
    found = {}
    for page in pages:
        count = int.from_bytes(page.memory[b.MAIL : b.MAIL + 8], "little")
        for at in range(min(count, LOSSES)):
            m, value = _LOSS.unpack_from(page.memory, b.MAIL + 16 + at * 16)
            found[m] = value
    if not found:
        return None
    return math.fsum(found[m] for m in sorted(found)) / len(found)


def _bits(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


def _float(bits: int) -> float:
    return float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])
