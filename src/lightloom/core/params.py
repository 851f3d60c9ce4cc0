"""Parameters of a model: total and active, by part, with the convention said.

Published counts follow different conventions; `Convention` names the choices. The default is what
most model cards print: embedding and head each counted (once where tied), prediction layers out,
language part only. All counts are of the whole model, exact for the layers the reader understands
except for small norms and gates inside linear layers.
"""

from __future__ import annotations

import msgspec

from .model import Attention, Block, Mlp, Model


class Convention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a count includes."""

    embedding: bool = True
    """Input embedding in the total."""
    head: bool = True
    """Output head in the total (a tied head is never counted twice)."""
    mtp: bool = False
    """Multi-token-prediction layers in the total."""
    active_embedding: bool = True
    """Input embedding among the active parameters although one row a token is read."""

    @property
    def text(self) -> str:
        """The convention in words."""
        parts = ["embedding" if self.embedding else "no embedding", "head" if self.head else
                 "no head", "MTP in" if self.mtp else "MTP out"]  # fmt: skip
        return ", ".join(parts)


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters by part, whole model; `active` is what one token passes."""

    embedding: int
    positions: int
    attention: int
    dense: int
    """Dense MLP."""
    router: int
    experts: int
    """Routed experts, all of them."""
    experts_active: int
    shared: int
    """Shared experts."""
    norms: int
    head: int
    """0 where tied to the embedding."""
    mtp: int
    """Prediction layers, whether counted or not."""
    mtp_active: int
    convention: Convention

    @property
    def total(self) -> int:
        """Parameters under the convention."""
        c = self.convention
        body = self.attention + self.dense + self.router + self.shared + self.norms + self.experts
        ends = c.embedding * self.embedding + c.head * self.head + self.positions
        return body + ends + c.mtp * self.mtp

    @property
    def active(self) -> int:
        """Parameters that one token passes, under the convention."""
        c = self.convention
        out = self.total - self.experts + self.experts_active
        if c.mtp:
            out -= self.mtp - self.mtp_active
        if c.embedding and not c.active_embedding and self.head:
            out -= self.embedding
        return out


def parameters(model: Model, convention: Convention = Convention()) -> Parameters:  # noqa: B008
    """Return parameters of `model` by part."""
    parts = dict.fromkeys(
        ("attention", "dense", "router", "experts", "experts_active", "shared", "norms"), 0
    )
    per_norm = model.hidden * (2 if model.norm == "layer" else 1)
    for block in model.blocks:
        for name, count in layer_parameters(block, model).items():
            parts[name] += block.count * count
    parts["norms"] += per_norm
    mtp, mtp_active = _prediction(model, per_norm)
    embedding = model.vocab * model.hidden
    return Parameters(
        **parts, embedding=embedding, positions=model.learned_positions * model.hidden,
        head=0 if model.tied else embedding, mtp=mtp, mtp_active=mtp_active, convention=convention,
    )  # fmt: skip


def layer_parameters(block: Block, model: Model) -> dict[str, int]:
    """Return parameters of one layer by part."""
    h, a, m = model.hidden, block.attention, block.mlp
    per_norm = h * (2 if model.norm == "layer" else 1)
    parts = int(a.kind != "none") + int(m.hidden > 0 or m.is_moe)
    return {
        "attention": attention_parameters(a, h, out_bias=a.bias and m.bias),
        "norms": per_norm * model.norms * parts // 2,
        **mlp_parameters(m, h),
    }


def _prediction(model: Model, per_norm: int) -> tuple[int, int]:
    """Return parameters of the prediction layers, all and active.

    Each is one more layer of the last kind, a 2h x h projection and three norms; embedding and
    head are shared with the model (DeepSeek-V3, arXiv 2412.19437, section 2.2).
    """
    if not model.mtp_layers:
        return 0, 0
    last = layer_parameters(model.blocks[model.layer_blocks[-1]], model)
    extra = 2 * model.hidden * model.hidden + 3 * per_norm
    every = sum(v for k, v in last.items() if k != "experts_active") + extra
    active = every - last["experts"] + last["experts_active"]
    return every * model.mtp_layers, active * model.mtp_layers


