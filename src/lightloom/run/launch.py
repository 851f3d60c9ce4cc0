"""Start a run and follow it: agents in sessions of their own, so that only they matter."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from lightloom.core.errors import RunError

from . import engines, system
from .log import read_lines
from .spec import Spec, create, doors, living

_children: list[subprocess.Popen[bytes]] = []
"""Agents this process started and has not collected yet."""


def start(spec: Spec) -> Path:
    """Create a run and start its agents; returns its folder."""
    system.need_linux()
    folder = create(spec)
    begin(folder, spec)
    return folder


def begin(folder: Path, spec: Spec) -> None:
    """Start the agents of a run whose folder exists."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        (folder / "port").write_text(str(probe.getsockname()[1]))
    started = engines.open_agents(folder, spec)
    _children.extend(started)
    slowest = engines.START_S[spec.engine]
    there = wait_until(lambda: len(doors(folder)) >= spec.agents or _dead(started), slowest)
    if _dead(started) or not there:
        name = "agent-0" if spec.engine == "local" else spec.engine
        raise RunError(f"an agent did not start; see {folder}/{name}.log")


def _dead(started: list[subprocess.Popen[bytes]]) -> bool:
    return any(p.poll() not in (None, 0) for p in started)


def wait_until(ready: Callable[[], bool], timeout_s: float, every_s: float = 0.02) -> bool:
    """Return whether `ready` came true in time."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if ready():
            return True
        time.sleep(every_s)
    return ready()


def follow(folder: Path, see: Callable[[], None] | None = None) -> None:
    """Wait for the end of a run; Ctrl-C or SIGTERM asks it to stop after the present step."""
    asked = 0

    def ask(*_: object) -> None:
        nonlocal asked
        asked += 1
        stop(folder, hard=asked > 1)

    before = {n: signal.signal(n, ask) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        while True:
            _reap()
            if not living(folder) and not wait_until(lambda: bool(living(folder)), 0.15):
                return
            if see is not None:
                see()
            time.sleep(0.1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _reap() -> None:
    """Collect agents that ended, so that they do not stay as zombies."""
    _children[:] = [child for child in _children if child.poll() is None]


def stop(folder: Path, hard: bool = False) -> bool:
    """Ask the agents to stop after the present step, or end them now; False if none lives."""
    found = living(folder)
    for door in found:
        fd = system.open_pid(door.pid)
        if fd >= 0:
            system.kill(fd, signal.SIGKILL if hard else signal.SIGTERM)
            os.close(fd)
    return bool(found)


def resume(folder: Path, spec: Spec, steps: int | None = None) -> Spec:
    """Start a stopped run again from its newest snapshot that verifies."""
    from .sharded import newest_path

    if living(folder):
        raise RunError(f"run {spec.name} is running", out=f"lightloom run status {spec.name}")
    at = newest_path(folder / "snapshots")
    archive(folder)
    changed = msgspec.structs.replace(
        spec, resume=str(at or ""), faults=(), steps=spec.steps if steps is None else steps
    )
    from lightloom.core.files import write_json

    write_json(folder / "spec.json", changed)
    begin(folder, changed)
    return changed


def archive(folder: Path) -> None:
    """Move the files of earlier lives aside, so that agents number from 0 again."""
    lives = len(list(folder.glob("life-*")))
    target = folder / f"life-{lives + 1}"
    target.mkdir()
    for kind in ("agent", "rank", "fired", "axes", "group"):
        for path in folder.glob(f"{kind}-*"):
            path.rename(target / path.name)


def events(folder: Path) -> list[dict[str, Any]]:
    """Return all events of the present life in time order."""
    return sorted(read_lines(folder, "events"), key=lambda e: int(e["at_ns"]))
