"""Job: what is trained on what, and which candidate strategies are legal for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightloom.core.cluster import Cluster
from lightloom.core.errors import InputError
from lightloom.core.framework import FrameworkName
from lightloom.core.model import Model
from lightloom.core.strategy import Strategy, Task

from .columns import SCHEDULES, ZERO, Columns, columns_of
from .precision import parse_precision
from .thrift import USUAL, Thrift

B8 = NDArray[np.bool_]
INTERLEAVED, ZB_V, DUALPIPE_V = (SCHEDULES.index(s) for s in ("interleaved", "zb-v", "dualpipe-v"))
HSDP = ZERO.index("hsdp")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """One job. `seq`, `global_batch`, `framework` and `task` state the request; candidates carry
    their own copy, so that sweeps over batch or sequence are columns too."""

    model: Model
    cluster: Cluster
    cards: int
    """Cards asked for; those beyond a candidate's world idle."""
    seq: int
    global_batch: int
    """Sequences of one step."""
    framework: FrameworkName = "megatron"
    task: Task = "pretrain"
    flash: bool = True
    """Fused attention; False for software before 2022, which stores the score matrix."""
    stack: str = ""
    """Software stack, finer than the framework (nemo, bridge, composer ...); "" its usual one."""
    era: int = 2026
    """Year of the software: decides which measured generation of kernels and overlap applies."""
    imbalance: float = 1.0
    """Tokens of the busiest expert rank over the mean (1: balanced routing)."""
    thrift: Thrift = USUAL
    """Memory that the software spares beside what a strategy says."""

    @property
    def usable(self) -> float:
        """Bytes a rank may use: measured by the chip's file, else 94 % of what is sold."""
        chip = self.cluster.chip
        return chip.hbm_usable if chip.hbm_usable else 0.94 * chip.hbm_bytes


