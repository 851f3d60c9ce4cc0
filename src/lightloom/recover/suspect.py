"""When is a rank hung, and what to do with it: pure judgement over evidence.

Evidence is what the kernel knows (state, CPU time) and how far the rank is, never a bare
wall-clock time-out: a rank that is merely starved by other work uses no CPU *and is runnable*.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

STOPPED_S = 0.25
"""A stopped process (state T) is believed after this long."""
BLOCKED_S = 0.5
"""A sleeping rank that used no CPU for this long while all others wait is blocked."""
LOOP_STEPS = 1.5
"""CPU a rank may use without progress, in median steps, while all others wait."""
LOOP_FLOOR_S = 0.2
PATIENCE = 20.0
"""Times longer for a rank whose stacks differ, or that is busy after its update: it evaluates or
writes something, and that ends."""
SAME_STEPS = 5
LOOKS = 3
"""Stacks that must agree on the innermost function before a busy rank is called looping."""
LONG_FIRST_S = 30.0
"""Floor until two steps are done: imports, compilation, first allocation."""


class Sample(msgspec.Struct, frozen=True):
    """One look at a rank."""

    at_s: float
    state: str
    """As in /proc/PID/stat: R S D T Z."""
    cpu_s: float
    mark: int
    """Grows each time the rank passes a point of the library."""
    waiting: bool
    """It waits for others inside the library: never its own fault."""


class Watch(msgspec.Struct, frozen=True):
    """What is remembered of a rank between looks."""

    since: Sample
    """First sample with the present mark."""
    still: Sample
    """First sample since which it was asleep or stopped and used no CPU."""


def look(watch: Watch | None, now: Sample) -> Watch:
    """Return the watch after one more sample."""
    if watch is None or now.mark != watch.since.mark:
        return Watch(now, now)
    quiet = now.state in "ST" and now.state == watch.still.state
    same = now.cpu_s - watch.still.cpu_s < 0.02
    return Watch(watch.since, watch.still if quiet and same else now)


def slept_s(watch: Watch, now: Sample) -> float:
    """Return how long the rank slept before it passed a new mark; 0 while it has not."""
    if now.mark == watch.since.mark or watch.still.state != "S" or watch.still.waiting:
        return 0.0
    return max(now.at_s - watch.still.at_s, 0.0)


def judge(
    watch: Watch, now: Sample, others_wait_s: float, step_cpu_s: float | None,
    benign_s: float = 0.0, patience: float = 1.0,
) -> str:  # fmt: skip
    """Return ``stopped``, ``blocked``, ``looping`` or an empty string.

    `others_wait_s` is how long all other members have been waiting for this rank; `step_cpu_s` the
    median CPU seconds of a step of this rank, None before two steps; `benign_s` the longest sleep
    outside the library after which this rank went on by itself (a slow reader of data is not hung).
    """
    if now.waiting:
        return ""
    still_s = now.at_s - watch.still.at_s
    if now.state == "T" and still_s >= STOPPED_S:
        return "stopped"
    grace = LONG_FIRST_S if step_cpu_s is None else 0.0
    if now.state == "S" and min(still_s, others_wait_s) >= max(BLOCKED_S, 4.0 * benign_s, grace):
        return "blocked"
    allowed = max(patience * max(LOOP_FLOOR_S, LOOP_STEPS * (step_cpu_s or 0.0)), grace)
    used = now.cpu_s - watch.since.cpu_s
    if now.state == "R" and used >= allowed and others_wait_s >= LOOP_FLOOR_S:
        return "looping"
    return ""


def patience_of(tops: list[str]) -> float:
    """Return how much longer a busy rank may take, from the innermost functions of its stacks."""
    return 1.0 if len(tops) >= LOOKS and len(set(tops[-LOOKS:])) == 1 else PATIENCE


def verdict(history: Iterable[tuple[int, int]], slot: int, step: int) -> str:
    """Return ``replace`` when `slot` is named first, ``exclude`` when again in the same collective.

    `history` holds (slot, step); a step within SAME_STEPS of an earlier naming is the same
    collective met again, so a job restarts into the same hang at most once (invariant 8).
    """
    again = any(s == slot and abs(step - at) <= SAME_STEPS for s, at in history)
    return "exclude" if again else "replace"
