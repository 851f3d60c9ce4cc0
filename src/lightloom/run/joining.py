"""A rank's way into an epoch: keep the state, give it, receive it, cut it anew, or wait outside."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from lightloom.core.errors import RunError
from lightloom.recover.record import RECUT, SNAPSHOT, Epoch

from . import board as b
from . import copies, handover, talk
from .exchange import Exchange, mean_of, whole_norm

if TYPE_CHECKING:
    from .member import Session


def enter(session: Session, ex: Exchange, epoch: Epoch) -> None:
    """Take part in a new epoch."""
    uid, joins = ex.link.uid, dict(epoch.joins)
    if session.wrap is not None and uid in {u for _, u in epoch.sources}:
        session.wrap.give_part(session, ex, epoch)
    gives = any(d == uid for _, d in epoch.joins)
    if uid not in epoch.uids:
        if gives and session.applied == epoch.base:
            _offer(session, ex, epoch)
        ex.leave(epoch)
        session._forget()
        return
    if not ex.enter(epoch):
        return
    if uid not in joins:
        if session.applied < 0 and epoch.base == 0:  # nothing is committed: what it has will do
            session.applied = 0
        if session.applied != epoch.base:
            raise RunError(f"rank at step {session.applied}, epoch {epoch.number} at {epoch.base}")
        if not set(session.done) <= set(ex.mine(session.step)):
            session._forget()
        if gives:
            _offer(session, ex, epoch)
        if ex.copies is not None:
            ex.copies.ensure(session.applied)
        return
    session._forget()
    session.applied, session.replay = -1, None
    ex.link.mark(b.JOINING, max(epoch.base, 0))
    if _receive(session, ex, epoch, joins[uid]) and session.replay is None:
        session.applied = epoch.base
        whole(session, ex)


def whole(session: Session, ex: Exchange) -> None:
    """Say that the state is complete, and have it copied."""
    assert ex.epoch is not None
    if ex.copies is not None:
        ex.copies.begin(session.applied)
    ex.link.send(talk.Holds(ex.epoch.number))


def _offer(session: Session, ex: Exchange, epoch: Epoch) -> None:
    handover.offer(
        ex.link, ex.offered, session.tracked, epoch.number, epoch.base, epoch.cursor, os.getpid()
    )
    ex.ring([uid for uid, d in epoch.joins if d == ex.link.uid])


def wait_for(ex: Exchange, ready: Callable[[], bool]) -> bool:
    """Wait until `ready`; False, with the rank idle, when a newer epoch comes first."""
    heard = []
    while not ready():
        heard += ex.link.messages(0.05)
        if any(isinstance(x, talk.NewEpoch | talk.Finish) for x in heard):
            ex.link.waiting = heard
            ex.idle = True
            return False
    ex.link.waiting = heard + ex.link.waiting
    return True


def _receive(session: Session, ex: Exchange, epoch: Epoch, donor: int) -> bool:
    """Load the state at the epoch's base; False when a newer epoch comes first."""
    assert session.saver is not None
    if session.saver.thread is not None:
        session.saver.settle()
    if donor == SNAPSHOT:
        return session.saver.load(session, ex, epoch)
    if donor == RECUT:
        return bool(session.wrap.take_part(session, ex, epoch))
    text = dict(epoch.infos).get(donor, "")
    if donor in epoch.kept:
        return _rebuild(session, ex, epoch, text)

    def accepted() -> bool:
        giver = ex.meet(donor)
        return giver is not None and handover.accept(
            giver.board, session.tracked, epoch.number, epoch.base
        )

    return wait_for(ex, accepted)


def _rebuild(session: Session, ex: Exchange, epoch: Epoch, text: str) -> bool:
    """Load the state a lost rank left in memory; its last update may still have to be made."""
    used = sum(p.numel() for p in session.parameters)
    found = copies.rebuild(text, epoch, (ex.slot % epoch.shards, epoch.layout), used)
    if found is None:  # the agents that kept it have gone, too: a newer epoch will say so
        return wait_for(ex, lambda: False)
    session.tracked.unpack(found.layout, found.memory, found.start)
    if found.gradient is not None:
        session.applied, session.replay = epoch.base - 1, found.gradient
    return True


def replay(session: Session, ex: Exchange) -> None:
    """Put the lost rank's gradient where the script's update takes it from, as after a commit.

    Norm and loss are those of the whole step: every rank left its share of them on its board.
    """
    assert session.replay is not None and ex.epoch is not None
    flat = ex.arena.flat[0]
    flat[: session.replay.numel()].copy_(session.replay)
    ex.arena.deliver(0)
    joins = dict(ex.epoch.joins)
    pages = [p.board for p in ex.peers if p.uid not in joins]
    infos = dict(ex.epoch.infos)
    pages += [page for uid in ex.epoch.kept if (page := copies.board_of(infos[uid])) is not None]
    ex._norm = session.norm = whole_norm(pages)
    session.loss = mean_of(pages)
    session.skip = not math.isfinite(session.norm) and session.spec.on_nan == "skip"
    session.committed = True
    ex.link.mark(b.APPLYING)
