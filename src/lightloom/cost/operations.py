"""One micro-batch of every pipeline stage as a list of operations, for the simulator.

The same tables as `evaluate`: what a stage's operations add up to is what the closed form charges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lightloom.core.strategy import Strategy

from . import layer_time as lt
from .anatomy import anatomy_of
from .calibration import Calibration, default_calibration
from .columns import SCHEDULES, Columns, columns_of
from .evaluate import (
    Tables,
    layer_tables,
    message_seconds,
    replica_seconds,
    tables_of,
)
from .frameworks import framework_of
from .job import Job
from .layer_table import recompute_share
from .memory import widths_of
from .pipeline import even_layers, rank_of_chunk
from .precision import parse_precision
from .sharding import DTYPE_BYTES


@dataclass(frozen=True, slots=True)
class Message:
    """One collective of a layer or stage."""

    axis: str
    """tp, cp, ep, dp or pp."""
    kind: str
    """all-gather, reduce-scatter, all-reduce, all-to-all, send-recv."""
    group: int
    """Ranks that take part, `stride` cards apart."""
    stride: int
    bytes: float
    """nccl-tests convention, one occurrence."""
    count: float
    """Occurrences per micro-batch (or per step for dp)."""
    seconds: float
    """All occurrences alone on the fabric."""
    hidden: float
    """Seconds of them that the closed form hides under computation."""


@dataclass(frozen=True, slots=True)
class StageOperations:
    """What one model chunk (stage) does with one micro-batch. Seconds."""

    stage: int
    """Model chunk, 0 .. pp x vpp - 1."""
    rank: int
    """Pipeline rank that holds it."""
    layers: int
    forward_s: float
    """Kernels of the forward pass, without communication."""
    input_grad_s: float
    """Kernels of the backward pass but for weight gradients, recomputation included."""
    weight_grad_s: float
    forward_comm: tuple[Message, ...]
    backward_comm: tuple[Message, ...]
    send_bytes: float
    """Activations handed to the next stage (gradients come back as large)."""


@dataclass(frozen=True, slots=True)
class StepOperations:
    """All stages, and what happens once a step."""

    stages: tuple[StageOperations, ...]
    gradients: tuple[Message, ...]
    """Data-parallel messages of the fullest rank."""
    optimizer_s: float
    send_s: float
    """One hand-over between neighbouring stages, alone on the fabric."""


def stage_operations(
    job: Job, strategy: Strategy, calibration: Calibration | None = None
) -> StepOperations:
    """Return the operations of one step of `strategy`, stage by stage."""
    cal = calibration if calibration is not None else default_calibration()
    c = columns_of([strategy])
    table, u = layer_tables(job, c, cal)
    cost = table.cost_QXU[:, :, int(u[0])]
    again = float(recompute_share(job, c)[0])
    a = anatomy_of(job.model)
    pp, vpp = strategy.pp, strategy.vpp
    schedule = SCHEDULES.index(strategy.schedule)
    spread = strategy.stage_layers or even_layers(job.model.layers, pp * vpp)
    sizes = _messages(job, c, cost, again, cal)
    stages, done = [], 0
    for chunk, size in enumerate(spread):
        counts = np.zeros(len(a.attends_B) + 2)
        np.add.at(counts, a.blocks_L[done : done + size], 1.0)
        done += size
        counts[-1] = float(chunk == 0)
        if chunk == pp * vpp - 1:
            counts[-2] = 1.0
            counts[int(a.blocks_L[-1])] += a.mtp
        rank = rank_of_chunk(chunk, pp, schedule)
        stages.append(_stage(c, chunk, rank, int(size), counts, cost, sizes, again, job))
    tables = tables_of(job, c, cal)
    return StepOperations(
        tuple(stages),
        _gradient_messages(job, c, tables, cal),
        float(tables.holdings.optimizer_s[0]),
        float(message_seconds(job, c, cal)[0]),
    )


def _messages(
    job: Job, c: Columns, cost: np.ndarray, again: float, cal: Calibration
) -> dict[str, tuple[str, int, int, np.ndarray, np.ndarray, float]]:
    """Return per axis (kind, group, stride, bytes per kind of layer, count, forward passes)."""
    a = anatomy_of(job.model)
    p = parse_precision(c.precisions[0])
    t = float(c.micro_batch[0] * c.seq[0] / c.cp[0])
    tp, cp, ep, etp = (int(x[0]) for x in (c.tp, c.cp, c.ep, c.etp))
    w, h = p.activation, a.hidden
    one = np.ones_like(a.attends_B[:, 0])
    pairs = (a.attends_B + a.dense_B)[:, 0]
    width = (a.qk_A + a.v_A)[a.core_B][:, 0]
    kv = np.maximum(a.kv_A / tp, 1.0)[a.core_B][:, 0]
    ring = bool(c.cp_kind[0] == 0)
    heads = (a.heads_A / tp)[a.core_B][:, 0]
    whole = w * c.micro_batch[0] * c.seq[0]
    passed = whole * kv * width if ring else whole / cp * (heads + kv) * width
    copies = ep * (1.0 - (1.0 - 1.0 / ep) ** a.topk_B[:, 0])
    sp = bool(c.sequence_parallel[0])
    return {
        "tp": ("all-gather+reduce-scatter" if sp else "all-reduce", tp, 1, t * h * w * one,
               pairs, 2.0 + again),
        "cp": ("all-gather" if ring else "all-to-all", cp, tp, passed, a.attends_B[:, 0],
               3.0 + again),
        "ep": ("all-to-all", ep, etp, t / tp * copies * a.expert_width_B[:, 0] * w,
               2.0 * (a.experts_B[:, 0] > 0), 2.0 + again),
    }  # fmt: skip


def _stage(
    c: Columns, chunk: int, rank: int, size: int, counts: np.ndarray, cost: np.ndarray,
    sizes: dict[str, tuple[str, int, int, np.ndarray, np.ndarray, float]], again: float, job: Job,
) -> StageOperations:  # fmt: skip
    rows = {"tp": (lt.TP, lt.HIDDEN_TP), "cp": (lt.CP, lt.HIDDEN_CP), "ep": (lt.EP, lt.HIDDEN_EP)}
    kernels = cost[lt.GEMM : lt.LAUNCH + 1].sum(axis=0)
    ahead: list[Message] = []
    back: list[Message] = []
    wire_ahead = np.zeros(len(counts))
    for axis, (shown, under) in rows.items():
        kind, group, stride, bytes_, count, passes = sizes[axis]
        whole = cost[shown] + cost[under]
        wire_ahead += whole / passes
        for kind_index in np.flatnonzero(counts[:-2] * whole[:-2]):
            n = float(counts[kind_index])
            parts = kind.split("+")
            for name in parts:
                for target, share in ((ahead, 1.0), (back, passes - 1.0)):
                    scale = n * share / passes / len(parts)
                    target.append(Message(
                        axis, name, group, stride, float(bytes_[kind_index]),
                        float(count[kind_index]) * n * share,
                        float(whole[kind_index]) * scale, float(cost[under][kind_index]) * scale,
                    ))  # fmt: skip
    forward = float(counts @ (cost[lt.FORWARD] - wire_ahead))
    weight = float(counts @ cost[lt.WEIGHT])
    p = parse_precision(c.precisions[0])
    send = float(c.micro_batch[0] * c.seq[0] / c.cp[0]) * job.model.hidden * p.activation
    scattered = bool(c.sequence_parallel[0]) or job.framework != "deepspeed"
    send /= float(c.tp[0]) if scattered else 1.0
    return StageOperations(
        chunk, rank, size, forward, float(counts @ kernels) - forward - weight, weight,
        tuple(ahead), tuple(back), send,
    )  # fmt: skip


def _gradient_messages(
    job: Job, c: Columns, tables: object, cal: Calibration
) -> tuple[Message, ...]:

    assert isinstance(tables, Tables)
    o, r = tables.holdings.owned, tables.holdings.replicas
    sharded = int(c.zero[0]) >= 3
    group, stride = int(c.dp[0] * c.cp[0]), int(c.tp[0])
    if group <= 1:
        return ()
    passes = int(c.micro_batches[0]) if sharded and int(c.pp[0]) == 1 else 1
    grad = float(DTYPE_BYTES[int(c.gradient_dtype[0])])
    sent = float(widths_of(c, framework_of(job.framework).master_is_weight).sent[0])
    trained = float((o.trained_KD + o.trained_expert_KD).max())
    held = float((o.dense_KD + o.expert_KD).max())
    _, hidden = replica_seconds(
        job,
        c,
        r,
        tables.micro_batches.astype(np.float64),
        tables.times.part_QV[lt.FORWARD],
        tables.times.slowest_V - tables.times.part_QV[lt.FORWARD],
        cal,
    )
    kind = "all-reduce" if int(c.zero[0]) == 0 else "reduce-scatter"
    gather = 2 * passes if sharded and int(c.pp[0]) == 1 else 1
    found = [
        Message(
            "dp",
            kind,
            group,
            stride,
            trained * grad,
            float(passes),
            float(r.gradients[0]) * passes,
            float(hidden[0]) / 2.0,
        )
    ]
    if float(r.parameters[0]) > 0.0:
        found.append(
            Message(
                "dp",
                "all-gather",
                group,
                stride,
                held * sent,
                float(gather),
                float(r.parameters[0]) * gather,
                float(hidden[0]) / 2.0,
            )
        )
    return tuple(found)
