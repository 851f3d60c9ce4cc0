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
from .blocks import in_blocks
from .calibration import Calibration, default_calibration
from .calibration_scale import scales_of
from .columns import Columns, make_columns, unique_rows
from .comm import collective_seconds
from .flops import model_flops_per_sequence, parameters_of
from .frameworks import framework_of
from .goodput import goodput_of
from .interval import bounds_of
from .job import Job
from .layer_table import LAYER_KEY, LayerTable, layer_table
from .memo import per_object
from .memory import Widths, fragmentation_share, held_parts, logit_bytes, widths_of
from .pipeline import INTERLEAVED, Stages, bubble_share, in_flight, stages_of
from .power import energy_of
from .precision import parse_precision
from .sharding import Z2, Z3, Owned, Replication, owned, replication, shards_of, stage_counts

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
CHUNK = 1 << 14
HOLDING_KEY = ("tp", "ep", "etp", "dp", "cp", "zero", "hsdp_shard", "gradient_dtype",
               "optimizer_dtype", "offload_optimizer")  # fmt: skip
"""Columns that decide what a rank holds all step long, beside precision and layout."""
LAYOUT_KEY = ("pp", "vpp", "schedule")
TIME_PARTS = (*lt.TIME_NAMES, "pp", "dp", "bubble", "optimizer", "data", "straggler")
COMM_PARTS = ("tp", "cp", "ep", "pp", "dp")


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
    share_V: F64
    """Fill and drain of the schedule over those of plain 1F1B."""
    bubble_V: F64
    """Seconds of fill and drain, messages not counted."""
    extra_V: F64
    """FLOPs of recomputation over all stages of one pipeline."""
    saved_KV: F64
    working_KV: F64
    logits_KV: F64
    alive_KV: F64
    """Working and logits together."""


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """What ranks hold and what replicas exchange, once a step. Axis W."""

    parts: dict[str, F64]
    """Bytes by part, shapes (K, W)."""
    bytes_KW: F64
    """Their sum, with what the allocator loses on gathered parameters."""
    replicas: Replication
    optimizer_s: F64
    goodput: F64
    owned: Owned


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Everything priced per distinct combination, with each candidate's index into it."""

    stages: Stages
    times: StageTimes
    v_N: I64
    holdings: Holdings
    w_N: I64
    held_KM: F64
    """Micro-batches in flight per distinct (layout, micro-batches)."""
    m_N: I64
    message: F64
    """Seconds of one message between neighbouring stages."""
    p_N: I64
    micro_batches: I64
    flops: F64
    """Model FLOPs of one sequence per distinct length."""
    s_N: I64
    lost: float
    """Share of passing allocations that the allocator loses."""


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


def stage_times(
    job: Job, c: Columns, table: LayerTable, stages: Stages, u_V: I64, layout_V: I64
) -> StageTimes:
    """Return the slowest stage of each (layer row, layout): its parts, and fill and drain."""
    return in_blocks(
        len(u_V),
        lambda at: _stage_block(job, c.take(at), table, stages, u_V[at], layout_V[at]),
    )


def _stage_block(
    job: Job, c: Columns, table: LayerTable, stages: Stages, u_V: I64, layout_V: I64
) -> StageTimes:
    """Return `stage_times` of rows that fit in cache."""
    counts = stage_counts(stages, layout_V)
    total = table.total_XU.take(u_V, axis=1)
    stage_KV = (counts * total[:, None]).sum(axis=0)
    at = counts[:, stage_KV.argmax(axis=0), np.arange(len(u_V))]
    part = at[0] * table.cost_QXU[:, 0].take(u_V, axis=1)
    for x in range(1, len(total)):
        part += at[x] * table.cost_QXU[:, x].take(u_V, axis=1)
    slow = stage_KV.max(axis=0)
    whole = stages.whole_XU.take(layout_V, axis=1)
    extra = (whole * table.cost_QXU[lt.EXTRA_FLOPS].take(u_V, axis=1)).sum(axis=0)
    share = bubble_share(c.schedule, c.pp, c.vpp, part[lt.FORWARD] / slow, part[lt.WEIGHT] / slow)
    bubble = share * ((whole * total).sum(axis=0) - slow)
    saved = (counts * table.saved_XU.take(u_V, axis=1)[:, None]).sum(axis=0)
    if job.thrift.offloaded_layers:
        saved *= 1.0 - np.minimum(job.thrift.offloaded_layers / counts[:-2].sum(axis=0), 1.0)
    working = ((counts > 0) * table.working_XU.take(u_V, axis=1)[:, None]).max(axis=0)
    logits = logit_bytes(job, c, stages.last_KU.take(layout_V, axis=1))
    return StageTimes(part, slow, share, bubble, extra, saved, working, logits, working + logits)


