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
RECUT = -2
"""Donor of a member whose part is cut anew out of the parts of the epoch's `sources`."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the user chose before the start; the same on every agent."""

    slots: int
    """Members wanted: replicas x shards."""
    micro_batches: int
    """Micro-batches of one step of the whole job."""
    shards: int = 1
    """Ranks that share one copy of the state (tp x pp x ...); slot % shards is the shard."""
    fallbacks: tuple[int, ...] = ()
    """Shards of the layouts to re-plan to, in order, when no whole replica can be made."""
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

    @property
    def layouts(self) -> tuple[int, ...]:
        """Shards of every layout, the preferred one first."""
        return (self.shards, *self.fallbacks)


class Rank(msgspec.Struct, frozen=True):
    """One live rank process that is ready to train, as its agent publishes it."""

    uid: int
    holds: int = 0
    """Last epoch number in which it reported that its state is complete."""
    info: str = ""
    """How peers reach it; opaque here."""


class Kept(msgspec.Struct, frozen=True):
    """State of a rank that an agent keeps in its own memory, whether the rank lives or not."""

    uid: int
    step: int
    shard: int
    layout: int
    life: int
    """Rewinds of the record before it was made: a redone step may differ in its last bits."""
    number: int = -1
    """Epoch of the gradient that makes `step` out of the step before; -1: nothing to replay."""
    info: str = ""
    """How to reach it; opaque here."""


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
    life: int = 0
    """Rewinds so far."""
    made: int = -1
    """Epoch that committed `base`; -1: it is a snapshot's."""
    layout: int = 0
    """Which of the layouts the members are cut by; 0 the one the job began with."""
    shards: int = 1
    """Ranks of one replica in this layout."""
    sources: tuple[tuple[int, int], ...] = ()
    """(shard, uid) of the parts out of which members that join by RECUT get theirs ..."""
    kept: tuple[int, ...] = ()
    """Donors and sources that are lost: an agent keeps their memory."""
    source_layout: int = 0
    """... and the layout those are cut by."""
    regroups: int = 0
    """Epochs in a row that only made the groups again, without a commit between them."""
    rerouted: bool = False
    """Groups broke too often: members take the other way to one another, if there is one."""
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
