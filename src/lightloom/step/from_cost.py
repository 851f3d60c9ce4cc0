"""Work of a job's stages from the cost model's per-operation costs: kernels and messages only.

Measured factors of an operation (collectives of dp, messages of pp, the optimiser) are kept; no
step-level correction is taken over: bubbles, exposed communication, what hidden communication
costs, contention and stragglers are what the player finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from lightloom.core.fabric import Fabric
from lightloom.core.strategy import Strategy
from lightloom.core.traffic import AXIS_CLASS
from lightloom.cost.anatomy import anatomy_of
from lightloom.cost.calibration import Calibration, default_calibration
from lightloom.cost.calibration_scale import scales_of
from lightloom.cost.columns import columns_of
from lightloom.cost.comm import collective_seconds
from lightloom.cost.evaluate import layer_tables, tables_of
from lightloom.cost.job import Job
from lightloom.cost.layer_table import recompute_share
from lightloom.cost.operations import (
    Message,
    StageOperations,
    StepOperations,
    stage_operations,
)
from lightloom.cost.pipeline import even_layers
from lightloom.cost.predict import stage_memories

from .noise import constants
from .work import SELF, Piece, StageWork, StepWork, Transfer

WEIGHT_KEEPS = 32.0 / 34.0
"""Share of a layer's activations that W still needs after I: 32 of 34 (b s h) bytes, Qi 2023
table 2 (without stored attention scores)."""
ACROSS = "all-reduce across copies"
SHARDED = ("3", "fsdp", "hsdp")
BLOCKING = ("gpipe", "1f1b")
"""Schedules whose sends and receives the frameworks wait for: Megatron-Core overlaps p2p only when
interleaved (``overlap_p2p_comm`` in megatron/core/model_parallel_config.py)."""
BALANCED, SKEWED = 1.0, 2.0


def loads_of(fabric: Fabric, kind: str, group: int, stride: int) -> tuple[float, ...]:
    """Return the share of a card's bandwidth into each level that a collective takes alone.

    Bytes a card pushes into each level over the card's share of that level (as `cost.comm` counts
    them), scaled so that the tightest level is full.
    """
    seconds, below, inside = [], 1, 1.0
    for index, level in enumerate(fabric.levels):
        through = below * level.units
        last = index == len(fabric.levels) - 1
        reach = float(group) if last else float(np.clip(through / stride, 1.0, group))
        crosses = reach > inside + 1e-9
        volume = (group - inside) / group if kind == "all-to-all" else 1.0 / inside
        rate = level.child_bandwidth / max(level.oversubscription, 1.0) / below
        seconds.append(volume / rate if crosses and rate > 0.0 else 0.0)
        inside, below = reach if crosses else inside, through
    most = max(seconds, default=0.0)
    return tuple(s / most for s in seconds) if most > 0.0 else (1.0,)


def _transfer(message: Message, fabric: Fabric, name: str, share: float = 1.0) -> Transfer:
    traffic = AXIS_CLASS[message.axis]
    load = loads_of(fabric, message.kind, message.group, message.stride)
    return Transfer(name, traffic, message.axis, message.seconds * share,
                    message.bytes * message.count * share, load)  # fmt: skip


def _split(
    messages: Sequence[Message], fabric: Fabric
) -> tuple[dict[str, list[Transfer]], list[Transfer]]:
    """Return (blocking transfers by axis, transfers that run beside compute)."""
    blocking: dict[str, list[Transfer]] = {}
    beside: list[Transfer] = []
    for m in messages:
        if m.seconds <= 0.0:
            continue
        under = min(max(m.hidden / m.seconds, 0.0), 1.0)
        name = f"{m.axis} {m.kind}"
        if under < 1.0:
            blocking.setdefault(m.axis, []).append(_transfer(m, fabric, name, 1.0 - under))
        if under > 0.0:
            beside.append(_transfer(m, fabric, name, under))
    return blocking, beside


def _joined(transfers: list[Transfer]) -> tuple[Transfer, ...]:
    """Return transfers of one axis and load as one: fewer events, the same time and bytes."""
    table: dict[tuple[str, tuple[float, ...]], Transfer] = {}
    for t in transfers:
        key = (t.axis, t.load)
        old = table.get(key)
        table[key] = t if old is None else replace(
            old, seconds=old.seconds + t.seconds, bytes=old.bytes + t.bytes, name=t.axis
        )  # fmt: skip
    return tuple(table.values())


def _pieces(
    name: str, compute_s: float, routed_s: float, messages: Sequence[Message], fabric: Fabric
) -> tuple[Piece, ...]:
    """Return one pass: attention side, its exchange, dispatch, experts or MLP, combine.

    Layers of a stage are alike, so one pass stands for all: computes and exchanges add up.
    """
    blocking, beside = _split(messages, fabric)
    front = Piece(f"{name} attention", 0.5 * (compute_s - routed_s), _joined(beside))
    back = Piece(f"{name} mlp", 0.5 * (compute_s - routed_s) + routed_s, (), routed_s)
    exchange = _joined([t for axis in ("tp", "cp", "etp") for t in blocking.get(axis, [])])
    experts = _joined(blocking.get("ep", []))
    halves = tuple(t.times(0.5) for t in experts)
    found = [front, *(Piece(f"{name} {t.axis}", 0.0, (t,)) for t in exchange)]
    found += [Piece(f"{name} dispatch", 0.0, (t,)) for t in halves]
    found.append(back)
    found += [Piece(f"{name} combine", 0.0, (t,)) for t in halves]
    return tuple(p for p in found if p.compute_s > 0.0 or p.transfers)


def _again(pieces: tuple[Piece, ...], times: float) -> tuple[Piece, ...]:
    """Return pieces run `times` over."""
    return tuple(
        Piece(p.name, p.compute_s * times, tuple(t.times(times) for t in p.transfers),
              p.routed_s * times)
        for p in pieces
    )  # fmt: skip


def _kept_bytes(job: Job, strategy: Strategy, cal: Calibration) -> list[float]:
    """Return bytes of activations that one micro-batch leaves on each model stage."""
    c = columns_of([strategy])
    table, u = layer_tables(job, c, cal)
    saved = table.saved_XU[:, int(u[0])]
    a = anatomy_of(job.model)
    chunks = strategy.pp * strategy.vpp
    spread = strategy.stage_layers or even_layers(job.model.layers, chunks)
    found, done = [], 0
    for chunk, size in enumerate(spread):
        kinds = np.bincount(a.blocks_L[done : done + size], minlength=len(saved) - 2)
        done += size
        bytes_ = float(kinds @ saved[:-2])
        bytes_ += float(saved[-1]) * (chunk == 0) + float(saved[-2]) * (chunk == chunks - 1)
        found.append(bytes_)
    return found


def work_of(job: Job, strategy: Strategy, calibration: Calibration | None = None) -> StepWork:
    """Return the work of one step of `strategy`, ready for the player."""
    cal = calibration if calibration is not None else default_calibration()
    balanced = replace(job, imbalance=BALANCED)
    operations = _bare(stage_operations(balanced, strategy, cal), job, strategy, cal)
    skewed = operations
    if job.model.is_moe and strategy.ep > 1:
        skewed = stage_operations(replace(job, imbalance=SKEWED), strategy, cal)
    kept = _kept_bytes(job, strategy, cal)
    bare = _kept_bytes(job, msgspec.structs.replace(strategy, recompute="none"), cal)
    again = float(recompute_share(job, columns_of([strategy]))[0])
    static = _static_bytes(job, strategy, cal)
    stages = []
    for ops, more, keep, full in zip(operations.stages, skewed.stages, kept, bare, strict=True):
        stage = _stage_work(job, ops, more, again, (keep, full))
        stages.append(_with_step(stage, job, strategy, operations, ops, static[ops.rank]))
    fabric, world = job.cluster.fabric, strategy.world_size
    norm = None
    if world > 1:
        seconds = float(collective_seconds(fabric, "all-reduce", world, 1, 8.0, comm=cal.comm))
        norm = Transfer("gradient norm", "gradient", "world", seconds, 8.0, (0.0,))
    return StepWork(
        tuple(stages), strategy.overlap_grad, strategy.overlap_param,
        strategy.overlap_pp and strategy.schedule not in BLOCKING, norm,
        origin="per-operation costs of lightloom.cost.operations",
    )  # fmt: skip


def _across(job: Job, strategy: Strategy, cal: Calibration) -> tuple[Message, ...]:
    """Return what HSDP's copies exchange once a step: an all-reduce of their shards."""
    if strategy.zero != "hsdp":
        return ()
    tables = tables_of(job, columns_of([strategy]), cal)
    seconds = float(tables.holdings.replicas.replicas[0])
    group, stride = strategy.dp * strategy.cp, strategy.tp
    if seconds <= 0.0:
        return ()
    return (Message("dp", ACROSS, group, stride, 0.0, 1.0, seconds, 0.0),)


