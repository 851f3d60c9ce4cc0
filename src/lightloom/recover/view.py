"""What one agent knows, and what follows: who is silent, what should change, what is lost."""

from __future__ import annotations

import msgspec

from . import messages as m
from .decide import LINK, Ready, all_give, known
from .record import RECUT, SNAPSHOT, Epoch, Kept, Rank, Rules

UNFINISHED = "unfinished change"
NOBODY = 1 << 62
"""The vote of an agent without members."""
GRACE = 4
"""Ticks after a broken group in which a death may still be proved."""


class Peer(msgspec.Struct, frozen=True):
    """What is known of another agent."""

    beat: m.Beat
    heard: int
    """Tick of the last message."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one agent knows."""

    me: int
    rules: Rules
    epoch: Epoch
    appended: int = 0
    durable: int = 0
    ranks: dict[int, Rank] = {}
    votes: dict[int, int] = {}
    """Own member uid -> last step it voted for in this epoch."""
    peers: dict[int, Peer] = {}
    dead: frozenset[int] = frozenset()
    promised: int = 0
    accepted_ballot: int = 0
    accepted: Epoch | None = None
    ballot: int = 0
    """Own ballot in progress; 0 none."""
    round: int = 0
    started: int = 0
    """Tick at which the ballot began."""
    promises: dict[int, m.Promise] = {}
    draft: Epoch | None = None
    accepts: frozenset[int] = frozenset()
    tick: int = 0
    why: str = ""
    """Why the ballot in progress began."""
    since: int = 0
    """Tick at which the epoch came into force."""
    seq: int = 0
    snapshot: tuple[int, int] = (-1, 0)
    leaving: bool = False
    """The operator asked to stop: nothing changes any more."""
    kept: tuple[Kept, ...] = ()
    """What this agent keeps of ranks' state."""
    broke: tuple[int, int] = (-1, 0)
    """Last epoch whose groups are known to have broken, and the tick that was heard of."""


def silent(state: State) -> frozenset[int]:
    """Return agents of the epoch not heard for too long."""
    late = state.tick - state.rules.silent
    return frozenset(
        a
        for a in state.epoch.agents
        if a != state.me
        and max(state.peers[a].heard if a in state.peers else 0, state.since) < late
    )


def changes(state: State) -> str:
    """Return why the epoch should change, in words; empty when it should not."""
    epoch, gone = state.epoch, state.dead | silent(state)
    lost = [a for a in epoch.agents if a in gone]
    if lost and epoch.number:
        return f"agent {', '.join(map(str, lost))} lost"
    out = [x.slot for x in epoch.members if not _alive(state, x.agent, x.uid)]
    if out:
        return f"rank {', '.join(map(str, out))} lost"
    if not _donors_live(state):
        return "donor lost"
    if _links_broke(state):
        return LINK
    if state.promised or any(
        p.beat.promised and p.beat.number == epoch.number
        for a, p in state.peers.items()
        if a in epoch.agents
    ):
        return UNFINISHED
    if epoch.members and state.durable - epoch.base < state.rules.settle:
        return ""
    idle = len(ready_of(state, beats_of(state))) - len(epoch.members)
    if len(epoch.members) < state.rules.slots and _enough(state, idle):
        return "ranks ready" if epoch.members else "start"
    if epoch.members and any(a not in epoch.agents for a in joiners(state)):
        return "agent joins"
    return ""


def _enough(state: State, idle: int) -> bool:
    """Return whether idle ranks are worth a change: a whole replica, or a layout preferred."""
    epoch = state.epoch
    if not epoch.members:
        return idle >= state.rules.slots
    least = max(state.rules.least, 1)
    wanted = [n * (1 if at else least) for at, n in enumerate(state.rules.layouts)]
    better = min(wanted[: epoch.layout], default=1 << 30)
    return idle >= epoch.shards or idle + len(epoch.members) >= better


def _links_broke(state: State) -> bool:
    """Return whether groups broke and, after a moment for proofs, still nobody is known dead."""
    number, tick = state.broke
    return number == state.epoch.number and state.tick - tick >= GRACE


def joiners(state: State) -> list[int]:
    """Return agents outside the epoch that have ranks to offer."""
    fresh = state.tick - state.rules.silent // 2
    return [
        a
        for a, p in state.peers.items()
        if a not in state.dead and p.heard >= fresh and p.beat.number < 0 and p.beat.ranks
    ]


