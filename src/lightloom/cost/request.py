"""From what a user says to a job and one strategy: defaults stated, nothing changed in silence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, get_args

from lightloom.core.cluster import Cluster
from lightloom.core.errors import InputError, nearest
from lightloom.core.framework import FRAMEWORKS, FrameworkName
from lightloom.core.model import Model
from lightloom.core.strategy import ScheduleName, Strategy, Task
from lightloom.core.units import parse_count

from .columns import CP_KINDS, DTYPES, RECOMPUTE, SCHEDULES, ZERO
from .frameworks import framework_of
from .job import Job
from .precision import parse_precision

LONGEST = 8192
"""Sequence when nothing is said: the model's own, at most this."""
LARGEST = 10**9
TOKENS = 4 * 2**20
"""Tokens of one step when nothing is said."""
_TOKENS = re.compile(r"\s*([\d.,_]+\s*(?:Ki|Mi|Gi|[kKMG])?)\s*tok(?:ens)?\s*", re.IGNORECASE)
OVERLAPS = ("tp", "ep", "pp", "grad", "param")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Options of one configuration as typed; None or empty means not said."""

    cards: int | None = None
    tp: int = 1
    pp: int = 1
    dp: int | None = None
    cp: int = 1
    ep: int = 1
    etp: int = 1
    vpp: int = 1
    micro_batch: int = 1
    global_batch: str | None = None
    seq: int | None = None
    precision: str = "bf16"
    recompute: str = "none"
    zero: str | None = None
    framework: str = "megatron"
    task: str = "pretrain"
    schedule: str | None = None
    cp_kind: str = "ring"
    stage_layers: str = ""
    optimizer_dtype: str = "fp32"
    gradient_dtype: str | None = None
    offload_optimizer: bool = False
    sequence_parallel: bool | None = None
    overlap: str | None = None
    hsdp_shard: int | None = None
    lora_rank: int = 16
    flash: bool = True
    imbalance: float = 1.0


def one_of(value: str, known: tuple[str, ...], option: str) -> str:
    """Return `value`, or say which words the option knows."""
    if value not in known:
        raise InputError(
            f"{option} {value!r}: unknown{nearest(value, known)}", out=f"one of {', '.join(known)}"
        )
    return value


def positive(value: int, option: str) -> int:
    """Return `value`, or say that it must be 1 or more (and no more than a machine can hold)."""
    if value > LARGEST:
        raise InputError(f"{option} {value}: more than {LARGEST:,}", out="a smaller number")
    if value < 1:
        raise InputError(f"{option} {value}: must be 1 or more", out=f"1, or leave {option} out")
    return value


def parse_recompute(text: str) -> tuple[str, int]:
    """Return (kind, layers) from none, selective, full or a number of layers per stage."""
    if text.isdigit():
        positive(int(text) or 1, "--recompute")
        return ("full", int(text)) if int(text) else ("none", 0)
    return one_of(text, RECOMPUTE, "--recompute"), 0


def parse_batch(text: str, seq: int) -> tuple[int, str]:
    """Return (sequences, what was rounded) from ``512`` or ``4Mtok``."""
    match = _TOKENS.fullmatch(text)
    if match:
        tokens = parse_count(match.group(1), "--global-batch")
        sequences = max(1, round(tokens / seq))
        return sequences, (f"global batch {text} = {sequences:,} sequences x {seq:,} tokens = "
                           f"{sequences * seq:,} tokens")  # fmt: skip
    if not text.strip().isdigit():
        raise InputError(f"--global-batch {text!r}: not a number of sequences",
                         out="512 counts sequences; 4Mtok counts tokens")  # fmt: skip
    return positive(int(text), "--global-batch"), ""


def _overlaps(asked: Asked) -> dict[str, bool]:
    """Return the overlap flags: the framework's own, changed by ``tp,no-grad``."""
    flags = framework_of(asked.framework).defaults
    third = asked.framework == "deepspeed" and asked.zero == "3"  # its dynamic default
    chosen = {
        "grad": flags.overlap_grad or third, "param": flags.overlap_param or third,
        "tp": flags.overlap_tp,
        "pp": flags.overlap_pp, "ep": False,
    }  # fmt: skip
    for word in (asked.overlap or "").split(","):
        name = word.strip()
        if not name:
            continue
        if name in ("all", "none"):
            chosen = dict.fromkeys(chosen, name == "all")
            continue
        one_of(name.removeprefix("no-"), OVERLAPS, "--overlap")
        chosen[name.removeprefix("no-")] = not name.startswith("no-")
    return {f"overlap_{name}": on for name, on in chosen.items()}


def default_batch(seq: int, unit: int) -> int:
    """Return about 4 Mi tokens in sequences, as a multiple of `unit` (at least one unit)."""
    return max(1, round(TOKENS / seq / unit)) * unit


def _layout(text: str) -> tuple[int, ...]:
    try:
        layers = tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise InputError(f"--stage-layers {text!r}: not numbers", out="for example 7,8,8,7")
    if any(not 0 <= count <= LARGEST for count in layers):
        raise InputError(f"--stage-layers {text!r}: a stage cannot hold that many layers")
    return layers


