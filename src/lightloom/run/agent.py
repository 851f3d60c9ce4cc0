"""The agent: owns its ranks, keeps the record, speaks for them; ``-m lightloom.run.agent``.

A driver of recover.protocol: sockets, pidfds and the clock become events, its actions become
frames, messages to ranks, lines of the record. No agent is special; any one may die.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from lightloom.recover import messages as m
from lightloom.recover import protocol
from lightloom.recover.record import Epoch, Rules
from lightloom.recover.suspect import verdict

from . import board as b
from . import faults, hangs, nursery, sharded, snapshot, system, talk, wire
from . import nest as nests
from .keeper import Keeper
from .log import Log
from .mesh import fallbacks_of
from .net import Net
from .spec import doors as all_doors
from .spec import load

TICK_S = 0.05
HOPELESS = 20
"""Ticks after which nobody can still say that it has a copy of what is lost."""
FORGIVEN = 100
"""Steps after which an earlier failure of the script no longer counts."""
OWN_EXITS = (86, 87)
"""A replica that differed, links that stay broken: ended by us, no failure of the script."""
RESPAWN_S = 0.7
"""Pause before a lost rank is replaced, so that it does not slow the survivors' first step."""

PLAIN = "it does not use the library: all its work since the start is lost"


def launch(folder: Path, agent: int, count: int, joins: bool = False) -> subprocess.Popen[bytes]:
    """Start an agent that will own `count` ranks, in a session of its own."""
    log = open(folder / f"agent-{agent}.log", "ab")  # noqa: SIM115
    command = [sys.executable, "-m", "lightloom.run.agent", str(folder), str(agent), str(count)]
    process = subprocess.Popen(
        command + (["join"] if joins else []), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        start_new_session=True,
    )  # fmt: skip
    log.close()
    return process


