"""How each layer mixes channels: dense or experts, and its Mlp noun."""

from __future__ import annotations

from typing import Any

from . import hf_family as family
from .errors import InputError
from .hf_fields import NAMES, Fields
from .hf_special import ratio, rounded
from .model import Mlp

NONE = Mlp(hidden=0, gated=False)
_GATED_ACTS = ("silu", "swish", "swiglu", "geglu", "reglu", "swigluoai", "gelu_pytorch_tanh")
_DENSE_WORDS = ("dense", "mlp", 0, False)


def is_gated(f: Fields, kind: str) -> bool:
    """Return whether the MLP has a gate matrix: said, or known of the family, or by activation."""
    for name in ("gated_linear_unit", "use_glu", "gated_mlp", "glu_mlp", "use_gated_mlp",
                 "use_swiglu", "swiglu"):  # fmt: skip
        if isinstance(f.raw.get(name), bool):
            return f.flag(name)
    if kind in family.PLAIN_MLP:
        return False
    act = next(
        (f.raw[n] for n in ("hidden_act", "hidden_activation", "mlp_hidden_act",
                            "activation_function", "activation") if f.raw.get(n)),
        "silu",
    )  # fmt: skip
    if kind in family.KNOWN:
        return True
    f.note(f"family {kind[:40]!r} is not known: gate of the MLP guessed from {str(act)[:30]!r}")
    return act in _GATED_ACTS


def expert_count(f: Fields) -> int:
    """Return routed experts of a layer; 0 where the model is dense."""
    if f.raw.get("use_moe") is False or f.raw.get("enable_moe_block") is False:
        f.use(("use_moe", "enable_moe_block", *NAMES["experts"], *NAMES["topk"]))
        f.use(NAMES["expert_inner"])
        return 0
    f.use(("use_moe", "enable_moe_block"))
    count = _scalar(f, "experts", 0)
    if count <= 1:
        f.use((*NAMES["topk"], *NAMES["expert_inner"], *NAMES["shared"], *NAMES["shared_inner"]))
    return count if count > 1 else 0


def _scalar(f: Fields, word: str, default: int | None) -> int:
    """Return a number that some families give as a list; the first entry stands for all."""
    for name in NAMES[word]:
        value = f.raw.get(name)
        if isinstance(value, list):
            f.use((name,))
            if not value:
                return default or 0
            if any(v != value[0] for v in value):
                f.note(f"{name} differs between layers or kinds: the first entry stands for all")
            return f.number(name, value[0], 0, 10**7)
    return f.integer(word, default)


def expert_layers(f: Fields, kind: str, layers: int) -> list[bool]:
    """Return which layers route tokens to experts."""
    found: list[bool] | None = None
    for field in ("mlp_layer_types", "moe_layer_freq", "moe_layers_pattern", "moe_layer_pattern"):
        if isinstance(f.raw.get(field), list):
            values = f.items(field, layers)
            if values is not None and found is None:
                found = [v not in _DENSE_WORDS for v in values]
    for field in ("moe_layers", "moe_layers_enum", "moe_layer_list", "moe_layer_indices"):
        at = f.indices(field)
        if at and found is None:
            found = [i in at for i in range(layers)]
    first = f.integer("dense_first", 0, 0, 10**5)
    if found is not None:
        f.use(("moe_layer_offset", "moe_every_n_layer", "moe_layer_freq", "moe_every_n_layers"))
        return found
    last = f.integer("moe_layer_end_index", layers - 1, -1, 10**5)
    last = layers - 1 if last < 0 else last
    return [first <= i <= last and on for i, on in enumerate(_by_step(f, kind, layers))]


def _by_step(f: Fields, kind: str, layers: int) -> list[bool]:
    """Return expert layers by rules such as every second layer."""
    dense = f.indices("mlp_only_layers") or set()
    ends = [f.integer(n, 1, 1, 10**5) for n in ("decoder_sparse_step", "interleave_moe_layer_step")]
    ends.append(f.integer("moe_layer_interval", 1, 1, 10**5))
    starts = 1
    for name in ("moe_layer_freq", "moe_every_n_layers", "moe_every_n_layer", "moe_layer_period"):
        if f.raw.get(name) is not None:
            starts = max(starts, f.integer(name, 1, 0, 10**5))
    period = f.integer("expert_layer_period", 1, 1, 10**5)
    offset = f.integer("expert_layer_offset", 0, 0, 10**5) if period > 1 else 0
    f.use(("expert_layer_offset", "moe_layer_offset"))
    start = f.integer("moe_layer_offset", 0, 0, 10**5)
    return [
        i not in dense
        and all((i + 1) % step == 0 for step in ends)
        and i >= start
        and (i - start) % starts == 0
        and i % period == offset % period
        for i in range(layers)
    ]


