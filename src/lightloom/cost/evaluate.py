"""The price of candidate strategies: ONE code path for one row and for a million.

Contract
--------
``evaluate(job, columns, calibration=None) -> Costs``: arrays with one entry per candidate (N).
Candidates must be legal (`job.legal`, `job.check_strategy`); illegal ones give numbers that mean
nothing. ``predict(job, strategy) -> Prediction`` and ``make_plan(job, strategy) -> Plan`` (module
`predict`) read row 0 of the same function. ``stage_operations(job, strategy)`` (module
`operations`) gives the same kernels and messages one by one, for the simulator.

Work is priced once per distinct combination of the columns it depends on (tables over U, V, D, W)
and gathered; only the last few expressions run per candidate, in chunks that stay in cache.
Axes: N candidates, U layer-distinct, V stage-distinct, D ownership-distinct, W sharing-distinct.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightloom.core.model import Model

from . import layer_time as lt
from .calibration import Calibration, default_calibration
from .columns import Columns, unique_rows
from .comm import collective_seconds
from .flops import model_flops_per_sequence, parameters_of
from .frameworks import framework_of
from .goodput import goodput_of
from .job import Job
from .layer_table import LAYER_KEY, LayerTable, layer_table
from .memo import per_object
from .memory import stage_memory, widths_of
from .pipeline import INTERLEAVED, Stages, bubble_share, stages_of
from .power import energy_of
from .precision import parse_precision
from .sharding import Z2, Z3, Owned, Replication, owned, replication, shards_of, stage_counts

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
CHUNK = 1 << 14
TIME_PARTS = (*lt.TIME_NAMES, "pp", "dp", "bubble", "optimizer", "data", "straggler")
COMM_PARTS = ("tp", "cp", "ep", "pp", "dp")
WIDE = (-0.35, 0.35)
"""Log-ratio interval where calibration gives none."""


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """What N candidates cost. Every array has shape (N,). Seconds, bytes, watts, joules, shares."""

    step_s: F64
    low_s: F64
    high_s: F64
    """90 % interval of the step time."""
    parts: dict[str, F64]
    """Seconds by part (TIME_PARTS); they add up to `step_s`."""
    hidden: dict[str, F64]
    """Seconds of communication per axis under computation."""
    peak_bytes: F64
    """Bytes on the worst rank of the job."""
    fits: NDArray[np.bool_]
    tokens_per_s_per_card: F64
    """Over the cards asked for, idle ones included."""
    mfu: F64
    hfu: F64
    model_flops: F64
    bubble: F64
    exposed_comm: F64
    power_w: F64
    energy_j: F64
    goodput: F64
    usable_bytes: float

    def __len__(self) -> int:
        return len(self.step_s)


@dataclass(frozen=True, slots=True, eq=False)
class StageTimes:
    """One micro-batch on the slowest stage, and over all stages. Axis V."""

    part_QV: F64
    slowest_V: F64
    whole_V: F64
    extra_V: F64
    """FLOPs of recomputation over all stages of one pipeline."""
    saved_KV: F64
    working_KV: F64


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Everything priced per distinct combination, with each candidate's index into it."""

    stages: Stages
    times: StageTimes
    v_N: I64
    owned: Owned
    d_N: I64
    replicas: Replication
    w_N: I64
    message: F64
    """Seconds of one message between neighbouring stages."""
    p_N: I64


def layer_tables(job: Job, c: Columns, cal: Calibration) -> tuple[LayerTable, I64]:
    """Return the layer table of all distinct rows, and each candidate's row in it."""
    names: tuple[str, ...] = LAYER_KEY
    if bool((c.recompute_layers > 0).any()):
        names = (*names, "recompute_layers", "pp")
    first, inverse = unique_rows(*(getattr(c, n) for n in names), c.precision)
    rows = c.take(first)
    present = np.flatnonzero(np.bincount(rows.precision))
    if len(present) == 1:
        p = parse_precision(c.precisions[int(present[0])])
        return layer_table(job, rows, p, cal), inverse
    pieces, places = [], []
    for code in present:
        where = np.flatnonzero(rows.precision == code)
        p = parse_precision(c.precisions[int(code)])
        pieces.append(layer_table(job, rows.take(where), p, cal))
        places.append(where)
    order = np.argsort(np.concatenate(places))
    merged = LayerTable(
        *(np.concatenate([getattr(x, n) for x in pieces], axis=-1)[..., order]
          for n in ("cost_QXU", "total_XU", "saved_XU", "working_XU"))
    )  # fmt: skip
    return merged, inverse


