"""What agents say to one another, what happens to them, and what they do about it."""

from __future__ import annotations

import msgspec

from .record import Epoch, Kept, Rank


class Beat(msgspec.Struct, frozen=True, tag=True):
    """Heartbeat and whole public state of an agent; later ones (seq) replace earlier ones."""

    seq: int
    number: int
    """Epoch in force at the sender."""
    voted: int
    """Last step for which all its members voted."""
    appended: int
    """Last step whose commit it keeps."""
    ranks: tuple[Rank, ...]
    snapshot: tuple[int, int] = (-1, 0)
    dead: tuple[int, ...] = ()
    promised: int = 0
    """Ballot that stopped the sender's commits; 0 none."""
    leaving: bool = False
    kept: tuple[Kept, ...] = ()
    """What the sender keeps of lost ranks and donors; in a promise, of all ranks."""
    broke: int = -1
    """Last epoch whose groups broke although nobody had died."""


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Ask to stop committing and to promise a ballot for epoch `number`."""

    number: int
    ballot: int


class Promise(msgspec.Struct, frozen=True, tag=True):
    """The answer: nothing is appended before epoch `number` any more."""

    number: int
    ballot: int
    accepted_ballot: int
    accepted: Epoch | None
    beat: Beat


class Refuse(msgspec.Struct, frozen=True, tag=True):
    """A higher ballot was promised."""

    number: int
    ballot: int


class Accept(msgspec.Struct, frozen=True, tag=True):
    """Ask to accept an epoch."""

    ballot: int
    epoch: Epoch


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """The epoch is kept."""

    number: int
    ballot: int


class Decided(msgspec.Struct, frozen=True, tag=True):
    """The epoch is in force."""

    epoch: Epoch


Message = Beat | Prepare | Promise | Refuse | Accept | Accepted | Decided


class Received(msgspec.Struct, frozen=True):
    """A message arrived."""

    sender: int
    message: Message


class Tick(msgspec.Struct, frozen=True):
    """Time passed; the driver chooses how much."""


class RankReady(msgspec.Struct, frozen=True):
    """An own rank waits to train."""

    uid: int
    info: str = ""


class RankGone(msgspec.Struct, frozen=True):
    """An own rank is proved dead."""

    uid: int


class RankVoted(msgspec.Struct, frozen=True):
    """An own rank has the reduced gradients of `step` in epoch `number`."""

    uid: int
    number: int
    step: int


class RankHolds(msgspec.Struct, frozen=True):
    """An own rank has its whole state in epoch `number`."""

    uid: int
    number: int


class GroupBroke(msgspec.Struct, frozen=True):
    """A group of an own rank broke in epoch `number`: a link, or a death not yet proved."""

    uid: int
    number: int


class Keeps(msgspec.Struct, frozen=True):
    """What this agent keeps of ranks' state now (replaces what it kept before)."""

    kept: tuple[Kept, ...]


class AgentDead(msgspec.Struct, frozen=True):
    """Another agent is proved dead."""

    agent: int


class Leave(msgspec.Struct, frozen=True):
    """The job is done: nothing changes any more."""


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot verified; -1 when the newest one turned out bad and none is left."""

    step: int
    cursor: int


Event = (
    Received
    | Tick
    | RankReady
    | RankGone
    | RankVoted
    | RankHolds
    | GroupBroke
    | Keeps
    | AgentDead
    | Snapshot
    | Leave
)


class Send(msgspec.Struct, frozen=True):
    """Give a message to another agent; it may be lost."""

    to: int
    message: Message


class Install(msgspec.Struct, frozen=True):
    """Tell all own ranks of a new epoch."""

    epoch: Epoch


class Append(msgspec.Struct, frozen=True):
    """Keep the commit of `step` in the agent's own log."""

    number: int
    step: int


class Go(msgspec.Struct, frozen=True):
    """Tell own members that the commit of `step` is durable."""

    number: int
    step: int


class Fence(msgspec.Struct, frozen=True):
    """Kill a silent agent on the same host, so that its death is proved."""

    agent: int


class Excluded(msgspec.Struct, frozen=True):
    """This agent is not part of the epoch in force; its ranks must stop."""

    number: int


Action = Send | Install | Append | Go | Fence | Excluded


def decides(event: Event) -> bool:
    """Return whether a change may be decided at this event: what is kept must be told before."""
    if isinstance(event, Received):
        said = event.message
        return isinstance(said, Prepare | Promise) or (isinstance(said, Beat) and bool(said.dead))
    return isinstance(event, Tick | RankGone | AgentDead)
