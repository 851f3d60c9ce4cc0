"""The nursery: imports torch once, then forks ready ranks in milliseconds.

``python -m lightloom.run.nursery FD RUN AGENT`` - started by an agent, dies with it. Each request
on FD carries two descriptors: the new rank's link to the agent and its board.
"""

from __future__ import annotations

import os
import runpy
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec

from . import system
from .spec import Spec, load


class Birth(msgspec.Struct, frozen=True):
    """Ask for a rank."""

    uid: int
    env: dict[str, str]


class Born(msgspec.Struct, frozen=True, tag=True):
    """A rank runs as process `pid`."""

    uid: int
    pid: int


class Ended(msgspec.Struct, frozen=True, tag=True):
    """A rank ended: exit code, or minus the signal."""

    uid: int
    code: int


NewsType = Born | Ended


def main(fd: int, folder: Path, agent: int) -> None:
    """Serve requests until the agent closes its end."""
    system.die_with_parent(int(os.environ["LIGHTLOOM_PARENT"]), f"ll-nursery-{agent}")
    system.prompt(0)
    spec = load(folder)
    link = socket.socket(fileno=fd)
    _import_torch(spec)
    link.send(b"ready")
    children: dict[int, int] = {}
    poll = select.poll()
    poll.register(link, select.POLLIN)
    while True:
        asked = poll.poll(50 if children else 1000)
        _reap(link, children)
        if not asked:
            continue
        data, fds, _, _ = socket.recv_fds(link, 1 << 16, 2)
        if not data:
            return
        birth = msgspec.msgpack.decode(data, type=Birth)
        pid = os.fork()
        if pid == 0:
            link.close()
            _live(birth, fds, folder, spec)
        for each in fds:
            os.close(each)
        children[pid] = birth.uid
        link.send(msgspec.msgpack.encode(Born(birth.uid, pid)))


def _import_torch(spec: Spec) -> None:
    try:
        import torch
        import torch.distributed
    except ImportError:
        if spec.script == "example:gpt":
            raise
        return
    torch.set_num_threads(1)
    if spec.shards > 1:
        from . import wrap_fsdp, wrap_pipeline, wrap_tensor  # noqa: F401  (1.5 s, once)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # imports what optimisers need: 0.9 s


def _reap(link: socket.socket, children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        uid = children.pop(pid, -1)
        link.send(msgspec.msgpack.encode(Ended(uid, code)))


def _live(birth: Birth, fds: list[int], folder: Path, spec: Spec) -> None:
    """Become the rank; never returns."""
    code = 1
    try:
        os.setsid()
        system.die_with_parent(os.getppid(), f"ll-rank-{birth.uid}")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        log = os.open(
            folder / f"rank-{birth.uid}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644
        )
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(birth.env)
        os.environ |= {"LIGHTLOOM_LINK": str(fds[0]), "LIGHTLOOM_BOARD": str(fds[1])}
        os.chdir(spec.cwd or ".")
        code = _script(spec)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _script(spec: Spec) -> int:
    """Run the user's script as ``__main__`` and return its exit code."""
    try:
        if spec.script.startswith("example:"):
            sys.argv = [spec.script, *spec.args]
            runpy.run_module(f"lightloom.run.example_{spec.script[8:]}", run_name="__main__")
            return 0
        sys.argv = [spec.script, *spec.args]
        sys.path.insert(0, str(Path(spec.script).resolve().parent))
        runpy.run_path(spec.script, run_name="__main__")
    except SystemExit as error:
        return _code(error.code)
    return 0


def _code(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    sys.stderr.write(f"{value}\n")
    return 1


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
