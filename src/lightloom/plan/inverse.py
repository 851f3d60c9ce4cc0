"""Inverse questions (B9): cards for a deadline, time for N cards, a model for a budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from lightloom.core.cluster import Cluster
from lightloom.core.errors import InfeasibleError, InputError
from lightloom.core.hf_size import LARGEST, SMALLEST, model_of_size
from lightloom.core.plan import Plan
from lightloom.cost.flops import parameters_of
from lightloom.cost.job import Job

from .decide import Asked, plan


class Run(NamedTuple):
    """A whole training run on a number of cards."""

    cards: int
    plan: Plan
    seconds: float
    """Wall time with goodput."""
    card_hours: float


class Affordable(NamedTuple):
    """A model that a budget can train, at 20 tokens a parameter."""

    parameters: float
    tokens: float
    run: Run
    cost: float


CHINCHILLA = 20.0
"""Tokens per parameter for the least compute at a given loss (Hoffmann et al. 2022)."""


def run_of(best: Plan, tokens: float) -> Run:
    """Return how long a plan takes for `tokens`."""
    p = best.prediction
    seconds = tokens / best.strategy.tokens * p.step_s / p.goodput
    return Run(best.cards, best, seconds, best.cards * seconds / 3600.0)


def counts_of(cluster: Cluster) -> list[int]:
    """Return numbers of cards worth asking for: hosts, doubling, and whole domains."""
    host, domain = max(1, cluster.host.cards), max(1, cluster.fabric.domain_cards)
    out = {cluster.cards}
    size = host
    while size < cluster.cards:
        out |= {size, size * 3 // 2 // host * host}
        size *= 2
    step = domain
    while step < cluster.cards and cluster.cards // domain <= 64:
        out.add(step)
        step += domain
    return sorted(n for n in out if n >= host)


def cards_for(job: Job, tokens: float, deadline_s: float, asked: Asked,
              progress: Callable[[int, int], None] | None = None) -> Run:  # fmt: skip
    """Return the fewest cards that finish before the deadline."""
    if deadline_s <= 0:
        raise InputError("--deadline has already passed", out="--deadline 30d")
    counts = [n for n in counts_of(job.cluster) if n <= job.cards]
    low, high, best = 0, len(counts) - 1, None
    asked_steps = 0
    while low <= high:
        middle = (low + high) // 2
        run = attempt(job, counts[middle], tokens, asked)
        asked_steps += 1
        if progress:
            progress(asked_steps, len(counts).bit_length())
        if run and run.seconds <= deadline_s:
            best, high = run, middle - 1
        else:
            low = middle + 1
    if best is None:
        most = attempt(job, counts[-1], tokens, asked)
        what = "nothing fits" if most is None else (
            f"{most.cards:,} cards take {most.seconds / 86400:.1f} days")  # fmt: skip
        raise InfeasibleError(
            f"{tokens:.3g} tokens in {deadline_s / 86400:.1f} days: {what}",
            out="fewer tokens, a later deadline, or a larger machine",
        )
    return best


def attempt(job: Job, cards: int, tokens: float, asked: Asked) -> Run | None:
    """Return the run on `cards`, None where nothing fits."""
    try:
        best = plan(replace(job, cards=cards), asked._replace(top=1)).plans[0]
    except InfeasibleError:
        return None
    return run_of(best, tokens)


def for_budget(job: Job, budget: float, rent_hour: float, asked: Asked, *, rounds: int = 8
               ) -> list[Affordable]:  # fmt: skip
    """Return dense models that a budget trains on half, all and a quarter of the cards.

    Fixed point: P parameters on 20 P tokens are planned, priced, and P is scaled by the square
    root of budget over cost (compute grows with P squared) until 98 to 100 % is spent.
    """
    out = []
    for cards in sorted({job.cards, job.cards // 2, job.cards // 4}):
        found = affordable(job, cards, budget, rent_hour, asked, rounds)
        if found:
            out.append(found)
    if not out:
        raise InfeasibleError(f"a budget of {budget:,.0f} trains nothing on this machine",
                              out="a larger budget, or fewer cards")  # fmt: skip
    return sorted(out, key=lambda a: -a.parameters)


def affordable(job: Job, cards: int, budget: float, rent_hour: float, asked: Asked, rounds: int
               ) -> Affordable | None:  # fmt: skip
    """Return the largest model that the budget trains on `cards`."""
    seconds = budget / rent_hour * 3600.0
    flops = seconds * job.cluster.chip.peak_of("bf16") * 0.35
    size, result = (flops / (6.0 * CHINCHILLA)) ** 0.5, None
    for _ in range(rounds):
        if size < SMALLEST:
            return result
        size = min(size, LARGEST)
        model = model_of_size(f"{size / 1e9:.6g}B")
        total = parameters_of(model).total
        run = attempt(replace(job, model=model, cards=cards), cards, CHINCHILLA * total, asked)
        if run is None:
            return result
        cost = run.card_hours * rent_hour
        if cost <= budget and (result is None or total > result.parameters):
            result = Affordable(total, CHINCHILLA * total, run, cost)
        if 0.98 * budget <= cost <= budget:
            break
        size *= (0.99 * budget / cost) ** 0.5
    return result