def stage_times(table: LayerTable, stages: Stages, u_V: I64, layout_V: I64) -> StageTimes:
    """Return the slowest stage of each (layer row, layout): its parts, and the sum of all."""
    counts = stage_counts(stages, layout_V)
    total = table.total_XU[:, u_V]
    stage_KV = (counts * total[:, None]).sum(axis=0)
    slowest = stage_KV.argmax(axis=0)
    at = counts[:, slowest, np.arange(len(u_V))]
    part = np.zeros((lt.PARTS, len(u_V)))
    for x in range(len(total)):
        part += at[x] * table.cost_QXU[:, x, u_V]
    whole = stages.whole_XU[:, layout_V]
    extra = (whole * table.cost_QXU[lt.EXTRA_FLOPS][:, u_V]).sum(axis=0)
    saved = (counts * table.saved_XU[:, u_V][:, None]).sum(axis=0)
    working = ((counts > 0) * table.working_XU[:, u_V][:, None]).max(axis=0)
    return StageTimes(part, stage_KV.max(axis=0), (whole * total).sum(axis=0), extra, saved,
                      working)  # fmt: skip


def message_seconds(job: Job, c: Columns, cal: Calibration) -> F64:
    """Return seconds to hand one micro-batch to the next stage. Shape of `c`.

    Sequence parallelism sends its shard; neighbours are tp x cp x dp cards apart.
    """
    p = parse_precision(c.precisions[0])
    size = c.micro_batch * c.seq / c.cp * job.model.hidden * p.activation
    size = np.where(c.sequence_parallel > 0, size / c.tp, size)
    if not (c.pp > 1).any():
        return np.zeros(len(c))
    stride = (c.tp * c.cp * c.dp).astype(np.float64)
    seconds = collective_seconds(job.cluster.fabric, "send-recv", 2, stride, size, comm=cal.comm)
    only: F64 = np.where(c.pp > 1, seconds, 0.0)
    return only


def tables_of(job: Job, c: Columns, cal: Calibration, every: bool = False) -> Tables:
    """Return all tables of `c`; `every` keeps all pipeline stages instead of those that bind."""
    stages = stages_of(job.model, c, every)
    table, u_N = layer_tables(job, c, cal)
    v_first, v_N = unique_rows(u_N, stages.inverse_N)
    times = stage_times(table, stages, u_N[v_first], stages.inverse_N[v_first])
    d_first, d_N = unique_rows(c.tp, c.ep, c.etp, stages.inverse_N)
    mine = owned(job, c.take(d_first), stage_counts(stages, stages.inverse_N[d_first]))
    w_first, w_N = unique_rows(d_N, c.dp, c.cp, c.zero, c.hsdp_shard, c.gradient_dtype, c.precision)
    rows = c.take(w_first)
    sent = widths_of(rows, framework_of(job.framework).master_is_weight).sent
    replicas = replication(job, rows, _take_owned(mine, d_N[w_first]), sent, cal)
    p_first, p_N = unique_rows(c.tp, c.cp, c.dp, c.micro_batch, c.seq, c.sequence_parallel,
                               (c.pp > 1).astype(np.int64))  # fmt: skip
    message = message_seconds(job, c.take(p_first), cal)
    return Tables(stages, times, v_N, mine, d_N, replicas, w_N, message, p_N)


def _take_owned(o: Owned, rows: Any) -> Owned:
    return Owned(*(getattr(o, name)[..., rows] for name in Owned.__slots__))


def replica_seconds(
    job: Job, c: Columns, r: Replication, forward: F64, backward: F64, cal: Calibration
) -> tuple[F64, F64]:
    """Return (exposed, hidden) seconds of data-parallel communication per step. Shape (N,).

    Plain and ZeRO-1: gradients under the last backward pass, parameters under the first forward
    pass. ZeRO-2 reduces after every micro-batch. ZeRO-3 and FSDP gather before each forward and
    backward and scatter after it, once a step if a pipeline keeps the layers gathered.
    """
    share_g = lt.overlap_of(cal, job.framework, "dp") * c.overlap_grad
    share_p = lt.overlap_of(cal, job.framework, "param") * c.overlap_param
    m = c.micro_batches.astype(np.float64)
    sharded = c.zero >= Z3
    each = np.where(sharded & (c.pp == 1) | (c.zero == Z2), m, 1.0)
    gather_each = np.where(sharded & (c.pp == 1), m, 1.0)
    again = np.where(sharded & (c.pp == 1), r.parameters, 0.0)
    hidden_f = np.minimum(share_p * r.parameters, forward)
    behind = np.minimum(share_g * (r.gradients + again), backward)
    total = gather_each * (r.parameters + again) + each * r.gradients + r.replicas
    hidden_r = np.minimum(share_g * r.replicas, np.maximum(backward - behind, 0.0))
    hidden = gather_each * hidden_f + each * behind + hidden_r
    return total - hidden, hidden


