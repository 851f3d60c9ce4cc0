"""Prediction and Plan of one strategy: row 0 of `evaluate`, every stage's memory, and words."""

from __future__ import annotations

from lightloom import __version__
from lightloom.core.errors import InfeasibleError
from lightloom.core.placement import Placement
from lightloom.core.plan import Plan, Prediction, StageMemory
from lightloom.core.strategy import Strategy

from .calibration import Calibration, default_calibration
from .columns import Columns, columns_of
from .evaluate import Tables, costs_of, memory_parts, tables_of
from .explain import assumptions_of, trust_of, wall_of
from .job import Job, check_strategy

GIB = 2.0**30


def _stages(c: Columns, tables: Tables, cal: Calibration) -> tuple[StageMemory, ...]:
    parts = memory_parts(tables, slice(0, 1))
    lists = {name: value[:, 0].tolist() for name, value in parts.items()}
    return tuple(
        StageMemory(stage=s, parts={name: values[s] for name, values in lists.items()})
        for s in range(int(c.pp[0]))
    )


def stage_memories(
    job: Job, strategy: Strategy, calibration: Calibration | None = None
) -> tuple[StageMemory, ...]:
    """Return bytes by part on the worst rank of every pipeline rank (stage), in order."""
    cal = calibration if calibration is not None else default_calibration()
    c = columns_of([strategy])
    return _stages(c, tables_of(job, c, cal, every=True), cal)


def predict(job: Job, strategy: Strategy, calibration: Calibration | None = None) -> Prediction:
    """Return what one legal strategy costs, itemised; InputError where it is not legal."""
    check_strategy(job, strategy)
    cal = calibration if calibration is not None else default_calibration()
    c = columns_of([strategy])
    tables = tables_of(job, c, cal, every=True)
    costs = costs_of(job, c, tables, cal)
    memory = _stages(c, tables, cal)
    extrapolated, trust = trust_of(job, strategy, cal)
    return Prediction(
        step_s=float(costs.step_s[0]), low_s=float(costs.low_s[0]), high_s=float(costs.high_s[0]),
        extrapolated=extrapolated, trust=trust,
        parts={name: float(v[0]) for name, v in costs.parts.items()},
        hidden={name: float(v[0]) for name, v in costs.hidden.items()},
        tokens_per_s_per_card=float(costs.tokens_per_s_per_card[0]),
        mfu=float(costs.mfu[0]), hfu=float(costs.hfu[0]),
        model_flops=float(costs.model_flops[0]), memory=memory, usable_bytes=job.usable,
        bubble=float(costs.bubble[0]), exposed_comm=float(costs.exposed_comm[0]),
        power_w=float(costs.power_w[0]), energy_j=float(costs.energy_j[0]),
        goodput=float(costs.goodput[0]), wall=wall_of(job, strategy, costs),
        assumptions=assumptions_of(job, strategy, cal),
    )  # fmt: skip


def make_plan(
    job: Job,
    strategy: Strategy,
    calibration: Calibration | None = None,
    *,
    placement: Placement | None = None,
    why: str = "",
    searched: int = 0,
    allow_misfit: bool = False,
) -> Plan:
    """Return the self-contained plan of one strategy; InfeasibleError where it does not fit."""
    prediction = predict(job, strategy, calibration)
    if prediction.peak_bytes > job.usable and not allow_misfit:
        raise InfeasibleError(
            f"does not fit: {prediction.peak_bytes / GIB:.1f} GiB needed, "
            f"{job.usable / GIB:.1f} GiB usable"
        )
    return Plan(
        model=job.model, cluster=job.cluster, strategy=strategy,
        placement=placement or Placement(why="axes from neighbours to strangers: tp cp dp pp"),
        prediction=prediction, cards=job.cards, searched=searched, why=why,
        made_by=f"lightloom {__version__}",
    )  # fmt: skip
