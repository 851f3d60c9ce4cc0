"""One thing changed at a time: the same step under every priority, schedule, micro-batch, noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec

from lightloom.core.errors import InputError, LightloomError, nearest
from lightloom.core.plan import Plan
from lightloom.core.played import Sweep, SweepRow
from lightloom.core.traffic import TrafficClass
from lightloom.cost.job import legal_batches
from lightloom.step.contend import Policy
from lightloom.step.noise import Jitter, constants
from lightloom.step.schedules import NAMES

from .scenario import Outcome, Scenario, simulate

KINDS = ("priorities", "schedule", "micro-batches", "jitter")


Setting = tuple[str, Plan, Scenario]


def _priorities(plan: Plan, base: Scenario) -> Iterator[Setting]:
    """First-in-first-out and fair shares against priorities, and gradients first as a check."""
    given = base.policy.priority
    gradient_first: dict[TrafficClass, str] = {**given, "gradient": "highest", "expert": "medium"}
    for name, policy in (
        ("first in, first out", Policy("fifo", given, base.policy.chunk_bytes)),
        ("fair shares", Policy("fair", given, base.policy.chunk_bytes)),
        ("weighted 8:4:2:1", Policy("weighted", given, base.policy.chunk_bytes)),
        ("strict, as set", Policy("strict", given, base.policy.chunk_bytes)),
        ("strict, gradient over expert",
         Policy("strict", gradient_first, base.policy.chunk_bytes)),  # type: ignore[arg-type]
    ):  # fmt: skip
        yield name, plan, replace(base, policy=policy)


def _schedules(plan: Plan, base: Scenario) -> Iterator[Setting]:
    for name in NAMES:
        yield name, plan, replace(base, schedule=name)


def _micro_batches(plan: Plan, base: Scenario) -> Iterator[Setting]:
    """The same micro-batch size, fewer and more of them: the global batch changes with them."""
    s, tried = plan.strategy, set()
    for times in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0):
        count = max(round(s.micro_batches * times), 1)
        other = msgspec.structs.replace(s, global_batch=count * s.dp * s.micro_batch)
        other = msgspec.structs.replace(other, global_batch=legal_batches(other)[0])
        if other.micro_batches in tried:
            continue
        tried.add(other.micro_batches)
        yield f"{other.micro_batches}", msgspec.structs.replace(plan, strategy=other), base


def _jitters(plan: Plan, base: Scenario) -> Iterator[Setting]:
    known = constants().jitter
    yield "none", plan, replace(base, jitter=Jitter())
    for times in (0.5, 1.0, 2.0, 4.0):
        noise = Jitter(known.scale * times, known.shape, 0.0, known.source)
        yield f"{times:g} x measured", plan, replace(base, jitter=noise)
    for name, link_s in (("link 0.8 ps", 0.8e-12), ("link 12 ns", 12e-9), ("link 10 us", 10e-6)):
        yield name, plan, replace(base, jitter=Jitter(0.0, known.shape, link_s, "given"))


def settings(over: str, plan: Plan, base: Scenario) -> list[Setting]:
    """Return every setting of the sweep `over`."""
    table: dict[str, Callable[[Plan, Scenario], Iterator[Setting]]] = {
        "priorities": _priorities, "schedule": _schedules, "micro-batches": _micro_batches,
        "jitter": _jitters,
    }  # fmt: skip
    if over not in table:
        raise InputError(f"no sweep over {over!r}{nearest(over, KINDS)}",
                         out=f"one of {', '.join(KINDS)}")  # fmt: skip
    return list(table[over](plan, base))


def sweep(
    over: str, plan: Plan, base: Scenario, said: Callable[[int, int], None] | None = None
) -> Sweep:
    """Return every setting played; one that cannot be is a row that says why.

    `said` is told (done, all) after each.
    """
    chosen = settings(over, plan, base)
    rows = []
    for i, (name, other, scenario) in enumerate(chosen):
        try:
            rows.append(_row(name, simulate(other, scenario)))
        except LightloomError as error:
            rows.append(SweepRow(setting=name, refused=error.what))
        if said is not None:
            said(i + 1, len(chosen))
    return Sweep(over=over, rows=tuple(rows))


def _row(name: str, outcome: Outcome) -> SweepRow:
    r = outcome.result
    step_s = r.spread.p50_s if r.spread else r.step_s
    return SweepRow(
        setting=name, step_s=step_s, parts=r.parts,
        tokens_per_s_per_card=r.tokens_per_s_per_card * r.step_s / step_s,
        exposed_comm=r.exposed_comm,
        bubble=r.bubble, mfu=r.mfu, peak_bytes=max(s.peak_bytes for s in r.stages), fits=r.fits,
        p95_over_median=r.spread.p95_over_median if r.spread else 0.0,
    )  # fmt: skip
