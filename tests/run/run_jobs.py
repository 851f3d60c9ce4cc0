"""Helpers of the tests of real runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from lightloom.core.runs import RunReport
from lightloom.run import launch, traces
from lightloom.run.report import report

SMALL = ("--width", "32", "--layers", "1", "--heads", "2", "--context", "32", "--batch", "4")
Train = Callable[..., RunReport]


def finish(folder: Path, see: Callable[[Path], None] | None = None) -> RunReport:
    """Follow a run to its end, at most two minutes, and return its report."""
    end = time.monotonic() + 120

    def watch() -> None:
        if time.monotonic() > end:
            launch.stop(folder, hard=True)
        if see is not None:
            see(folder)

    launch.follow(folder, watch)
    traces.write(folder)
    return report(folder)


def script(folder: Path, body: str) -> str:
    """Write a training script and return its path."""
    path = folder / "train.py"
    path.write_text(body)
    return str(path)
