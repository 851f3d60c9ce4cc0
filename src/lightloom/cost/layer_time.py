"""Seconds of one micro-batch through one layer of each kind, by part, forward and backward.

Axes: Q parts (constants below), X kinds of layer and then head and embedding, G matrices, A
attention cores, U candidates that differ in anything a layer sees. Sums over layers, stages and
micro-batches are made in `step`; this is the only place that prices kernels.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from lightloom.core.chip import Chip

from . import comm, kernels
from .anatomy import Anatomy
from .calibration import Calibration, Kernels
from .columns import Columns
from .frameworks import framework_of
from .job import Job
from .precision import Precision

F64 = NDArray[np.float64]
GEMM, ATTENTION, EXPERT, ELEMENT, RECOMPUTE, LAUNCH, TP, CP, EP = range(9)
"""Exposed parts of the time: their sum is what a layer takes."""
FORWARD, WEIGHT, HIDDEN_TP, HIDDEN_CP, HIDDEN_EP, EXTRA_FLOPS = range(9, 15)
"""Of it forward, of it weight gradients; seconds hidden; FLOPs of recomputation."""
PARTS = 15
TIME_NAMES = ("gemm", "attention", "experts", "elementwise", "recompute", "launch", "tp", "cp",
              "ep")  # fmt: skip
ALIGNED, MISALIGNED = 8, 6.0
"""Elements that matrix units need rows to be a multiple of in 16 bits, and how much slower vector
units are (A100: 312 against 78 TFLOP/s, at lower efficiency)."""
BACKWARD_BYTES = 2.0
"""Element-wise kernels move about twice as much backward as forward (gradient in and out)."""


def _sum_kinds(values: F64, start: NDArray[np.int64]) -> F64:
    """Return sums over the rows of each kind. (..., rows, U) -> (..., kinds, U)."""
    total: F64 = np.add.reduceat(values, start, axis=-2)
    return total


def _matrix_dtype(part: str, p: Precision) -> str:
    table = {"attention": p.attention, "mlp": p.mlp, "head": p.head}
    return table.get(part, "fp32" if p.name == "fp32" else "bf16")


def gemm_costs(
    chip: Chip, a: Anatomy, p: Precision, t: F64, shard: F64, tp: F64, k: Kernels
) -> tuple[F64, F64]:
    """Return (seconds, forward FLOPs) of the matrix products of each kind and the head.

    `t` tokens of the rank, `shard` tokens it holds under sequence parallelism. Seconds have a
    first axis of forward, input gradient, weight gradient: shape (3, B + 1, U); FLOPs (B + 1, U).
    """
    m = np.where(a.all_G > 0, shard, t)
    n = a.n_G * (a.col_G / tp + 1.0 - a.col_G)
    n = n + a.kv_n_G * np.maximum(a.kv_heads_G / tp, 1.0)
    inner = a.k_G * (a.row_G / tp + 1.0 - a.row_G)
    rows = np.stack([m, m, n])
    cols = np.stack([n, inner, inner])
    deep = np.stack([inner, n, m])
    dtypes = [_matrix_dtype(part, p) for part in a.part_G]
    if len(set(dtypes)) == 1:
        seconds = kernels.gemm_seconds(chip, rows, cols, deep, dtypes[0], kernels=k)
    else:
        seconds = np.empty(rows.shape)
        for dtype in dict.fromkeys(dtypes):
            g = [i for i, kind in enumerate(dtypes) if kind == dtype]
            seconds[:, g] = kernels.gemm_seconds(
                chip, rows[:, g], cols[:, g], deep[:, g], dtype, kernels=k
            )
    flops = _sum_kinds(2.0 * m * n * inner * a.times_G, a.start_B)
    return _sum_kinds(seconds * a.times_G, a.start_B), flops


def visible_tokens(a: Anatomy, seq: F64) -> F64:
    """Return twice the mean number of tokens a query sees, per attention core. Shape (A, U).

    Causal s; a window w of s tokens 2 w - w^2 / s; fixed chunks and states their own size.
    """
    window = np.minimum(a.window_A, seq)
    sliding = 2.0 * window - window * window / seq
    seen: F64 = np.where(a.kind_A == 0.0, seq, np.where(a.kind_A == 1.0, sliding, window))
    return np.where(a.kind_A == 2.0, np.where(a.window_A > 0, a.window_A, seq), seen)


def attention_costs(
    job: Job, a: Anatomy, p: Precision, c: Columns, k: Kernels
) -> tuple[F64, F64, F64]:
    """Return (forward seconds, backward seconds, forward FLOPs) of the cores. Shape (B, U)."""
    chip = job.cluster.chip
    tp, cp = c.tp.astype(np.float64), c.cp.astype(np.float64)
    seq = c.seq.astype(np.float64)
    split = np.where(c.cp_kind == 1, cp, 1.0)
    q_tokens = seq / (cp / split)
    heads = a.heads_A / (tp * split)
    kv = np.minimum(np.maximum(a.kv_A / (tp * split), 1.0), np.maximum(heads, 1.0))
    seen = visible_tokens(a, seq)
    batch = c.micro_batch.astype(np.float64)
    flops = batch * heads * q_tokens * seen * (a.qk_A + a.v_A)
    shapes = {"batch": batch, "q_tokens": q_tokens, "kv_tokens": seen, "heads": heads,
              "kv_heads": kv, "qk_dim": a.qk_A, "v_dim": a.v_A}  # fmt: skip
    there = a.heads_A > 0
    if job.flash:
        ahead, back = (
            there * kernels.attention_seconds(
                chip, **shapes, dtype=p.core, causal=True, backward=backward, kernels=k)
            for backward in (False, True)
        )  # fmt: skip
    else:
        ahead, back = _unfused(chip, p, shapes, k)
        ahead, back = there * ahead, there * back
    ahead, back, flops = (_sum_kinds(x, a.core_B) for x in (ahead, back, flops))
    return ahead, back, flops


def _unfused(chip: Chip, p: Precision, s: dict[str, F64], k: Kernels) -> tuple[F64, F64]:
    """Return seconds of attention as two batched products and a softmax over stored scores.

    Full square (no causal saving); scores cross memory 4 times forward (scale-mask-softmax
    reads and writes, dropout reads and writes, and its mask), 5 backward.
    """
    batch = s["batch"] * np.maximum(s["heads"], 1.0)
    first = kernels.gemm_seconds(
        chip, s["q_tokens"], s["kv_tokens"], s["qk_dim"], p.core, batch=batch, kernels=k
    )
    second = kernels.gemm_seconds(
        chip, s["q_tokens"], np.maximum(s["v_dim"], 1.0), s["kv_tokens"], p.core, batch=batch,
        kernels=k,
    ) * (s["v_dim"] > 0)  # fmt: skip
    odd = np.where(s["qk_dim"] % ALIGNED > 0, MISALIGNED, 1.0)
    first, second = first * odd, second * odd
    square = batch * s["q_tokens"] * s["kv_tokens"] * 2.0
    ahead = first + second + kernels.memory_seconds(chip, 4.5 * square, k)
    back = 2.0 * (first + second) + kernels.memory_seconds(chip, 5.5 * square, k)
    return ahead, back


def expert_rows(a: Anatomy, c: Columns, t: F64, imbalance: float) -> F64:
    """Return token rows that the busiest rank's experts compute per micro-batch. (B, U).

    Each rank sends its share of the tokens top-k times; balanced routing returns as many, times
    etp where expert weights are cut.
    """
    rows: F64 = t / c.tp * a.topk_B * c.etp * np.where(c.ep > 1, imbalance, 1.0)
    return rows


def expert_costs(
    job: Job, a: Anatomy, p: Precision, c: Columns, rows: F64, k: Kernels
) -> tuple[F64, F64]:
    """Return (forward seconds, forward FLOPs) of the routed experts. Shape (B, U)."""
    local = np.maximum(a.experts_B / c.ep, 1.0)
    inner = np.maximum(a.expert_hidden_B / c.etp, 1.0)
    topk = np.maximum(a.topk_B, 1.0)
    there = a.experts_B > 0
    gated = bool(a.gated_B[a.experts_B > 0][0])
    seconds = there * kernels.expert_seconds(
        job.cluster.chip, tokens=np.maximum(rows / topk, 1e-3), hidden=a.expert_width_B,
        inner=inner, experts=local, topk=topk, gated=gated, dtype=p.experts, kernels=k,
    )  # fmt: skip
    return seconds, there * 2.0 * (2.0 + a.gated_B) * rows * a.expert_width_B * inner


def element_bytes(job: Job, a: Anatomy, p: Precision, c: Columns, t: F64, shard: F64) -> F64:
    """Return bytes that element-wise kernels move forward per layer of each kind. Shape (B, U).

    Two norms (read, write), two residual additions (read twice, write), rotary embedding,
    activation function, the sort and un-sort of routed tokens, casts for fp8 operands.
    """
    w = p.activation
    norms = (4.0 + 6.0) * w * shard * a.hidden
    acting = (2.0 + a.gated_B) * w * t * a.inner_B / c.tp
    turned = 4.0 * w * t * (a.heads_A * a.qk_A + a.kv_A * a.qk_A)[a.core_B] / c.tp * a.rope
    routed = 8.0 * w * t / c.tp * a.topk_B * a.expert_width_B
    total: F64 = norms + acting + turned * a.attends_B + routed
    if p.quantised:
        total = total + 4.0 * (2.0 * t * a.hidden + 2.0 * t * a.inner_B / c.tp)
    return total


def _axis(groups: Iterable[NDArray[np.int64]]) -> bool:
    return any(bool((g > 1).any()) for g in groups)


def tensor_comm(job: Job, a: Anatomy, p: Precision, c: Columns, t: F64, cal: Calibration) -> F64:
    """Return seconds of tensor-parallel communication, forward, per layer of each kind. (B, U).

    Sequence parallel: an all-gather into and a reduce-scatter out of attention and of the MLP
    (Korthikanti et al.); otherwise an all-reduce after each. Experts cut by etp gather and scatter
    their rows.
    """
    zero = np.zeros((len(a.attends_B), len(t)))
    size = t * a.hidden * p.activation
    fabric = job.cluster.fabric
    total: F64 = zero
    if _axis([c.tp]):
        pairs = a.attends_B + a.dense_B
        gather = comm.collective_seconds(fabric, "all-gather", c.tp, 1, size, comm=cal.comm)
        scatter = comm.collective_seconds(fabric, "reduce-scatter", c.tp, 1, size, comm=cal.comm)
        one = gather + scatter
        if not c.sequence_parallel.all():
            whole = comm.collective_seconds(fabric, "all-reduce", c.tp, 1, size, comm=cal.comm)
            one = np.where(c.sequence_parallel > 0, one, whole)
        total = pairs * one
    if _axis([c.etp]):
        rows = t / c.tp * c.etp * a.topk_B * a.expert_width_B * p.activation
        etp = np.broadcast_to(c.etp, rows.shape)
        total = total + 2.0 * comm.collective_seconds(
            fabric, "all-gather", etp, 1, rows, comm=cal.comm
        ) * (a.experts_B > 0)
    return total


def context_comm(job: Job, a: Anatomy, p: Precision, c: Columns, cal: Calibration) -> F64:
    """Return seconds of context-parallel communication, forward, per layer of each kind. (B, U).

    Ring: keys and values of the whole sequence pass every rank (an all-gather's volume).
    All-to-all: queries, keys, values in, output back. Stride tp (ranks are tp-cp-dp-pp).
    """
    zero: F64 = np.zeros((len(a.attends_B), len(c)))
    if not _axis([c.cp]):
        return zero
    w = p.activation * c.micro_batch * c.seq
    kv = np.maximum(a.kv_A / c.tp, 1.0)[a.core_B]
    width = (a.qk_A + a.v_A)[a.core_B]
    fabric = job.cluster.fabric
    cp = np.broadcast_to(c.cp, zero.shape)
    ring = comm.collective_seconds(fabric, "all-gather", cp, c.tp, w * kv * width, comm=cal.comm)
    if (c.cp_kind == 1).any():
        both = (a.heads_A / c.tp)[a.core_B] + kv
        turned = comm.collective_seconds(
            fabric, "all-to-all", cp, c.tp, w / c.cp * both * width, comm=cal.comm
        )
        ring = np.where(c.cp_kind == 1, turned, ring)
    full = (a.kind_A == 0.0)[a.core_B] | (a.kind_A == 1.0)[a.core_B]
    passed: F64 = ring * full * a.attends_B
    return passed


def expert_comm(job: Job, a: Anatomy, p: Precision, c: Columns, t: F64, cal: Calibration) -> F64:
    """Return seconds of one dispatch and one combine per layer of each kind. Shape (B, U).

    Every token goes to its top-k experts, one copy into each unit of a level that holds one of
    them (`comm.dispatch_seconds`). Stride etp: expert ranks are etp-ep-edp-pp.
    """
    zero: F64 = np.zeros((len(a.experts_B), len(c)))
    if not _axis([c.ep]):
        return zero
    size = t / c.tp * a.expert_width_B * p.activation
    ep_B = np.broadcast_to(c.ep, size.shape)
    one = comm.dispatch_seconds(job.cluster.fabric, ep_B, c.etp, size, a.topk_B, comm=cal.comm)
    both: F64 = 2.0 * one * (a.experts_B > 0)
    return both


def overlap_of(cal: Calibration, framework: str, axis: str) -> float:
    """Return the share of an axis's communication that can hide when its overlap is on."""
    table = cal.overlap.get(framework) or cal.overlap.get("*") or {}
    return table.get(axis, framework_of(framework).hides[axis])
