"""Real runs for tests: real processes and signals; nothing may be left behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from run_jobs import SMALL, Train, finish

from lightloom.core.runs import RunReport
from lightloom.run import launch
from lightloom.run.spec import Spec


def ours() -> set[int]:
    """Return processes of lightloom's runs: agents, nurseries, writers, ranks."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
            home = (entry / "environ").read_bytes()
        except OSError:
            continue
        mark = f"LIGHTLOOM_HOME={os.environ['LIGHTLOOM_HOME']}".encode()
        if b"lightloom.run." in command and mark in home:
            found.add(int(entry.name))
    return found


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keep runs in a temporary folder; after each test no process and no segment may be left."""
    monkeypatch.setenv("LIGHTLOOM_HOME", str(tmp_path / "runs"))
    monkeypatch.setenv("PYTHONPATH", "")
    before = {p.name for p in Path("/dev/shm").glob("ll-*")}
    yield tmp_path / "runs"
    launch.wait_until(lambda: not ours(), 5.0)
    left = ours()
    for pid in left:
        os.kill(pid, 9)
    assert not left, f"orphan processes {left}"
    assert {p.name for p in Path("/dev/shm").glob("ll-*")} <= before, "a segment was left"


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Return a function that trains the small example and gives the report."""
    count = 0

    def run(see: Callable[[Path], None] | None = None, **fields: object) -> RunReport:
        nonlocal count
        count += 1
        spec = Spec(
            name=f"t{count}", script="example:gpt", args=SMALL, steps=20, agents=1,
            cwd=str(tmp_path), snapshot_every=0,
        )  # fmt: skip
        spec = msgspec.structs.replace(spec, **fields)
        folder = launch.start(spec)
        return finish(folder, see)

    return run
