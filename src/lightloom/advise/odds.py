"""Two plans of one job: how much faster, and how sure.

The interval of a step holds errors that two machines share. On the same chip the kernels' errors
cancel and only communication, bubble and fixed costs stay uncertain; on different chips errors are
taken as independent and added in quadrature of logarithms (derived, stated with each answer).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from lightloom.core.cluster import Cluster
from lightloom.core.model import Model
from lightloom.core.plan import Plan, Prediction


class Ratio(NamedTuple):
    """A ratio with its 90 % range."""

    value: float
    low: float
    high: float


class Factor(NamedTuple):
    """One factor of a speed-up."""

    name: str
    value: float
    why: str


class Desk(NamedTuple):
    """What a decision asks a planner, wired by the command line (verbs do not import verbs)."""

    plan: Callable[[Model, Cluster], Plan]
    """The best plan of the job on a machine; InfeasibleError where nothing fits."""
    factors: Callable[[Plan, Cluster], tuple[Factor, ...]]
    """Where the speed of a plan over the best plan of another machine comes from."""


def useful(p: Plan) -> float:
    """Return trained tokens per second, goodput counted."""
    return p.strategy.tokens / p.prediction.step_s * p.prediction.goodput


def spread(p: Prediction) -> tuple[float, float]:
    """Return (low, high) of the step over its value."""
    return p.low_s / p.step_s, p.high_s / p.step_s


def apart(p: Prediction) -> float:
    """Return seconds of a step that depend on the fabric: exposed communication and bubble."""
    share = min(1.0, p.exposed_comm + p.bubble)
    return p.step_s * share


def speed_of(now: Plan, other: Plan) -> Ratio:
    """Return trained tokens per second of `other` over `now`, with range."""
    value = useful(other) / useful(now)
    if now.cluster.chip.name == other.cluster.chip.name:
        low, high = _same_chip(now.prediction, other.prediction)
    else:
        up = math.hypot(*(math.log(spread(p)[1]) for p in (now.prediction, other.prediction)))
        low, high = math.exp(-up), math.exp(up)
    return Ratio(value, value * min(low, 1.0), value * max(high, 1.0))


def _same_chip(a: Prediction, b: Prediction) -> tuple[float, float]:
    """Return the range of the ratio of two steps of one chip, over its value."""
    middle = a.step_s / b.step_s
    ends = []
    for i, j in ((0, 1), (1, 0)):
        one = a.step_s - apart(a) + apart(a) * spread(a)[i]
        two = b.step_s - apart(b) + apart(b) * spread(b)[j]
        ends.append(one / two / middle)
    return min(ends), max(ends)