def _bare(
    operations: StepOperations, job: Job, strategy: Strategy, cal: Calibration
) -> StepOperations:
    """Return operations with measured factors of dp, pp and the optimiser, and without the share
    of hidden communication that the closed form still charges: the player slows compute instead.
    """
    scales = scales_of(cal, job, "bf16")

    def message(m: Message) -> Message:
        return replace(m, seconds=m.seconds - scales.get(f"under_{m.axis}", 0.0) * m.hidden)

    stages = tuple(
        replace(s, forward_comm=tuple(map(message, s.forward_comm)),
                backward_comm=tuple(map(message, s.backward_comm)))
        for s in operations.stages
    )  # fmt: skip
    once = [*operations.gradients, *_across(job, strategy, cal)]
    gradients = tuple(replace(m, seconds=m.seconds * scales["dp"]) for m in once)
    return replace(operations, stages=stages, gradients=gradients,
                   send_s=operations.send_s * scales["pp"],
                   optimizer_s=operations.optimizer_s * scales["optimizer"])  # fmt: skip


def _static_bytes(job: Job, strategy: Strategy, cal: Calibration) -> list[float]:
    """Return bytes per pipeline rank and model chunk of all that stays through the step."""
    chunks = strategy.vpp if strategy.schedule != "dualpipe" else 2
    return [
        (stage.total - stage.parts.get("activations", 0.0)) / chunks
        for stage in stage_memories(job, strategy, cal)
    ]


