"""One agent's own ranks: born from the nursery, watched, judged, replaced."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from lightloom.recover import suspect
from lightloom.recover.record import Epoch

from . import board as b
from . import nursery, system, talk
from .spec import Spec

_news: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(nursery.NewsType)
COPY_RATE = 0.7e9
"""Bytes of state a second from donor to newcomer: copied out, copied in (measured, cold)."""
QUIET_PHASES = (b.WAITING, b.JOINING, b.IDLE, b.ENDED, b.SAVING)


class RankProc:
    """A rank process and what its agent knows of it."""

    def __init__(self, uid: int, sock: socket.socket, fd: int, board: b.Board) -> None:
        self.uid, self.sock, self.fd, self.board = uid, sock, fd, board
        self.pid, self.pidfd = 0, -1
        self.ready = self.gone = self.ended = False
        self.code: int | None = None
        self.slot = self.last_slot = -1
        self.named, self.named_step = "", 0
        self.looks, self.patience = 0, 1.0
        self.kill_at_ns = 0
        self.watch: suspect.Watch | None = None
        self.own_s: deque[float] = deque(maxlen=21)

    @property
    def phase(self) -> int:
        """Where the rank says it is."""
        return self.board.get(b.PHASE)

    def take(self, slot: int) -> None:
        """Fill a slot of a new epoch, or none (-1)."""
        self.slot, self.watch = slot, None
        self.looks, self.patience = 0, 1.0
        self.last_slot = slot if slot >= 0 else self.last_slot

    def waits_s(self, now_ns: int) -> float:
        """Return how long the rank has been waiting for others; 0 when it is not."""
        if self.phase not in QUIET_PHASES:
            return 0.0
        return max(now_ns - self.board.get(b.AT), 0) / 1e9

    def step_s(self) -> float | None:
        """Return the median seconds of one own micro-batch, None before three."""
        return median(self.own_s) if len(self.own_s) >= 3 else None


def start_nursery(folder: Path, agent: int) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the nursery of an agent; returns the process and the link to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return _child("nursery", folder, agent, theirs), ours


def start_writer(folder: Path, agent: int) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the snapshot writer of an agent; returns the process and the link to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return _child("writer", folder, agent, theirs), ours


def _child(module: str, folder: Path, agent: int, theirs: socket.socket) -> subprocess.Popen[bytes]:
    env = os.environ | {
        "LIGHTLOOM_PARENT": str(os.getpid()), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    log = open(folder / f"agent-{agent}.log", "ab")  # noqa: SIM115
    command = [sys.executable, "-m", f"lightloom.run.{module}", str(theirs.fileno())]
    process = subprocess.Popen(
        [*command, str(folder), str(agent)], pass_fds=[theirs.fileno()], env=env,
        stdin=subprocess.DEVNULL, stdout=log, stderr=log,
    )  # fmt: skip
    log.close()
    theirs.close()
    return process


class Nest:
    """All ranks of one agent."""

    def __init__(self, folder: Path, agent: int, spec: Spec) -> None:
        self.folder, self.agent, self.spec = folder, agent, spec
        self.process, self.link = start_nursery(folder, agent)
        self.open = False
        self.ranks: dict[int, RankProc] = {}
        self.counter = 0
        self.benign_s = 0.0
        """Longest sleep of a rank outside the library that ended by itself."""

    def spawn(self, index: int, env: dict[str, str]) -> RankProc:
        """Ask the nursery for one more rank; `index` is its RANK as torchrun would set it."""
        self.counter += 1
        uid = (self.agent + 1) * 1000 + self.counter
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        fd, memory = system.shared(f"ll-board-{uid}", b.SIZE)
        rank = RankProc(uid, ours, fd, b.Board(memory))
        env = {"RANK": str(index), "LOCAL_RANK": str(index), "LIGHTLOOM_UID": str(uid), **env}
        body = msgspec.msgpack.encode(nursery.Birth(uid, env))
        socket.send_fds(self.link, [body], [theirs.fileno(), fd])
        theirs.close()
        self.ranks[uid] = rank
        return rank

    def news(self) -> list[Any]:
        """Return what the nursery says; raises EOFError when it died."""
        data = self.link.recv(1 << 16)
        if not data:
            raise EOFError
        if data == b"ready":
            self.open = True
            return []
        said = _news.decode(data)
        rank = self.ranks.get(said.uid)
        if rank is None:
            return []
        if isinstance(said, nursery.Born):
            rank.pid = said.pid
            rank.pidfd = system.open_pid(said.pid)
        else:
            rank.code = said.code
        return [said]

    def forget(self, rank: RankProc) -> None:
        """Close everything that belongs to a dead rank."""
        self.ranks.pop(rank.uid, None)
        rank.sock.close()
        rank.board.close()
        os.close(rank.fd)
        if rank.pidfd >= 0:
            os.close(rank.pidfd)

    def tell(self, rank: RankProc, message: Any) -> None:
        """Send a message to a rank; one that does not read is left to the hang finder."""
        try:
            talk.send(rank.sock, message)
        except BlockingIOError:
            rank.named = rank.named or "does not read its messages"

    def kill(self, rank: RankProc) -> None:
        """SIGKILL a rank."""
        if rank.pidfd >= 0 and not rank.gone:
            system.kill(rank.pidfd)

    def dump(self, rank: RankProc) -> None:
        """Ask a rank for its stacks (faulthandler answers even when the interpreter is stuck)."""
        if rank.pidfd >= 0:
            system.kill(rank.pidfd, signal.SIGUSR1)

    def stack(self, rank: RankProc) -> list[str]:
        """Return the frames of the rank's main thread, innermost first; empty if unknown."""
        path = self.folder / f"rank-{rank.uid}.stack"
        text = path.read_text(errors="replace") if path.exists() else ""
        block = text.rsplit("Current thread", 1)[-1] if "Current thread" in text else text
        lines = [line.strip() for line in block.splitlines() if line.startswith("  File")]
        ours = ("frozen runpy", "nursery.py")
        return [line for line in lines if not any(o in line for o in ours)][:12]

    def members(self) -> list[RankProc]:
        """Return live ranks that are members of the epoch in force."""
        return [r for r in self.ranks.values() if r.slot >= 0 and not r.gone]

    def wait_s(self, now_ns: int) -> float:
        """Return how long all members here have waited for others."""
        return min((r.waits_s(now_ns) for r in self.members()), default=1e9)

    def suspects(self, now_ns: int, elsewhere_s: float) -> list[tuple[RankProc, str]]:
        """Return hung members and how they hang; `elsewhere_s`: other agents' members wait."""
        found = []
        members = self.members()
        watches = {}
        for rank in members:
            state, cpu_s = system.thread_state(rank.pid)
            now = suspect.Sample(
                now_ns / 1e9, state, cpu_s, rank.board.get(b.MARK), rank.phase in QUIET_PHASES
            )
            if rank.watch is not None:
                self.benign_s = max(self.benign_s, suspect.slept_s(rank.watch, now) - 0.1)
            rank.watch = suspect.look(rank.watch, now)
            watches[rank.uid] = (rank.watch, now)
        for rank in members:
            watch, now = watches[rank.uid]
            others = [
                r.waits_s(now_ns) for r in members if r is not rank and not _stuck(*watches[r.uid])
            ]
            wait_s = min([elsewhere_s, *others])
            alone = wait_s > 1e8
            busy = suspect.PATIENCE if rank.phase == b.APPLYING else rank.patience
            waited = now.at_s - watch.since.at_s if alone else wait_s
            how = suspect.judge(watch, now, waited, rank.step_s(), self.benign_s, busy)
            if how == "looping" and rank.looks <= suspect.LOOKS and not rank.named:
                how = self._look_again(rank)
            if how and not rank.named:
                found.append((rank, how))
        return found

    def _look_again(self, rank: RankProc) -> str:
        """Take one more stack of a busy rank; after the last say whether it loops."""
        rank.looks += 1
        if rank.looks <= suspect.LOOKS:
            self.dump(rank)
            return ""
        rank.patience = suspect.patience_of(self.tops(rank))
        return "looping" if rank.patience == 1.0 else ""

    def tops(self, rank: RankProc) -> list[str]:
        """Return the innermost function of each stack taken of the rank, oldest first."""
        path = self.folder / f"rank-{rank.uid}.stack"
        text = path.read_text(errors="replace") if path.exists() else ""
        blocks = [block.splitlines() for block in text.split("Current thread")[1:]]
        first = [next((x for x in lines if x.startswith("  File")), "") for lines in blocks]
        return [line.rsplit(" in ", 1)[-1] + line.split(",")[0] for line in first]

    def expected(self, epoch: Epoch) -> float:
        """Return the seconds a change should cost: the lost work again, state for newcomers."""
        own = [s for s in (r.step_s() for r in self.ranks.values()) if s]
        moved = 0.0
        if epoch.joins and epoch.infos:
            moved = 12.0 * msgspec.json.decode(epoch.infos[0][1])["numel"]
        return 0.05 + (max(own) if own else 0.1) + moved / COPY_RATE

    def why(self, rank: RankProc) -> str:
        """Return how a rank ended and the last lines it wrote."""
        path = self.folder / f"rank-{rank.uid}.log"
        tail = path.read_text(errors="replace").strip().splitlines()[-12:] if path.exists() else []
        how = f"signal {-rank.code}" if rank.code and rank.code < 0 else f"exit code {rank.code}"
        return f"the script failed ({how}):\n" + "\n".join(tail)

    def close(self) -> None:
        """Kill every rank and the nursery."""
        for rank in list(self.ranks.values()):
            self.kill(rank)
        self.process.kill()
        self.process.wait()


def _stuck(watch: suspect.Watch, now: suspect.Sample) -> bool:
    """Return whether a rank is itself asleep or stopped outside the library."""
    still_s = now.at_s - watch.still.at_s
    return not now.waiting and now.state in "ST" and still_s >= suspect.STOPPED_S
