"""Who acts in the simulation: training processes with their memory, and agents."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import protocol
from .record import Epoch, Kept


class Copy(NamedTuple):
    """A part of the state in shared memory: which, of when, and its hash."""

    step: int
    shard: int
    layout: int
    life: int
    hash: int
    number: int = -1
    """Epoch of the gradient that makes it out of the step before; -1: a whole copy."""


class Rank:
    """A training process: its state is (applied step, hash)."""

    def __init__(self, uid: int, agent: int) -> None:
        self.uid, self.agent, self.alive = uid, agent, True
        self.epoch: Epoch | None = None
        self.applied, self.hash, self.has = 0, 1, True
        self.pending: dict[int, int] = {}
        """Step -> hash after it, once the gradients are reduced and the vote is cast."""
        self.shard, self.layout = -1, 0
        self.hung = False
        self.copies: list[Copy] = []
        """The last two whole copies, the newest last, and the one being made."""
        self.making: Copy | None = None
        self.gradient: Copy | None = None
        self.offer: Copy | None = None
        self.keepers: set[int] = set()


class Host:
    """An agent process."""

    def __init__(self, state: protocol.State) -> None:
        self.state, self.alive, self.until = state, True, 0.0
        self.held: list[Any] = []


def memory(rank: Rank) -> list[Copy]:
    """Return the states a rank's memory yields: whole copies, one more through its gradient."""
    found, last = list(rank.copies), rank.gradient
    if last and any((c.step, c.layout, c.shard, c.life)
                    == (last.step - 1, last.layout, last.shard, last.life)
                    for c in found):  # fmt: skip
        found.append(last)
    return found


def keepers_of(rank: Rank, epoch: Epoch) -> set[int]:
    """Return the agents that keep a rank's memory: its own and the next one."""
    ring = sorted(epoch.agents)
    if rank.agent not in ring:
        return {rank.agent}
    return {rank.agent, ring[(ring.index(rank.agent) + 1) % len(ring)]}


def kept_by(agent: int, ranks: dict[int, Rank]) -> tuple[Kept, ...]:
    """Return what an agent keeps now: of the living what they are writing, too."""
    return tuple(
        Kept(uid, c.step, c.shard, c.layout, c.life, c.number)
        for uid, rank in ranks.items()
        if agent in rank.keepers
        for c in memory(rank)
    )


def yields(rank: Rank, epoch: Epoch, layout: int, shard: int) -> list[Copy]:
    """Return the states at the epoch's base that a rank's memory yields, as they were cut."""
    want = (epoch.base, layout, shard, epoch.life)
    return [c for c in memory(rank) if (c.step, c.layout, c.shard, c.life) == want]