def _stage_work(
    job: Job, ops: StageOperations, more: StageOperations, again: float, kept: tuple[float, float]
) -> StageWork:
    """Return the pieces of one stage; `more` is the stage under skewed routing."""
    fabric = job.cluster.fabric
    routed = [max(b - a, 0.0) / (SKEWED - BALANCED) for a, b in (
        (ops.forward_s, more.forward_s), (ops.input_grad_s, more.input_grad_s),
        (ops.weight_grad_s, more.weight_grad_s),
    )]  # fmt: skip
    forward = _pieces("F", ops.forward_s, routed[0], ops.forward_comm, fabric)
    inputs = _pieces("I", ops.input_grad_s, routed[1], ops.backward_comm, fabric)
    weights: tuple[Piece, ...] = (Piece("W", ops.weight_grad_s, (), routed[2]),)
    whole = _pieces("B", ops.input_grad_s + ops.weight_grad_s, routed[1] + routed[2],
                    ops.backward_comm, fabric)  # fmt: skip
    repeats = constants().repeats(job.framework) * again
    if repeats:
        weights = (*_again(forward, repeats), *weights)
    keep, full = kept
    between = keep if repeats else WEIGHT_KEEPS * full
    return StageWork(forward, inputs, weights, whole, activation_bytes=keep,
                     between_bytes=between)  # fmt: skip


