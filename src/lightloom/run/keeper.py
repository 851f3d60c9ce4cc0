"""What an agent keeps of ranks' memory (see copies.py; no torch here).

The words that say what the two buffers of a rank hold lie on its board, so they outlive it, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from lightloom.recover.record import Kept, Rank
from lightloom.recover.view import State

from . import board as b
from . import system

BUFFERS: Final = 2
GENERATION, ACKS, GRADIENT, NUMBER, AFTER = 16, 17, 19, 20, 21
"""Words of a board: count of allocations; two agents' receipts; step of the reduced gradient in the
arena plus one, the epoch it was reduced in, and the buffer of the state it goes on from."""
STEP, SHARD, LAYOUT, LIFE, FD, MADE = range(6)
"""Words of one buffer: step plus one, 0 while it is written; which part of the state; where, and
since which allocation."""
FIRST: Final = 24


def word(index: int, field: int) -> int:
    """Return the word of a board that holds a field of a buffer."""
    return FIRST + 8 * index + field


def ack(agent: int, generation: int) -> int:
    """Return an agent's receipt for the buffers of an allocation."""
    return (agent + 1) << 32 | generation


def ring(agent: int, agents: Iterable[int]) -> list[int]:
    """Return who keeps the memory of an agent's ranks: itself and the next one."""
    order = sorted(agents)
    if agent not in order or len(order) == 1:
        return [agent]
    return [agent, order[(order.index(agent) + 1) % len(order)]]


class Lost(msgspec.Struct, frozen=True):
    """How to reach the memory of a rank through the agent that keeps it."""

    uid: int
    pid: int
    board: int
    arena: int
    buffers: tuple[int, ...]
    made: tuple[int, ...]
    """The allocations the buffers are of: a newer one died unseen with its rank."""
    numel: int
    slots: int

    def path(self, fd: int) -> str:
        """Return where another process of this host can map it."""
        return f"/proc/{self.pid}/fd/{fd}"

    def find(self, board: b.Board, step: int, tag: tuple[int, int, int]) -> int | None:
        """Return the buffer that holds a whole copy of `step`; `tag`: shard, layout, life."""
        for index, made in enumerate(self.made):
            held = tuple(board.get(word(index, f)) for f in (STEP, SHARD, LAYOUT, LIFE, MADE))
            if held == (step + 1, *tag, made):
                return index
        return None


class _Hold:
    """The open memory of one rank."""

    def __init__(self, uid: int, info: b.Info, board_fd: int, page: b.Board, arena_fd: int) -> None:
        self.uid, self.info, self.board_fd, self.page = uid, info, board_fd, page
        self.arena_fd = arena_fd
        self.generation = 0
        self.buffers: list[int] = [-1] * BUFFERS
        self.made: list[int] = [0] * BUFFERS
        """The allocations those are of."""
        self.text = ""

    def close(self) -> None:
        """Let go of the memory."""
        self.page.close()
        for fd in (self.board_fd, self.arena_fd, *self.buffers):
            if fd >= 0:
                os.close(fd)


class Keeper:
    """All that one agent keeps."""

    def __init__(self, agent: int) -> None:
        self.agent = agent
        self.holds: dict[int, _Hold] = {}

    def follow(self, state: State) -> None:
        """Keep the memory of the own ranks and of those of the agent before this one."""
        epoch = state.epoch
        wanted: dict[int, tuple[int, str]] = {}
        for agent in epoch.agents:
            ranks: Iterable[Rank] = state.ranks.values() if agent == state.me else ()
            if agent != state.me and agent in state.peers and agent not in state.dead:
                ranks = state.peers[agent].beat.ranks
            keepers = ring(agent, epoch.agents)
            if self.agent in keepers:
                place = keepers.index(self.agent)
                wanted |= {r.uid: (place, r.info) for r in ranks if r.info}
        needed = {*epoch.uids, *(d for _, d in epoch.joins), *(u for _, u in epoch.sources)}
        self.look(wanted, frozenset(needed))

    def look(self, wanted: Mapping[int, tuple[int, str]], needed: frozenset[int]) -> None:
        """Open what is new of `wanted` (uid -> place among the keepers, how to reach it) and sign.

        Memory of others is let go unless the epoch in force needs it.
        """
        for uid in [u for u in self.holds if u not in wanted and u not in needed]:
            self.holds.pop(uid).close()
        for uid, (place, text) in wanted.items():
            hold = self.holds.get(uid) or self._open(uid, text)
            if hold is None:
                continue
            generation = hold.page.get(GENERATION)
            if generation != hold.generation and not self._map(hold, generation):
                continue
            receipt = ack(self.agent, generation)
            if generation and hold.page.get(ACKS + place) != receipt:
                hold.page.set(ACKS + place, receipt)

    def _open(self, uid: int, text: str) -> _Hold | None:
        info = msgspec.json.decode(text, type=b.Info)
        board_fd, arena_fd = _open(info.pid, info.board_fd), _open(info.pid, info.arena_fd)
        page = None if board_fd < 0 else system.attach(f"/proc/self/fd/{board_fd}")
        if page is None or arena_fd < 0:
            for fd in (board_fd, arena_fd):
                if fd >= 0:
                    os.close(fd)
            return None
        self.holds[uid] = hold = _Hold(uid, info, board_fd, b.Board(page), arena_fd)
        return hold

    def _map(self, hold: _Hold, generation: int) -> bool:
        """Open the buffers of an allocation; False when the rank died meanwhile."""
        made = [hold.page.get(word(i, MADE)) for i in range(BUFFERS)]
        theirs = [hold.page.get(word(i, FD)) for i in range(BUFFERS)]
        fresh = [_open(hold.info.pid, fd) if fd else -1 for fd in theirs]
        if any(fd < 0 for fd, named in zip(fresh, theirs, strict=True) if named):
            for fd in fresh:
                if fd >= 0:
                    os.close(fd)
            return False
        for fd in hold.buffers:
            if fd >= 0:
                os.close(fd)
        hold.buffers, hold.generation, hold.made = fresh, generation, made
        lost = Lost(hold.uid, os.getpid(), hold.board_fd, hold.arena_fd, tuple(fresh), tuple(made),
                    hold.info.numel, hold.info.slots)  # fmt: skip
        hold.text = msgspec.json.encode(lost).decode()
        return True

    def entries(self) -> tuple[Kept, ...]:
        """Return which states the memory yields now."""
        found: list[Kept] = []
        for uid, hold in self.holds.items():
            if not hold.text:
                continue
            get = hold.page.get
            for index in range(BUFFERS):
                step, shard, layout, life = (get(word(index, f)) for f in range(FD))
                if not step or get(word(index, MADE)) != hold.made[index]:
                    continue
                found.append(Kept(uid, step - 1, shard, layout, life, info=hold.text))
                if get(GRADIENT) == step + 1 and get(AFTER) == index:
                    found.append(
                        Kept(uid, step, shard, layout, life, get(NUMBER), info=hold.text)
                    )  # fmt: skip
        return tuple(found)

    def close(self) -> None:
        """Let go of everything."""
        for hold in self.holds.values():
            hold.close()
        self.holds.clear()


def _open(pid: int, fd: int) -> int:
    """Return an own descriptor of another process's memory; -1 if the process has gone."""
    try:
        return os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # it has ended, or the number names something else by now
        return -1
