"""One agent as a pure function: ``(state, event) -> (state, actions)``.

Commits need no leader: an agent appends the commit of a step when every agent of the epoch says
that its members voted, and lets its ranks apply once W agents have appended. A new epoch is chosen
by single-decree Paxos among the agents of the last one (record.may_speak is the quorum); a promise
stops appending, so the epoch sees each commit that anyone may have applied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from . import messages as m
from .decide import decide
from .record import Epoch, Rank, Rules, may_speak, write_quorum
from .view import (
    NOBODY,
    UNFINISHED,
    Peer,
    State,
    beat,
    changes,
    deserted,
    hopeless,
    joiners,
    ready_of,
    silent,
    voted,
)

__all__ = ["State", "changes", "deserted", "hopeless", "silent", "start", "step"]

BALLOT_STRIDE = 1024
RETRY = 4
"""Ticks before an unanswered ballot is tried again with a higher number."""


Out = tuple[State, list[m.Action]]
_set = msgspec.structs.replace


def start(
    me: int, agents: tuple[int, ...], rules: Rules, base: int = 0, cursor: int = 0, number: int = 0
) -> State:
    """Return an agent before the first epoch; `base` is the step of the snapshot it resumes."""
    epoch = Epoch(
        number=number, agents=agents, base=base, cursor=cursor, shards=rules.shards
    )  # fmt: skip
    snapshot = (base, cursor) if base else (-1, 0)
    return State(me=me, rules=rules, epoch=epoch, appended=base, durable=base, snapshot=snapshot)


def step(state: State, event: m.Event) -> Out:
    """Return the next state and what the driver must do, in order."""
    return _HANDLERS[type(event)](state, event)


def _publish(state: State) -> Out:
    """Send the public state to everyone known, and commit what can be committed."""
    state = _set(state, seq=state.seq + 1)
    state, actions = _commit(state)
    said = beat(state)
    others = (set(state.epoch.agents) | set(state.peers)) - {state.me} - state.dead
    return state, [*actions, *(m.Send(a, said) for a in sorted(others))]


def _commit(state: State) -> Out:
    """Append the next commit if all voted; let ranks apply what W agents have appended."""
    epoch = state.epoch
    if not epoch.members:
        return state, []
    known = {
        a: p.beat
        for a, p in state.peers.items()
        if a in epoch.agents and p.beat.number == epoch.number
    }
    heard = len(known) == len(epoch.agents) - 1
    last = min([voted(state), *(b.voted for b in known.values())]) if heard else -1
    theirs = max((b.appended for b in known.values()), default=state.appended)
    appended = state.appended
    if not state.promised:
        appended = max(appended, theirs, last if last < NOBODY else -1)
    kept = sorted([appended, *(b.appended for b in known.values())], reverse=True)
    w = write_quorum(len(epoch.agents))
    durable = max(state.durable, kept[w - 1]) if len(kept) >= w else state.durable
    actions: list[m.Action] = []
    if appended > state.appended:
        actions.append(m.Append(epoch.number, appended))
    actions += [m.Go(epoch.number, s) for s in range(state.durable + 1, durable + 1)]
    return _set(state, appended=appended, durable=durable), actions


def _changed(state: State) -> Out:
    """Publish, and propose if a change is due."""
    state, actions = _publish(state)
    state, more = _propose(state)
    return state, actions + more


def _propose(state: State) -> Out:
    """Begin a ballot if a change is due and this agent is the lowest that can."""
    if state.ballot or state.leaving or state.me not in state.epoch.agents:
        return state, []
    able = set(state.epoch.agents) - state.dead - silent(state)
    why = changes(state)
    if state.me != min(able | {state.me}) or not why:
        return state, []
    if not may_speak(state.epoch, able, state.dead, state.rules.same_host):
        return state, []
    why = state.why or why if why == UNFINISHED else why
    return _ballot(_set(state, why=why))


def _ballot(state: State) -> Out:
    highest = max(state.promised // BALLOT_STRIDE, state.round) + 1
    ballot = highest * BALLOT_STRIDE + state.me
    state = _set(
        state, ballot=ballot, round=highest, started=state.tick, promises={}, draft=None,
        accepts=frozenset(),
    )  # fmt: skip
    ask = m.Prepare(state.epoch.number + 1, ballot)
    actions: list[m.Action] = [
        m.Send(a, ask) for a in state.epoch.agents if a != state.me and a not in state.dead
    ]
    state, more = _prepare(state, m.Received(state.me, ask))
    return state, actions + more


def _reply(state: State, to: int, message: m.Message) -> Out:
    if to == state.me:
        return _receive(state, m.Received(to, message))
    return state, [m.Send(to, message)]


def _prepare(state: State, event: m.Received) -> Out:
    ask: Any = event.message
    if ask.number <= state.epoch.number:
        return _reply(state, event.sender, m.Decided(state.epoch))
    if ask.number > state.epoch.number + 1:
        return state, []
    if ask.ballot < state.promised:
        return _reply(state, event.sender, m.Refuse(ask.number, state.promised))
    state = _set(state, promised=ask.ballot, seq=state.seq + 1)
    said = m.Promise(
        ask.number, ask.ballot, state.accepted_ballot, state.accepted, beat(state, whole=True)
    )  # fmt: skip
    return _reply(state, event.sender, said)


def _promise(state: State, event: m.Received) -> Out:
    said: Any = event.message
    if said.ballot != state.ballot or said.number != state.epoch.number + 1 or state.draft:
        return state, []
    if event.sender != state.me:
        state = _hear(state, event.sender, said.beat)
    state = _set(state, promises={**state.promises, event.sender: said})
    return _draft(state)


def _draft(state: State) -> Out:
    """Choose the value once enough have promised and nobody able is still to answer."""
    here = set(state.promises)
    if not may_speak(state.epoch, here, state.dead, state.rules.same_host):
        return state, []
    able = set(state.epoch.agents) - state.dead - silent(state)
    if able - here and state.tick - state.started < RETRY - 1:
        return state, []
    best = max(state.promises.values(), key=lambda p: p.accepted_ballot)
    draft = best.accepted if best.accepted_ballot else _decide(state)
    if draft is None:
        return state, []
    state = _set(state, draft=draft)
    ask = m.Accept(state.ballot, draft)
    actions: list[m.Action] = [m.Send(a, ask) for a in sorted(here) if a != state.me]
    state, more = _accept(state, m.Received(state.me, ask))
    return state, actions + more


def _decide(state: State) -> Epoch | None:
    beats = {a: p.beat for a, p in state.promises.items()}
    new = [a for a in joiners(state) if a not in state.epoch.agents]
    beats |= {a: state.peers[a].beat for a in new}
    beats[state.me] = beat(state, whole=True)
    base = max(b.appended for a, b in beats.items() if a not in new)
    agents = tuple(sorted((set(state.promises) - state.dead) | set(new)))
    ready = ready_of(state, beats)
    snapshot = max(b.snapshot for b in beats.values())
    kept = [k for a, b in beats.items() if a not in state.dead for k in b.kept]
    return decide(
        state.rules, state.epoch, base, agents, ready, snapshot, state.why, kept
    )  # fmt: skip


def _accept(state: State, event: m.Received) -> Out:
    ask: Any = event.message
    number = ask.epoch.number
    if number <= state.epoch.number:
        return _reply(state, event.sender, m.Decided(state.epoch))
    if number > state.epoch.number + 1:
        return state, []
    if ask.ballot < state.promised:
        return _reply(state, event.sender, m.Refuse(number, state.promised))
    state = _set(
        state, promised=ask.ballot, accepted_ballot=ask.ballot, accepted=ask.epoch
    )  # fmt: skip
    return _reply(state, event.sender, m.Accepted(number, ask.ballot))


def _accepted(state: State, event: m.Received) -> Out:
    said: Any = event.message
    draft = state.draft
    if draft is None or said.ballot != state.ballot:
        return state, []
    state = _set(state, accepts=state.accepts | {event.sender})
    if not may_speak(state.epoch, state.accepts, state.dead, state.rules.same_host):
        return state, []
    others = (set(state.epoch.agents) | set(draft.agents)) - {state.me} - state.dead
    actions: list[m.Action] = [m.Send(a, m.Decided(draft)) for a in sorted(others)]
    state, more = _install(state, draft)
    return state, actions + more


def _decided(state: State, event: m.Received) -> Out:
    said: Any = event.message
    if said.epoch.number <= state.epoch.number:
        return state, []
    return _install(state, said.epoch)


def _install(state: State, epoch: Epoch) -> Out:
    """Put an epoch in force; an agent left out of it must stop."""
    state = _set(
        state, epoch=epoch, appended=epoch.base, durable=epoch.base, votes={}, promised=0,
        accepted_ballot=0, accepted=None, ballot=0, promises={}, draft=None, accepts=frozenset(),
        since=state.tick,
        why="",
    )  # fmt: skip
    if state.me not in epoch.agents:
        return state, [m.Excluded(epoch.number)]
    state, actions = _changed(state)
    return state, [m.Install(epoch), *actions]


def _refuse(state: State, event: m.Received) -> Out:
    said: Any = event.message
    if not state.ballot or said.number != state.epoch.number + 1 or said.ballot <= state.ballot:
        return state, []
    return _set(state, ballot=0, round=max(state.round, said.ballot // BALLOT_STRIDE)), []


def _hear(state: State, sender: int, said: m.Beat) -> State:
    old = state.peers.get(sender)
    kept = old.beat if old is not None and old.beat.seq > said.seq else said
    dead = state.dead | (frozenset(said.dead) - {state.me})
    peers = {**state.peers, sender: Peer(kept, state.tick)}
    state = _set(state, peers=peers, dead=dead, leaving=state.leaving or said.leaving)
    return _broken(state, said.broke)


def _broken(state: State, number: int) -> State:
    """Note that groups of the epoch in force broke; the clock for proofs of death begins."""
    if number != state.epoch.number or state.broke[0] == number:
        return state
    return _set(state, broke=(number, state.tick))


def _beat(state: State, event: m.Received) -> Out:
    said: Any = event.message
    if event.sender in state.dead:
        return state, []
    state = _hear(state, event.sender, said)
    if said.number < state.epoch.number:
        if state.epoch.members and event.sender in state.epoch.agents:
            return state, [m.Send(event.sender, m.Decided(state.epoch))]
        if said.number >= 0 and state.epoch.members:
            return state, [m.Send(event.sender, m.Decided(state.epoch))]
    before = state.appended
    state, actions = _commit(state)
    if state.appended != before:
        state, sends = _publish(state)
        actions += sends
    state, more = _propose(state)
    return state, actions + more


def _receive(state: State, event: m.Received) -> Out:
    return _MESSAGES[type(event.message)](state, event)


def _tick(state: State, event: m.Tick) -> Out:
    """Beat, suspect, fence, and try a stuck ballot again."""
    state = _set(state, tick=state.tick + 1)
    actions: list[m.Action] = []
    if state.rules.same_host and state.epoch.number > 0 and state.me in state.epoch.agents:
        actions = [m.Fence(a) for a in sorted(silent(state) - state.dead)]
    if state.ballot and state.draft is None:
        state, more = _draft(state)
        actions += more
    if state.ballot and state.tick - state.started >= RETRY * (1 + state.me % 7):
        state = _set(state, ballot=0)
    state, more = _changed(state)
    return state, actions + more


def _rank_ready(state: State, event: m.RankReady) -> Out:
    return _changed(_set(state, ranks={**state.ranks, event.uid: Rank(event.uid, info=event.info)}))


def _rank_gone(state: State, event: m.RankGone) -> Out:
    return _changed(
        _set(state, ranks={u: r for u, r in state.ranks.items() if u != event.uid})
    )  # fmt: skip


def _rank_voted(state: State, event: m.RankVoted) -> Out:
    if event.number != state.epoch.number or event.uid not in state.ranks:
        return state, []
    last = state.votes.get(event.uid, 0)
    state = _set(state, votes={**state.votes, event.uid: max(last, event.step)})
    mine = [x.uid for x in state.epoch.members if x.agent == state.me]
    if any(state.votes.get(uid, 0) < event.step for uid in mine):
        return state, []
    return _changed(state)


def _rank_holds(state: State, event: m.RankHolds) -> Out:
    if event.uid not in state.ranks or event.number != state.epoch.number:
        return state, []
    rank = _set(state.ranks[event.uid], holds=event.number)
    return _changed(_set(state, ranks={**state.ranks, event.uid: rank}))


def _group_broke(state: State, event: m.GroupBroke) -> Out:
    return _publish(_broken(state, event.number))


def _keeps(state: State, event: m.Keeps) -> Out:
    return _set(state, kept=event.kept), []


def _agent_dead(state: State, event: m.AgentDead) -> Out:
    peers = {a: p for a, p in state.peers.items() if a != event.agent}
    state = _set(state, dead=state.dead | {event.agent}, peers=peers)
    state, actions = _draft(state) if state.ballot and state.draft is None else (state, [])
    state, more = _changed(state)
    return state, actions + more


def _snapshot(state: State, event: m.Snapshot) -> Out:
    return _set(state, snapshot=(event.step, event.cursor)), []


def _leave(state: State, event: m.Leave) -> Out:
    return _changed(_set(state, leaving=True))


_MESSAGES: dict[type, Callable[[State, m.Received], Out]] = {
    m.Beat: _beat, m.Prepare: _prepare, m.Promise: _promise, m.Refuse: _refuse, m.Accept: _accept,
    m.Accepted: _accepted, m.Decided: _decided,
}  # fmt: skip
_HANDLERS: dict[type, Callable[[State, Any], Out]] = {
    m.Received: _receive, m.Tick: _tick, m.RankReady: _rank_ready, m.RankGone: _rank_gone,
    m.RankVoted: _rank_voted, m.RankHolds: _rank_holds, m.GroupBroke: _group_broke,
    m.Keeps: _keeps, m.AgentDead: _agent_dead, m.Snapshot: _snapshot, m.Leave: _leave,
}  # fmt: skip
