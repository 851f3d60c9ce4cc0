"""Throughput against cards: the curve, its knee, and what bends it (feature B10)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from lightloom.core.errors import InfeasibleError, InputError
from lightloom.core.plan import Plan
from lightloom.core.units import parse_count
from lightloom.cost.job import Job

from .decide import Asked, plan
from .explain import WORDS


class Point(NamedTuple):
    """One number of cards."""

    cards: int
    plan: Plan | None
    """None where nothing fits."""
    tokens_per_s: float
    efficiency: float
    """Tokens/s per card over that of the first point."""
    why: str


class Curve(NamedTuple):
    """The whole sweep."""

    points: tuple[Point, ...]
    knee: int | None
    """Last number of cards at which doubling still gives 1.7 times; None where it never bends."""
    bends: str


KNEE = 0.85
"""Doubling cards is worth it while it gives at least 2 x 0.85 = 1.7 times the tokens."""


def parse_sweep(text: str) -> list[int]:
    """Return numbers of cards from ``cards=64..15488`` (doubling) or ``cards=64,96,128``."""
    name, mark, value = text.partition("=")
    if name.strip() != "cards" or not mark:
        raise InputError(f"--sweep {text!r}: only cards can be swept here",
                         out="--sweep cards=64..8192 or cards=64,128,256")  # fmt: skip
    try:
        if ".." in value:
            low, high = (int(parse_count(v)) for v in value.split(".."))
            if not 1 <= low <= high:
                raise ValueError(value)
            out = [low]
            while out[-1] * 2 < high:
                out.append(out[-1] * 2)
            return out if out[-1] == high else [*out, high]
        return sorted({int(parse_count(v)) for v in value.split(",")})
    except ValueError as error:
        raise InputError(f"--sweep {text!r}: not a range of cards",
                         out="--sweep cards=64..8192") from error  # fmt: skip


def sweep(job: Job, counts: list[int], asked: Asked, *, grow_batch: bool = False,
          progress: Callable[[int, int], None] | None = None) -> Curve:  # fmt: skip
    """Return the best plan at every number of cards; the batch is kept, or grown with the cards."""
    points: list[Point] = []
    first: Point | None = None
    previous: Plan | None = None
    for i, cards in enumerate(counts):
        scaled = job.global_batch
        if grow_batch:
            scaled = max(1, round(job.global_batch * cards / counts[0]))
        try:
            best = plan(replace(job, cards=cards, global_batch=scaled),
                        asked._replace(top=1)).plans[0]  # fmt: skip
        except InfeasibleError as error:
            points.append(Point(cards, None, 0.0, 0.0, error.what))
            continue
        speed = best.strategy.tokens / best.prediction.step_s
        base = first.tokens_per_s / first.cards if first else speed / cards
        why = growth(previous, best) if previous else ""
        point = Point(cards, best, speed, speed / cards / base, why)
        first, previous = first or point, best
        points.append(point)
        if progress:
            progress(i + 1, len(counts))
    return Curve(tuple(points), *bend(points))


def growth(before: Plan, after: Plan) -> str:
    """Return the part of the step whose card-seconds per token grew most."""
    a, b = before.prediction, after.prediction
    unit_a = before.cards / before.strategy.tokens
    unit_b = after.cards / after.strategy.tokens
    grown = {name: b.parts[name] * unit_b - a.parts.get(name, 0.0) * unit_a for name in b.parts}
    name = max(grown, key=lambda n: grown[n])
    return WORDS.get(name, name) if grown[name] > 0 else ""


def bend(points: list[Point]) -> tuple[int | None, str]:
    """Return the knee and what bends the curve there."""
    good = [p for p in points if p.plan]
    for before, after in itertools.pairwise(good):
        gain = after.tokens_per_s / before.tokens_per_s
        ratio = after.cards / before.cards
        if gain < ratio**0.7655:  # 1.7 for a doubling
            return before.cards, after.why
    return None, ""
