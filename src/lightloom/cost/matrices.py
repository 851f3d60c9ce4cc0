"""The weight matrices of each kind of layer, as lists."""

from __future__ import annotations

from typing import NamedTuple

from lightloom.core.model import Attention, Mlp, Model


class Matrix(NamedTuple):
    """One weight matrix, `k` in, `n` (+ `kv_n` per key/value head) out."""

    part: str
    """attention, mlp or head: whose precision it takes."""
    n: float
    k: float
    split: str
    """col: output cut by tp; row: input cut by tp; all: on every rank."""
    kv_n: float = 0.0
    kv_heads: int = 1
    bias: bool = False
    times: float = 1.0
    """Products per micro-batch with this one matrix."""


def attention_matrices(a: Attention, h: int) -> list[Matrix]:
    """Return the projections of one attention of hidden size `h`."""
    if a.kind == "none":
        return []
    if a.kind == "ssm":
        return _ssm_matrices(a, h)
    if a.kind == "linear":
        return _linear_matrices(a, h)
    values = a.heads * a.v_head_dim
    found = _mla_matrices(a, h) if a.kv_lora else _plain_matrices(a, h)
    if a.gate:
        found.append(Matrix("attention", values, h, "col"))
    if a.o_groups and a.o_lora:
        found.append(Matrix("attention", a.o_lora, values, "row"))
        found.append(Matrix("attention", h, a.o_groups * a.o_lora, "row"))
    else:
        found.append(Matrix("attention", h, values, "row", bias=a.bias))
    return found + _indexer(a, h)


def _linear_matrices(a: Attention, h: int) -> list[Matrix]:
    """Return q, k, v, gates and output of linear attention (gated delta net and kin)."""
    values = a.heads * a.v_head_dim
    width = 2.0 * a.kv_heads * a.head_dim + values * (1 + a.gate)
    found = [Matrix("attention", width + (2.0 - (a.gate_rank > 0)) * a.heads, h, "col")]
    if a.gate_rank:
        found.append(Matrix("attention", 2.0 * a.gate_rank, h, "all"))
        found.append(Matrix("attention", 2.0 * values, a.gate_rank, "col"))
    found.append(Matrix("attention", h, values, "row"))
    return found


def _ssm_matrices(a: Attention, h: int) -> list[Matrix]:
    """Return the projections of Mamba (time step through `dt_rank`) and Mamba-2."""
    inner, groups = float(a.heads * a.v_head_dim), 2.0 * a.kv_heads * a.state
    if a.dt_rank:
        return [
            Matrix("attention", 2.0 * inner, h, "col"),
            Matrix("attention", a.dt_rank + groups, inner, "row"),
            Matrix("attention", inner, a.dt_rank, "col"),
            Matrix("attention", h, inner, "row"),
        ]
    return [Matrix("attention", 2.0 * inner + groups + a.heads, h, "col"),
            Matrix("attention", h, inner, "row")]  # fmt: skip


def _plain_matrices(a: Attention, h: int) -> list[Matrix]:
    """Return queries, keys and values; queries through `q_lora`, keys compressed where asked."""
    kv = a.head_dim + (0 if a.q_lora and a.o_groups else a.v_head_dim)
    queries = a.heads * a.head_dim
    if not a.q_lora:
        return [Matrix("attention", queries, h, "col", kv, a.kv_heads, a.bias)]
    found = [
        Matrix("attention", a.q_lora, h, "all"),
        Matrix("attention", queries, a.q_lora, "col"),
        Matrix("attention", 0.0, h, "col", kv, a.kv_heads),
    ]
    if a.compress:
        found.append(Matrix("attention", 2.0 * a.head_dim * (2 if a.index_heads else 1), h, "all"))
    return found


def _mla_matrices(a: Attention, h: int) -> list[Matrix]:
    nope = a.head_dim - a.rope_dim
    found = [Matrix("attention", a.kv_lora + a.rope_dim, h, "all", bias=a.bias)]
    if a.q_lora:
        found.append(Matrix("attention", a.q_lora, h, "all", bias=a.bias))
    found.append(Matrix("attention", a.heads * a.head_dim, a.q_lora or h, "col"))
    found.append(Matrix("attention", a.heads * (nope + a.v_head_dim), a.kv_lora, "col"))
    return found


def _indexer(a: Attention, h: int) -> list[Matrix]:
    if not a.index_heads:
        return []
    return [
        Matrix("attention", a.index_heads * a.index_dim, a.q_lora or h, "all"),
        Matrix("attention", a.index_dim * (4 if a.compress else 1) + a.index_heads, h, "all"),
    ]


def mlp_matrices(m: Mlp, h: int) -> list[Matrix]:
    """Return the dense matrices of one channel mixing: dense part, shared experts, router."""
    found: list[Matrix] = []
    for inner in (m.hidden, m.shared_hidden if m.is_moe else 0):
        if inner:
            found.append(Matrix("mlp", inner * (2 if m.gated else 1), h, "col", bias=m.bias))
            found.append(Matrix("mlp", h, inner, "row", bias=m.bias))
    if m.is_moe:
        found.append(Matrix("router", m.experts + 2.0 * m.latent, h, "all"))
    return found


def head_matrices(model: Model) -> list[Matrix]:
    """Return the output head (used once more per prediction layer) and those layers' inputs."""
    times = 1.0 + model.mtp_layers
    found = [Matrix("head", model.vocab, model.hidden, "col", times=times)]
    if model.mtp_layers:
        h = float(model.hidden)
        found.append(Matrix("mlp", h, 2.0 * h, "all", times=float(model.mtp_layers)))
    return found