def message_seconds(job: Job, c: Columns, cal: Calibration) -> F64:
    """Return seconds to hand one micro-batch to the next stage. Shape of `c`.

    Sequence parallelism sends its shard; Megatron and its kin scatter what tensor parallelism
    repeats before a send and gather it after (Narayanan et al. 2021, section 4.1); DeepSpeed sends
    every copy. Neighbours are tp x cp x dp cards apart.
    """
    p = parse_precision(c.precisions[0])
    size = c.micro_batch * c.seq / c.cp * job.model.hidden * p.activation
    scattered = (c.sequence_parallel > 0) | (job.framework != "deepspeed")
    size = np.where(scattered, size / c.tp, size)
    if not (c.pp > 1).any():
        return np.zeros(len(c))
    stride = (c.tp * c.cp * c.dp).astype(np.float64)
    seconds = collective_seconds(job.cluster.fabric, "send-recv", 2, stride, size, comm=cal.comm)
    only: F64 = np.where(c.pp > 1, seconds, 0.0)
    return only


def holdings_of(job: Job, c: Columns, stages: Stages, layout_W: I64, cal: Calibration) -> Holdings:
    """Return what ranks hold and exchange for the distinct rows `c`."""
    first, d_W = unique_rows(c.tp, c.ep, c.etp, layout_W)
    mine = owned(job, c.take(first), stage_counts(stages, layout_W[first]))
    mine = Owned(*(getattr(mine, name).take(d_W, axis=-1) for name in Owned.__slots__))
    w = widths_of(c, framework_of(job.framework).master_is_weight)
    parts = held_parts(job, c, mine, w, stages.rank_KU.take(layout_W, axis=1), cal)
    bytes_ = sum(parts.values(), fragmentation_share(job, cal) * parts["gathered"])
    good = goodput_of(job.cluster, c.world.astype(np.float64), _parameters(job.model))[0]
    return Holdings(parts, bytes_, replication(job, c, mine, w.sent, cal),
                    optimizer_seconds(job, c, mine, w, cal), good, mine)  # fmt: skip


@per_object(256)
def _one_holding(cal: Calibration, job: Job, every: bool, key: tuple[Any, ...]) -> Holdings:
    """Return `holdings_of` one candidate, remembered."""
    values = dict(zip((*HOLDING_KEY, *LAYOUT_KEY), key, strict=False))
    precision, layout, framework, task, rank = key[-5:]
    c = make_columns(1, **values, global_batch=1, seq=1, precisions=(precision,),
                     layouts=(layout,), framework=framework, task=task,
                     lora_rank=rank)  # fmt: skip
    return holdings_of(job, c, stages_of(job.model, c, every), np.zeros(1, np.int64), cal)


def _holdings(
    job: Job, c: Columns, stages: Stages, cal: Calibration, every: bool
) -> tuple[Holdings, I64]:
    """Return the holdings of all distinct rows, and each candidate's row in them."""
    layout_N = stages.inverse_N
    if len(c) == 1:
        numbers = (int(getattr(c, name)[0]) for name in (*HOLDING_KEY, *LAYOUT_KEY))
        words = (c.precisions[int(c.precision[0])], c.layouts[int(c.layout[0])], c.framework,
                 c.task, c.lora_rank)  # fmt: skip
        return _one_holding(cal, job, every, (*numbers, *words)), layout_N
    first, w_N = unique_rows(layout_N, c.precision, *(getattr(c, n) for n in HOLDING_KEY))
    rows, layout_W = c.take(first), layout_N[first]
    every_W = in_blocks(
        len(first), lambda at: holdings_of(job, rows.take(at), stages, layout_W[at], cal)
    )
    return every_W, w_N


def tables_of(job: Job, c: Columns, cal: Calibration, every: bool = False) -> Tables:
    """Return all tables of `c`; `every` keeps all pipeline stages instead of those that bind."""
    stages = stages_of(job.model, c, every)
    layout_N = stages.inverse_N
    table, u_N = layer_tables(job, c, cal)
    first, v_N = unique_rows(u_N, layout_N)
    times = stage_times(job, c.take(first), table, stages, u_N[first], layout_N[first])
    holdings, w_N = _holdings(job, c, stages, cal, every)
    micro_batches = c.micro_batches
    first, m_N = unique_rows(layout_N, micro_batches)
    rows = c.take(first)
    held = in_flight(rows.schedule, rows.pp, rows.vpp, micro_batches[first],
                     stages.rank_KU[:, layout_N[first]])  # fmt: skip
    first, p_N = unique_rows(c.tp, c.cp, c.dp, c.micro_batch, c.seq, c.sequence_parallel,
                             (c.pp > 1).astype(np.int64))  # fmt: skip
    message = message_seconds(job, c.take(first), cal)
    first, s_N = unique_rows(c.seq)
    flops = model_flops_per_sequence(job.model, c.seq[first].astype(np.float64), job.task)
    return Tables(stages, times, v_N, holdings, w_N, held, m_N, message, p_N, micro_batches,
                  flops, s_N, fragmentation_share(job, cal))  # fmt: skip