def _alive(state: State, agent: int, uid: int) -> bool:
    if agent == state.me:
        return uid in state.ranks
    peer = state.peers.get(agent)
    if peer is None or peer.beat.number != state.epoch.number:
        return True
    return any(rank.uid == uid for rank in peer.beat.ranks)


def hopeless(state: State) -> bool:
    """Return whether a shard of the committed state is nowhere: no holder, copy or snapshot."""
    beats = {a: b for a, b in beats_of(state).items() if a in state.epoch.agents}
    heard = all(a in beats or a in state.dead for a in state.epoch.agents)
    ready = {r.uid: Ready(r, a) for a, b in beats.items() for r in b.ranks}
    base = max(b.appended for b in beats.values())
    if not (state.epoch.members and base and heard):
        return False
    if max(b.snapshot for b in beats.values())[0] >= 0:
        return False
    have = known(state.epoch, base, ready, [k for b in beats.values() for k in b.kept])
    return len(have.donors) < state.epoch.shards and not all_give(state.epoch, have)


def deserted(state: State) -> bool:
    """Return whether training had begun and no rank is left on any living agent."""
    return bool(state.epoch.members) and not any(b.ranks for b in beats_of(state).values())


def _donors_live(state: State) -> bool:
    """Return whether each member that still waits for its state has a living donor."""
    epoch = state.epoch
    if not epoch.joins or state.durable > epoch.base:
        return True
    beats = {a: b for a, b in beats_of(state).items() if a in epoch.agents}
    if any(b.number != epoch.number for b in beats.values()) or len(beats) < len(epoch.agents):
        return True
    ranks = {r.uid: r.holds for b in beats.values() for r in b.ranks}
    held = {k.uid for b in beats.values() for k in b.kept} & set(epoch.kept)
    there = {*(set(ranks) - set(epoch.kept)), *held}
    if max(b.snapshot for b in beats.values())[0] >= epoch.base:  # else it proved damaged
        there.add(SNAPSHOT)
    if all(uid in there for _, uid in epoch.sources):
        there.add(RECUT)
    return all(donor in there or ranks.get(uid) == epoch.number for uid, donor in epoch.joins)


def beats_of(state: State) -> dict[int, m.Beat]:
    """Return the last public state of every agent not known dead."""
    beats = {a: p.beat for a, p in state.peers.items() if a not in state.dead}
    beats[state.me] = beat(state)
    return beats


def ready_of(state: State, beats: dict[int, m.Beat]) -> dict[int, Ready]:
    """Return the live ranks of agents that may take part."""
    allowed = set(state.epoch.agents) | set(joiners(state))
    gone = state.dead | silent(state)
    return {
        rank.uid: Ready(rank, agent)
        for agent, said in beats.items()
        if agent in allowed and agent not in gone
        for rank in said.ranks
    }


def voted(state: State) -> int:
    """Return the last step all own members voted for; without members no step is held up."""
    base, votes, me = state.epoch.base, state.votes, state.me
    own = [votes.get(x.uid, base) for x in state.epoch.members if x.agent == me]
    return min(own, default=NOBODY)


def beat(state: State, whole: bool = False) -> m.Beat:
    """Return the agent's public state; `whole` with all it keeps, else what is asked for now."""
    return m.Beat(
        seq=state.seq, number=state.epoch.number, voted=voted(state), appended=state.appended,
        ranks=tuple(state.ranks[u] for u in sorted(state.ranks)), snapshot=state.snapshot,
        dead=tuple(sorted(state.dead)), promised=state.promised, leaving=state.leaving,
        kept=state.kept if whole else wanted(state), broke=state.broke[0],
    )  # fmt: skip


def wanted(state: State) -> tuple[Kept, ...]:
    """Return what is kept of ranks that are lost or that give their state in this epoch."""
    if not state.kept:
        return ()
    epoch = state.epoch
    ask = {donor for _, donor in epoch.joins} | {uid for _, uid in epoch.sources}
    ask |= {x.uid for x in epoch.members if not _alive(state, x.agent, x.uid)}
    ask |= {x.uid for x in epoch.members if x.agent in state.dead}
    return tuple(k for k in state.kept if k.uid in ask)
