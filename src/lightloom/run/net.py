"""An agent's side of the network: its door, its connections, and proof of other agents' death."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lightloom.core.files import write_json

from . import system, wire
from .spec import Door, doors

PATIENCE = 200
"""Ticks a silent agent that is runnable, only starved of CPU, is left alone."""


class Net:
    """Connections to the other agents of a run. The higher number calls the lower."""

    def __init__(
        self, folder: Path, me: int, select: selectors.BaseSelector,
        on_frame: Callable[[int, Any], None], on_death: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.folder, self.me, self.select = folder, me, select
        self.on_frame, self.on_death = on_frame, on_death
        self.token = (folder / "token").read_bytes()
        self.peers: dict[int, wire.Peer] = {}
        self.fresh: list[wire.Peer] = []
        self.pidfds: dict[int, int] = {}
        self.fenced: set[int] = set()
        self.doubts: dict[int, int] = {}
        self.calls = 0
        self.door = socket.create_server((f"127.0.0.{1 + me % 250}", 0))
        self.door.setblocking(False)
        host, port = self.door.getsockname()
        self.watch(self.door, self._knock)
        pid = os.getpid()
        door = Door(agent=me, pid=pid, started=system.started(pid), host=host, port=port)
        write_json(folder / f"agent-{me}.json", door)

    def watch(self, thing: Any, act: Callable[[], None]) -> None:
        """Call `act` whenever a socket or descriptor is readable."""
        self.select.register(thing, selectors.EVENT_READ, act)

    def unwatch(self, thing: Any) -> None:
        """Stop watching; something not watched is fine."""
        try:
            self.select.unregister(thing)
        except (KeyError, ValueError):
            return

    def _knock(self) -> None:
        try:
            sock, _ = self.door.accept()
        except BlockingIOError:
            return
        self._adopt(sock)

    def _adopt(self, sock: socket.socket) -> None:
        peer = wire.Peer(sock, self.me, self.token)
        self.fresh.append(peer)
        self.watch(sock, partial(self._read, peer))

    def _read(self, peer: wire.Peer) -> None:
        frames = peer.read()
        if peer.proved and peer in self.fresh:
            self.fresh.remove(peer)
            self.peers[peer.agent] = peer
            self._see(peer.agent)
        for frame in frames:
            self.on_frame(peer.agent, frame)
        if not peer.open:
            self.unwatch(peer.sock)
            peer.sock.close()
            if self.peers.get(peer.agent) is peer:
                del self.peers[peer.agent]
            if peer in self.fresh:
                self.fresh.remove(peer)

    def _see(self, agent: int) -> None:
        """Watch the process of another agent: its pidfd is proof of its death."""
        if agent in self.pidfds or agent == self.me:
            return
        door = next((d for d in doors(self.folder) if d.agent == agent), None)
        if door is None:
            return
        fd = system.open_pid(door.pid) if door.alive else -1
        self.pidfds[agent] = fd
        if fd < 0:
            self.on_death(agent)
        else:
            self.watch(fd, partial(self._died, agent))

    def _died(self, agent: int) -> None:
        self.unwatch(self.pidfds[agent])
        self.on_death(agent)

    def meet(self) -> None:
        """Connect to agents with lower numbers that are not connected yet.

        Called at each tick; once it has peers (or is alone) it looks at one tick in ten.
        """
        self.calls += 1
        if self.calls % 10 and (self.peers or self.calls > 100):
            return
        if len(self.peers) == len(self.pidfds) and self.peers:
            missing = [d for d in doors(self.folder) if d.agent not in self.pidfds]
        else:
            missing = doors(self.folder)
        for door in missing:
            if door.agent == self.me or door.agent in self.peers:
                continue
            self._see(door.agent)
            busy = any(p.agent in (door.agent, -1) for p in self.fresh)
            if door.agent > self.me or busy or self.pidfds.get(door.agent, -1) < 0:
                continue
            try:
                sock = socket.create_connection((door.host, door.port), timeout=0.5)
            except OSError:
                continue  # tried again at the next tick; its death would show in the pidfd
            self._adopt(sock)

    def others(self) -> bool:
        """Return whether any other agent of the run lives."""
        return any(d.alive for d in doors(self.folder) if d.agent != self.me)

    def send(self, agent: int, frame: Any) -> None:
        """Send a frame; without a connection it is lost, and said again with the next beat."""
        if agent in self.peers:
            self.peers[agent].send(frame)

    def tell_all(self, frame: Any) -> None:
        """Send a frame to every connected agent."""
        for peer in self.peers.values():
            peer.send(frame)

    def fence(self, agent: int) -> bool:
        """Kill another agent of this host; False if it is not known here or killed already,
        or merely waits for a CPU."""
        if self.pidfds.get(agent, -1) < 0 or agent in self.fenced:
            return False
        starved = system.stat(self._pid(agent))[:1] == ["R"]
        self.doubts[agent] = self.doubts.get(agent, 0) + 1
        if starved and self.doubts[agent] < PATIENCE:
            return False
        self.fenced.add(agent)
        system.kill(self.pidfds[agent])
        return True

    def _pid(self, agent: int) -> int:
        return next((d.pid for d in doors(self.folder) if d.agent == agent), 0)

    def flush(self) -> None:
        """Write what sockets did not take before."""
        for peer in self.peers.values():
            peer.flush()
