"""What ``lightloom run --replan`` asks the planner: the best strategy on fewer cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from lightloom.core.plan import Plan
    from lightloom.run.fallback import Priced


class ShardsType(click.types.IntParamType):
    """A number of ranks, or ``plan``."""

    name = "N|plan"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number or the word."""
        if value == "plan":
            return value
        return click.IntRange(1, 64).convert(value, param, ctx)


SHARDS = ShardsType()


def price(plan: Plan, cards: int, allowed: Mapping[str, tuple[int, ...]]) -> Priced | str:
    """Return the planner's best for the plan's job on `cards` of its cards, or why there is none.

    A part of a host may be used: its other cards are those that were lost.
    """
    from dataclasses import replace

    from lightloom.plan.decide import Asked, run
    from lightloom.plan.space import Fixes
    from lightloom.run.fallback import Priced
    from lightloom.simulate.scenario import job_of

    job = replace(job_of(plan), cards=cards)
    asked = Asked(Fixes(dict(allowed)), precision=plan.strategy.precision, top=1)
    found = run(job, asked)
    if found.best:
        return Priced(found.best[0].strategy, found.best[0].step_s)
    thin = found.leanest
    if thin is None:
        return f"no legal strategy on {cards} cards with batch {job.global_batch}"
    return (f"the leanest of {found.priced:,} strategies needs {thin.peak_bytes / 2**30:.1f} GiB "
            f"of a card, {job.usable / 2**30:.1f} GiB usable")  # fmt: skip