def _with_step(
    stage: StageWork, job: Job, strategy: Strategy, operations: StepOperations,
    ops: StageOperations, static: float,
) -> StageWork:  # fmt: skip
    """Add messages to neighbours and what happens once a step."""
    fabric = job.cluster.fabric
    stride = strategy.tp * strategy.cp * strategy.dp
    if strategy.pp > 1:
        send = Transfer("pipeline", "pipeline", SELF, operations.send_s, ops.send_bytes,
                        loads_of(fabric, "send-recv", 2, stride))  # fmt: skip
        stage = replace(stage, send=send)
    mine = [s for s in operations.stages if s.rank == ops.rank]
    share = (ops.layers + 1e-9) / sum(s.layers + 1e-9 for s in mine)
    if strategy.schedule == "dualpipe":  # every rank holds a mirrored stage as well
        share *= 0.5
    stage = replace(stage, static_bytes=static, optimizer_s=operations.optimizer_s * share)
    gradients = [m for m in operations.gradients if m.kind != "all-gather"]
    parameters = [m for m in operations.gradients if m.kind == "all-gather"]
    between = [m for m in gradients if m.kind == ACROSS]
    gradients = [m for m in gradients if m.kind != ACROSS]
    stage = replace(
        stage, layers=max(ops.layers, 1),
        gradients=tuple(_transfer(m, fabric, "replicas", share) for m in between),
    )  # fmt: skip
    m = strategy.micro_batches
    scatter = [_transfer(x, fabric, "gradients", share) for x in gradients]
    gather = [_transfer(x, fabric, "parameters", share) for x in parameters]
    if strategy.zero in SHARDED and strategy.pp == 1:
        gather = [t.times(0.5 / m) for t in gather]
        return _sharded(stage, strategy, [t.times(1.0 / m) for t in scatter], gather)
    if strategy.zero == "2":
        return replace(_sharded(stage, strategy, scatter, []), parameters=tuple(gather))
    return replace(stage, gradients=(*scatter, *stage.gradients), parameters=tuple(gather))


def _sharded(
    stage: StageWork, strategy: Strategy, scatter: list[Transfer], gather: list[Transfer]
) -> StageWork:
    """Gather weights before each pass and scatter gradients after, layer by layer (FSDP; ZeRO-2
    only scatters).

    The first layer's gather and the last layer's scatter have nothing to hide under.
    """
    layers = stage.layers
    edge, rest = 1.0 / layers, 1.0 - 1.0 / layers
    first = tuple(Piece("gather first layer", 0.0, (t.times(edge),)) for t in gather)
    last = tuple(Piece("scatter last layer", 0.0, (t.times(edge),)) for t in scatter)
    ahead = tuple(t.times(rest) for t in gather) if strategy.overlap_param else ()
    back = tuple(t.times(rest) for t in scatter) if strategy.overlap_grad else ()
    if not strategy.overlap_param:
        first = tuple(Piece("gather", 0.0, (t,)) for t in gather)
    if not strategy.overlap_grad:
        last = tuple(Piece("scatter", 0.0, (t,)) for t in scatter)

    def beside(pieces: tuple[Piece, ...], transfers: tuple[Transfer, ...]) -> tuple[Piece, ...]:
        total = sum(p.compute_s for p in pieces) or 1.0
        return tuple(
            replace(p, transfers=(*p.transfers, *(t.times(p.compute_s / total) for t in transfers)))
            if p.compute_s > 0.0 else p
            for p in pieces
        )  # fmt: skip

    return replace(
        stage,
        forward=(*first, *beside(stage.forward, ahead)),
        backward=(*first, *beside(stage.backward, (*ahead, *back)), *last),
        inputs=(*first, *beside(stage.inputs, ahead)),
        weights=(*beside(stage.weights, back), *last),
    )
