"""Measured load -> a better split: what it saves, what resharding costs, when it pays (row C8).

The plan is played with the measured load: compute of every pipeline rank and transfers of every
class take as many times longer as the timeline says. Other splits are played under the same load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError, LightloomError
from lightloom.core.plan import Plan
from lightloom.core.played import Choice, Replan
from lightloom.core.strategy import Strategy
from lightloom.core.timeline import COMM, COMPUTE, Timeline
from lightloom.core.traffic import AXIS_CLASS, CLASSES
from lightloom.cost.calibration import Calibration
from lightloom.cost.columns import SCHEDULES
from lightloom.cost.comm import collective_seconds
from lightloom.cost.flops import parameters_of
from lightloom.cost.job import Job, check_strategy
from lightloom.cost.pipeline import even_layers, rank_of_chunk
from lightloom.cost.predict import stage_memories
from lightloom.step.from_cost import work_of
from lightloom.step.graph import build
from lightloom.step.noise import constants
from lightloom.step.play import Record, play
from lightloom.step.program import compile_step
from lightloom.step.result import bandwidth_of
from lightloom.step.schedules import chunks_of, make
from lightloom.step.units import Units, fold
from lightloom.step.work import Piece, StageWork, StepWork, Transfer

from .faults import ranks_of
from .scenario import job_of

F64 = NDArray[np.float64]
Around = Callable[[Plan], Sequence[tuple[str, Strategy]]]
"""The planner, injected: other splits of the same cards, each with its words."""
Said = Callable[[int, int], None]
WORTH = 0.01
"""A gain below this share of the step is within what one timeline can tell."""
UNLIKELY = 20.0
"""Compute this many times longer or shorter than planned is not the plan's job (assumed)."""
STATE_BYTES = 2.0 + 12.0
"""Bytes of a parameter that move: bf16 weight, fp32 master and two moments."""


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What a timeline measured, per step."""

    step_s: float
    compute_R: dict[int, float]
    """Seconds of compute per rank."""
    transfer_s: dict[str, float]
    """Seconds of transfer per class, mean rank."""


def _union(start: F64, end: F64) -> float:
    """Return the length of the union of intervals."""
    if not len(start):
        return 0.0
    order = np.argsort(start)
    start, end = start[order], np.maximum.accumulate(end[order])
    before = np.concatenate(([start[0]], end[:-1]))
    return float(np.maximum(end - np.maximum(start, before), 0.0).sum())


def load_of(timeline: Timeline) -> Load:
    """Return the measured load. A collective lasts as long as on the rank that came last to it:
    the rest of the others' time is waiting."""
    if not len(timeline):
        raise InputError("the timeline is empty", out="profile at least one step")
    steps = np.unique(timeline.step_N[timeline.step_N >= 0])
    chosen = [timeline.step_N == step for step in steps] or [np.ones(len(timeline), np.bool_)]
    walls = [float(timeline.end_N[m].max() - timeline.start_N[m].min()) for m in chosen]
    many = len(chosen)
    compute = {}
    for rank in timeline.ranks:
        mine = (timeline.rank_N == rank) & (timeline.kind_N == COMPUTE)
        spans = timeline.start_N[mine] / 1e9, timeline.end_N[mine] / 1e9
        compute[rank] = _union(*spans) / many
    if not any(compute.values()):
        raise InputError("the timeline has no compute", out="profile the device, not only the host")
    return Load(float(np.median(walls)) / 1e9, compute, _transfers(timeline, many))


def _transfers(timeline: Timeline, steps: int) -> dict[str, float]:
    lasts = (timeline.end_N - timeline.start_N) / 1e9
    matched = timeline.match_N >= 0
    if matched.any():
        keys, index = np.unique(timeline.match_N[matched], return_inverse=True)
        shortest = np.full(len(keys), np.inf)
        np.minimum.at(shortest, index, lasts[matched])
        lasts[matched] = shortest[index]
    found: dict[str, float] = {}
    ranks = max(len(timeline.ranks), 1)
    for i in np.flatnonzero(timeline.kind_N == COMM):
        name = _class_of(timeline, int(i))
        if name:
            found[name] = found.get(name, 0.0) + float(lasts[i]) / steps / ranks
    return found


def _class_of(timeline: Timeline, i: int) -> str:
    """Return the traffic class of a span: by its lane, else by its group's axis."""
    lane: str = timeline.lanes[timeline.lane_N[i]].split(" ")[0]
    if lane in CLASSES:
        return lane
    group = int(timeline.group_N[i])
    axis = str(timeline.groups[group]).split(":")[0] if group >= 0 else ""
    return AXIS_CLASS.get(axis, "")


