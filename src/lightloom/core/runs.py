"""What a real run tells: the report of a job, its recoveries, its snapshots."""

from __future__ import annotations

from typing import Literal

import msgspec

from .finding import Finding

RunState = Literal["starting", "running", "done", "stopped", "failed", "dead"]


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """One loss and how the job went on. Seconds."""

    what: str
    """``rank 1 lost``, ``agent 0 lost``."""
    how: str
    """killed, stopped, blocked, looping, exit code 3, agent killed ..."""
    decision: str
    """shrink, spare, replace, rewind."""
    step: int
    """First step committed after it."""
    epoch: int
    recovery_s: float
    """From the failure (or its detection, where only that is known) to that commit."""
    expected_s: float | None = None
    """What the change was expected to cost when it was decided."""
    detect_s: float | None = None
    """From an injected failure to the new epoch."""
    lost_steps: int = 0
    from_failure: bool = True
    """Whether recovery_s counts from the failure itself."""


class SnapshotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot on disk."""

    path: str
    step: int
    cursor: int
    bytes: int
    made_s: float
    """Seconds since 1970."""
    problem: str = ""
    """What is wrong with it; empty when every byte is right."""
    checked: bool = False
    shards: int = 1
    """Ranks that wrote it together, each its part."""


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it stands. Times in seconds."""

    name: str
    state: RunState
    why: str = ""
    folder: str
    script: str
    ranks: int
    """Ranks wanted."""
    world: int
    """Ranks in the last epoch."""
    agents: int
    spares: int = 0
    steps: int
    """Last committed step."""
    wanted_steps: int = 0
    first_step: int = 0
    """Step it was resumed from; 0 for a fresh start."""
    lost_steps: int = 0
    recovery_s: float | None = None
    """Worst of the recoveries; null without one."""
    recovery_median_s: float | None = None
    recoveries: tuple[Recovery, ...] = ()
    pids_kept: bool = True
    """Whether every survivor of every recovery kept its process."""
    step_s: float | None = None
    """Median seconds of a step."""
    loss_first: float | None = None
    loss_last: float | None = None
    losses: tuple[float | None, ...] = ()
    """Mean loss of each committed step, from first_step + 1."""
    goodput: float | None = None
    """Share of the wall time between the first and the last commit that new steps needed."""
    wall_s: float = 0.0
    epochs: int = 0
    hangs: tuple[dict[str, str], ...] = ()
    findings: tuple[Finding, ...] = ()
    snapshots: tuple[SnapshotInfo, ...] = ()
    timeline: str = ""
    telemetry: str = ""
    fabric: str = "shm"
    deterministic: bool = False


class DrillReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a drill asked for and what happened."""

    faults: tuple[str, ...]
    report: RunReport
    passed: bool
    checks: tuple[Finding, ...]
    """One line per question: did it finish, was anything lost, are the losses equal."""
    compared: bool = False
    max_relative_difference: float | None = None
    """Of the loss of any step against the same training without faults."""
    expected_recovery_s: float | None = None
    """Said before the drill: three median steps, at least 0.3 s."""