def replica_seconds(
    job: Job, c: Columns, r: Replication, m: F64, forward: F64, backward: F64, cal: Calibration
) -> tuple[F64, F64]:
    """Return (exposed, hidden) seconds of data-parallel communication per step. Shape (N,).

    Plain and ZeRO-1: gradients under the last backward pass, parameters under the first forward
    pass. ZeRO-2 reduces after every micro-batch. ZeRO-3 and FSDP gather before each forward and
    backward and scatter after it, once a step if a pipeline keeps the layers gathered.
    """
    scales = scales_of(cal, job, "bf16")
    share_g = lt.overlap_of(cal, job.framework, "dp") * c.overlap_grad
    share_p = lt.overlap_of(cal, job.framework, "param") * c.overlap_param
    sharded = c.zero >= Z3
    each = np.where(sharded & (c.pp == 1) | (c.zero == Z2), m, 1.0)
    gather_each = np.where(sharded & (c.pp == 1), m, 1.0)
    again = np.where(sharded & (c.pp == 1), r.parameters, 0.0)
    hidden_f = np.minimum(share_p * r.parameters, forward)
    behind = np.minimum(share_g * (r.gradients + again), backward)
    total = gather_each * (r.parameters + again) + each * r.gradients + r.replicas
    hidden_r = np.minimum(share_g * r.replicas, np.maximum(backward - behind, 0.0))
    hidden = gather_each * hidden_f + each * behind + hidden_r
    shown = scales["dp"] * (total - hidden) + scales["under_dp"] * hidden
    return shown, hidden


def optimizer_seconds(job: Job, c: Columns, o: Owned, w: Widths, cal: Calibration) -> F64:
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


def _pipeline(
    c: Columns,
    t: Tables,
    rows: slice,
    cal: Calibration,
    framework: str,
    scales: dict[str, float],
) -> _Pipe:
    """Return seconds of all micro-batches through the slowest stage, fill and drain, messages."""
    v = t.v_N[rows]
    pp = c.pp.astype(np.float64)
    m = t.micro_batches[rows].astype(np.float64)
    message = scales["pp"] * t.message.take(t.p_N[rows])
    on = lt.overlap_of(cal, framework, "pp") * c.overlap_pp * (c.schedule >= INTERLEAVED)
    sent = 2.0 * c.vpp * message
    exposed = sent * (1.0 - on)
    bubble = t.times.bubble_V.take(v) + t.times.share_V.take(v) * (pp - 1.0) * exposed
    hidden = m * sent * on
    wires = m * exposed + 2.0 * (pp - 1.0) * message + scales["under_pp"] * hidden
    return _Pipe(
        t.times.part_QV.take(v, axis=1), m, t.times.slowest_V.take(v), bubble, wires, hidden
    )


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
    scales = scales_of(cal, job, "bf16")
    pipe = _pipeline(c, t, rows, cal, job.framework, scales)
    w = t.w_N[rows]
    r = Replication(*(getattr(t.holdings.replicas, n).take(w) for n in Replication.__slots__))
    forward = pipe.part_QN[lt.FORWARD]
    dp, hidden_dp = replica_seconds(job, c, r, pipe.m, forward, pipe.slow - forward, cal)
    parts = {name: pipe.m * pipe.part_QN[q] for q, name in enumerate(lt.TIME_NAMES)}
    parts["pp"], parts["dp"], parts["bubble"] = pipe.wires, dp, pipe.bubble
    parts["optimizer"] = scales["optimizer"] * t.holdings.optimizer_s.take(w)
    parts["data"] = np.full(len(c), scales["step_s"] + cal.overhead.get("step_s", 0.0))
    steady = pipe.m * pipe.slow + pipe.bubble
    late = np.sqrt(2.0 * np.log(np.maximum(c.world, 2).astype(np.float64)))
    parts["straggler"] = (scales["jitter"] + cal.overhead.get("jitter", 0.0)) * late * steady
    hidden = {"tp": pipe.m * pipe.part_QN[lt.HIDDEN_TP], "cp": pipe.m * pipe.part_QN[lt.HIDDEN_CP],
              "ep": pipe.m * pipe.part_QN[lt.HIDDEN_EP], "pp": pipe.hidden,
              "dp": hidden_dp}  # fmt: skip
    return parts, hidden


