"""Deterministic simulation of the protocol: one seed, one schedule of everything that goes wrong.

Agents are `protocol.step`; the network delays, drops, duplicates, reorders and splits; agents and
ranks crash, stop, hang and come back. Invariants of docs/run.md are asserted at each event.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

from . import protocol
from .actors import Copy, Host, Rank, keepers_of, kept_by, yields
from .messages import (
    AgentDead,
    Append,
    Excluded,
    Fence,
    Go,
    GroupBroke,
    Install,
    Keeps,
    RankGone,
    RankHolds,
    RankReady,
    RankVoted,
    Received,
    Send,
    Snapshot,
    Tick,
    decides,
)  # fmt: skip
from .record import RECUT, SNAPSHOT, Epoch, Rules, may_speak, write_quorum
from .suspect import verdict

TICK = 5.0


class World:
    """The whole simulated job; `run` plays it and asserts the invariants."""

    def __init__(self, seed: int) -> None:
        self.random = r = Random(seed)
        shards = r.choice((1, 1, 1, 2, 2, 4))
        replicas = r.randint(1, 4 if shards < 4 else 2)
        n = r.choice((1, 2, 2, 2, 3, 3, 4, 5))
        self.rules = Rules(
            slots=replicas * shards, shards=shards, micro_batches=replicas * r.randint(1, 2),
            same_host=r.random() < 0.6, silent=r.choice((6, 12)), wait=r.random() < 0.1,
            rescale=r.random() < 0.1,
            fallbacks=r.choice(((), {1: (), 2: (1,), 4: (2, 1)}[shards])),
        )  # fmt: skip
        self.copying, self.saving, self.breaking = r.random() < 0.5, r.random() < 0.7, 0.0
        self.now, self.order, self.heap = 0.0, 0, []  # type: float, int, list[Any]
        self.hosts: dict[int, Host] = {}
        self.ranks: dict[int, Rank] = {}
        self.epochs: dict[int, Epoch] = {}
        self.voted: set[tuple[int, int, int]] = set()
        self.kept: dict[tuple[int, int], int] = {}
        self.computed: dict[tuple[int, int], set[int]] = {}
        self.hashes: dict[tuple[int, int], int] = {}
        self.snapshots: dict[int, tuple[int, int]] = {}
        self.cut: tuple[float, frozenset[int]] = (0.0, frozenset())
        self.named: list[int] = []
        self.bad_slot, self.top, self.life, self.commits, self.lost = -1, 0, 0, 0, 0
        self.drop, self.twice = r.choice((0.0, 0.05, 0.2)), r.choice((0.0, 0.1))
        self.slow = r.choice((1.0, 3.0, 10.0))
        self.next_uid, self.next_agent = 0, n
        self.proofs: set[int] = set()
        agents = tuple(range(n))
        for a in agents:
            self._host(protocol.start(a, agents, self.rules))
        for index in range(self.rules.slots + r.randint(0, 2)):
            self._spawn(agents[index % n], r.uniform(0, 20))

    # ---- the world's clock -------------------------------------------------------------------

    def later(self, delay: float, act: Callable[..., None], *args: Any) -> None:
        """Call `act` after `delay`; equal times keep their order."""
        self.order += 1
        heapq.heappush(self.heap, (self.now + delay, self.order, act, args))

    def _host(self, state: protocol.State) -> None:
        self.hosts[state.me] = Host(state)
        self.later(self.random.uniform(0, TICK), self._ticking, state.me)

    def _ticking(self, agent: int) -> None:
        if self.hosts[agent].alive:
            self.give(agent, Tick())
            self.later(TICK, self._ticking, agent)

    def _spawn(self, agent: int, delay: float) -> None:
        self.next_uid += 1
        uid = self.next_uid
        self.ranks[uid] = Rank(uid, agent)
        self.later(delay, self._ready, uid)

    def _ready(self, uid: int) -> None:
        rank = self.ranks[uid]
        if rank.alive:
            self.give(rank.agent, RankReady(uid))

    def give(self, agent: int, event: Any) -> None:
        """Deliver an event to an agent; a stopped one sees it when it goes on."""
        host = self.hosts[agent]
        if not host.alive:
            return
        if self.now < host.until:
            host.held.append(event)
            return
        if self.copying and decides(event):
            host.state, _ = protocol.step(host.state, Keeps(kept_by(agent, self.ranks)))
        host.state, actions = protocol.step(host.state, event)
        for action in actions:
            self._act(agent, action)

    # ---- copies in the agents' memory ----------------------------------------------------------

    def _keep(self, agent: int, uid: int, epoch: Epoch) -> None:
        """An agent maps a rank's memory, unless it stands still or the rank has died before."""
        host, rank = self.hosts[agent], self.ranks[uid]
        if host.alive and rank.alive and rank.epoch is epoch:
            if self.now < host.until:
                self.later(host.until - self.now + 1, self._keep, agent, uid, epoch)
            else:
                rank.keepers.add(agent)

    def _seek_keepers(self, rank: Rank, epoch: Epoch) -> None:
        if self.copying:
            rank.keepers &= set(epoch.agents)
            for agent in keepers_of(rank, epoch):
                self.later(self.random.uniform(0.5, 8), self._keep, agent, rank.uid, epoch)

    def _copy(self, rank: Rank) -> None:
        """Begin a copy of the state just applied."""
        if not self.copying:
            return
        assert rank.epoch is not None
        self._copied(rank, rank.making)
        rank.making = Copy(rank.applied, rank.shard, rank.layout, rank.epoch.life, rank.hash)
        if len(rank.copies) == 2:
            rank.copies.pop(0)
        self.later(self.random.uniform(0.5, 5), self._copied, rank, rank.making)

    def _copied(self, rank: Rank, copy: Copy | None) -> None:
        if rank.alive and copy is not None and rank.making is copy:
            rank.copies, rank.making = [*rank.copies, copy], None

    def _rebuilt(self, uid: int, epoch: Epoch, layout: int, shard: int) -> Copy | None:
        """Return the state at the epoch's base out of a lost rank's memory; None: nobody has it."""
        rank = self.ranks[uid]
        if not any(self.hosts[a].alive for a in rank.keepers):
            return None
        found = yields(rank, epoch, layout, shard)
        assert found, "invariant 5: a keeper has not what it said"
        return min(found, key=lambda c: c.number)

    def _wake(self, agent: int) -> None:
        held, self.hosts[agent].held = self.hosts[agent].held, []
        for event in held:
            self.give(agent, event)

    def _act(self, agent: int, action: Any) -> None:
        if isinstance(action, Send):
            self._send(agent, action)
        elif isinstance(action, Install):
            self._install(agent, action.epoch)
        elif isinstance(action, Append):
            self.kept[agent, action.number] = action.step
        elif isinstance(action, Go):
            for rank in self._own(agent):
                self.later(self.random.uniform(0.1, 1), self._go, rank.uid, action)
        elif isinstance(action, Fence):
            assert self.rules.same_host
            self.crash_agent(action.agent)
        elif isinstance(action, Excluded):
            self.crash_agent(agent)

    def _send(self, sender: int, action: Send) -> None:
        until, side = self.cut
        split = self.now < until and (sender in side) != (action.to in side)
        copies = 1 + (self.random.random() < self.twice)
        for _ in range(0 if split else copies):
            if self.random.random() >= self.drop and action.to in self.hosts:
                delay = self.random.uniform(0.2, 2) * (
                    self.slow if self.random.random() < 0.1 else 1
                )
                self.later(delay, self.give, action.to, Received(sender, action.message))

    def _own(self, agent: int) -> list[Rank]:
        return [r for r in self.ranks.values() if r.agent == agent and r.alive]

    # ---- ranks -------------------------------------------------------------------------------

    def _install(self, agent: int, epoch: Epoch) -> None:
        if epoch.number not in self.epochs:
            self._check_epoch(epoch)
        known = self.epochs.setdefault(epoch.number, epoch)
        assert known == epoch, "invariant 1: two epochs with one number"
        for rank in self._own(agent):
            self.later(self.random.uniform(0.1, 1), self._enter, rank.uid, epoch)

    def _check_epoch(self, epoch: Epoch) -> None:
        self.life = epoch.life
        if epoch.lost:
            assert epoch.base in self.snapshots, "invariant 5: rewind to no snapshot"
            self.lost += epoch.lost
            self.top = epoch.base
        else:
            assert epoch.base >= self.top, "invariant 2: a commit was undone without a rewind"
        before = self.epochs.get(epoch.number - 1)
        if before is not None and before.members and epoch.why == "ranks ready":
            went = epoch.base + epoch.lost - before.base
            assert went >= self.rules.settle, "invariant 6: flapping"
        joining = {uid for uid, _ in epoch.joins}
        for slot, uid in ((m.slot, m.uid) for m in epoch.members if m.uid not in joining):
            rank = self.ranks[uid]
            good = rank.applied == epoch.base or epoch.base in rank.pending
            fresh = epoch.base == 0
            assert good or fresh, f"invariant 5: slot {slot} does not hold step {epoch.base}"

    def _enter(self, uid: int, epoch: Epoch) -> None:
        rank = self.ranks[uid]
        if not rank.alive or (rank.epoch and rank.epoch.number >= epoch.number):
            return
        rank.epoch = epoch
        self._give_part(rank, epoch)
        member = next((m for m in epoch.members if m.uid == uid), None)
        if member is None:
            gives = any(uid == giver for _, giver in (*epoch.joins, *epoch.sources))
            if gives and rank.has and rank.applied == epoch.base - 1 and epoch.base in rank.pending:
                self._apply(rank, epoch.base)
            rank.has = rank.has and rank.applied == epoch.base
            return
        donor = dict(epoch.joins).get(uid)
        if donor is not None:
            rank.has = False
            rank.shard, rank.layout = member.slot % epoch.shards, epoch.layout
            self._seek_keepers(rank, epoch)
            self.later(self.random.uniform(1, 10), self._receive, uid, epoch, donor)
            return
        same = (rank.layout, rank.shard) == (epoch.layout, member.slot % epoch.shards)
        assert same or not epoch.base, "a rank kept a part of another layout"
        rank.shard, rank.layout = member.slot % epoch.shards, epoch.layout
        self._seek_keepers(rank, epoch)
        rank.has = True
        if rank.applied == epoch.base - 1:
            self._apply(rank, epoch.base)
        assert rank.applied == epoch.base, "invariant 3: a survivor is not at the base"
        self._begin(rank)

    def _give_part(self, rank: Rank, epoch: Epoch) -> None:
        """Lay the own part out for a new cut; one laid out for the cut before stays as it is."""
        if rank.uid not in {uid for _, uid in epoch.sources}:
            return
        if rank.has and rank.layout == epoch.source_layout:
            if rank.applied == epoch.base - 1:
                self._apply(rank, epoch.base)
            rank.offer = Copy(rank.applied, rank.shard, rank.layout, epoch.life, rank.hash)
        offer = rank.offer
        assert offer is not None and offer.step == epoch.base, "invariant 5: a source is empty"
        assert (offer.shard, rank.uid) in epoch.sources and offer.layout == epoch.source_layout

    def _recut(self, rank: Rank, epoch: Epoch) -> bool:
        """Take a new part out of the old ones; False while one cannot be read."""
        values = set()
        for shard, uid in epoch.sources:
            giver = self.ranks[uid]
            part = giver.offer
            if uid in epoch.kept:
                part = self._rebuilt(uid, epoch, epoch.source_layout, shard)
            elif not giver.alive or giver.epoch is not epoch:
                return False
            if part is None:
                return False
            values.add(part.hash)
        assert len(values) == 1, "invariant 4: parts of different states are put together"
        rank.hash, rank.applied = values.pop(), epoch.base
        return True

    def _receive(self, uid: int, epoch: Epoch, donor: int) -> None:
        rank = self.ranks[uid]
        if not rank.alive or rank.epoch is not epoch:
            return
        if donor == SNAPSHOT:
            rank.applied, rank.hash = epoch.base, self.snapshots[epoch.base][1]
        elif donor == RECUT:
            if not self._recut(rank, epoch):
                self.later(3, self._receive, uid, epoch, donor)
                return
        elif donor in epoch.kept:
            copy = self._rebuilt(donor, epoch, epoch.layout, rank.shard)
            if copy is None:
                self.later(3, self._receive, uid, epoch, donor)
                return
            rank.hash, rank.applied = copy.hash, copy.step
        else:
            giver = self.ranks[donor]
            ready = giver.alive and giver.epoch is epoch and giver.has
            if not ready or giver.applied != epoch.base:
                self.later(3, self._receive, uid, epoch, donor)
                return
            assert giver.shard == rank.shard, "state of another shard"
            rank.hash, rank.applied = giver.hash, giver.applied
        rank.has, rank.pending = True, {}
        self.later(self.random.uniform(0.1, 1), self.give, rank.agent, RankHolds(uid, epoch.number))
        self._copy(rank)
        self._begin(rank)

    def _begin(self, rank: Rank) -> None:
        epoch = rank.epoch
        assert epoch is not None
        slot = next(m.slot for m in epoch.members if m.uid == rank.uid)
        if slot == self.bad_slot and rank.applied >= 2:
            rank.hung = True
            self.later(25, self._suspect, rank.uid, slot)
            return
        self.later(self.random.uniform(2, 6), self._computed, rank.uid, epoch, rank.applied + 1)

    def _suspect(self, uid: int, slot: int) -> None:
        """The hang finder names a rank; a slot named twice is not filled again from its host."""
        rank = self.ranks[uid]
        if rank.alive and rank.hung:
            if verdict([(s, 0) for s in self.named], slot, 0) == "exclude":
                self.bad_slot = -1
            self.named.append(slot)
            assert self.named.count(slot) <= 2, "invariant 8: named a third time"
            self.crash_rank(uid, respawn=True)

    def _computed(self, uid: int, epoch: Epoch, step: int) -> None:
        rank = self.ranks[uid]
        if not rank.alive or rank.epoch is not epoch or rank.applied != step - 1:
            return
        if self.copying:
            self._copied(rank, rank.making)
            if not keepers_of(rank, epoch) <= rank.keepers:
                self.later(1, self._computed, uid, epoch, step)
                return
        if self.breaking and self.breaking <= self.now:
            self._break(rank, epoch)
            return
        done = self.computed.setdefault((epoch.number, step), set())
        done.add(uid)
        if len(done) == len(epoch.members):
            for member in epoch.members:
                self.ranks[member.uid].gradient = None
                self.later(self.random.uniform(0.1, 1), self._reduced, member.uid, epoch, step)

    def _break(self, rank: Rank, epoch: Epoch) -> None:
        """A link of the rank's group breaks, once: it says so and waits for the next epoch."""
        self.breaking = 0.0
        self.later(0.5, self.give, rank.agent, GroupBroke(rank.uid, epoch.number))

    def _reduced(self, uid: int, epoch: Epoch, step: int) -> None:
        rank = self.ranks[uid]
        if not rank.alive or rank.epoch is not epoch or rank.applied != step - 1:
            return
        position = 0 if self.rules.rescale else epoch.position(step)
        after = hash((rank.hash, step, position, epoch.number))
        rank.pending[step] = after
        rank.gradient = Copy(step, rank.shard, rank.layout, epoch.life, after, epoch.number)
        self.voted.add((epoch.number, step, uid))
        said = RankVoted(uid, epoch.number, step)
        self.later(self.random.uniform(0.1, 1), self.give, rank.agent, said)

    def _go(self, uid: int, go: Go) -> None:
        rank, epoch = self.ranks[uid], self.epochs[go.number]
        if not rank.alive or rank.epoch is not epoch or uid not in epoch.uids:
            return
        if rank.applied >= go.step:
            return
        kept = sum(self.kept.get((a, go.number), 0) >= go.step for a in epoch.agents)
        assert kept >= write_quorum(len(epoch.agents)), "invariant 2: applied before durable"
        for member in epoch.members:
            assert (go.number, go.step, member.uid) in self.voted, "invariant 2: a vote is missing"
        self._apply(rank, go.step)
        self._begin(rank)

    def _apply(self, rank: Rank, step: int) -> None:
        assert rank.applied == step - 1, "invariant 3: a step was skipped or applied twice"
        assert step in rank.pending, "invariant 3: applied without reduced gradients"
        rank.hash, rank.applied = rank.pending.pop(step), step
        assert rank.epoch is not None
        known = self.hashes.setdefault((rank.epoch.life, step), rank.hash)
        assert known == rank.hash, "invariant 4: replicas differ"
        self._copy(rank)
        if step > self.top and rank.epoch.life == self.life:  # else a rewind undid it
            self.top = step
            self.commits += 1
        if step % 4 == 0 and self.saving and step not in self.snapshots:
            self.snapshots[step] = (rank.epoch.position(step + 1), rank.hash)
            for agent in self.hosts:
                self.later(8, self.give, agent, Snapshot(step, self.snapshots[step][0]))

    # ---- faults ------------------------------------------------------------------------------

    def crash_rank(self, uid: int, respawn: bool) -> None:
        """SIGKILL one rank; its agent learns it a little later."""
        rank = self.ranks[uid]
        if not rank.alive:
            return
        rank.alive = False
        self.later(self.random.uniform(0.1, 3), self.give, rank.agent, RankGone(uid))
        if respawn and self.hosts[rank.agent].alive:
            self._spawn(rank.agent, self.random.uniform(5, 60))

    def crash_agent(self, agent: int) -> None:
        """SIGKILL an agent; its ranks die with it, on one host the others get proof."""
        host = self.hosts[agent]
        if not host.alive:
            return
        host.alive = False
        for rank in self._own(agent):
            rank.alive = False
        if self.rules.same_host:
            for other in self.hosts:
                if other != agent:
                    self.later(self.random.uniform(0.1, 4), self.give, other, AgentDead(agent))

    def join_agent(self) -> None:
        """Start an agent with ranks of its own, as a new identity."""
        agent, self.next_agent = self.next_agent, self.next_agent + 1
        known = max(self.epochs.values(), key=lambda e: e.number, default=None)
        if known is None:
            return
        self._host(protocol.start(agent, known.agents, self.rules, number=-1))
        for dead in (a for a, h in self.hosts.items() if not h.alive):
            if self.rules.same_host:
                self.give(agent, AgentDead(dead))
        for _ in range(self.random.randint(1, 2)):
            self._spawn(agent, self.random.uniform(1, 10))

    def fault(self) -> None:
        """One thing that goes wrong."""
        r, live = self.random, [a for a, h in self.hosts.items() if h.alive]
        ranks = [u for u, k in self.ranks.items() if k.alive]
        kind = r.random()
        if kind < 0.4 and ranks:
            for uid in r.sample(ranks, min(len(ranks), r.choice((1, 1, 1, 2)))):
                self.crash_rank(uid, r.random() < 0.7)
        elif kind < 0.55 and live:
            self.crash_agent(r.choice([min(live), r.choice(live)]))
        elif kind < 0.7 and live:
            agent, pause = r.choice(live), r.uniform(5, 120)
            self.hosts[agent].until = self.now + pause
            self.later(pause + 1e-6, self._wake, agent)
        elif kind < 0.85 and len(live) > 1:
            side = frozenset(r.sample(live, r.randint(1, len(live) - 1)))
            self.cut = (self.now + r.uniform(5, 150), side)
        elif kind < 0.9:
            self.join_agent()
        elif kind < 0.95:
            self.breaking = self.now + r.uniform(0.1, 20)
        elif self.bad_slot < 0 and not self.named:
            self.bad_slot = r.randrange(self.rules.slots)

    def able(self) -> bool:
        """Return whether enough is left, once faults rest, that training must go on."""
        live = {a for a, h in self.hosts.items() if h.alive}
        number = max((h.state.epoch.number for a, h in self.hosts.items() if a in live), default=-1)
        last = self.epochs.get(number)
        if last is None or number < 0:
            return False
        dead = set(self.hosts) - live if self.rules.same_host else set()
        if not may_speak(last, live, dead, self.rules.same_host) or self.rules.wait:
            return False
        if self.rules.shards > 1:
            sources = [d for u, d in last.joins if not self.ranks[u].has and d >= 0]
            sources += [u for _, u in last.sources]
            return all(self.ranks[u].alive for u in (*last.uids, *sources))
        return any(self.ranks[u].alive for u in last.uids if u not in dict(last.joins))

    def play(self, until: float) -> None:
        """Play the events up to a time."""
        while self.heap and self.heap[0][0] <= until:
            self.now, _, act, args = heapq.heappop(self.heap)
            act(*args)
        self.now = until


def simulate(seed: int, faults: int = 4, calm: float = 240.0) -> World:
    """Play one seeded schedule and return the world; an AssertionError names the invariant."""
    world = World(seed)
    world.play(world.random.uniform(20, 60))
    for _ in range(world.random.randint(0, faults)):
        world.fault()
        world.play(world.now + world.random.choice((1, 4, 15, 60)) * world.random.random())
    world.drop, world.cut = min(world.drop, 0.05), (0.0, frozenset())
    for agent, host in list(world.hosts.items()):
        if host.until > world.now:
            host.until = world.now
            world._wake(agent)
    world.play(world.now + calm / 4)
    able, before = world.able(), world.top
    world.play(world.now + calm)
    if able and world.able():
        assert world.top > before, "invariant 9: nothing commits although enough is left"
    return world
