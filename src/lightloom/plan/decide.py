"""From a request to plans: the best few with why, and answers to inverse questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import msgspec

from lightloom.core.errors import InfeasibleError, InputError
from lightloom.core.plan import Plan, Rejected
from lightloom.cost.calibration import Calibration
from lightloom.cost.job import Job
from lightloom.cost.predict import make_plan

from .explain import why_best, why_slower
from .search import Found, search
from .space import Fixes, Space, count, outline


class Answer(NamedTuple):
    """The best few plans of one request."""

    plans: tuple[Plan, ...]
    """Best first, one per set of degrees."""
    why: tuple[str, ...]
    found: Found


class Asked(NamedTuple):
    """What decides a search, beside the job."""

    fixes: Fixes
    precision: str = "bf16"
    objective: str = "time"
    top: int = 10
    limit_bytes: float | None = None
    calibration: Calibration | None = None


def plan(job: Job, asked: Asked, progress: Callable[[Found], None] | None = None) -> Answer:
    """Return the best plans, or InfeasibleError with the smallest change that would fit."""
    found = run(job, asked, progress)
    if not found.best:
        raise refusal(job, asked, found)
    return answer_of(job, asked, found)


def run(job: Job, asked: Asked, progress: Callable[[Found], None] | None = None) -> Found:
    """Return the raw result of one search."""
    space = Space(job, asked.fixes, asked.precision)
    return search(job, space, top=asked.top, objective=asked.objective,
                  limit_bytes=asked.limit_bytes, calibration=asked.calibration,
                  progress=progress)  # fmt: skip


def answer_of(job: Job, asked: Asked, found: Found) -> Answer:
    """Return plans with reasons for the candidates found."""
    made = [make_plan(job, one.strategy, asked.calibration, searched=found.counted,
                      allow_misfit=True) for one in found.best]  # fmt: skip
    best = made[0]
    why = [why_best(best), *(why_slower(best.prediction, p.prediction) for p in made[1:])]
    rejected = tuple(
        Rejected(strategy=p.strategy, step_s=p.prediction.step_s,
                 peak_bytes=p.prediction.peak_bytes, why=reason)
        for p, reason in zip(made[1:], why[1:], strict=True)
    )  # fmt: skip
    plans = [msgspec.structs.replace(p, why=reason, rejected=rejected if i == 0 else ())
             for i, (p, reason) in enumerate(zip(made, why, strict=True))]  # fmt: skip
    return Answer(tuple(plans), tuple(why), found)


def refusal(job: Job, asked: Asked, found: Found) -> Exception:
    """Return the error for a search that found nothing: conflicting fixes, or memory."""
    if found.priced == 0:
        return conflict(job, asked)
    thin = found.leanest
    assert thin is not None
    s = thin.strategy
    usable = min(job.usable, asked.limit_bytes or job.usable)
    return InfeasibleError(
        f"nothing fits: the leanest of {found.priced:,} candidates needs "
        f"{thin.peak_bytes / 2**30:.1f} GiB, {usable / 2**30:.1f} GiB usable (tp {s.tp} pp {s.pp} "
        f"dp {s.dp} cp {s.cp} ep {s.ep}, recompute {s.recompute}, zero {s.zero})",
        out=f"smallest change that fits: {way_out(job, asked)}",
    )


def way_out(job: Job, asked: Asked) -> str:
    """Return the first of a few changes under which something fits."""
    for what, changed, also in changes(job, asked):
        found = run(changed, also._replace(top=1))
        if found.best:
            one = found.best[0]
            return f"{what} ({one.peak_bytes / 2**30:.1f} GiB, {one.step_s:.3g} s a step)"
    return "none of: no fixes, fully sharded weights, 2 to 8 times the cards, half the sequence"


def changes(job: Job, asked: Asked) -> Iterator[tuple[str, Job, Asked]]:
    """Yield changes, smallest first."""
    for name in asked.fixes.values:
        fewer = {k: v for k, v in asked.fixes.values.items() if k != name}
        yield f"without --fix {name}", job, asked._replace(fixes=Fixes(fewer))
    if asked.limit_bytes and asked.limit_bytes < job.usable:
        yield "without --memory-limit", job, asked._replace(limit_bytes=None)
    for times in (2, 4, 8):
        cards = job.cards * times
        if cards <= job.cluster.cards:
            yield f"--cards {cards}", replace(job, cards=cards), asked
    kinds = {"zero": ("3", "fsdp"), **asked.fixes.values}
    yield "--fix zero=fsdp", job, asked._replace(fixes=Fixes(kinds))
    if job.seq > 1024:
        yield f"--seq {job.seq // 2}", replace(job, seq=job.seq // 2), asked


def conflict(job: Job, asked: Asked) -> Exception:
    """Return the error that names which two fixes exclude one another."""
    fixes = asked.fixes.values
    names = list(fixes)
    for name in names:
        if not legal_count(job, asked, {name: fixes[name]}):
            return InfeasibleError(
                f"--fix {name}={show(fixes[name])} alone leaves no legal candidate on "
                f"{job.cards:,} cards with batch {job.global_batch}",
                out=f"nearest that works: {nearest_value(job, asked, name)}",
            )
    for i, one in enumerate(names):
        for two in names[i + 1 :]:
            if not legal_count(job, asked, {one: fixes[one], two: fixes[two]}):
                return InfeasibleError(
                    f"--fix {one}={show(fixes[one])} and --fix {two}={show(fixes[two])} exclude "
                    f"one another on {job.cards:,} cards with batch {job.global_batch}",
                    out="drop or widen one of them",
                )
    return InfeasibleError(
        f"no legal candidate on {job.cards:,} cards with batch {job.global_batch}"
        + (f" and these {len(names)} fixes together" if names else ""),
        out="another --global-batch (a multiple of more numbers), or fewer fixes",
    )


def legal_count(job: Job, asked: Asked, values: dict[str, tuple[object, ...]]) -> int:
    """Return how many candidates are legal under some fixes (priced, at most one list)."""
    found = run(job, asked._replace(fixes=Fixes(values), top=1, limit_bytes=None))
    return found.priced


def nearest_value(job: Job, asked: Asked, name: str) -> str:
    """Return the legal value nearest to what was fixed."""
    values = asked.fixes.values[name]
    if not isinstance(values[0], int):
        return f"leave {name} out"
    want = values[0]
    near = sorted(range(1, 2 * want + 8), key=lambda v: (abs(v - want), v))
    for value in near[:64]:
        if legal_count(job, asked, {name: (value,)}):
            return f"--fix {name}={value}"
    return f"leave {name} out"


def show(values: tuple[object, ...]) -> str:
    """Return fixed values in few words."""
    numbers = [v for v in values if isinstance(v, int)]
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}..{numbers[-1]}"
    return ",".join(map(str, values))


def counted(job: Job, asked: Asked) -> int:
    """Return the size of the space before pruning."""
    space = Space(job, asked.fixes, asked.precision)
    return count(space, outline(space))


def check_cards(job: Job) -> str:
    """Return a note where no split can use all cards, or an empty string."""
    unit = job.cluster.host.cards
    if job.cards % unit:
        near = sorted({job.cards // unit * unit, -(-job.cards // unit) * unit} - {0})
        if job.cards > unit:
            raise InputError(
                f"--cards {job.cards}: hosts have {unit} cards, a part of a host cannot be used",
                out=f"--cards {' or '.join(map(str, near))}",
            )
    return ""
