"""Anatomy: the matrices, attention cores and experts of each kind of layer, as static columns.

Axes: B kinds of layer (`model.blocks`), G matrices of all kinds and of the head one after another,
A attention cores likewise. Widths are those of the whole model; `layer_time` and `sharding` divide
them by the degrees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.model import Attention, Block, Model

from .matrices import Matrix, attention_matrices, head_matrices, mlp_matrices
from .memo import per_object

F64 = NDArray[np.float64]
CHUNK = 64.0
"""Tokens of one chunk of linear attention (flash-linear-attention's default)."""


def _core_rows(a: Attention) -> list[tuple[float, ...]]:
    """Return attention cores as (heads, kv heads, qk dim, v dim, kind, window)."""
    if a.kind == "none":
        return [(0.0, 0.0, 1.0, 1.0, 0.0, 1.0)]
    kv = float(a.heads if a.kind == "mla" else a.kv_heads)
    if a.kind in ("linear", "ssm"):
        dk = float(a.state if a.kind == "ssm" and a.state else a.head_dim)
        seen = CHUNK + 4.0 * dk * a.v_head_dim / (dk + a.v_head_dim)
        return [(a.heads, kv, dk, a.v_head_dim, 2.0, seen)]
    kind = {"chunked": 2.0, "sliding": 1.0, "sparse": 1.0}.get(a.kind, 1.0 if a.window else 0.0)
    sizes = (a.heads, kv, a.head_dim, a.v_head_dim, kind, a.window)
    rows: list[tuple[float, ...]] = [tuple(float(x) for x in sizes)]
    if a.index_heads:
        rows.append((float(a.index_heads), 1.0, float(a.index_dim), 0.0, 0.0, 0.0))
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class Anatomy:
    """Static columns of a model. Counts and widths, whole model, no units."""

    hidden: float
    vocab: float
    mtp: int
    layers: int
    part_G: tuple[str, ...]
    n_G: F64
    k_G: F64
    kv_n_G: F64
    kv_heads_G: F64
    col_G: F64
    row_G: F64
    all_G: F64
    bias_G: F64
    times_G: F64
    start_B: NDArray[np.int64]
    """First matrix of each kind of layer, and of the head as one kind more."""
    heads_A: F64
    kv_A: F64
    qk_A: F64
    v_A: F64
    kind_A: F64
    """0 all tokens before, 1 a sliding window, 2 `window` tokens whatever the sequence."""
    window_A: F64
    core_B: NDArray[np.int64]
    """First attention core of each kind of layer."""
    attends_B: F64
    """1 where the layer mixes tokens."""
    compressed_B: F64
    """MLA: width of the latents kept beside the heads; 0 elsewhere."""
    inner_B: F64
    """Width of dense and shared MLP together."""
    gated_B: F64
    dense_B: F64
    """1 where tokens pass a tensor-parallel MLP (dense or shared experts)."""
    experts_B: F64
    topk_B: F64
    expert_hidden_B: F64
    expert_width_B: F64
    """Width of a token as experts see it: hidden, or the model's latent."""
    norms_B: F64
    """Parameters of the layer's norms, per rank."""
    rope: bool
    dropout: bool
    """GPT-2/3-like models train with dropout, whose masks are kept for backward."""
    tied: bool
    positions: float
    count_B: NDArray[np.int64]
    blocks_L: NDArray[np.int64]
    """Kind of each layer."""


def _norm_parameters(block: Block, model: Model) -> float:
    per = 2.0 if model.norm == "layer" else 1.0
    a = block.attention
    halves = int(a.kind != "none") + int(block.mlp.hidden > 0 or block.mlp.is_moe)
    extra = (a.head_dim * 2.0 if a.qk_norm else 0.0) + a.q_lora + a.kv_lora
    if a.kind in ("linear", "ssm"):
        width = 2.0 * a.kv_heads * a.head_dim + a.heads * a.v_head_dim
        extra += a.conv * width + 2.0 * a.heads + a.v_head_dim
    return per * model.hidden * model.norms * halves / 2.0 + extra


@per_object(64)
def anatomy_of(model: Model) -> Anatomy:
    """Return the static columns of `model`."""
    matrices: list[Matrix] = []
    cores: list[tuple[float, ...]] = []
    start, core = [], []
    for block in model.blocks:
        start.append(len(matrices))
        core.append(len(cores))
        matrices += attention_matrices(block.attention, model.hidden)
        matrices += mlp_matrices(block.mlp, model.hidden)
        cores += _core_rows(block.attention)
    start.append(len(matrices))
    matrices += head_matrices(model)
    table = np.array(cores, np.float64).T
    mlps = [b.mlp for b in model.blocks]

    def column(values: list[float]) -> F64:
        return np.array(values, np.float64)[:, None]

    def split(kind: str) -> F64:
        return column([float(m.split == kind) for m in matrices])

    return Anatomy(
        hidden=float(model.hidden), vocab=float(model.vocab), mtp=model.mtp_layers,
        layers=model.layers, part_G=tuple(m.part for m in matrices),
        n_G=column([m.n for m in matrices]), k_G=column([m.k for m in matrices]),
        kv_n_G=column([m.kv_n for m in matrices]),
        kv_heads_G=column([float(m.kv_heads) for m in matrices]),
        col_G=split("col"), row_G=split("row"), all_G=split("all"),
        bias_G=column([float(m.bias) for m in matrices]),
        times_G=column([m.times for m in matrices]),
        start_B=np.array(start), core_B=np.array(core),
        heads_A=table[0][:, None], kv_A=table[1][:, None], qk_A=table[2][:, None],
        v_A=table[3][:, None], kind_A=table[4][:, None], window_A=table[5][:, None],
        attends_B=column([float(b.attention.kind != "none") for b in model.blocks]),
        compressed_B=column([float(b.attention.q_lora + b.attention.kv_lora)
                             for b in model.blocks]),
        inner_B=column([float(m.hidden + (m.shared_hidden if m.is_moe else 0)) for m in mlps]),
        gated_B=column([float(m.gated) for m in mlps]),
        dense_B=column([float(m.hidden > 0 or m.shared_hidden > 0) for m in mlps]),
        experts_B=column([float(m.experts) for m in mlps]),
        topk_B=column([float(m.topk) for m in mlps]),
        expert_hidden_B=column([float(m.expert_hidden) for m in mlps]),
        expert_width_B=column([float(m.latent or model.hidden) for m in mlps]),
        norms_B=column([_norm_parameters(b, model) for b in model.blocks]),
        rope=model.learned_positions == 0, dropout=model.norm == "layer",
        tied=model.tied, positions=float(model.learned_positions),
        count_B=np.array([b.count for b in model.blocks]),
        blocks_L=np.array(model.layer_blocks),
    )  # fmt: skip
