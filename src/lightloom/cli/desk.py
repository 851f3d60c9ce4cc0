"""The planner as decisions see it: one job on any machine, wired here for ``fit`` and ``roi``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightloom.advise.odds import Desk
    from lightloom.core.cluster import Cluster

DEFAULT_CARDS = 1024
"""Cards compared when nothing is said: as many as every machine has, at most this."""


def cards_of(asked: int | None, clusters: Sequence[Cluster]) -> tuple[int, str]:
    """Return the cards that every machine is compared at, and a note where it was filled in."""
    from lightloom.core.errors import InputError

    most = min(c.cards for c in clusters)
    if asked is None:
        cards = min(most, DEFAULT_CARDS)
        return cards, f"{cards:,} cards of every machine: not said (at most {DEFAULT_CARDS:,})"
    if asked < 1 or asked > most:
        small = min(clusters, key=lambda c: c.cards)
        raise InputError(
            f"--cards {asked:,}: {small.name} has {small.cards:,}", out=f"--cards {most}"
        )
    return asked, ""


def desk(cards: int, seq: int | None, global_batch: str | None, precision: str) -> Desk:
    """Return the planner of one job; every machine is planned once."""
    from lightloom.advise.odds import Desk, Factor
    from lightloom.cost.request import Asked as Request
    from lightloom.cost.request import request
    from lightloom.plan.compare import compare
    from lightloom.plan.decide import Asked, plan
    from lightloom.plan.space import parse_fixes

    asked = Asked(parse_fixes(()), precision, top=1)
    kept: dict[tuple[str, str], Any] = {}

    def job_of(model: Any, machine: Cluster) -> Any:
        framework = "mindspeed" if machine.chip.vendor.lower() == "huawei" else "megatron"
        job, _, _ = request(
            model,
            machine,
            Request(
                cards=cards,
                seq=seq,
                global_batch=global_batch or "4Mtok",
                precision=precision,
                framework=framework,
                dp=1,
            ),
        )
        return job

    def planned(model: Any, machine: Cluster) -> Any:
        key = (model.name, repr(machine))
        if key not in kept:
            kept[key] = plan(job_of(model, machine), asked).plans[0]
        return kept[key]

    def factors(here: Any, other: Cluster) -> tuple[Factor, ...]:
        job = replace(job_of(here.model, here.cluster), cards=here.cards)
        found = compare(job, here, other, asked)
        return tuple(Factor(f.name, f.value, f.why) for f in found.factors)

    return Desk(planned, factors)
