"""The snapshot writer: a polite process that turns shared memory into a checked folder.

``python -m lightloom.run.writer FD RUN AGENT`` - started by an agent, dies with it. It maps a
rank's buffer, so the buffer lives on here when the rank dies: a copy in a peer's memory.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import sys
import time
from pathlib import Path

import msgspec

from lightloom.core.errors import InputError
from lightloom.core.event import Fault, parse_fault

from . import sharded, snapshot, system, talk
from .spec import Spec, load

SHARE = 0.35
"""Share of one core the writer may use while training goes on."""


class Pace:
    """Sleeps so that CPU use stays at SHARE of a core."""

    def __init__(self) -> None:
        self.cpu, self.wall = time.process_time(), time.monotonic()

    def __call__(self) -> None:
        """Rest as long as the work since the last rest asks for."""
        busy = time.process_time() - self.cpu
        spent = time.monotonic() - self.wall
        time.sleep(max(min(busy / SHARE - spent, 1.0), 0.0))
        self.cpu, self.wall = time.process_time(), time.monotonic()


def main(fd: int, run: Path, agent: int) -> None:
    """Serve jobs until the agent closes its end."""
    system.die_with_parent(int(os.environ["LIGHTLOOM_PARENT"]), f"ll-writer-{agent}")
    system.prompt(0)
    system.polite()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = socket.socket(fileno=fd)
    spec = load(run)
    faults = [f for f in map(parse_fault, spec.faults) if f.kind in ("disk", "snapshot")]
    count = 0
    while True:
        data = link.recv(1 << 16)
        if not data:
            return
        said = msgspec.msgpack.decode(data, type=talk.Save)
        count += 1
        began, size, why = time.monotonic(), 0, ""
        try:
            _disk(faults, said.step)
            size = save(run, spec, said)
            _hurt(run / "snapshots" / said.place, faults, count, said.step)
        except (OSError, InputError) as error:
            why = f"{type(error).__name__}: {error}"
        answer = (said.step, said.place, why, time.monotonic() - began, size)
        link.send(msgspec.msgpack.encode(answer))


def save(run: Path, spec: Spec, said: talk.Save) -> int:
    """Write one snapshot from a rank's memory; returns its bytes."""
    memory = system.attach(said.path)
    if memory is None:
        raise InputError("the rank died before its buffer was mapped")
    toc_size, start = struct.unpack_from("<QQ", memory, 0)
    toc = bytes(memory[16 : 16 + toc_size])
    from .layout import decode

    total = decode(toc).total
    data = memoryview(memory)[start : start + total]
    folder = run / "snapshots"
    snapshot.write(
        folder / said.place, said.step, said.cursor, toc, data, run=spec.name,
        rest=None if said.urgent else Pace(),
    )  # fmt: skip
    sharded.prune(folder, said.place, said.step, spec.keep)
    data.release()
    memory.close()
    return total


def _disk(faults: list[Fault], step: int) -> None:
    """Make the kernel refuse to write files from the drill's step on (a real EFBIG)."""
    for fault in faults:
        if fault.kind == "disk" and fault.much == "full" and step >= (fault.step or 0):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def _hurt(folder: Path, faults: list[Fault], count: int, step: int) -> None:
    """Damage the n-th snapshot after it was written: a flipped bit, a lost tail."""
    for fault in faults:
        if fault.kind != "snapshot" or fault.where != str(count):
            continue
        target = folder / snapshot.name_of(step) / "state.bin"
        with open(target, "r+b") as stream:
            if fault.much == "truncate":
                stream.truncate(target.stat().st_size // 2)
            else:
                stream.seek(target.stat().st_size // 3)
                byte = stream.read(1)
                stream.seek(-1, os.SEEK_CUR)
                stream.write(bytes([byte[0] ^ 16]))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
