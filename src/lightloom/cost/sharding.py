"""What each rank owns of weights, gradients and optimiser, and what data parallelism sends.

Axes: X kinds of layer, head, embedding; K stages kept; D candidates that differ in what a rank
owns; W candidates that differ in how it is shared among replicas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.chip import BYTES

from .anatomy import Anatomy, anatomy_of
from .calibration import Calibration
from .columns import DTYPES, ZERO, Columns
from .comm import collective_seconds
from .job import Job
from .pipeline import DUALPIPE, Stages

F64 = NDArray[np.float64]
OWNED_KEY = ("tp", "ep", "etp")
SHARED_KEY = ("tp", "pp", "dp", "cp", "ep", "etp", "zero", "hsdp_shard", "gradient_dtype",
              "schedule", "vpp", "layout", "precision")  # fmt: skip
DTYPE_BYTES = np.array([BYTES[d] for d in DTYPES])
Z1, Z2, Z3, FSDP, HSDP = (ZERO.index(z) for z in ("1", "2", "3", "fsdp", "hsdp"))


def kind_parameters(a: Anatomy, tp: F64, ep: F64, etp: F64) -> tuple[F64, F64]:
    """Return (dense, expert) parameters of one layer of each kind on a rank. Shapes (X, D)."""
    wide = a.n_G * (a.col_G / tp + 1.0 - a.col_G)
    wide = wide + a.kv_n_G * np.maximum(a.kv_heads_G / tp, 1.0)
    deep = a.k_G * (a.row_G / tp + 1.0 - a.row_G)
    matrices = np.add.reduceat(wide * deep + a.bias_G * wide, a.start_B, axis=0)
    dense = np.zeros((len(a.attends_B) + 2, len(tp)))
    dense[:-1] = matrices
    dense[:-2] += a.norms_B
    dense[-1] = a.vocab * a.hidden / tp + a.positions * a.hidden
    expert = np.zeros_like(dense)
    one = (2.0 + a.gated_B) * a.expert_width_B * a.expert_hidden_B / etp
    expert[:-2] = one * np.maximum(a.experts_B / ep, 1.0) * (a.experts_B > 0)
    return dense, expert


def adapter_parameters(a: Anatomy, tp: F64, rank: int) -> F64:
    """Return LoRA parameters of one layer of each kind: rank (n + k) per matrix. (X, D)."""
    wide = a.n_G * (a.col_G / tp + 1.0 - a.col_G) + a.kv_n_G * np.maximum(a.kv_heads_G / tp, 1.0)
    deep = a.k_G * (a.row_G / tp + 1.0 - a.row_G)
    matrices = np.add.reduceat(rank * (wide + deep), a.start_B, axis=0)
    adapters = np.zeros((len(a.attends_B) + 2, len(tp)))
    adapters[:-2] = matrices[:-1]
    return adapters


@dataclass(frozen=True, slots=True, eq=False)
class Owned:
    """Parameters on a rank, before any sharding over replicas."""

    dense_KD: F64
    expert_KD: F64
    trained_KD: F64
    """Dense parameters that have gradients (all; with LoRA the adapters)."""
    trained_expert_KD: F64
    layer_D: F64
    """Dense parameters of the largest layer."""
    layer_expert_D: F64
    outer_KD: F64
    """Embedding and head parameters."""


def owned(job: Job, c: Columns, counts_XKD: F64) -> Owned:
    """Return what each rank owns; `counts_XKD` layers, head and embedding of each stage."""
    a = anatomy_of(job.model)
    tp, ep, etp = (x.astype(np.float64) for x in (c.tp, c.ep, c.etp))
    dense, expert = kind_parameters(a, tp, ep, etp)
    counts = counts_XKD * np.where(c.schedule == DUALPIPE, 2.0, 1.0)
    dense_K = (counts * dense[:, None]).sum(axis=0)
    expert_K = (counts * expert[:, None]).sum(axis=0)
    one = a.vocab * a.hidden / tp
    if a.tied:  # one matrix where first and last stage are one rank
        dense_K = dense_K - one * np.minimum(counts[-1], counts[-2])
    outer = one * np.maximum(counts[-1], counts[-2]) if a.tied else one * counts[-2:].sum(axis=0)
    trained, trained_expert = dense_K, expert_K
    if job.task == "lora":
        adapters = adapter_parameters(a, tp, c.lora_rank)
        trained = (counts * adapters[:, None]).sum(axis=0)
        trained_expert = np.zeros_like(expert_K)
    return Owned(dense_K, expert_K, trained, trained_expert, dense[:-2].max(axis=0),
                 expert[:-2].max(axis=0), outer)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Shards:
    """How many ranks share each thing. Shape (W,)."""

    weights: F64
    gradients: F64
    optimizer: F64
    expert_weights: F64
    expert_gradients: F64
    expert_optimizer: F64
    replicas: F64
    """Ranks with equal dense parameters, dp x cp."""
    expert_replicas: F64


def hsdp_size(job: Job, c: Columns) -> F64:
    """Return ranks that share one copy under HSDP: as asked, or what one host or domain holds."""
    replicas = (c.dp * c.cp).astype(np.float64)
    home = max(job.cluster.host.cards, 1)
    asked = np.where(c.hsdp_shard > 0, c.hsdp_shard, np.maximum(home // c.tp, 1))
    size: F64 = np.minimum(asked, replicas)
    return size


def shards_of(job: Job, c: Columns) -> Shards:
    """Return the sharding degrees of ZeRO stages 0-3, FSDP and HSDP."""
    replicas = (c.dp * c.cp).astype(np.float64)
    experts = np.maximum(replicas * c.tp / (c.ep * c.etp), 1.0)
    group, expert_group = replicas, experts
    if (c.zero == HSDP).any():
        size = hsdp_size(job, c)
        group = np.where(c.zero == HSDP, size, replicas)
        expert_group = np.where(c.zero == HSDP, np.minimum(size, experts), experts)

    def from_level(level: int, ranks: F64) -> F64:
        shared: F64 = np.where(c.zero >= level, ranks, 1.0)
        return shared

    return Shards(
        from_level(Z3, group), from_level(Z2, group), from_level(Z1, group),
        from_level(Z3, expert_group), from_level(Z2, expert_group), from_level(Z1, expert_group),
        replicas, experts,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Replication:
    """Seconds of data-parallel communication. Shape (W,); per step, or per pass if `each`."""

    gradients: F64
    parameters: F64
    """All-gather of the whole parameters once."""
    replicas: F64
    """HSDP: all-reduce of the shards over replicas, once a step."""


def replication(job: Job, c: Columns, o: Owned, weight: F64, cal: Calibration) -> Replication:
    """Return seconds to reduce gradients once and to gather parameters once.

    ZeRO-0 all-reduces; 1 and 2 reduce-scatter and all-gather; 3 and FSDP gather and scatter layer
    by layer. Dense parameters over dp x cp ranks at stride tp, experts over their own replicas at
    stride etp x ep. `weight` bytes per gathered parameter.
    """
    fabric = job.cluster.fabric
    s = shards_of(job, c)
    sharded = c.zero >= Z3
    layers = np.where(sharded, np.ceil(job.model.layers / c.pp), 1.0)
    grad = DTYPE_BYTES[c.gradient_dtype]
    groups = np.stack([np.where(sharded, s.weights, s.replicas),
                       np.where(sharded, s.expert_weights, s.expert_replicas)])  # fmt: skip
    strides = np.stack([c.tp, c.etp * c.ep]).astype(np.float64)
    trained = np.stack([o.trained_KD.max(axis=0), o.trained_expert_KD.max(axis=0)])
    held = np.stack([o.dense_KD.max(axis=0), o.expert_KD.max(axis=0)])
    if not sharded.all():
        held = np.where(sharded, held, trained)

    def run(kind: str, group: F64, stride: F64, size: F64, times: F64 | float = 1.0) -> F64:
        seconds = collective_seconds(fabric, kind, group, stride, size / times, comm=cal.comm)
        total: F64 = (seconds * times * (size > 0)).sum(axis=0)
        return total

    zero: F64 = np.zeros(len(c))
    copied = (s.replicas > 1).any() or (s.expert_replicas > 1).any()
    if not (groups > 1).any() and not copied:
        return Replication(zero, zero, zero)
    gradients = run("reduce-scatter", groups, strides, trained * grad, layers)
    parameters = run("all-gather", groups, strides, held * weight, layers)
    if (c.zero == 0).any():
        whole = run("all-reduce", groups, strides, trained * grad)
        gradients = np.where(c.zero == 0, whole, gradients)
        parameters = np.where(c.zero == 0, 0.0, parameters)
    replicas = zero
    if (c.zero == HSDP).any():
        copies = np.stack([s.replicas, s.expert_replicas]) / groups
        across = run("all-reduce", copies, strides * groups, trained * grad / groups)
        replicas = np.where(c.zero == HSDP, across, 0.0)
    return Replication(gradients, parameters, replicas)


def stage_counts(stages: Stages, layout: NDArray[np.int64]) -> F64:
    """Return layers of each kind, head and embedding of the stages of each row. (X, K, rows)."""
    every = (stages.counts_BKU, stages.last_KU[None], stages.first_KU[None])
    return np.concatenate([x.take(layout, axis=2) for x in every])
