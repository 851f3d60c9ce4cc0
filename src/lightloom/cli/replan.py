"""``lightloom replan``: measured load -> a better split, what resharding costs, when it pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from .options import FINITE, echo_json, json_option

if TYPE_CHECKING:
    from lightloom.core.plan import Plan
    from lightloom.core.strategy import Strategy


@click.command()
@click.argument("plan", metavar="PLAN.json")
@click.option(
    "--from", "measured", required=True, metavar="TIMELINE.json", help="what the job really did"
)
@click.option("--steps", type=FINITE, default=10_000.0, help="steps that the job still has to run")
@click.option("--top", type=click.IntRange(min=1), default=8, help="splits to show")
@click.option("-o", "--output", default="", metavar="PLAN.json", help="write the better plan")
@json_option
def replan(plan: str, measured: str, steps: float, top: int, output: str, as_json: bool) -> None:
    """Judge the split of a running job by its measured load, and other splits with it."""
    from lightloom.core.files import read_json, write_json
    from lightloom.core.plan import Plan
    from lightloom.core.timeline_file import read_timeline
    from lightloom.simulate.replan import replan as judge

    from .simulate import progress

    if steps <= 0.0:
        raise click.BadParameter(f"{steps:g}: must be above 0", param_hint="--steps")
    loaded = read_json(plan, Plan, "plan")
    timeline = read_timeline(measured)
    result = judge(loaded, timeline, other_splits, steps=steps, top=top,
                   said=progress("other splits"))  # fmt: skip
    if output and not result.keep:
        from lightloom.cost.predict import make_plan
        from lightloom.simulate.scenario import job_of

        best = next(c for c in result.choices if c.pays_after <= steps)
        write_json(output, make_plan(job_of(loaded), best.strategy, placement=loaded.placement,
                                     why=result.why))  # fmt: skip
    if as_json:
        echo_json(result)
        return
    from lightloom.show.simulate import print_view, replan_view

    print_view(replan_view(result))
    if output:
        click.echo("nothing written: the split stays" if result.keep else f"wrote {output}",
                   err=True)  # fmt: skip


def other_splits(plan: Plan) -> Sequence[tuple[str, Strategy]]:
    """Return the neighbours of the plan's split, then the planner's own best for these cards."""
    from lightloom.plan.decide import Asked, run
    from lightloom.plan.space import Fixes
    from lightloom.simulate.scenario import job_of

    found = {strategy: words for words, strategy in splits_around(plan)}
    asked = Asked(Fixes(), precision=plan.strategy.precision, top=8)
    for choice in run(job_of(plan), asked).best:
        s = choice.strategy
        if s.world_size == plan.strategy.world_size and s != plan.strategy:
            found.setdefault(s, words_between(plan.strategy, s))
    return [(words, strategy) for strategy, words in found.items()]


def words_between(old: Strategy, new: Strategy) -> str:
    """Return the options that differ, as one would type them."""
    names = ("tp", "pp", "cp", "ep", "vpp", "micro_batch", "recompute", "schedule", "zero")
    changed = [n for n in names if getattr(old, n) != getattr(new, n)]
    return " ".join(f"--{n.replace('_', '-')} {getattr(new, n)}" for n in changed) or "overlaps"


def splits_around(plan: Plan) -> Sequence[tuple[str, Strategy]]:
    """Return legal splits of the same cards one or two steps from the plan's, with their words."""
    import msgspec

    from lightloom.core.errors import LightloomError
    from lightloom.cost.job import check_strategy
    from lightloom.simulate.scenario import job_of

    job, s = job_of(plan), plan.strategy
    found: dict[Strategy, str] = {}
    for words, fields in _changes(s):
        inside = fields.get("tp", s.tp) * fields.get("pp", s.pp) * fields.get("cp", s.cp)
        if s.world_size % inside:
            continue
        other = msgspec.structs.replace(s, **{"dp": s.world_size // inside, **fields})
        if other.pp != s.pp or other.vpp != s.vpp:
            other = msgspec.structs.replace(other, stage_layers=())
        try:
            check_strategy(job, other)
        except LightloomError:
            continue
        if other != s:
            found.setdefault(other, words)
    return [(words, other) for other, words in found.items()]


def _changes(s: Strategy) -> list[tuple[str, dict[str, Any]]]:
    """Return single changes: tp against dp, pp against dp, both, micro-batch, recompute."""
    changes: list[tuple[str, dict[str, Any]]] = []
    tps = [t for t in (s.tp // 2, s.tp, s.tp * 2) if t]
    pps = [p for p in (s.pp // 2, s.pp, s.pp * 2) if p]
    for tp in tps:
        for pp in pps:
            fields: dict[str, Any] = {"tp": tp, "pp": pp}
            if pp == 1 and s.pp > 1:
                fields |= {"vpp": 1, "schedule": "1f1b"}
            changes.append((f"--tp {tp} --pp {pp}", fields))
    changes += [(f"--micro-batch {size}", {"micro_batch": size})
                for size in (s.micro_batch // 2, s.micro_batch * 2) if size]  # fmt: skip
    changes += [(f"--recompute {kind}", {"recompute": kind, "recompute_layers": 0})
                for kind in ("none", "selective", "full") if kind != s.recompute]  # fmt: skip
    if s.pp > 1:
        changes += [("--vpp 2 --schedule interleaved", {"vpp": 2, "schedule": "interleaved"}),
                    ("--vpp 1 --schedule 1f1b", {"vpp": 1, "schedule": "1f1b"}),
                    ("--vpp 1 --schedule zero-bubble",
                     {"vpp": 1, "schedule": "zero-bubble"})]  # fmt: skip
    return changes
