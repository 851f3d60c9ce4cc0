"""Shared by the tests of the cost engine: jobs, and random legal candidates."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightloom.core.catalog import load_cluster, load_model
from lightloom.core.model import Attention, Block, Mlp, Model
from lightloom.core.strategy import Strategy
from lightloom.cost.columns import Columns, make_columns, strategy_of
from lightloom.cost.job import Job, legal


def gpt(layers: int, hidden: int, heads: int, vocab: int = 51200) -> Model:
    size = hidden // heads
    attention = Attention(kind="full", heads=heads, kv_heads=heads, head_dim=size,
                          v_head_dim=size, bias=True)  # fmt: skip
    mlp = Mlp(hidden=4 * hidden, gated=False, bias=True)
    return Model(
        name=f"gpt-{layers}x{hidden}", hidden=hidden, vocab=vocab, tied=True, max_seq=2048,
        blocks=(Block(count=layers, attention=attention, mlp=mlp),), norm="layer",
        learned_positions=2048,
    )  # fmt: skip


def job_of(model: str | Model, cluster: str, cards: int, **more: Any) -> Job:
    values: dict[str, Any] = {"seq": 4096, "global_batch": 1024} | more
    noun = load_model(model) if isinstance(model, str) else model
    return Job(model=noun, cluster=load_cluster(cluster), cards=cards, **values)


def plain(job: Job, **values: Any) -> Strategy:
    base: dict[str, Any] = {"global_batch": job.global_batch, "seq": job.seq,
                            "framework": job.framework, "task": job.task}  # fmt: skip
    return Strategy(**(base | values))


def random_columns(job: Job, size: int, seed: int) -> Columns:
    """Return up to `size` random legal candidates that vary every field."""
    rng = np.random.default_rng(seed)
    draws = size * 60

    def pick(*values: int) -> Any:
        return rng.choice(np.array(values), draws)

    moe = job.model.is_moe
    tp, pp, cp, vpp = pick(1, 2, 4, 8), pick(1, 2, 3, 4, 8, 16), pick(1, 1, 2, 4), pick(1, 1, 2, 3)
    dp = np.maximum(job.cards // (tp * pp * cp) // pick(1, 1, 3), 1)
    columns = make_columns(
        draws, tp=tp, pp=pp, cp=cp, dp=dp, vpp=vpp,
        ep=pick(1, 2, 8, 16) if moe else 1, etp=pick(1, 1, 2) if moe else 1,
        micro_batch=pick(1, 2, 4), global_batch=pick(job.global_batch, job.global_batch * 3),
        seq=pick(job.seq, job.seq // 2),
        schedule=np.where(vpp > 1, np.where(vpp == 2, pick(2, 2, 4, 6), 2), pick(0, 1, 1, 3, 5)),
        recompute=pick(0, 1, 2), recompute_layers=pick(0, 0, 1), zero=pick(0, 1, 2, 3, 4, 5),
        hsdp_shard=pick(0, 4), sequence_parallel=pick(0, 1), cp_kind=pick(0, 1),
        precision=pick(0, 1, 2), optimizer_dtype=pick(0, 1), gradient_dtype=pick(0, 1),
        offload_optimizer=pick(0, 0, 1), overlap_grad=pick(0, 1), overlap_param=pick(0, 1),
        overlap_tp=pick(0, 1), overlap_pp=pick(0, 1), overlap_ep=pick(0, 1),
        precisions=("bf16", "fp8", "bf16,mlp=fp8"), framework=job.framework, task=job.task,
    )  # fmt: skip
    return columns.take(np.flatnonzero(legal(job, columns))[:size])


def rows_of(columns: Columns) -> list[Strategy]:
    return [strategy_of(columns, i) for i in range(len(columns))]