def nearest_divisors(number: int, wanted: int, most: int = 3) -> list[int]:
    """Return the divisors of `number` nearest to `wanted`."""
    divisors = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    every = sorted({*divisors, *(number // d for d in divisors)})
    return sorted(sorted(every, key=lambda d: (abs(d - wanted), d))[:most])


def _words(values: list[int]) -> str:
    return " or ".join(str(v) for v in values)


class Rule(NamedTuple):
    """One law a candidate must keep: which rows break it, and how to say so."""

    broken: B8
    name: str


def _heads(job: Job) -> list[int]:
    return [b.attention.heads for b in job.model.blocks if b.attention.kind != "none"]


def _divides(values: list[int], degree: NDArray[np.int64]) -> B8:
    """Return True where `degree` divides all values; looked up, for degrees are few and small."""
    wanted = [v for v in set(values) if v > 0]
    if not wanted:
        return np.ones(len(degree), np.bool_)
    most = int(degree.max())
    if most > 1 << 20 or len(degree) < 64:
        safe = np.maximum(degree, 1)
        fine: B8 = np.logical_and.reduce([v % safe == 0 for v in wanted])
        return fine
    every = np.maximum(np.arange(most + 1), 1)
    table: B8 = np.logical_and.reduce([v % every == 0 for v in wanted])
    return table[np.maximum(degree, 0)]


def _when(some: B8, broken: Callable[[], B8]) -> B8:
    """Return `broken()` where any row is concerned, else False everywhere without the work."""
    if not bool(some.any()):
        return np.broadcast_to(np.False_, some.shape)
    return some & broken()


def most_stages(model: Model) -> int:
    """Return the most stages: some may hold only the embedding, the head, or a prediction layer."""
    return model.layers + 2 + model.mtp_layers


def broken_rules(job: Job, c: Columns) -> list[Rule]:
    """Return every law with the rows that break it; a row that breaks none can be costed."""
    model = job.model
    heads = _heads(job)
    moe = [b.mlp for b in model.blocks if b.mlp.is_moe]
    inner = [b.mlp.hidden or b.mlp.shared_hidden for b in model.blocks]
    even = [i for i in inner if i % 2 == 0]
    degrees = (c.tp, c.pp, c.dp, c.cp, c.ep, c.etp, c.vpp, c.micro_batch)
    low = [d for d in degrees if int(d.min()) < 1]
    chunks = c.pp * c.vpp
    rows = c.dp * c.micro_batch
    parts = c.ep * c.etp
    vee = (c.schedule == ZB_V) | (c.schedule == DUALPIPE_V)
    wide = c.tp > 1
    share = np.maximum(c.cp * np.where(c.sequence_parallel > 0, c.tp, 1), 1)
    return [
        Rule(np.logical_or.reduce([d < 1 for d in low]) if low else _never(c), "positive"),
        Rule(c.world > job.cards, "cards"),
        Rule(_when(wide, lambda: ~_divides(heads, c.tp)), "heads"),
        Rule(_when(wide, lambda: ~_divides(even, c.tp)), "inner"),
        Rule(_when(share > 1, lambda: c.seq % share != 0), "seq"),
        Rule(_when((c.cp_kind == 1) & (c.cp > 1), lambda: ~_divides(heads, c.tp * c.cp)),
             "cp-heads"),
        Rule(_when(rows > 1, lambda: c.global_batch % np.maximum(rows, 1) != 0), "batch"),
        Rule((chunks > model.layers) & ((chunks > most_stages(model)) | (c.pp <= 2)), "layers"),
        Rule((c.pp == 1) & (c.vpp > 1), "vpp"),
        Rule(_when(c.schedule == INTERLEAVED,
                   lambda: c.global_batch // np.maximum(rows, 1) % np.maximum(c.pp, 1) != 0),
             "interleave"),
        Rule(vee & (c.vpp != 2), "vee"),
        Rule((c.vpp > 1) & ~vee & (c.schedule != INTERLEAVED), "chunks"),
        Rule(_when((c.zero == HSDP) & (c.hsdp_shard > 0),
                   lambda: c.dp * c.cp % np.maximum(c.hsdp_shard, 1) != 0), "hsdp"),
        Rule(_when(c.recompute_layers > 0,
                   lambda: c.recompute_layers > -(-model.layers // np.maximum(c.pp, 1))),
             "recompute"),
        Rule(_when(parts > 1, lambda: c.dp * c.cp * c.tp % np.maximum(parts, 1) != 0), "ep-ranks"),
        Rule(_when(parts > 1, lambda: ~_divides([m.experts for m in moe], c.ep) if moe else
                   np.ones(len(c), np.bool_)), "experts"),
        Rule(_when(c.etp > 1, lambda: ~_divides([m.expert_hidden for m in moe], c.etp)), "etp"),
        Rule(_layout_wrong(job, c), "layout"),
    ]  # fmt: skip


def _never(c: Columns) -> B8:
    return np.broadcast_to(np.False_, (len(c),))


def _layout_wrong(job: Job, c: Columns) -> B8:
    wrong: B8 = np.zeros(len(c), np.bool_)
    for index, layout in enumerate(c.layouts):
        if layout:
            fits = (c.pp * c.vpp == len(layout)) & (sum(layout) == job.model.layers)
            wrong |= (c.layout == index) & ~fits
    return wrong


def legal(job: Job, columns: Columns) -> B8:
    """Return True for every candidate that breaks no law. Shape (N,)."""
    fine: B8 = np.ones(len(columns), np.bool_)
    if not len(columns):
        return fine
    for rule in broken_rules(job, columns):
        fine &= ~rule.broken
    return fine


def check_strategy(job: Job, s: Strategy) -> None:
    """Raise InputError naming the first law `s` breaks, its numbers and the nearest legal value."""
    precision = parse_precision(s.precision)
    if not precision.training and s.task != "lora":
        raise InputError(
            f"precision {s.precision}: stores weights for inference only",
            out="train with bf16 or fp8; with --task lora it is the type of the frozen base",
        )
    for rule in broken_rules(job, columns_of([s])):
        if bool(np.any(rule.broken)):
            what, out = _explain(job, s, rule.name)
            raise InputError(what, out=out)


def legal_batches(s: Strategy) -> list[int]:
    """Return the legal global batches nearest to the one asked for, below and above."""
    unit = s.dp * s.micro_batch
    if s.schedule == "interleaved":
        unit *= s.pp
    below = s.global_batch // unit * unit
    return [b for b in (below, below + unit) if b > 0]


def _explain(job: Job, s: Strategy, name: str) -> tuple[str, str]:
    model = job.model
    heads = _heads(job)
    experts = [b.mlp.experts for b in model.blocks if b.mlp.is_moe]
    inner = [b.mlp.hidden or b.mlp.shared_hidden for b in model.blocks]
    wide = [b.mlp.expert_hidden for b in model.blocks if b.mlp.is_moe]
    unit = s.dp * s.micro_batch
    table = {
        "positive": ("every degree must be 1 or more", "leave out what you do not use"),
        "cards": (
            f"tp {s.tp} x pp {s.pp} x cp {s.cp} x dp {s.dp} = {s.world_size} ranks, but "
            f"{job.cards} cards", "lower a degree or raise --cards"),
        "heads": (f"tp {s.tp} does not divide the {min(heads, default=1)} attention heads",
                  f"--tp {_words(nearest_divisors(min(heads, default=1), s.tp))}"),
        "inner": (f"tp {s.tp} does not divide the inner width {inner[0]} of the MLP",
                  f"--tp {_words(nearest_divisors(max(inner[0], 1), s.tp))}"),
        "seq": (f"sequence {s.seq} does not divide by cp {s.cp} x tp {s.tp}",
                f"--seq {_words(_around(s.seq, s.cp * s.tp))}"),
        "cp-heads": (f"all-to-all context parallelism cuts heads: tp {s.tp} x cp {s.cp} does not "
                     f"divide {min(heads, default=1)}", "--cp-kind ring, or a smaller --cp"),
        "batch": (f"global batch {s.global_batch} is not a multiple of dp {s.dp} x micro-batch "
                  f"{s.micro_batch} = {unit}",
                  f"--global-batch {_words(legal_batches(s))} (never changed in silence)"),
        "layers": (f"pp {s.pp} x vpp {s.vpp} = {s.pp * s.vpp} stages, but {model.layers} layers",
                   f"at most {most_stages(model)} stages"),
        "vpp": (f"vpp {s.vpp} needs pp > 1", "--vpp 1"),
        "interleave": (f"interleaved 1F1B needs micro-batches in multiples of pp {s.pp}; here "
                       f"{s.micro_batches}", f"--global-batch {_words(legal_batches(s))}"),
        "vee": (f"schedule {s.schedule} holds 2 chunks per rank, not vpp {s.vpp}", "--vpp 2"),
        "chunks": (f"schedule {s.schedule} holds one chunk per rank, not vpp {s.vpp}",
                   "--schedule interleaved, or --vpp 1"),
        "hsdp": (f"--hsdp-shard {s.hsdp_shard} does not divide dp {s.dp} x cp {s.cp} = "
                 f"{s.dp * s.cp}",
                 f"--hsdp-shard {_words(nearest_divisors(s.dp * s.cp, s.hsdp_shard))}"),
        "recompute": (f"--recompute {s.recompute_layers}: a stage has "
                      f"{-(-model.layers // s.pp)} layers", "--recompute full"),
        "ep-ranks": (f"ep {s.ep} x etp {s.etp} does not divide dp x cp x tp = "
                     f"{s.dp * s.cp * s.tp}",
                     f"--ep {_words(nearest_divisors(s.dp * s.cp * s.tp // s.etp or 1, s.ep))}"),
        "experts": (f"ep {s.ep} does not divide {experts[0] if experts else 0} experts"
                    if experts else f"{model.name} has no experts, but ep {s.ep} etp {s.etp}",
                    f"--ep {_words(nearest_divisors(experts[0], s.ep))}" if experts else "--ep 1"),
        "etp": (f"etp {s.etp} does not divide the expert width {wide[0] if wide else 0}",
                f"--etp {_words(nearest_divisors(wide[0] if wide else 1, s.etp))}"),
        "layout": (f"stage layers {s.stage_layers} must be pp x vpp = {s.pp * s.vpp} numbers that "
                   f"add up to {model.layers}", "leave it out for an even spread"),
    }  # fmt: skip
    return table[name]


def _around(value: int, unit: int) -> list[int]:
    below = value // unit * unit
    return [v for v in (below, below + unit) if v > 0]