def optimizer_seconds(job: Job, c: Columns, o: Owned, cal: Calibration) -> F64:
    """Return seconds of the optimiser step on the fullest rank. Shape (N,).

    Adam reads gradient, master and two moments and writes master, moments and weight; a pass for
    the gradient norm before. Offloaded, gradients and weights cross PCIe and the host's memory
    carries the states.
    """
    chip, host = job.cluster.chip, job.cluster.host
    s = shards_of(job, c)
    own = (o.trained_KD / s.optimizer + o.trained_expert_KD / s.expert_optimizer).max(axis=0)
    grad = np.array([4.0, 2.0, 2.0, 1.0, 1.0, 0.5, 0.5])
    g, state = grad[c.gradient_dtype], grad[c.optimizer_dtype]
    w = widths_of(c, framework_of(job.framework).master_is_weight)
    moved = 2.0 * g + 2.0 * np.maximum(w.master, w.weight) + 4.0 * state + w.weight
    rate = chip.hbm_bandwidth * cal.kernels_of(chip.arch).memory
    seconds: F64 = own * moved / rate
    if c.offload_optimizer.any():
        link = host.pcie_bandwidth or 25e9
        dram = (host.dram_bandwidth or 200e9) / max(host.cards, 1)
        away = own * (g + w.weight) / link + own * moved / dram
        seconds = np.where(c.offload_optimizer > 0, away, seconds)
    return seconds


@per_object(256)
def _parameters(model: Model) -> float:
    return parameters_of(model).total


def _pipeline(c: Columns, t: Tables, rows: slice, cal: Calibration, framework: str) -> _Pipe:
    """Return seconds of all micro-batches through the slowest stage, fill and drain, messages."""
    v = t.v_N[rows]
    slow, whole = t.times.slowest_V[v], t.times.whole_V[v]
    part = t.times.part_QV[:, v]
    pp = c.pp.astype(np.float64)
    m = c.micro_batches.astype(np.float64)
    message = t.message[t.p_N[rows]]
    on = lt.overlap_of(cal, framework, "pp") * c.overlap_pp * (c.schedule >= INTERLEAVED)
    sent = 2.0 * c.vpp * message
    exposed = sent * (1.0 - on)
    share = bubble_share(c.schedule, c.pp, c.vpp, part[lt.FORWARD] / slow, part[lt.WEIGHT] / slow)
    bubble = share * (whole - slow + (pp - 1.0) * exposed)
    wires = m * exposed + 2.0 * (pp - 1.0) * message
    return _Pipe(part, m, slow, bubble, wires, m * sent * on)


@dataclass(frozen=True, slots=True, eq=False)
class _Pipe:
    part_QN: F64
    m: F64
    slow: F64
    bubble: F64
    wires: F64
    hidden: F64


def _times(
    job: Job, c: Columns, t: Tables, rows: slice, cal: Calibration
) -> tuple[dict[str, F64], dict[str, F64]]:
    """Return (seconds by part, hidden seconds by axis) of candidates `rows`."""
    pipe = _pipeline(c, t, rows, cal, job.framework)
    own = _take_owned(t.owned, t.d_N[rows])
    w = t.w_N[rows]
    r = Replication(t.replicas.gradients[w], t.replicas.parameters[w], t.replicas.replicas[w])
    forward = pipe.part_QN[lt.FORWARD]
    dp, hidden_dp = replica_seconds(job, c, r, forward, pipe.slow - forward, cal)
    parts = {name: pipe.m * pipe.part_QN[q] for q, name in enumerate(lt.TIME_NAMES)}
    parts["pp"], parts["dp"], parts["bubble"] = pipe.wires, dp, pipe.bubble
    parts["optimizer"] = optimizer_seconds(job, c, own, cal)
    parts["data"] = np.full(len(c), cal.overhead.get("step_s", 0.0))
    steady = pipe.m * pipe.slow + pipe.bubble
    late = np.sqrt(2.0 * np.log(np.maximum(c.world, 2).astype(np.float64)))
    parts["straggler"] = cal.overhead.get("jitter", 0.0) * late * steady
    hidden = {"tp": pipe.m * pipe.part_QN[lt.HIDDEN_TP], "cp": pipe.m * pipe.part_QN[lt.HIDDEN_CP],
              "ep": pipe.m * pipe.part_QN[lt.HIDDEN_EP], "pp": pipe.hidden,
              "dp": hidden_dp}  # fmt: skip
    return parts, hidden


