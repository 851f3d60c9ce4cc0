"""Two machines, one job: where a speed-up comes from, multiplied out exactly (feature B6)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import msgspec

from lightloom.core.cluster import Cluster
from lightloom.core.errors import LightloomError
from lightloom.core.plan import Plan
from lightloom.cost.job import Job
from lightloom.cost.predict import predict

from .decide import Asked, plan


class Factor(NamedTuple):
    """One factor of the speed-up."""

    name: str
    value: float
    why: str


class Comparison(NamedTuple):
    """The same job planned on another machine, and the factors between."""

    here: Plan
    there: Plan
    speedup: float
    """Trained tokens per second here over there, goodput counted."""
    factors: tuple[Factor, ...]


def compare(job: Job, here: Plan, other: Cluster, asked: Asked) -> Comparison:
    """Return the decomposition: chip x communication x strategy x recovery = speed-up.

    Each factor is a ratio of two step times of this cost model, one thing changed at a time, so
    the product is the whole by construction: the other machine's best strategy is first given
    this machine's chip, then this machine's fabric, then replaced by this machine's best.
    """
    there_job = replace(job, cluster=other, cards=min(job.cards, other.cards))
    there = plan(there_job, asked).plans[0]
    s, cal = there.strategy, asked.calibration
    t_there = there.prediction.step_s
    mixed = msgspec.structs.replace(other, chip=here.cluster.chip, host=here.cluster.host)
    t_chip = predict(replace(there_job, cluster=mixed), s, cal).step_s
    factors = [Factor("chip", t_there / t_chip, "the same strategy and fabric, this chip")]
    t_fabric = t_chip
    try:
        moved = predict(replace(job, cards=there_job.cards), s, cal)
        t_fabric = moved.step_s
        share = exposed_words(predict(replace(there_job, cluster=mixed), s, cal), moved)
        factors.append(Factor("communication", t_chip / t_fabric, share))
    except LightloomError as error:
        factors.append(Factor("communication", 1.0, f"cannot be separated: {error.what}"))
    t_here = here.prediction.step_s
    tp = f"tp {s.tp} -> {here.strategy.tp}, ep {s.ep} -> {here.strategy.ep}, " \
         f"pp {s.pp} -> {here.strategy.pp}"  # fmt: skip
    factors.append(Factor("feasible strategies", t_fabric / t_here, tp))
    good = here.prediction.goodput / there.prediction.goodput
    why = f"goodput {there.prediction.goodput:.1%} -> {here.prediction.goodput:.1%}"
    factors.append(Factor("recovery", good, why))
    return Comparison(here, there, t_there / t_here * good, tuple(factors))


def exposed_words(before, after) -> str:  # type: ignore[no-untyped-def]
    """Return how the share of exposed communication changes."""
    return f"exposed communication {before.exposed_comm:.0%} -> {after.exposed_comm:.0%}"
