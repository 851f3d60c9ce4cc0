"""Model: what a decoder is made of, as far as its cost is concerned."""

from __future__ import annotations

from typing import Literal

import msgspec

AttentionKind = Literal["full", "sliding", "chunked", "mla", "linear", "ssm", "sparse", "none"]


class Attention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Token mixing of one layer. GQA is kv_heads < heads, MQA is kv_heads = 1.

    MLA whose indexer chooses tokens stays kind ``mla`` with `window` = tokens chosen (layers that
    reuse the choice of an earlier one have `window` and no `index_heads`); ``sparse`` is the same
    without latents. ``linear``: `heads` x `v_head_dim` are values, `kv_heads` x `head_dim` keys.
    ``ssm``: `heads` x `v_head_dim` is the inner width, `kv_heads` groups of B and C, and
    `head_dim` = `state`.
    """

    kind: AttentionKind
    heads: int
    kv_heads: int
    head_dim: int
    """Size of a query/key head (MLA: nope + rope)."""
    v_head_dim: int
    window: int = 0
    """Tokens seen by sliding, chunked or sparse attention; 0 sees all."""
    q_lora: int = 0
    """MLA rank of the query; 0 projects directly."""
    kv_lora: int = 0
    rope_dim: int = 0
    """MLA: shared rotary part of a key."""
    bias: bool = False
    gate: bool = False
    """Output gate with its own projection."""
    qk_norm: bool = False
    conv: int = 0
    """Linear attention / state space: width of the short convolution."""
    state: int = 0
    """Linear attention / state space: state size per head."""
    index_heads: int = 0
    index_dim: int = 0
    """Sparse attention: heads and width of the indexer that chooses tokens."""
    gate_rank: int = 0
    """Linear attention: rank of low-rank gates (decay and output, heads x v_head_dim wide)."""
    dt_rank: int = 0
    """First-generation state space: rank of the time step; B and C come from the inner width."""
    o_lora: int = 0
    """Output through `o_groups` groups of this rank each; 0 projects directly."""
    o_groups: int = 0
    compress: int = 0
    """Keys are also kept compressed, this many tokens to one; 0: not at all."""


class Mlp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Channel mixing of one layer: dense, or experts."""

    hidden: int
    """Inner width of the dense part; 0 where there is none."""
    gated: bool
    bias: bool = False
    experts: int = 0
    """Routed experts; 0 is a dense layer."""
    topk: int = 0
    expert_hidden: int = 0
    shared_experts: int = 0
    shared_hidden: int = 0
    """Inner width of all shared experts together."""
    latent: int = 0
    """Routed experts work on this width, between a down and an up projection; 0: hidden."""

    @property
    def is_moe(self) -> bool:
        """True where tokens are routed to experts."""
        return self.experts > 0


class Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run of equal layers."""

    count: int
    attention: Attention
    mlp: Mlp


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decoder: blocks in order, embedding, head, multi-token-prediction layers."""

    version: int = 1
    name: str
    hidden: int
    vocab: int
    blocks: tuple[Block, ...]
    tied: bool
    """Input embedding and output head are one matrix."""
    max_seq: int
    mtp_layers: int = 0
    """Extra prediction layers, each one more block of the last kind plus a 2h x h projection."""
    learned_positions: int = 0
    """Rows of a learned position embedding; 0 for rotary."""
    norm: Literal["rms", "layer"] = "rms"
    norms: int = 2
    """Norms of one layer (4 where outputs are normalised too)."""
    weights_dtype: str = "bf16"
    family: str = ""
    order: tuple[int, ...] = ()
    """Block index of every layer where blocks interleave; empty: blocks follow one another."""
    settings: dict[str, str | int | float | bool] = {}
    """What changes no cost but launch files need: rope_theta, norm_eps, activation,
    router_score, router_scale, router_groups, router_group_topk, norm_topk, rope_scaling ..."""
    approximated: tuple[str, ...] = ()
    """What the cost model only approximates, in words."""
    ignored: tuple[str, ...] = ()
    """Fields of the configuration that change cost and are not understood."""
    source: str = ""

    @property
    def layers(self) -> int:
        """Decoder layers, without multi-token prediction."""
        return sum(block.count for block in self.blocks)

    @property
    def is_moe(self) -> bool:
        """True where any layer routes tokens to experts."""
        return any(block.mlp.is_moe for block in self.blocks)

    @property
    def layer_blocks(self) -> tuple[int, ...]:
        """Block index of each layer, in order."""
        if self.order:
            return self.order
        return tuple(i for i, block in enumerate(self.blocks) for _ in range(block.count))
