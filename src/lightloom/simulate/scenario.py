"""Play one step of a plan under a scenario, and say what came out.

::

    outcome = simulate(plan, Scenario(policy=Policy("strict")))
    outcome.result.step_s, timeline(outcome)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError, nearest
from lightloom.core.event import Fault
from lightloom.core.placement import Placement
from lightloom.core.plan import Plan
from lightloom.core.played import PlayedStage, Spread, StepResult
from lightloom.core.strategy import Strategy
from lightloom.core.timeline import Timeline
from lightloom.core.traffic import CLASSES, TrafficClass
from lightloom.cost.calibration import Calibration
from lightloom.cost.columns import columns_of
from lightloom.cost.evaluate import Costs, evaluate
from lightloom.cost.job import Job, check_strategy
from lightloom.step.contend import Policy
from lightloom.step.from_cost import work_of
from lightloom.step.graph import Graph, build
from lightloom.step.noise import Jitter, constants, sample_steps
from lightloom.step.play import Record, play
from lightloom.step.program import Program, compile_step
from lightloom.step.result import (
    bandwidth_of,
    memory_of,
    parts_of,
    shown_cards,
    timeline_of,
)
from lightloom.step.schedules import NAMES, TWO_CHUNKS, chunks_of, make
from lightloom.step.units import Units, fold, groups_of

from .faults import ranks_of, slowness
from .imbalance import Skew, routing

F64 = NDArray[np.float64]
CORRECTIONS = ("data", "straggler")
"""Parts of the estimate that hang on the step as a whole, not on an operation."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is different from the quiet step of the plan."""

    schedule: str = ""
    """Another schedule; empty keeps the plan's."""
    policy: Policy = field(default_factory=Policy)
    overlap: bool = True
    rolling: bool = False
    """No rank waits for the others at the optimiser: the gradient norm is checked afterwards
    (post-validation, Qi 2023 section 4), and the step is what the busiest rank takes for one."""
    jitter: Jitter = field(default_factory=Jitter)
    faults: tuple[Fault, ...] = ()
    skew: Skew = field(default_factory=lambda: Skew("none"))
    samples: int = 200
    """Steps drawn for the distribution when there is jitter."""
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Everything that a view or a file may want of one played step."""

    result: StepResult
    memory: tuple[tuple[int, F64, F64], ...]
    """(pipeline rank, seconds, bytes) of one card each."""
    program: Program
    record: Record
    units: Units
    strategy: Strategy
    """As played: the plan's, with the scenario's schedule and overlap."""
    placement: Placement


def job_of(plan: Plan) -> Job:
    """Return the job that a plan answers."""
    s = plan.strategy
    return Job(model=plan.model, cluster=plan.cluster, cards=plan.cards, seq=s.seq,
               global_batch=s.global_batch, framework=s.framework, task=s.task)  # fmt: skip


def strategy_under(plan: Plan, scenario: Scenario) -> tuple[Strategy, str]:
    """Return (strategy with the scenario's schedule and overlap, name of the schedule)."""
    s = plan.strategy
    name = scenario.schedule or s.schedule
    if name not in NAMES:
        raise InputError(
            f"unknown schedule {name!r}{nearest(name, NAMES)}", out=f"one of {', '.join(NAMES)}"
        )
    if scenario.schedule and name != s.schedule:
        vpp = {"zb-v": 2, "dualpipe-v": 2, "interleaved": max(s.vpp, 2)}.get(name, 1)
        known = "zero-bubble" if name == "zb-h2" else name
        layout = s.stage_layers if vpp == s.vpp else ()
        s = msgspec.structs.replace(s, schedule=known, vpp=vpp, stage_layers=layout)
    if not scenario.overlap:
        s = msgspec.structs.replace(s, overlap_grad=False, overlap_param=False, overlap_tp=False,
                                    overlap_pp=False, overlap_ep=False)  # fmt: skip
    return s, name


def simulate(
    plan: Plan, scenario: Scenario | None = None, calibration: Calibration | None = None
) -> Outcome:
    """Return one step of `plan`, played."""
    scenario = scenario or Scenario()
    job = job_of(plan)
    strategy, name = strategy_under(plan, scenario)
    check_strategy(job, strategy)
    if name in TWO_CHUNKS and strategy.pp < 2:
        raise InputError(f"schedule {name} needs a pipeline, the plan has pp 1", out="--pp 2")
    schedule = make(name, strategy.pp, strategy.micro_batches, chunks_of(name, strategy.vpp))
    graph = build(schedule)
    work = work_of(job, strategy, calibration)
    if scenario.rolling:
        work = replace(work, norm=None)
    uneven = routing(plan.model, strategy.ep, scenario.skew, scenario.seed)
    program = compile_step(graph, work, uneven)
    slow = slowness(msgspec.structs.replace(plan, strategy=strategy), scenario.faults)
    units = fold(strategy, slow.slow_C, slow.wait_C)
    amount, origin = constants().drag_of(plan.cluster.chip.arch)
    drag: dict[TrafficClass, float] = dict.fromkeys(CLASSES, amount)
    record = play(program, units, scenario.policy, drag)
    memory = memory_of(record, program, units)
    spread = _spread(program, record, units, strategy, scenario)
    first = _first_units(units)
    kept = tuple((rank, *memory[unit]) for rank, unit in first)
    compared = evaluate(job, columns_of([strategy]), calibration)
    result = _result(plan, compared, scenario, record, units, kept, name)
    result = msgspec.structs.replace(
        result, spread=spread, faults=slow.told, assumptions=_assumptions(plan, origin, uneven)
    )
    return Outcome(result, kept, program, record, units, strategy, plan.placement)


def _result(
    plan: Plan, compared: Costs, scenario: Scenario, record: Record, units: Units,
    kept: tuple[tuple[int, F64, F64], ...], name: str,
) -> StepResult:  # fmt: skip
    """Return the figures of one played step beside the closed form's."""
    end, estimate = _period(record, scenario), float(compared.step_s[0])
    parts, bandwidth = parts_of(record, units), bandwidth_of(record, units)
    parts["bubble"] = parts.get("bubble", 0.0) - (record.end - end)
    corrections = sum(float(compared.parts[k][0]) for k in CORRECTIONS if k in compared.parts)
    exposed = sum(parts.get(c, 0.0) for c in CLASSES)
    first = dict(_first_units(units))
    stages = tuple(
        PlayedStage(rank=rank, peak_bytes=float(held.max()), rest_bytes=float(held[0]),
                    busy=record.parts[first[rank]].get("compute", 0.0) / end)
        for rank, _, held in kept
    )  # fmt: skip
    usable = float(compared.usable_bytes)
    return StepResult(
        step_s=end, estimate_s=estimate, gap=end / estimate - 1.0,
        gap_before_corrections=end / (estimate - corrections) - 1.0,
        schedule=name, policy=scenario.policy.kind, parts=parts,
        hidden={c: max(row["busy_s"] - parts.get(c, 0.0), 0.0) for c, row in bandwidth.items()},
        exposed_comm=exposed / end,
        bubble=(parts.get("bubble", 0.0) + parts.get("waiting", 0.0)) / end,
        mfu=float(compared.mfu[0]) * estimate / end,
        tokens_per_s_per_card=plan.strategy.tokens / end / plan.cards,
        bandwidth=bandwidth, stages=stages, usable_bytes=usable,
        fits=max(s.peak_bytes for s in stages) <= usable, units=len(units),
        cards=int(units.cards_U.sum()), events=record.events,
    )  # fmt: skip


def _period(record: Record, scenario: Scenario) -> float:
    """Return seconds from one step to the next: to the last rank's end, or where ranks roll on
    into the next step, from a rank's first operation to its own end."""
    if not scenario.rolling:
        return record.end
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for unit, _, start, end in record.steps:
        first.setdefault(unit, start)
        last[unit] = end
    return max(last[unit] - first[unit] for unit in first)


def _assumptions(plan: Plan, drag: str, uneven: object) -> tuple[str, ...]:
    """Return what the played step takes for granted, in words."""
    said = [
        "costs per operation only; no step-level correction of the closed form is used",
        "layers of a stage run as one pass: their kernels and exchanges add up",
        f"compute beside a transfer slows down ({drag})",
        "a shared uplink is split evenly among its cards",
    ]
    if plan.model.is_moe and uneven is None and plan.strategy.ep > 1:
        said.append("tokens are routed evenly over experts (--imbalance zipf:1.2 to change)")
    return tuple(said)


def timeline(outcome: Outcome, ranks: tuple[int, ...] = ()) -> Timeline:
    """Return the played step as a timeline of `ranks`; of one card per class when empty."""
    rank_C = ranks_of(outcome.strategy, outcome.placement)
    late = [r for r in ranks if not 0 <= r < len(rank_C)]
    if late:
        raise InputError(f"rank {late[0]} is not in the job", out=f"ranks 0 to {len(rank_C) - 1}")
    order = np.argsort(rank_C)
    cards = tuple(int(order[r]) for r in ranks) or shown_cards(outcome.units)
    return timeline_of(outcome.record, outcome.units, groups_of(outcome.strategy), cards, rank_C)


def _first_units(units: Units) -> list[tuple[int, int]]:
    """Return (pipeline rank, its unit of most cards)."""
    best: dict[int, int] = {}
    for u, rank in enumerate(units.rank_U.tolist()):
        if rank not in best or units.cards_U[u] > units.cards_U[best[rank]]:
            best[rank] = u
    return sorted(best.items())


def _spread(
    program: Program, record: Record, units: Units, strategy: Strategy, scenario: Scenario
) -> Spread | None:
    """Return the distribution of step times under the scenario's jitter."""
    jitter = scenario.jitter
    if jitter.scale == 0.0 and jitter.link_s == 0.0:
        return None
    graph = program.graph
    seconds, transfers = _node_times(graph, program, record, units)
    together = strategy.tp * strategy.cp
    if strategy.ep > 1:
        together = int(np.lcm(together, strategy.ep * strategy.etp))
    apart = max(strategy.dp * strategy.cp * strategy.tp // together, 1)
    step = record.end * sample_steps(
        graph, seconds, transfers, together=together, apart=apart, jitter=jitter,
        samples=scenario.samples, rng=np.random.default_rng(scenario.seed),
    )  # fmt: skip
    p50, p95, p99 = (float(q) for q in np.quantile(step, [0.5, 0.95, 0.99]))
    return Spread(samples=scenario.samples, mean_s=float(step.mean()), p50_s=p50, p95_s=p95,
                  p99_s=p99, p95_over_median=p95 / p50, source=jitter.source)  # fmt: skip


def _node_times(graph: Graph, program: Program, record: Record, units: Units) -> tuple[F64, F64]:
    """Return (seconds, transfers) of every node as played by the first unit."""
    where: dict[tuple[int, int], int] = {}
    count = [0] * len(program.rows)
    for node, rank in enumerate(graph.rank_N):
        where[rank, count[rank]] = node
        count[rank] += 1
    seconds, transfers = np.zeros(len(graph)), np.zeros(len(graph))
    first = dict(_first_units(units))
    for unit, at, start, end in record.steps:
        rank = int(units.rank_U[unit])
        if first[rank] == unit and (rank, at) in where:
            node = where[rank, at]
            pieces = program.rows[rank][at].pieces
            seconds[node] = end - start
            transfers[node] = sum(len(p.transfers) for p in pieces)
    return seconds, transfers
