"""One table of everything a layer costs: seconds by part and bytes kept, per distinct candidate.

Axes: Q parts of `layer_time`, X kinds of layer, then the head, then the embedding; U candidates
that differ in anything a layer sees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import kernels
from . import layer_time as lt
from .anatomy import Anatomy, anatomy_of
from .calibration import Calibration
from .calibration_scale import NARROW, scales_of
from .columns import RECOMPUTE, Columns, make_columns, unique_rows
from .frameworks import framework_of
from .job import Job
from .memo import per_object
from .precision import Precision

F64 = NDArray[np.float64]
KERNEL_KEY = ("tp", "cp", "ep", "etp", "micro_batch", "seq", "sequence_parallel", "cp_kind")
"""Columns that shape a layer's kernels and messages."""
LAYER_KEY = (*KERNEL_KEY, "recompute", "overlap_tp", "overlap_ep")
"""Columns that a layer sees; with partial recomputation also pp and recompute_layers."""
LOSS_BYTES = 14.0
"""Bytes per logit that the loss moves: bf16 read, fp32 written and read, gradient written."""
BACKWARD_WORK = 2.5
"""FLOPs of attention backward over forward."""
ACCUMULATE_BYTES = 8.0
"""Bytes a parameter to add a micro-batch's gradient to the fp32 sum (read and write)."""
EXPERT_KERNELS = 30.0
"""Launches per local expert and forward pass where operands are cast to narrow types."""
HOST_KERNEL_S = 4.5e-6
"""Host time to launch one kernel, assumed where calibration says nothing (`kernel_host_s`)."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerTable:
    """Costs of one micro-batch. Seconds, bytes, FLOPs."""

    cost_QXU: F64
    total_XU: F64
    """Sum of the exposed parts."""
    saved_XU: F64
    """Bytes kept from forward to backward."""
    working_XU: F64
    """Bytes alive while one layer runs backward, beside what is kept."""


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """What a layer does forward, whatever is recomputed or hidden. Shapes (..., X, U)."""

    gemm: F64
    """(3, X, U): forward, input gradient, weight gradient."""
    core: F64
    core_back: F64
    expert: F64
    element: F64
    flops: F64
    core_flops: F64
    tp: F64
    """Seconds of communication, forward."""
    cp: F64
    ep: F64
    every: F64
    """Bytes kept without recomputation, with selective recomputation, and of the input alone."""
    chosen: F64
    entry: F64
    gradient: F64
    """Bytes of gradients alive while the layer runs backward."""


def recompute_share(job: Job, c: Columns) -> F64:
    """Return the share of a rank's layers that run forward twice. Shape (U,)."""
    full = c.recompute == RECOMPUTE.index("full")
    layers = -(-job.model.layers // c.pp)
    part = np.where(c.recompute_layers > 0, np.minimum(1.0, c.recompute_layers / layers), 1.0)
    share: F64 = np.where(full, part, 0.0)
    return share


def _longer(a: F64, b: F64) -> F64:
    """Return the smooth maximum of two times (their 4-norm)."""
    both: F64 = np.sqrt(np.sqrt(a**4 + b**4))
    return both


def _pad(values: F64, kinds: int) -> F64:
    short = kinds - values.shape[-2]
    if short == 0:
        return values
    lost = np.zeros((*values.shape[:-2], short, values.shape[-1]))
    return np.concatenate([values, lost], axis=-2)


def _layer(job: Job, a: Anatomy, p: Precision, c: Columns, cal: Calibration) -> _Layer:
    """Return what one layer of each kind, the head and the embedding do forward."""
    chip, k = job.cluster.chip, cal.kernels_of(job.cluster.chip.arch)
    kinds = len(a.attends_B) + 2
    tp = c.tp.astype(np.float64)
    t = c.micro_batch * c.seq / c.cp.astype(np.float64)
    shard = np.where(c.sequence_parallel > 0, t / tp, t)
    gemm, flops = lt.gemm_costs(chip, a, p, t, shard, tp, k)
    core, core_back, core_flops = lt.attention_costs(job, a, p, c, k)
    rows = lt.expert_rows(a, c, t, job.imbalance)
    expert = np.zeros_like(rows)
    if a.experts_B.any():
        expert, expert_flops = lt.expert_costs(job, a, p, c, rows, k)
        flops[:-1] += expert_flops
    bytes_ = np.empty((kinds, len(t)))
    bytes_[:-2] = lt.element_bytes(job, a, p, c, t, shard)
    bytes_[-2] = t * a.vocab / tp * LOSS_BYTES / 3.0 * (1.0 + a.mtp)
    bytes_[-1] = t * a.hidden * 3.0 * p.activation
    element = kernels.memory_seconds(chip, bytes_, k)
    f = scales_of(cal, job, p.mlp)
    gemm, expert = gemm * (f["soft"] * f["gemm"]), expert * (f["soft"] * f["experts"])
    floor = f["attention_floor"] * core_flops[: len(core)] / chip.peak_of(p.core)
    core, core_back = (
        f["soft"] * _longer(f["attention"] * x, work * floor)
        for x, work in ((core, 1.0), (core_back, BACKWARD_WORK))
    )
    element = element * (f["soft"] * f["elementwise"])
    wires = (f["tp"] * lt.tensor_comm(job, a, p, c, t, cal),
             f["cp"] * lt.context_comm(job, a, p, c, cal),
             f["ep"] * lt.expert_comm(job, a, p, c, t, cal))  # fmt: skip
    kept = activation_bytes(job, a, p, c, t, shard, rows)
    parts: tuple[F64, ...] = (core, core_back, expert, element, flops, core_flops, *wires)
    return _Layer(*[_pad(x, kinds) for x in (gemm, *parts, *kept)])


@per_object(256)
def _one_layer(cal: Calibration, job: Job, p: Precision, key: tuple[int, ...]) -> _Layer:
    """Return `_layer` of one shape; estimates of one job differ more often elsewhere."""
    c = make_columns(1, **dict(zip(KERNEL_KEY, key, strict=True)), global_batch=1)
    return _layer(job, anatomy_of(job.model), p, c, cal)


def _layers(job: Job, a: Anatomy, p: Precision, c: Columns, cal: Calibration) -> _Layer:
    """Return `_layer` of every row, priced once per distinct shape."""
    if len(c) == 1:
        return _one_layer(cal, job, p, tuple(int(getattr(c, name)[0]) for name in KERNEL_KEY))
    first, inverse = unique_rows(*(getattr(c, name) for name in KERNEL_KEY))
    x = _layer(job, a, p, c.take(first), cal)
    return _Layer(*(getattr(x, name).take(inverse, axis=-1) for name in _Layer.__slots__))


def kernel_counts(a: Anatomy) -> F64:
    """Return kernels launched forward per layer of each kind, head and embedding. Shape (X, 1).

    Matrices, attention core and about nine element-wise kernels; routing adds twelve.
    """
    matrices = np.diff(np.append(a.start_B, len(a.part_G))).astype(np.float64)[:, None]
    blocks = matrices[:-1] + a.attends_B + 9.0 + 14.0 * (a.experts_B > 0)
    return np.concatenate([blocks, matrices[-1:] + 6.0, np.ones((1, 1))])


def host_seconds(a: Anatomy, c: Columns, p: Precision, cal: Calibration) -> F64:
    """Return seconds a host needs to launch a layer's forward kernels. Shape (X, U).

    Experts in narrow types are cast one by one: about thirty launches for each local expert.
    """
    counts = np.broadcast_to(kernel_counts(a), (len(a.attends_B) + 2, len(c))).copy()
    if p.experts in NARROW:
        counts[:-2] += EXPERT_KERNELS * a.experts_B / c.ep
    seconds: F64 = cal.overhead.get("kernel_host_s", HOST_KERNEL_S) * counts
    return seconds


def _comm(
    job: Job,
    c: Columns,
    x: _Layer,
    cal: Calibration,
    cost: F64,
    again: F64,
    under_of: dict[str, float],
) -> F64:
    """Fill exposed and hidden communication of `cost`; return its forward seconds. (X, U).

    What runs under computation still costs a share of its time: both fight for memory and cores.
    """
    gemm = x.gemm.sum(axis=0)
    core = x.core + x.core_back
    busy = gemm + core + 3.0 * x.expert
    name = job.framework
    for row, hidden_row, seconds, times, on, under, axis in (
        (lt.TP, lt.HIDDEN_TP, x.tp, 2.0, c.overlap_tp, gemm, "tp"),
        (lt.CP, lt.HIDDEN_CP, x.cp, 3.0, c.cp_kind == 0, core, "cp"),
        (lt.EP, lt.HIDDEN_EP, x.ep, 2.0, c.overlap_ep, busy, "ep"),
    ):
        whole = (times + again) * seconds
        share = lt.overlap_of(cal, name, axis)
        hidden = on * np.minimum(share * whole, under)
        cost[row] = whole - hidden + under_of[f"under_{axis}"] * hidden
        cost[hidden_row] = hidden
    return x.tp + x.cp + x.ep


def layer_table(job: Job, c: Columns, p: Precision, cal: Calibration) -> LayerTable:
    """Return the costs of one layer of each kind for every row of `c`, at one precision."""
    a = anatomy_of(job.model)
    x = _layers(job, a, p, c, cal)
    cost = np.zeros((lt.PARTS, *x.element.shape))
    trains = 0.0 if job.task == "lora" else 1.0
    cost[lt.GEMM] = x.gemm[0] + x.gemm[1] + trains * x.gemm[2]
    cost[lt.ATTENTION] = x.core + x.core_back
    cost[lt.EXPERT] = (2.0 + trains) * x.expert
    cost[lt.ELEMENT] = (1.0 + lt.BACKWARD_BYTES) * x.element
    if not framework_of(job.framework).master_is_weight:  # FSDP reduces instead of adding up
        tokens = c.micro_batch * c.seq / c.cp
        added = ACCUMULATE_BYTES * trains * x.flops / (2.0 * tokens)
        cost[lt.ELEMENT] += kernels.memory_seconds(job.cluster.chip, added, cal.kernels)
    again = recompute_share(job, c)
    forward = x.gemm[0] + x.core + x.expert + x.element
    repeat, extra = again * forward, again * x.flops
    extra = extra + again * x.core_flops
    chosen = c.recompute == RECOMPUTE.index("selective")
    if chosen.any():
        if framework_of(job.framework).selective == "operators":
            part, flops = 0.5 * x.gemm[0] + x.element, 0.5 * x.flops
        else:
            part, flops = x.core, x.core_flops
        repeat, extra = repeat + chosen * part, extra + chosen * flops
    repeat[-2:], extra[-2:] = 0.0, 0.0
    cost[lt.RECOMPUTE], cost[lt.EXTRA_FLOPS] = repeat, extra
    scales = scales_of(cal, job, p.mlp)
    ahead = _comm(job, c, x, cal, cost, again, scales)
    host = host_seconds(a, c, p, cal) * scales["host"] * (3.0 + again)
    device = cost[: lt.LAUNCH].sum(axis=0) + cost[lt.TP : lt.EP + 1].sum(axis=0)
    cost[lt.LAUNCH] = _longer(host, device) - device
    cost[lt.FORWARD] = forward + ahead + cost[lt.LAUNCH] / 3.0
    cost[lt.WEIGHT] = trains * (x.gemm[2] + x.expert)
    total = cost[: lt.FORWARD].sum(axis=0)
    kept = again * x.entry + (1.0 - again) * x.every
    saved = np.where(chosen, x.chosen, kept)
    once = np.where(again > 0, x.every, np.where(chosen, x.every - x.chosen, 0.0))
    return LayerTable(cost, total, saved, x.gradient + once)


def activation_bytes(
    job: Job, a: Anatomy, p: Precision, c: Columns, t: F64, shard: F64, rows: F64
) -> tuple[F64, F64, F64, F64]:
    """Return bytes kept per layer: all, with selective recomputation, input alone; and gradients.

    Korthikanti et al. 2022, equations 1-5, for any attention and MLP: norm inputs and outputs
    4 w t h, query, key, value and output, latents, MLP inputs, routed rows, dropout masks, and
    the score matrix where attention is not fused. Full recomputation keeps the layer's input.
    Gradients are what is alive beside, while one layer runs backward. Shapes (X, U).
    """
    w, h, tp = p.activation, a.hidden, c.tp
    kv = np.minimum(np.maximum(a.kv_A / tp, 1.0), np.maximum(a.heads_A / tp, 1.0))
    qkv = (a.heads_A / tp * a.qk_A + kv * (a.qk_A + a.v_A))[a.core_B] * a.attends_B * t * w
    out = (a.heads_A / tp * a.v_A)[a.core_B] * a.attends_B * t * w
    lse = 4.0 * (a.heads_A / tp)[a.core_B] * t * a.attends_B
    latent = w * shard * a.compressed_B
    kept = 1.0 if p.quantised else w  # operands of narrow products are kept narrow
    norms = 2.0 * (w + kept) * shard * h + (2.0 * shard * h if a.dropout else 0.0)
    out = out + (kept * out / w if p.quantised else 0.0)
    wide = w * t * a.inner_B / tp
    routed = rows * (2.0 * a.expert_width_B + (2.0 + a.gated_B) * a.expert_hidden_B / c.etp) * w
    if p.quantised:
        routed = routed - rows * (w - kept) * (a.expert_width_B + a.expert_hidden_B / c.etp)
    acts = kept / w * wide
    spared = job.thrift.remade
    if "norm" in spared:
        norms = norms - 2.0 * kept * shard * h
    if "act" in spared:
        acts = np.zeros_like(acts)
        routed = routed - rows * a.expert_hidden_B / c.etp * kept
    if "mlp" in spared:
        wide, acts = np.zeros_like(wide), np.zeros_like(acts)
    if "mla" in spared:
        qkv = qkv * (a.compressed_B == 0)
    scores = np.zeros_like(lse)
    if not job.flash:
        square = t * c.seq
        scores = 5.0 * (a.heads_A / tp)[a.core_B] * square * a.attends_B
    every = norms + qkv + out + lse + latent + (1.0 + a.gated_B) * wide + acts + routed + scores
    entry = w * shard * h
    if "attention" in spared:
        every, lse, scores = entry + np.zeros_like(every), 0.0 * lse, 0.0 * scores
    if framework_of(job.framework).selective == "operators":
        half = 0.5 * (qkv + (1.0 + a.gated_B) * (wide + routed / 3.0) + 2.0 * entry)
        chosen = entry + half + out + lse
    else:
        chosen = every - scores - lse
    gradient = w * t * h + (1.0 + a.gated_B) * np.maximum(wide, routed / 3.0)
    found = np.zeros((4, len(a.attends_B) + 2, len(t)))
    found[0, :-2], found[1, :-2], found[2, :-2], found[3, :-2] = every, chosen, entry, gradient
    found[:3, -2] = entry
    found[:3, -1] = shard * h if a.dropout else 0.0
    found *= job.thrift.filled
    return found[0], found[1], found[2], found[3]
