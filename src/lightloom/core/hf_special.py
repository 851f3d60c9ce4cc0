"""Layers that are written block by block, or that hold more than one attention and one MLP."""

from __future__ import annotations

from typing import Any

import msgspec

from .errors import InputError
from .hf_fields import Fields
from .model import Attention, Mlp

Pair = tuple[Attention, Mlp]
NO_ATTENTION = Attention(kind="none", heads=0, kv_heads=0, head_dim=0, v_head_dim=0)
NO_MLP = Mlp(hidden=0, gated=False)


def with_block_configs(f: Fields, pairs: list[Pair], hidden: int) -> list[Pair]:
    """Return `pairs` changed by ``block_configs`` (architecture search: heads, widths, no-ops)."""
    blocks = f.items("block_configs", len(pairs))
    if blocks is None:
        return pairs
    out: list[Pair] = []
    for i, ((attention, mlp), raw) in enumerate(zip(pairs, blocks, strict=True)):
        if not isinstance(raw, dict):
            raise f.bad(f"block_configs[{i}]", raw, "an object")
        where = f"{f.where}: block_configs[{i}]"
        out.append(
            (_attention(Fields(raw, where), attention), _mlp(Fields(raw, where), mlp, hidden))
        )
    return out


def _part(f: Fields, name: str) -> Fields:
    return Fields(f.table(name), f"{f.where}.{name}")


def _attention(f: Fields, a: Attention) -> Attention:
    part = _part(f, "attention")
    if part.flag("no_op") or part.flag("replace_with_linear"):
        return NO_ATTENTION
    group = part.integer("n_heads_in_group", 0, 0, 10**5)
    kv = part.integer("num_key_value_heads", a.heads // group if group else a.kv_heads, 1, 10**5)
    if a.heads % kv:
        raise InputError(f"{part.where}: {a.heads} heads are not a multiple of {kv}")
    return msgspec.structs.replace(a, kv_heads=kv)


def _mlp(f: Fields, m: Mlp, hidden: int) -> Mlp:
    part = _part(f, "ffn")
    if part.flag("no_op") or part.flag("replace_with_linear"):
        return NO_MLP
    width = part.integer("intermediate_size", 0, 0, 10**7)
    factor = part.get("ffn_mult")
    if not width and factor is not None:
        width = rounded(2 * ratio(part, "ffn_mult", factor) * hidden / 3, 256)
    return msgspec.structs.replace(m, hidden=width or m.hidden)


def ratio(f: Fields, field: str, value: Any) -> float:
    """Return a factor between 0 and 1,000."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1000:
        raise f.bad(field, value, "a factor")
    return float(value)


def rounded(value: float, unit: int) -> int:
    """Return `value` rounded up to a multiple of `unit`."""
    return -(-int(value) // unit) * unit


def doubled(f: Fields, pairs: list[Pair], width: int) -> list[Pair]:
    """Return shortcut layers (LongCat: two attentions, two dense MLPs, one set of experts)."""
    f.note("shortcut layers costed as two layers each: the experts run beside the second")
    dense = Mlp(hidden=width, gated=True)
    return [
        half
        for attention, mlp in pairs
        for half in ((attention, dense), (attention, msgspec.structs.replace(mlp, hidden=width)))
    ]
