"""Bytes on the worst rank of each stage, by part.

Axes: K stages, N candidates. Parts add up to what the rank needs at its peak; the peak while a
checkpoint is loaded is a figure of its own (`load_bytes`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .anatomy import anatomy_of
from .calibration import Calibration
from .columns import Columns
from .frameworks import framework_of
from .job import Job
from .precision import parse_precision
from .sharding import DTYPE_BYTES, Z3, Owned, shards_of

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
GIB = 2.0**30
PARTS = ("weights", "gradients", "optimizer", "activations", "gathered", "logits",
         "communicators", "context", "fragmentation")  # fmt: skip
LOGIT_BYTES = {"operators": 12.0, "attention": 8.0}
"""Bytes per logit alive at once: bf16 output, fp32 copy, its gradient; an unfused loss keeps the
log-softmax as well. By the framework's recompute style (PyTorch-native or Megatron-like)."""
COMMUNICATOR = {"davinci": 2.0 * 200.0 * 2.0**20}
"""Bytes of one communicator: HCCL 2 x HCCL_BUFFSIZE (200 MB); others see OTHER_COMMUNICATOR."""
OTHER_COMMUNICATOR = 160.0 * 2.0**20
CONTEXT = 0.7 * GIB
"""Driver context and kernel workspaces, beside what the chip's file already subtracts; assumed."""
RANK_ZERO = 0.4 * GIB
"""What rank 0 holds beside the others: rendezvous, logging, checkpoint coordination; assumed."""
FRAGMENTATION = 0.05
"""Share of what is allocated and freed every step that the caching allocator cannot reuse."""


EXPANDABLE = 0.02
"""The same where segments grow in place; assumed."""


@dataclass(frozen=True, slots=True, eq=False)
class Widths:
    """Bytes per parameter of each candidate. Shape (N,)."""

    weight: F64
    master: F64
    quantised: F64
    sent: F64
    """Of a gathered parameter."""


def widths_of(c: Columns, master_is_weight: bool) -> Widths:
    """Return bytes per parameter from precision; FSDP2 keeps fp32 shards and casts on gather."""
    table = [parse_precision(p) for p in c.precisions]

    def column(values: list[float]) -> F64:
        if len(values) == 1:
            return np.full(len(c), values[0])
        return np.array(values)[c.precision]

    weight, master = column([p.weight for p in table]), column([p.master for p in table])
    sent = column([max(p.weight, 1.0) for p in table])
    if master_is_weight:
        sharded = c.zero >= Z3
        weight = np.where(sharded & (weight >= 2.0), 4.0, weight)
        master = np.where(sharded, 0.0, master)
    return Widths(weight, master, column([p.quantised for p in table]), sent)


def model_states(job: Job, c: Columns, o: Owned, w: Widths) -> dict[str, F64]:
    """Return weights, gradients, optimiser and gathered parameters of each stage. Shapes (K, N).

    ZeRO (Rajbhandari et al. 2020): stage 1 shards the optimiser, 2 also gradients, 3 also weights.
    Sharded weights are gathered two layers at a time beside embedding and head; with a pipeline
    they stay gathered through the step (torchtitan's default).
    """
    s = shards_of(job, c)
    grad = DTYPE_BYTES[c.gradient_dtype]
    dense, expert = o.dense_KD, o.expert_KD
    weights = w.weight * (dense / s.weights + expert / s.expert_weights)
    matrices = dense - o.outer_KD + expert  # embedding and head are never narrow
    narrow = np.where(c.zero >= Z3, 0.0, w.quantised) * matrices
    weights = weights + narrow
    if job.thrift.narrow_primary:
        weights = weights - np.where(narrow > 0, w.weight, 0.0) * matrices
    trained, trained_expert = o.trained_KD, o.trained_expert_KD
    if job.task == "lora":
        weights = weights + 2.0 * trained
    gradients = grad * (trained / s.gradients + trained_expert / s.expert_gradients)
    master = w.master
    if job.thrift.shared_master:
        master = np.where(c.zero > 0, 0.0, np.minimum(w.master, 2.0))
    per = (master + 2.0 * DTYPE_BYTES[c.optimizer_dtype]) * (1 - c.offload_optimizer)
    optimizer = per * (trained / s.optimizer + trained_expert / s.expert_optimizer)
    gathered = np.zeros_like(weights)
    if (c.zero >= Z3).any():
        only = job.thrift.narrow_primary & (w.quantised > 0)
        wide = w.quantised + np.where(only, 0.0, w.sent)
        head = np.minimum(o.outer_KD, anatomy_of(job.model).vocab * job.model.hidden / c.tp)
        train = 0.0 if job.task == "lora" else 1.0
        layers = (2.0 * wide + train * grad) * (o.layer_D + o.layer_expert_D)
        layers = layers + w.sent * head  # the embedding is let go before the head is gathered
        stage = (wide + train * grad) * (dense + expert)
        gathered = np.where(c.pp > 1, stage, np.minimum(layers, stage)) * (c.zero >= Z3)
    return {"weights": weights, "gradients": gradients, "optimizer": optimizer,
            "gathered": gathered}  # fmt: skip


def communicators(job: Job, c: Columns, rank_KN: I64) -> F64:
    """Return bytes of communicator buffers: one per axis in use and one for the whole job."""
    groups = (1 + (c.tp > 1) + (c.cp > 1) + (c.pp > 1) + (c.dp * c.cp > 1)
              + 2 * (c.ep > 1) + (c.etp > 1))  # fmt: skip
    one = COMMUNICATOR.get(job.cluster.chip.arch, OTHER_COMMUNICATOR)
    used = np.where(c.world > 1, groups * one, 0.0)
    total: F64 = used + np.where(rank_KN == 0, RANK_ZERO, 0.0)
    return total


def held_parts(
    job: Job, c: Columns, o: Owned, w: Widths, rank_KW: I64, cal: Calibration
) -> dict[str, F64]:
    """Return bytes that a stage holds all step long, by part. Shapes (K, W)."""
    parts = model_states(job, c, o, w)
    parts["communicators"] = communicators(job, c, rank_KW)
    parts["context"] = np.full_like(parts["weights"], cal.overhead.get("context_bytes", CONTEXT))
    return parts


def logit_bytes(job: Job, c: Columns, last_KV: F64) -> F64:
    """Return bytes of logits alive on the stages that hold the head. Shape (K, V)."""
    each = job.thrift.logit_bytes or LOGIT_BYTES[framework_of(job.framework).selective]
    one = each * job.thrift.filled * c.micro_batch * c.seq / c.cp
    logits: F64 = np.minimum(last_KV, 1.0) * one * (anatomy_of(job.model).vocab / c.tp)
    return logits


def fragmentation_share(job: Job, cal: Calibration) -> float:
    """Return the share of passing allocations that the allocator loses."""
    if job.thrift.expandable:
        return EXPANDABLE
    return cal.overhead.get("fragmentation", FRAGMENTATION)


def load_bytes(parts: dict[str, float], largest: float) -> float:
    """Return the peak while a checkpoint is loaded on a rank: weights and optimiser in place, one
    fp32 copy of the largest parameter group (`largest` parameters) beside, and the fixed parts."""
    fixed = sum(parts[name] for name in ("weights", "optimizer", "communicators", "context"))
    return fixed + 4.0 * largest