def _scaled(work: StepWork, load: dict[str, float]) -> StepWork:
    """Return the work with transfers that take as many times longer as measured."""

    def transfer(t: Transfer) -> Transfer:
        return replace(t, seconds=t.seconds * load.get(t.traffic, 1.0))

    def pieces(row: tuple[Piece, ...]) -> tuple[Piece, ...]:
        return tuple(replace(p, transfers=tuple(map(transfer, p.transfers))) for p in row)

    def stage(s: StageWork) -> StageWork:
        return replace(
            s, forward=pieces(s.forward), inputs=pieces(s.inputs), weights=pieces(s.weights),
            backward=pieces(s.backward), send=transfer(s.send) if s.send else None,
            gradients=tuple(map(transfer, s.gradients)),
            parameters=tuple(map(transfer, s.parameters)),
        )  # fmt: skip

    return replace(work, stages=tuple(map(stage, work.stages)))


def _played(
    job: Job, s: Strategy, load: dict[str, float], slow_P: F64, cal: Calibration | None = None
) -> tuple[Record, Units]:  # fmt: skip
    """Return one step of `s` under the load; `slow_P` per pipeline rank."""
    check_strategy(job, s)
    graph = build(make(s.schedule, s.pp, s.micro_batches, chunks_of(s.schedule, s.vpp)))
    program = compile_step(graph, _scaled(work_of(job, s, cal), load))
    units = fold(s, np.repeat(slow_P, s.world_size // s.pp))
    amount, _ = constants().drag_of(job.cluster.chip.arch)
    return play(program, units, None, dict.fromkeys(CLASSES, amount)), units


def played(job: Job, strategy: Strategy, calibration: Calibration | None = None) -> float:
    """Return seconds of one quiet step of `strategy`."""
    return _played(job, strategy, {}, np.ones(strategy.pp), calibration)[0].end


def replan(
    plan: Plan, timeline: Timeline, around: Around, *, steps: float = 10_000.0, top: int = 8,
    said: Said | None = None,
) -> Replan:  # fmt: skip
    """Return what the measured load says: the load, other splits, and whether one pays.

    `steps` is how many more steps the job will run.
    """
    measured, job = load_of(timeline), job_of(plan)
    slow_P, load = _against_plan(plan, job, measured)
    now = _played(job, plan.strategy, load, slow_P)[0].end
    tried = [*_rebalanced(plan, slow_P), *around(plan)]
    choices = []
    for i, (change, other) in enumerate(tried):
        choice = _choice(plan, job, other, change, load, slow_P, now, measured.step_s)
        choices += [choice] if choice else []
        if said is not None:
            said(i + 1, len(tried))
    choices.sort(key=lambda c: (c.step_s, c.change))
    best = next((c for c in choices if c.pays_after <= steps), None)
    worth = best is not None and best.saved_s > WORTH * measured.step_s
    mean = float(slow_P.mean())
    return Replan(
        step_s=measured.step_s, planned_s=plan.prediction.step_s,
        load={"compute": mean, **load}, stages=tuple(float(x / mean) for x in slow_P),
        choices=tuple(choices[:top]), keep=not worth, why=_why(best if worth else None, steps),
    )  # fmt: skip


def _why(best: Choice | None, steps: float) -> str:
    if best is None:
        return f"keep the split: nothing saves 1 % and pays within {steps:,.0f} steps"
    return (
        f"change {best.change}: saves {1e3 * best.saved_s:,.0f} ms a step; resharding takes "
        f"{best.reshard_s:.2f} s and pays after {best.pays_after:,.0f} steps"
    )


def _against_plan(plan: Plan, job: Job, measured: Load) -> tuple[F64, dict[str, float]]:
    """Return (compute slowness per pipeline rank, slowness per class) against the played plan."""
    s = plan.strategy
    record, units = _played(job, s, {}, np.ones(s.pp))
    rank_C = ranks_of(s, plan.placement)
    stage_of = {int(rank): i * s.pp // len(rank_C) for i, rank in enumerate(rank_C)}
    stray = [rank for rank in measured.compute_R if rank not in stage_of]
    if stray:
        raise InputError(f"the timeline has rank {stray[0]}, the plan {len(rank_C)} ranks",
                         out="give the plan that this job runs")  # fmt: skip
    slow_P, seen_P = np.zeros(s.pp), np.zeros(s.pp)
    for rank, seconds in measured.compute_R.items():
        stage = stage_of[rank]
        busy = sum(record.parts[u].get("compute", 0.0) + record.parts[u].get("slowed", 0.0)
                   for u in range(len(units)) if units.rank_U[u] == stage)  # fmt: skip
        slow_P[stage] = max(slow_P[stage], seconds / busy)
        seen_P[stage] = 1.0
    ratio = float(slow_P[seen_P > 0.0].mean())
    if not 1.0 / UNLIKELY < ratio < UNLIKELY:
        raise InputError(
            f"the timeline computes {ratio:.3g} times as long as the plan: another job",
            out="give the plan that this job runs",
        )
    slow_P[seen_P == 0.0] = ratio
    planned = {name: row["busy_s"] for name, row in bandwidth_of(record, units).items()}
    load = {name: measured.transfer_s[name] / busy for name, busy in planned.items()
            if busy > 0.0 and name in measured.transfer_s}  # fmt: skip
    return slow_P, load


def _rebalanced(plan: Plan, slow_P: F64) -> list[tuple[str, Strategy]]:
    """Return the layers of each stage that even out the measured compute, if they differ."""
    s = plan.strategy
    if s.pp < 2 or s.vpp > 1 or s.schedule == "dualpipe":
        return []
    now = s.stage_layers or even_layers(plan.model.layers, s.pp)
    layers = np.array(now)
    for _ in range(plan.model.layers):
        time = layers * slow_P
        worst, best = int(time.argmax()), int(((layers + 1) * slow_P).argmin())
        if (layers[best] + 1) * slow_P[best] >= time[worst] or layers[worst] < 2:
            break
        layers[worst] -= 1
        layers[best] += 1
    if tuple(layers) == tuple(now):
        return []
    spread = tuple(int(x) for x in layers)
    words = f"--stage-layers {','.join(map(str, spread))}"
    return [(words, msgspec.structs.replace(s, stage_layers=spread))]


def _choice(
    plan: Plan, job: Job, s: Strategy, change: str, load: dict[str, float], slow_P: F64,
    now: float, measured_s: float,
) -> Choice | None:  # fmt: skip
    """Return one judged split; None where it is not legal or does not fit."""
    slow = slow_P if s.pp == len(slow_P) else np.full(s.pp, slow_P.mean())
    try:
        end = _played(job, s, load, slow)[0].end
        peak = max(stage.total for stage in stage_memories(job, s))
    except LightloomError:
        return None
    if peak > job.usable:
        return None
    moved = moved_bytes(plan, s)
    stride = max(s.world_size // 2, 1)
    seconds = float(collective_seconds(job.cluster.fabric, "send-recv", 2, stride, moved))
    saved = (now - end) * measured_s / now
    return Choice(
        change=change, strategy=s, step_s=measured_s - saved, peak_bytes=peak, moved_bytes=moved,
        reshard_s=seconds, saved_s=saved,
        pays_after=seconds / saved if saved > 0.0 else float("inf"),
    )  # fmt: skip


def _owners(plan: Plan, s: Strategy) -> NDArray[np.int64]:
    """Return the pipeline rank of every layer."""
    chunks = s.stage_layers or even_layers(plan.model.layers, s.pp * s.vpp)
    code = SCHEDULES.index(s.schedule)
    ranks = [rank_of_chunk(chunk, s.pp, code) for chunk in range(len(chunks))]
    return np.repeat(np.array(ranks), np.array(chunks))


def _places(plan: Plan, s: Strategy) -> tuple[NDArray[np.int64], F64]:
    """Return (pipeline rank, start of the tensor slice) of every rank."""
    place = np.argsort(ranks_of(s, plan.placement))
    return place * s.pp // len(place), place % s.tp / s.tp


def moved_bytes(plan: Plan, other: Strategy) -> float:
    """Return the bytes that the busiest rank fetches when the job changes to `other`.

    What a rank needs and does not hold: its new layers times its new tensor slice, minus what was
    there; optimiser state is spread over dp x cp, so all of it moves when that changes.
    """
    total = parameters_of(plan.model).total
    s = plan.strategy
    (stage, start), (stage_new, start_new) = _places(plan, s), _places(plan, other)
    same_layers = np.zeros((s.pp, other.pp))
    np.add.at(same_layers, (_owners(plan, s), _owners(plan, other)), 1.0)
    size = np.bincount(_owners(plan, other), minlength=other.pp)[stage_new] / plan.model.layers
    slices = np.minimum(start + 1 / s.tp, start_new + 1 / other.tp) - np.maximum(start, start_new)
    kept = same_layers[stage, stage_new] / plan.model.layers * np.maximum(slices, 0.0)
    need = size / other.tp
    weights = 2.0 * total * (need - kept)
    shared = other.dp * other.cp if other.zero != "0" else 1
    same = other.dp * other.cp == s.dp * s.cp
    state = (STATE_BYTES - 2.0) * total * (need - (kept if same else 0.0)) / shared
    return float((weights + state).max())