def memory_parts(job: Job, c: Columns, t: Tables, rows: slice, cal: Calibration) -> dict[str, F64]:
    """Return bytes by part of the stages kept in `t`, candidates `rows`. Shapes (K, rows)."""
    v, layout = t.v_N[rows], t.stages.inverse_N[rows]
    return stage_memory(
        job, c, _take_owned(t.owned, t.d_N[rows]), t.stages.rank_KU[:, layout],
        t.stages.last_KU[:, layout], t.times.saved_KV[:, v], t.times.working_KV[:, v], cal,
    )  # fmt: skip


def _chunk(job: Job, c: Columns, t: Tables, rows: slice, cal: Calibration) -> dict[str, Any]:
    """Return every array of `Costs` for candidates `rows` (already cut out as `c`)."""
    parts, hidden = _times(job, c, t, rows, cal)
    step: F64 = sum(parts.values(), np.zeros(len(c)))
    memory = memory_parts(job, c, t, rows, cal)
    peak = sum(memory.values(), np.zeros_like(memory["weights"])).max(axis=0)
    seq = c.seq.astype(np.float64)
    batch = c.global_batch.astype(np.float64)
    flops = batch * model_flops_per_sequence(job.model, seq, job.task)
    chip = job.cluster.chip
    peaks = np.array([chip.peak_of(parse_precision(p).mlp) for p in c.precisions])[c.precision]
    mfu = flops / (step * job.cards * peaks)
    ranks = (c.dp * c.cp * c.tp).astype(np.float64)
    extra = t.times.extra_V[t.v_N[rows]] * ranks * c.micro_batches
    matrix = parts["gemm"] + parts["attention"] + parts["experts"] + parts["recompute"]
    used = c.world.astype(np.float64)
    watts, joules = energy_of(
        job.cluster, used, job.cards, step, matrix, parts["elementwise"] + parts["optimizer"]
    )
    low, high = cal.interval.get("*", WIDE)
    return {
        "step_s": step, "low_s": step * np.exp(low), "high_s": step * np.exp(high),
        "parts": parts, "hidden": hidden, "peak_bytes": peak, "fits": peak <= job.usable,
        "tokens_per_s_per_card": batch * seq / (step * job.cards),
        "mfu": mfu, "hfu": mfu * (1.0 + extra / flops), "model_flops": flops,
        "bubble": parts["bubble"] / step,
        "exposed_comm": sum((parts[n] for n in COMM_PARTS), np.zeros(len(c))) / step,
        "power_w": watts, "energy_j": joules,
        "goodput": goodput_of(job.cluster, used, _parameters(job.model))[0],
    }  # fmt: skip


def _join(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for name, value in pieces[0].items():
        if isinstance(value, dict):
            joined[name] = {k: np.concatenate([p[name][k] for p in pieces]) for k in value}
        else:
            joined[name] = np.concatenate([p[name] for p in pieces])
    return joined


def costs_of(job: Job, columns: Columns, tables: Tables, cal: Calibration) -> Costs:
    """Return what every candidate costs, from tables already made for these columns."""
    size = len(columns)
    if size <= CHUNK:
        return Costs(**_chunk(job, columns, tables, slice(0, size), cal), usable_bytes=job.usable)
    pieces = []
    for start in range(0, size, CHUNK):
        rows = slice(start, min(start + CHUNK, size))
        pieces.append(_chunk(job, columns.take(rows), tables, rows, cal))
    return Costs(**_join(pieces), usable_bytes=job.usable)


def evaluate(job: Job, columns: Columns, calibration: Calibration | None = None) -> Costs:
    """Return what every candidate costs. See the contract at the top of this file."""
    cal = calibration if calibration is not None else default_calibration()
    return costs_of(job, columns, tables_of(job, columns, cal), cal)
