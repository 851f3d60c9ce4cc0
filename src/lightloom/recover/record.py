"""Nouns of the replicated record, and which agents may speak for an epoch.

*Epoch*: who takes part, from which committed step. *Commit* (epoch, step): every member voted.
Both are entries of one record that the epoch's n agents keep; an entry is durable when
W = n // 2 + 1 agents have it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

SNAPSHOT = -1
"""Donor of a member that loads its state from the newest snapshot that verifies."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the user chose before the start; the same on every agent."""

    slots: int
    """Members wanted: replicas x shards."""
    micro_batches: int
    """Micro-batches of one step of the whole job."""
    shards: int = 1
    """Ranks that share one copy of the state (tp x pp x ...); slot % shards is the shard."""
    least: int = 1
    """Fewest replicas worth going on with."""
    wait: bool = False
    """Wait for a replacement instead of shrinking."""
    rescale: bool = False
    """Let the global batch shrink with the members instead of moving micro-batches."""
    same_host: bool = True
    """Death can be proved (pidfd) and a silent agent fenced (killed)."""
    silent: int = 30
    """Ticks without a heartbeat before an agent is suspected."""
    settle: int = 1
    """Commits an epoch must see before members may be added: hysteresis."""


class Rank(msgspec.Struct, frozen=True):
    """One live rank process that is ready to train, as its agent publishes it."""

    uid: int
    holds: int = 0
    """Last epoch number in which it reported that its state is complete."""
    info: str = ""
    """How peers reach it; opaque here."""


class Member(msgspec.Struct, frozen=True):
    """One slot of an epoch."""

    slot: int
    uid: int
    agent: int


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """Who takes part, from which committed step, and who computes what."""

    number: int
    agents: tuple[int, ...]
    members: tuple[Member, ...] = ()
    base: int = 0
    """Last committed step."""
    cursor: int = 0
    """Micro-batches consumed up to `base`: the exact data position."""
    joins: tuple[tuple[int, int], ...] = ()
    """(uid, donor uid or SNAPSHOT) of members that do not hold the state at `base` yet."""
    first: tuple[int, ...] = ()
    """uid that computes micro-batch m of step base + 1; survivors keep what they had."""
    share: tuple[int, ...] = ()
    """uid that computes micro-batch m of every later step of the epoch."""
    lost: int = 0
    """Committed steps undone by this entry; above 0 it is a rewind."""
    infos: tuple[tuple[int, str], ...] = ()
    """(uid, how to reach it) of members and donors."""
    why: str = ""

    @property
    def uids(self) -> tuple[int, ...]:
        """Members' processes in slot order."""
        return tuple(member.uid for member in self.members)

    def work(self, step: int) -> tuple[int, ...]:
        """Return the uid for each micro-batch of `step`."""
        return self.first if step == self.base + 1 else self.share

    def position(self, step: int) -> int:
        """Return the micro-batches consumed before `step` begins."""
        return self.cursor + (step - 1 - self.base) * len(self.share)


def write_quorum(n: int) -> int:
    """Return W, how many of n agents make an entry durable."""
    return n // 2 + 1


def may_speak(epoch: Epoch, here: Iterable[int], dead: Iterable[int], same_host: bool) -> bool:
    """Return whether the agents `here` may choose the epoch after `epoch`.

    They need n - W + 1 of its agents (so that one of them has seen each commit) and a majority,
    or proof that all others are dead. Two agents without possible proof: the lower number is the
    tie-break holder and may go on alone, the other never.
    """
    agents = set(epoch.agents)
    present = agents & set(here)
    n = len(agents)
    if not present or len(present) < n - write_quorum(n) + 1:
        return False
    if 2 * len(present) > n or agents - present <= set(dead):
        return True
    return n == 2 and not same_host and min(agents) in present