def request(model: Model, cluster: Cluster, asked: Asked) -> tuple[Job, Strategy, list[str]]:
    """Return the job, its strategy, and what was filled in, one sentence each."""
    notes: list[str] = []
    framework: Any = one_of(asked.framework, FRAMEWORKS, "--framework")
    task: Any = one_of(asked.task, get_args(Task), "--task")
    cards = positive(asked.cards if asked.cards is not None else cluster.cards, "--cards")
    if cards > cluster.cards:
        raise InputError(f"--cards {cards:,}: {cluster.name} has {cluster.cards:,}",
                         out=f"--cards {cluster.cards}")  # fmt: skip
    own = min(model.max_seq or LONGEST, LONGEST)
    seq = own if asked.seq is None else positive(asked.seq, "--seq")
    if asked.seq is None:
        notes.append(f"sequence {seq:,} tokens: not said (the model's own, at most {LONGEST:,})")
    elif model.max_seq and seq > model.max_seq:
        notes.append(f"sequence {seq:,} is longer than the model's {model.max_seq:,} positions")
    for name in ("tp", "pp", "cp", "ep", "etp", "vpp", "micro_batch"):
        positive(getattr(asked, name), f"--{name.replace('_', '-')}")
    inside = asked.tp * asked.pp * asked.cp
    if inside > cards:
        raise InputError(
            f"tp {asked.tp} x pp {asked.pp} x cp {asked.cp} = {inside:,} ranks, "
            f"but {cards:,} cards",
            out="lower a degree or raise --cards",
        )
    dp = cards // inside if asked.dp is None else positive(asked.dp, "--dp")
    schedule = _schedule(asked)
    unit = dp * asked.micro_batch * (asked.pp if schedule == "interleaved" else 1)
    if asked.global_batch is None:
        batch = default_batch(seq, unit)
        notes.append(f"global batch {batch:,} sequences = {batch * seq:,} tokens: not said "
                     "(about 4 Mi tokens)")  # fmt: skip
    else:
        batch, rounded = parse_batch(asked.global_batch, seq)
        notes += [rounded] if rounded else []
    job = Job(model=model, cluster=cluster, cards=cards, seq=seq, global_batch=batch,
              framework=framework, task=task, flash=asked.flash,
              imbalance=_imbalance(asked.imbalance))  # fmt: skip
    strategy = _strategy(asked, framework, task, dp, batch, seq, schedule)
    idle = cards - strategy.world_size
    if idle:
        why = f"--dp {dp} was asked for" if asked.dp else f"tp x pp x cp = {inside:,} is a part"
        notes.append(f"{idle:,} of {cards:,} cards idle ({why})")
    return job, strategy, notes


def _imbalance(value: float) -> float:
    if not 1.0 <= value <= 1e6:
        raise InputError(f"--imbalance {value:g}: the busiest rank has at least the mean",
                         out="1 is balanced routing")  # fmt: skip
    return value


def _schedule(asked: Asked) -> str:
    if asked.schedule:
        return one_of(asked.schedule, SCHEDULES, "--schedule")
    return "interleaved" if asked.vpp > 1 else "1f1b"


def _strategy(
    asked: Asked, framework: FrameworkName, task: Any, dp: int, batch: int, seq: int, schedule: str
) -> Strategy:
    flags = framework_of(framework).defaults
    recompute, layers = parse_recompute(asked.recompute)
    parse_precision(asked.precision)
    chosen: Any = one_of(schedule, get_args(ScheduleName), "--schedule")
    sp = asked.sequence_parallel
    own_sp = flags.sequence_parallel and asked.tp > 1 and seq % (asked.tp * asked.cp) == 0
    kind: Any = one_of(asked.cp_kind, CP_KINDS, "--cp-kind")
    zero: Any = one_of(asked.zero or flags.zero, ZERO, "--zero")
    again: Any = recompute
    shard = 0 if asked.hsdp_shard is None else positive(asked.hsdp_shard, "--hsdp-shard")
    if shard and zero != "hsdp":
        raise InputError(f"--hsdp-shard {shard}: sharding is {zero}", out="add --zero hsdp")
    return Strategy(
        tp=asked.tp, pp=asked.pp, dp=dp, cp=asked.cp, ep=asked.ep, etp=asked.etp, vpp=asked.vpp,
        micro_batch=asked.micro_batch, global_batch=batch, seq=seq, precision=asked.precision,
        recompute=again, recompute_layers=layers, zero=zero, hsdp_shard=shard,
        sequence_parallel=own_sp if sp is None else sp, cp_kind=kind, schedule=chosen,
        stage_layers=_layout(asked.stage_layers),
        optimizer_dtype=one_of(asked.optimizer_dtype, DTYPES, "--optimizer-dtype"),
        gradient_dtype=one_of(asked.gradient_dtype or flags.gradient_dtype, DTYPES,
                              "--gradient-dtype"),
        offload_optimizer=asked.offload_optimizer, framework=framework, task=task,
        lora_rank=positive(asked.lora_rank, "--lora-rank"), **_overlaps(asked),
    )  # fmt: skip