def attention_parameters(a: Attention, hidden: int, *, out_bias: bool = False) -> int:
    """Return parameters of one layer's token mixing."""
    if a.kind == "none":
        return 0
    if a.kind == "ssm":
        return _state_space(a, hidden)
    if a.kind == "linear":
        return _linear(a, hidden)
    values = a.heads * a.v_head_dim
    out = a.o_groups and a.o_lora
    count = values * a.o_lora + a.o_groups * a.o_lora * hidden if out else values * hidden
    if a.kv_lora:
        nope = a.head_dim - a.rope_dim
        count += a.q_lora * (hidden + 1) if a.q_lora else 0
        count += (a.q_lora or hidden) * a.heads * a.head_dim
        count += hidden * (a.kv_lora + a.rope_dim) + a.kv_lora
        count += a.kv_lora * a.heads * (nope + a.v_head_dim)
    elif a.q_lora:
        keys = a.kv_heads * (a.head_dim + (0 if a.o_groups else a.v_head_dim))
        count += a.q_lora * (hidden + a.heads * a.head_dim) + hidden * keys
        count += 2 * hidden * a.head_dim * (2 if a.index_heads else 1) if a.compress else 0
    else:
        keys = a.kv_heads * (a.head_dim + a.v_head_dim)
        count += hidden * (a.heads * a.head_dim + keys)
        count += (a.heads * a.head_dim + keys) * a.bias
    count += hidden * values * a.gate + 2 * a.head_dim * a.qk_norm + hidden * out_bias
    if a.index_heads:
        count += (a.q_lora or hidden) * a.index_heads * a.index_dim
        keys_in = 4 if a.compress else 1
        count += hidden * (a.index_dim * keys_in + a.index_heads) + 2 * a.index_dim
    return count


def _linear(a: Attention, hidden: int) -> int:
    """Gated delta net and kin: q, k, v, output gate, decay and step, short convolution."""
    keys, values = a.kv_heads * a.head_dim, a.heads * a.v_head_dim
    count = hidden * (2 * keys + values * (1 + a.gate)) + values * hidden
    count += a.conv * (2 * keys + values) + a.v_head_dim
    if a.gate_rank:
        return count + 2 * a.gate_rank * (hidden + values) + hidden * a.heads + a.heads + values
    return count + 2 * hidden * a.heads + 2 * a.heads


def _state_space(a: Attention, hidden: int) -> int:
    """Mamba (arXiv 2312.00752) and Mamba-2 (arXiv 2405.21060)."""
    inner, groups = a.heads * a.v_head_dim, 2 * a.kv_heads * a.state
    if a.dt_rank:
        inside = inner * (a.dt_rank + groups) + a.dt_rank * inner + inner
        return 3 * hidden * inner + inside + inner * (a.conv + 1) + inner * (a.state + 1)
    count = hidden * (2 * inner + groups + a.heads) + inner * hidden
    return count + (inner + groups) * (a.conv + 1) + 3 * a.heads + inner


def mlp_parameters(m: Mlp, hidden: int) -> dict[str, int]:
    """Return parameters of one layer's channel mixing by part."""
    matrices = 3 if m.gated else 2

    def dense(width: int, inside: int = hidden) -> int:
        bias = (width * (matrices - 1) + inside) * m.bias if width else 0
        return matrices * inside * width + bias

    expert = dense(m.expert_hidden, m.latent or hidden) if m.is_moe else 0
    around = 2 * hidden * m.latent if m.is_moe else 0
    return {
        "dense": dense(m.hidden),
        "router": hidden * m.experts + m.experts * m.bias + around,
        "experts": expert * m.experts,
        "experts_active": expert * m.topk,
        "shared": dense(m.shared_hidden) if m.is_moe else 0,
    }