def inner_width(f: Fields, kind: str, layer: int, hidden: int) -> int:
    """Return the inner width of a dense layer."""
    for name in NAMES["inner"]:
        value = f.raw.get(name)
        if isinstance(value, list):
            f.use((name,))
            if layer >= len(value):
                raise InputError(f"{f.where}: {name} has {len(value)} entries, layer {layer} none")
            return f.number(f"{name}[{layer}]", value[layer], 1, 10**7)
    factor = f.get("expansion_ratio", f.get("ffn_expansion_ratio"))
    if factor is not None:
        return f.integer("inner", int(ratio(f, "expansion_ratio", factor) * hidden), 1)
    factors = f.get("ffn_multipliers")
    if isinstance(factors, list) and layer < len(factors):
        unit = f.integer("ffn_dim_divisor", 256, 1, 10**5)
        return rounded(ratio(f, "ffn_multipliers", factors[layer]) * hidden, unit)
    written = f.raw.get("block_configs") is not None
    default = 4 * hidden if kind in family.PLAIN_MLP or written else None
    width = f.integer("inner", default, 1)
    if kind in ("qwen", "recurrent_gemma"):
        return max(1, width // 2)
    if f.flag("block_auto_adjust_ff_dim"):
        unit = f.integer("block_multiple_of", 256, 1, 10**5)
        f.use(("block_ffn_dim_multiplier", "block_use_swiglu"))
        return rounded(2 * width / 3, unit)
    return width


def mlp_of(f: Fields, kind: str, layer: int, hidden: int, experts: int) -> Mlp:
    """Return the Mlp noun of one layer; `experts` is 0 for a dense one."""
    gated, bias = is_gated(f, kind), _bias(f, kind)
    if not experts:
        wide = f.integer("dense_inner", 0)
        return Mlp(hidden=wide or inner_width(f, kind, layer, hidden), gated=gated, bias=bias)
    width = _scalar(f, "expert_inner", 0) or inner_width(f, kind, layer, hidden)
    shared, shared_width = _shared(f, kind, width)
    topk = _scalar(f, "topk", None)
    if not 1 <= topk <= experts:
        raise InputError(f"{f.where}: {topk} experts per token of {experts} experts")
    zeros = f.integer("zero_expert_num", 0)
    if zeros:
        f.note(f"{zeros} zero-computation experts: every token is costed with {topk} real experts")
    return Mlp(
        hidden=_beside(f, kind, layer, hidden), gated=gated,
        bias=bias or kind in family.EXPERTS_WITH_BIAS, experts=experts, topk=topk,
        expert_hidden=width, shared_experts=shared, shared_hidden=shared_width,
        latent=f.integer("moe_latent_size", 0),
    )  # fmt: skip


def _beside(f: Fields, kind: str, layer: int, hidden: int) -> int:
    """Return the width of a dense MLP that works beside the experts of the same layer."""
    both = [f.flag(n) for n in ("moe_dense_residual", "use_dense_residual", "residual_moe")
            if isinstance(f.raw.get(n), bool)]  # fmt: skip
    if any(both) or kind == "arctic" or f.raw.get("enable_moe_block") is True:
        return inner_width(f, kind, layer, hidden)
    return 0


def _shared(f: Fields, kind: str, width: int) -> tuple[int, int]:
    """Return how many shared experts a layer has, and their width together."""
    given: Any = None
    for name in NAMES["shared_inner"]:
        if given is None and f.raw.get(name) is not None:
            given = f.number(name, f.raw[name], 0, 10**7)
        f.use((name,))
    count = _scalar(f, "shared", 0)
    if f.flag("shared_expert_gate"):
        f.note("shared expert gate is not counted")
    if given is not None:
        return (max(1, count), given) if given else (0, 0)
    if kind in family.LLAMA4 and count == 0:
        count = 1
    return count, count * width


def _bias(f: Fields, kind: str) -> bool:
    said = [f.flag(n) for n in ("mlp_bias", "use_mlp_bias", "add_bias_linear", "use_bias")
            if isinstance(f.raw.get(n), bool)]  # fmt: skip
    return any(said) if said else kind in family.BIAS_ALL