class Agent:
    """The loop of one agent."""

    def __init__(self, folder: Path, me: int, count: int, joins: bool) -> None:
        self.folder, self.me, self.spec, self.count = folder, me, load(folder), count
        self.log = Log(folder, me)
        self.select = selectors.DefaultSelector()
        self.net = Net(folder, me, self.select, self._on_frame, self._on_agent_death)
        self.elsewhere: dict[int, tuple[int, int, float, int]] = {}
        self.named: list[tuple[int, int]] = []
        self.pending: list[tuple[float, Callable[[], None]]] = []
        self.stop_at: int | None = None
        self.signalled = self.over = False
        self.code, self.first_go = 0, -1
        self.births = self.failed_at = 0
        self.failures = self.hopeless = self.layout = 0
        self.replacements: list[subprocess.Popen[bytes]] = []
        self.state = self._start(joins)
        self.first = self.state.durable
        self.nest = nests.Nest(folder, me, self.spec)
        self.shelf = sharded.Shelf(folder)
        self.keeper = Keeper(me)
        self.writer, self.writer_link = nests.start_writer(folder, me)
        self.net.watch(self.nest.link, self._on_nursery)
        self.net.watch(self.writer_link, self._on_writer)
        self.log.event("agent", pid=os.getpid(), ranks=count)

    def _start(self, joins: bool) -> protocol.State:
        spec = self.spec
        rules = Rules(
            slots=spec.ranks, shards=spec.shards, fallbacks=fallbacks_of(spec.layouts),
            micro_batches=spec.micro, least=spec.least, wait=spec.wait, rescale=spec.rescale,
            silent=max(int(spec.silent_s / TICK_S), 4),
        )  # fmt: skip
        if joins:
            others = tuple(d.agent for d in all_doors(self.folder) if d.alive)
            return protocol.start(self.me, others, rules, number=-1)
        step, cursor = snapshot.position(Path(spec.resume)) if spec.resume else (0, 0)
        return protocol.start(self.me, tuple(range(spec.agents)), rules, step, cursor)

    def _on_frame(self, sender: int, frame: Any) -> None:
        if isinstance(frame, wire.Stop):
            self._stop(frame.at)
        elif isinstance(frame, wire.Waiting):
            self.elsewhere[sender] = (frame.number, frame.step, frame.seconds, system.now_ns())
        elif isinstance(frame, wire.Damaged):
            self.feed(m.Snapshot(*self.shelf.older(frame.step)))
        else:
            self.feed(m.Received(sender, frame))

    def _on_agent_death(self, agent: int) -> None:
        if self.over or self.state.leaving:
            return
        self.log.event("agent-death", lost=agent, members=self._members_of(agent))
        self._look_at_disk()
        self.feed(m.AgentDead(agent))
        count = self._members_of(agent) or 1
        self.later(RESPAWN_S, lambda: self._replace_agent(agent, count))

    def _members_of(self, agent: int) -> int:
        return sum(x.agent == agent for x in self.state.epoch.members)

    def _replace_agent(self, agent: int, count: int) -> None:
        living = [d.agent for d in all_doors(self.folder) if d.alive]
        known = max(d.agent for d in all_doors(self.folder))
        if self.me != min(living) or not self.spec.respawn or self.state.leaving:
            return
        if self.spec.engine == "ray":  # the driver starts another actor
            return
        if self.stop_at is None and known < self.spec.agents + 64:
            self.log.event("agent-replaced", lost=agent, by=known + 1)
            self.replacements.append(launch(self.folder, known + 1, count, joins=True))

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Call `act` after a while."""
        self.pending.append((time.monotonic() + delay_s, act))

    # ---- protocol ----------------------------------------------------------------------------

    def feed(self, event: m.Event) -> None:
        """Give the protocol an event and do what it says."""
        if m.decides(event):
            self.state, _ = protocol.step(self.state, m.Keeps(self.keeper.entries()))
        self.state, actions = protocol.step(self.state, event)
        for action in actions:
            self._act(action)

    def _act(self, action: m.Action) -> None:
        if isinstance(action, m.Send):
            self.net.send(action.to, action.message)
        elif isinstance(action, m.Go):
            self._go(action)
        elif isinstance(action, m.Append):
            self.log.append({"commit": action.step, "epoch": action.number}, durable=False)
        elif isinstance(action, m.Install):
            self._install(action.epoch)
        elif isinstance(action, m.Fence):
            if self.net.fence(action.agent):
                self.log.event("fence", lost=action.agent, why="no heartbeat")
        elif isinstance(action, m.Excluded):
            self._fail(f"agent {self.me} is not part of epoch {action.number}", code=0)

    def _go(self, go: m.Go) -> None:
        epoch = self.state.epoch
        if go.step == epoch.base + 1 and go.number == epoch.number:
            self.log.event("first-commit", epoch=go.number, step=go.step)
        for rank in self.nest.members():
            self.nest.tell(rank, talk.Commit(go.number, go.step))
        if self.spec.faults and self.state.epoch.members:
            self._drill(go.step + 1)

    def _drill(self, step: int) -> None:
        """Kill this agent if the drill asks for it when `step` begins."""
        for fault in faults.mine(self.spec.faults, ("agent", "store")):
            lowest = min(self.state.epoch.agents) == self.me
            named = lowest if fault.kind == "store" else faults.slot_of(fault) == self.me
            if named and step == (fault.step or 1):
                self.log.event("killing", why=fault.text)
                os.kill(os.getpid(), signal.SIGKILL)

    def _install(self, epoch: Epoch) -> None:
        self.log.append({"epoch": epoch.number, "base": epoch.base, "uids": epoch.uids}, True)
        self.log.event(
            "epoch", number=epoch.number, why=epoch.why, base=epoch.base, lost=epoch.lost,
            expected_s=self.nest.expected(epoch),
            members=[[x.slot, x.uid, x.agent] for x in epoch.members], joins=epoch.joins,
            layout=epoch.layout, rerouted=epoch.rerouted, kept=epoch.kept, sources=epoch.sources,
            source_layout=epoch.source_layout,
        )  # fmt: skip
        slots = {x.uid: x.slot for x in epoch.members}
        for rank in self.nest.ranks.values():
            if epoch.layout != self.layout:  # another cut takes another time
                rank.own_s.clear()
            rank.take(slots.get(rank.uid, -1))
            if rank.ready and not rank.gone:
                self.nest.tell(rank, talk.NewEpoch(epoch))
        self.layout = epoch.layout
        if epoch.number == 1:
            self.later(0.2, self._spares)

    def _spares(self) -> None:
        """Start this agent's share of the warm spares, last agents first."""
        for index in range(self.spec.spares):
            if (self.spec.agents - 1 - index) % self.spec.agents == self.me:
                self._spawn(self.spec.ranks + index)

    # ---- ranks -------------------------------------------------------------------------------

    def _spawn(self, index: int) -> None:
        if self.over or self.state.leaving or self.stop_at is not None:
            return
        self.births += 1
        env = {
            "WORLD_SIZE": str(self.spec.ranks), "LOCAL_WORLD_SIZE": str(self.spec.ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.spec_port()),
            "LIGHTLOOM_RUN": str(self.folder), "LIGHTLOOM_AGENT": str(self.me),
            "LIGHTLOOM_STOP": str(-1 if self.stop_at is None else self.stop_at),
        }  # fmt: skip
        rank = self.nest.spawn(index, env)
        self.net.watch(rank.sock, partial(self._on_rank, rank))

    def spec_port(self) -> int:
        """Return the rendezvous port written at launch, for scripts that call torch themselves."""
        path = self.folder / "port"
        return int(path.read_text()) if path.exists() else 29500

    def _on_nursery(self) -> None:
        try:
            was = self.nest.open
            news = self.nest.news()
        except EOFError:
            self._fail("the nursery died; see its log", code=6)
            return
        if self.nest.open and not was:
            first = self._first_index()
            for index in range(self.count):
                self._spawn(first + index)
        for said in news:
            rank = self.nest.ranks.get(said.uid)
            if rank is None:
                continue
            if isinstance(said, nursery.Born):
                self.log.event("rank", uid=rank.uid, pid=rank.pid)
                if rank.pidfd >= 0:
                    self.net.watch(rank.pidfd, partial(self._on_rank_death, rank))
                else:
                    self._on_rank_death(rank)
            elif rank.gone:
                self._bury(rank)

    def _first_index(self) -> int:
        share = [self.spec.ranks * (i + 1) // self.spec.agents for i in range(self.spec.agents)]
        return share[self.me - 1] if 0 < self.me < self.spec.agents else 0

    def _on_rank(self, rank: nests.RankProc) -> None:
        try:
            said = talk.receive(rank.sock, at_agent=True)
        except BlockingIOError:
            return
        if said is None:
            self.net.unwatch(rank.sock)
        else:
            self._on_said(rank, said)

    def _on_said(self, rank: nests.RankProc, said: Any) -> None:
        if isinstance(said, talk.Voted):
            self._voted(rank, said)
        elif isinstance(said, talk.Ready):
            rank.ready = True
            self.log.event("ready", uid=rank.uid)
            if self.state.epoch.number > 0:
                self.nest.tell(rank, talk.NewEpoch(self.state.epoch))
            self.feed(m.RankReady(rank.uid, said.info))
        elif isinstance(said, talk.Holds):
            self.feed(m.RankHolds(rank.uid, said.number))
        elif isinstance(said, talk.Broken):
            self.log.event("broken", uid=rank.uid, epoch=said.number, why=said.why,
                           killed_ns=rank.board.get(b.KILLED))  # fmt: skip
            rank.board.set(b.KILLED, 0)
            self.feed(m.GroupBroke(rank.uid, said.number))
        elif isinstance(said, talk.Save):
            self.shelf.writing += 1
            self.writer_link.send(msgspec.msgpack.encode(said))
        elif isinstance(said, talk.Applied):
            self.log.event("applied", uid=rank.uid, step=said.step, epoch=said.number)
        elif isinstance(said, talk.Note):
            self.log.event("note", uid=rank.uid, slot=rank.slot, code=said.kind, text=said.text,
                           numbers=said.numbers)  # fmt: skip
            if said.fatal:
                self._fail(said.text, code=6, everywhere=True)
        elif isinstance(said, talk.BadSnapshot):
            self.log.event("bad-snapshot", step=said.step, why=said.why)
            self.net.tell_all(wire.Damaged(said.step))
            self.feed(m.Snapshot(*self.shelf.older(said.step)))
        elif isinstance(said, talk.End):
            rank.ended = True
            self._ended(rank, said.step)

    def _voted(self, rank: nests.RankProc, said: talk.Voted) -> None:
        self.feed(m.RankVoted(rank.uid, said.number, said.step))
        if len(said.marks) >= 3 and said.samples[1]:
            rank.own_s.append((said.marks[1] - said.marks[0]) / 1e9 / said.samples[1])
        self.log.step(
            step=said.step, epoch=said.number, uid=rank.uid, slot=rank.slot, loss=said.loss,
            marks=said.marks,
        )  # fmt: skip

    def _ended(self, rank: nests.RankProc, step: int) -> None:
        """The owner of the final snapshot has ended: nothing is left to lose."""
        members = self.state.epoch.members
        if members and rank.uid == members[0].uid and not self.state.leaving:
            self.log.event("end", step=step, stopped=self.stop_at is not None)
            self.feed(m.Leave())

    def _on_rank_death(self, rank: nests.RankProc) -> None:
        if rank.gone:
            return
        rank.gone = True
        if rank.pidfd >= 0:
            self.net.unwatch(rank.pidfd)
        self.net.unwatch(rank.sock)
        self.feed(m.RankGone(rank.uid))
        if rank.code is not None or self.over:
            self._bury(rank)

    def _bury(self, rank: nests.RankProc) -> None:
        """Write down how a rank ended, and replace it."""
        quiet = self.state.leaving or self.over or (rank.code == 0 and not rank.ready)
        self.log.event(
            "ended" if quiet else "death", uid=rank.uid, slot=rank.last_slot, code=rank.code,
            how=rank.named, killed_ns=rank.board.get(b.KILLED), ready=rank.ready,
            step=rank.board.get(b.STEP),
        )  # fmt: skip
        plain = "" if rank.board.get(b.MARK) else f"\n{PLAIN}"
        self.nest.forget(rank)
        if quiet:
            self._maybe_over()
            return
        failed = rank.code is not None and rank.code > 0 and rank.code not in OWN_EXITS
        early = failed and self.state.durable == self.first
        if early or (not rank.ready and self.state.epoch.number <= 0):
            self._fail(self.nest.why(rank) + plain, code=6, everywhere=True)
            return
        if failed:
            recent = self.state.durable - self.failed_at < FORGIVEN
            self.failures = self.failures + 1 if recent else 1
            self.failed_at = self.state.durable
        if self.failures >= 3:
            self._fail(self.nest.why(rank), code=6, everywhere=True)
        elif self.spec.respawn and not (rank.named and self._exclude(rank)):
            self.later(RESPAWN_S, lambda: self._spawn(max(rank.last_slot, 0)))

    def _exclude(self, rank: nests.RankProc) -> bool:
        out = verdict(self.named, rank.last_slot, rank.named_step) == "exclude"
        self.named.append((rank.last_slot, rank.named_step))
        if out:
            self.log.event("excluded", slot=rank.last_slot, why="named twice by the hang finder")
        return out

    # ---- snapshots ---------------------------------------------------------------------------

    def _on_writer(self) -> None:
        data = self.writer_link.recv(1 << 16)
        if not data:
            self.net.unwatch(self.writer_link)
            if not self.over:
                self.log.event("writer-death")
                self.shelf.writing = 0
                self.writer.wait()
                self.writer, self.writer_link = nests.start_writer(self.folder, self.me)
                self.net.watch(self.writer_link, self._on_writer)
                for rank in self.nest.members():
                    self.nest.tell(rank, talk.Saved(-1, "the snapshot writer died; started again"))
            return
        self.shelf.writing -= 1
        step, place, why, seconds, size = msgspec.msgpack.decode(data)
        self.log.event("snapshot", step=step, place=place, why=why, seconds=seconds, bytes=size)
        self._look_at_disk()
        for rank in self.nest.members():
            self.nest.tell(rank, talk.Saved(step, why, place))

    def _look_at_disk(self) -> bool:
        """Tell the protocol of the newest snapshot, whoever wrote it; False if none is or comes."""
        found = self.shelf.newest(self.state.durable)
        if found[0] >= 0:
            self.feed(m.Snapshot(*found))
        return found[0] >= 0 or self.shelf.writing > 0

    # ---- stop and time -----------------------------------------------------------------------

    def _stop(self, at: int) -> None:
        if self.stop_at is not None:
            return
        self.stop_at = at
        self.log.event("stop", after=at)
        self.net.tell_all(wire.Stop(at))
        if at < 0:
            self._fail("stopped before the first step", code=0)
            return
        for rank in self.nest.ranks.values():
            self.nest.tell(rank, talk.Halt(at))

    def _ask_stop(self) -> None:
        """The operator asked: the lowest agent with members names the last step."""
        epoch = self.state.epoch
        if self.stop_at is not None:
            return
        owners = [x.agent for x in epoch.members if x.agent not in self.state.dead]
        if not owners:
            self._stop(-1)
        elif min(owners) == self.me:
            self._stop(self.state.durable + 1)

    def _fail(self, why: str, code: int, everywhere: bool = False) -> None:
        if self.over:
            return
        self.over, self.code = True, code
        self.log.event("failed" if code else "left", why=why, code=code)
        if everywhere:
            self.net.tell_all(wire.Stop(-1))

    def _maybe_over(self) -> None:
        """Everything owned has ended in peace."""
        idle = self.births and self.nest.open and self.state.epoch.number <= 0
        if not self.nest.ranks and (self.state.leaving or idle):
            self.over = True
            self.log.event("over")

    def _hopeless(self) -> bool:
        """Return whether the state is nowhere, long enough to have heard of every copy."""
        self.hopeless = self.hopeless + 1 if protocol.hopeless(self.state) else 0
        return self.hopeless > HOPELESS

    def _tick(self) -> None:
        self.net.meet()
        self.keeper.follow(self.state)
        self.feed(m.Tick())
        due = [act for at, act in self.pending if at <= time.monotonic()]
        self.pending = [(at, act) for at, act in self.pending if at > time.monotonic()]
        for act in due:
            act()
        if self.state.leaving:
            for rank in self.nest.ranks.values():
                self.nest.tell(rank, talk.Finish())
            self._maybe_over()
        elif self._hopeless() and not self._look_at_disk():
            at = self.state.durable
            self._fail(f"every replica is lost and there is no snapshot: {at} steps are gone",
                       code=6, everywhere=True)  # fmt: skip
        elif not self.spec.respawn and protocol.deserted(self.state):
            self._fail("no process is left and --no-respawn was given; resume the run", code=6,
                       everywhere=True)  # fmt: skip
        elif self.stop_at is None:
            hangs.look(self)
        if self.state.epoch.number < 0 and not self.net.others():
            self._fail("the job ended before this agent joined it", code=0)

    def run(self) -> int:
        """Serve until everything owned has ended; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "signalled", True))
        wake_r, wake_w = os.pipe()
        os.set_blocking(wake_w, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        self.net.watch(wake_r, partial(_drain, wake_r))
        system.prompt(-10)
        next_tick = time.monotonic()
        while not self.over:
            for key, _ in self.select.select(max(next_tick - time.monotonic(), 0.0)):
                key.data()
            if time.monotonic() >= next_tick:
                next_tick = time.monotonic() + TICK_S
                self._tick()
            if self.signalled:
                self._ask_stop()
            self.net.flush()
        self._close()
        return self.code

    def _close(self) -> None:
        self.net.flush()
        self.nest.close()
        self.writer_link.close()
        self.writer.wait()
        self.log.close()


def _drain(fd: int) -> None:
    os.read(fd, 64)


def main(args: list[str]) -> int:
    """Run agent ARGS[1] of the run in folder ARGS[0] with ARGS[2] ranks."""
    folder, me, count = Path(args[0]), int(args[1]), int(args[2])
    return Agent(folder, me, count, len(args) > 3).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