def memory_parts(t: Tables, rows: slice) -> dict[str, F64]:
    """Return bytes by part of the stages kept in `t`, candidates `rows`. Shapes (K, rows)."""
    v, w = t.v_N[rows], t.w_N[rows]
    parts = {name: value[:, w] for name, value in t.holdings.parts.items()}
    held = t.held_KM[:, t.m_N[rows]]
    parts["activations"] = t.times.saved_KV[:, v] * held + t.times.working_KV[:, v]
    parts["logits"] = t.times.logits_KV[:, v]
    loose = parts["activations"] + parts["logits"] + parts["gathered"]
    parts["fragmentation"] = t.lost * loose
    return parts


def peak_bytes(t: Tables, rows: slice) -> F64:
    """Return the sum of `memory_parts` on the worst stage kept in `t`."""
    v = t.v_N[rows]
    loose = t.times.saved_KV.take(v, axis=1) * t.held_KM.take(t.m_N[rows], axis=1)
    loose += t.times.alive_KV.take(v, axis=1)
    loose *= 1.0 + t.lost
    loose += t.holdings.bytes_KW.take(t.w_N[rows], axis=1)
    peak: F64 = loose.max(axis=0)
    return peak


def _bounds(job: Job, c: Columns, cal: Calibration) -> tuple[F64, F64]:
    """Return factors of the 90 % interval on the step time of each candidate."""
    tables = [bounds_of(cal, job, parse_precision(p).mlp, c.world) for p in c.precisions]
    if len(tables) == 1:
        return tables[0]
    low, high = (np.stack([t[i] for t in tables]) for i in (0, 1))
    rows = np.arange(len(c))
    return low[c.precision, rows], high[c.precision, rows]


def _chunk(job: Job, c: Columns, t: Tables, rows: slice, cal: Calibration) -> dict[str, Any]:
    """Return every array of `Costs` for candidates `rows` (already cut out as `c`)."""
    parts, hidden = _times(job, c, t, rows, cal)
    step: F64 = sum(parts.values(), np.zeros(len(c)))
    peak = peak_bytes(t, rows)
    seq = c.seq.astype(np.float64)
    batch = c.global_batch.astype(np.float64)
    flops = batch * t.flops.take(t.s_N[rows])
    chip = job.cluster.chip
    peaks = np.array([chip.peak_of(parse_precision(p).mlp) for p in c.precisions])[c.precision]
    mfu = flops / (step * job.cards * peaks)
    ranks = (c.dp * c.cp * c.tp).astype(np.float64)
    extra = t.times.extra_V.take(t.v_N[rows]) * ranks * t.micro_batches[rows]
    matrix = parts["gemm"] + parts["attention"] + parts["experts"] + parts["recompute"]
    used = c.world.astype(np.float64)
    watts, joules = energy_of(
        job.cluster, used, job.cards, step, matrix, parts["elementwise"] + parts["optimizer"]
    )
    low, high = _bounds(job, c, cal)
    return {
        "step_s": step, "low_s": step * low, "high_s": step * high,
        "parts": parts, "hidden": hidden, "peak_bytes": peak, "fits": peak <= job.usable,
        "tokens_per_s_per_card": batch * seq / (step * job.cards),
        "mfu": mfu, "hfu": mfu * (1.0 + extra / flops), "model_flops": flops,
        "bubble": parts["bubble"] / step,
        "exposed_comm": sum((parts[n] for n in COMM_PARTS), np.zeros(len(c))) / step,
        "power_w": watts, "energy_j": joules,
        "goodput": t.holdings.goodput.take(t.w_N[rows]),
    }  # fmt: skip


def costs_of(job: Job, columns: Columns, tables: Tables, cal: Calibration) -> Costs:
    """Return what every candidate costs, from tables already made for these columns."""
    size = len(columns)
    if size <= CHUNK:
        return Costs(**_chunk(job, columns, tables, slice(0, size), cal), usable_bytes=job.usable)
    whole: dict[str, Any] = {}
    for start in range(0, size, CHUNK):
        rows = slice(start, min(start + CHUNK, size))
        for name, value in _chunk(job, columns.take(rows), tables, rows, cal).items():
            pairs = value.items() if isinstance(value, dict) else ((None, value),)
            for key, array in pairs:
                if start == 0:
                    place = whole.setdefault(name, {}) if key is not None else whole
                    place[key if key is not None else name] = np.empty(size, array.dtype)
                (whole[name][key] if key is not None else whole[name])[rows] = array
    return Costs(**whole, usable_bytes=job.usable)


def evaluate(job: Job, columns: Columns, calibration: Calibration | None = None) -> Costs:
    """Return what every candidate costs. See the contract at the top of this file."""
    cal = calibration if calibration is not None else default_calibration()
    return costs_of(job, columns, tables_of(job, columns, cal), cal)
