"""How each layer mixes tokens: the kind per layer, and its Attention noun."""

from __future__ import annotations

from typing import Any

from . import hf_family as family
from .errors import InputError
from .hf_fields import Fields, Raw
from .model import Attention

NONE = Attention(kind="none", heads=0, kv_heads=0, head_dim=0, v_head_dim=0)

_KINDS: dict[str, str] = {
    **dict.fromkeys(("full_attention", "attention", "global", "global_attention", "full",
                     "softmax_attention", "*", "G", "A"), "full"),
    **dict.fromkeys(("sliding_attention", "local", "local_attention", "sliding", "swa", "L", "S",
                     "sliding_window", "sliding_window_attention"), "sliding"),
    **dict.fromkeys(("chunked_attention", "chunked"), "chunked"),
    **dict.fromkeys(("linear_attention", "lightning_attention", "kda", "gated_deltanet", "gdn",
                     "gated_delta_net", "linear", "gla", "retention"), "linear"),
    **dict.fromkeys(("mamba", "mamba2", "ssm", "M"), "ssm"),
    **dict.fromkeys(("recurrent", "rglru"), "rglru"),
    **dict.fromkeys(("conv", "short_conv"), "conv"),
    **dict.fromkeys(("hybrid", "hybrid_mamba", "parallel_hybrid"), "hybrid"),
    **dict.fromkeys(("mlp", "moe", "-", "E"), "none"),
    **dict.fromkeys(("sparse_attention", "sparse", "deepseek_sparse_attention"), "sparse"),
    "compressed_sparse_attention": "csa", "heavily_compressed_attention": "hca",
}  # fmt: skip
"""Spelling in configurations -> how the layer mixes."""

_MAMBA_FIELDS = (
    "mamba_num_heads",
    "mamba_n_heads",
    "ssm_state_size",
    "mamba_d_state",
    "state_size",
)


def layer_kinds(f: Fields, kind: str, layers: int) -> list[str]:
    """Return one mixing kind per layer from whatever form the configuration has."""
    for found in (_from_lists(f, layers), _from_rules(f, kind, layers)):
        if found is not None:
            return found
    return ["full"] * layers


def _named(f: Fields, field: str, values: list[Any]) -> list[str]:
    kinds = []
    mamba = any(f.raw.get(name) is not None for name in _MAMBA_FIELDS)
    for value in values:
        word = _KINDS.get(value) if isinstance(value, str) else None
        if word is None:
            f.note(f"{field}: {str(value)[:40]!r} is not known, costed as full attention")
            word = "full"
        if word == "linear" and mamba and "linear_num_value_heads" not in f.raw:
            word = "ssm"
        kinds.append(word)
    return kinds


def _from_lists(f: Fields, layers: int) -> list[str] | None:
    """Read kinds that are written out per layer."""
    pattern = f.get("hybrid_override_pattern")
    if pattern is not None:
        if not isinstance(pattern, str) or len(pattern) < layers:
            raise f.bad("hybrid_override_pattern", pattern, f"a text of {layers} letters")
        return _named(f, "hybrid_override_pattern", list(pattern[:layers]))
    found: list[str] | None = None
    for field in ("layers_block_type", "layer_types", "attention_layer_types", "mixer_types"):
        values = f.items(field, layers)
        if values is not None and found is None:
            found = _named(f, field, values)
    if found is not None:
        return found
    ratios = f.items("compress_ratios", layers)
    if ratios is not None:
        names = {0: "sliding", 4: "csa", 128: "hca"}
        return [names.get(r, "csa") if isinstance(r, int) else "csa" for r in ratios]
    values = f.items("attn_type_list", layers)
    if values is not None:
        return ["full" if v == 1 else "linear" for v in values]
    values = f.items("hybrid_layer_pattern", layers)
    if values is not None:
        return ["sliding" if v == 1 else "full" for v in values]
    types = f.get("attention_types")
    if types is not None:
        return _gpt_neo(f, types, layers)
    return None


def _gpt_neo(f: Fields, types: Any, layers: int) -> list[str]:
    """Read ``[[["global", "local"], 12]]``."""
    kinds: list[str] = []
    try:
        for group, times in types:
            kinds += _named(f, "attention_types", list(group)) * min(int(times), 10**4)
    except (TypeError, ValueError) as error:
        raise f.bad("attention_types", types, "groups of [kinds, times]") from error
    if len(kinds) < layers:
        raise InputError(f"{f.where}: attention_types covers {len(kinds)} of {layers} layers")
    return kinds[:layers]


def _from_rules(f: Fields, kind: str, layers: int) -> list[str] | None:
    """Read kinds that follow a rule such as every fourth layer."""
    if kind in family.PURE_SSM:
        return ["ssm"] * layers
    if kind.startswith("rwkv"):
        f.note(f"{kind}: time mixing costed as linear attention, channel mixing as an ungated MLP")
        return ["linear"] * layers
    if kind == "falcon_h1":
        return ["hybrid"] * layers
    linear = f.table("linear_attn_config")
    if "full_attn_layers" in linear:
        at = Fields(linear, f.where).indices("full_attn_layers") or set()
        return ["full" if i + 1 in at else "linear" for i in range(layers)]
    blocks = f.get("block_types", f.get("_block_types"))
    if isinstance(blocks, list) and blocks:
        names = _named(f, "block_types", blocks)
        return [names[i % len(names)].replace("full", "sliding") for i in range(layers)]
    for field in ("full_attention_interval", "layer_group_size", "full_attn_interval"):
        step = f.integer(field, 0, 0, 10**5)
        if step:
            return ["linear" if (i + 1) % step else "full" for i in range(layers)]
    period = f.integer("attn_layer_period", 0, 0, 10**5)
    if period:
        offset = f.integer("attn_layer_offset", 0, 0, 10**5)
        return ["full" if i % period == offset else "ssm" for i in range(layers)]
    at_full = f.indices("attn_layer_indices")
    if at_full is not None:
        return ["full" if i in at_full else "ssm" for i in range(layers)]
    return _windows(f, kind, layers)


def _windows(f: Fields, kind: str, layers: int) -> list[str] | None:
    """Read rules about which layers see a window or a chunk."""
    if kind in family.LLAMA4 and f.integer("attention_chunk_size", 0, 0, 10**9):
        marks = f.items("no_rope_layers", layers)
        step = f.integer("no_rope_layer_interval", 4, 1, 10**5)
        marks = marks or [int((i + 1) % step != 0) for i in range(layers)]
        return ["chunked" if mark else "full" for mark in marks]
    window = f.integer("window", 0, 0, 10**9)
    pattern = f.get("sliding_window_pattern", f.get("_sliding_window_pattern"))
    used = f.get("use_sliding_window")
    first = f.integer("max_window_layers", 0, 0, 10**5)
    if not window or used is False:
        return None
    if isinstance(pattern, str) and pattern:
        names = _named(f, "sliding_window_pattern", list(pattern))
        return [names[i % len(names)] for i in range(layers)]
    if pattern is not None:
        step = f.number("sliding_window_pattern", pattern, 1, 10**5)
        return ["sliding" if (i + 1) % step else "full" for i in range(layers)]
    alternate = {"gemma2": 2, "gpt_oss": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4}
    if kind in alternate:
        step = alternate[kind]
        return ["sliding" if (i + 1) % step else "full" for i in range(layers)]
    if used is True and kind.startswith("qwen"):
        return ["sliding" if i >= first else "full" for i in range(layers)]
    return ["sliding"] * layers


def attention_of(f: Fields, kind: str, mix: str, layer: int, hidden: int) -> Attention:
    """Return the Attention noun of one layer of mixing kind `mix`."""
    if mix == "none":
        return NONE
    if mix == "ssm":
        return _ssm(f, kind, hidden)
    if mix == "linear":
        return _linear(f, kind, hidden)
    if mix == "conv":
        f.note("short convolution costed as its four projections")
        head = 64 if hidden % 64 == 0 else hidden
        count, width = hidden // head, f.integer("conv_L_cache", 3, 0, 64)
        return Attention(kind="linear", heads=count, kv_heads=count, head_dim=head,
                         v_head_dim=head, conv=width)  # fmt: skip
    if mix == "rglru":
        return _rglru(f, hidden)
    if f.integer("kv_lora_rank", 0) and mix in ("full", "sparse"):
        return _mla(f, kind, layer)
    return _heads(f, kind, mix, layer, hidden)


def _mla(f: Fields, kind: str, layer: int) -> Attention:
    """Multi-head latent attention, with the indexer of sparse attention where there is one."""
    rope = f.integer("qk_rope_head_dim", 0, 0, 10**5)
    nope = f.integer("qk_nope_head_dim", None, 1, 10**5)
    topk = f.integer("index_topk", 0, 0, 10**9)
    heads, dim = f.integer("index_n_heads", 0, 0, 10**5), f.integer("index_head_dim", 0, 0, 10**5)
    f.use(("qk_head_dim", "head_dim", *_kv_names(f)))
    types = f.get("indexer_types")
    every = f.integer("index_topk_freq", 0, 0, 10**5)
    offset = f.integer("index_skip_topk_offset", 0, 0, 10**5)
    f.use(("index_topk_pattern",))
    chooses = True
    if isinstance(types, list) and layer < len(types):
        chooses = types[layer] != "shared"
    elif every > 1:
        chooses = layer < offset or (layer - offset) % every == every - 1
        f.note("index_topk_freq: layers that choose tokens placed by the rule of GLM-5.2")
    if topk:
        f.note("sparse attention: indexer costed as a dense score over all earlier tokens, and "
               "attention as a window of index_topk tokens")  # fmt: skip
    return Attention(
        kind="mla", heads=_count(f, "heads", layer), kv_heads=_count(f, "heads", layer),
        head_dim=nope + rope, v_head_dim=f.integer("v_head_dim", nope, 1, 10**5),
        q_lora=f.integer("q_lora_rank", 0), kv_lora=f.integer("kv_lora_rank", 0), rope_dim=rope,
        bias=_bias(f, kind), window=topk, index_heads=heads if topk and chooses else 0,
        index_dim=dim if topk and chooses else 0,
    )  # fmt: skip


def _kv_names(f: Fields) -> tuple[str, ...]:
    from .hf_fields import NAMES

    return tuple(name for name in NAMES["kv_heads"] if name in f.raw)


def _count(f: Fields, word: str, layer: int, default: int | None = None) -> int:
    """Return a head count that may be a list with one entry per layer."""
    from .hf_fields import NAMES

    for name in NAMES[word]:
        value = f.raw.get(name)
        if isinstance(value, list):
            f.use((name,))
            if layer >= len(value):
                raise InputError(f"{f.where}: {name} has {len(value)} entries, layer {layer} none")
            return f.number(f"{name}[{layer}]", value[layer], 1, 10**5)
    return f.integer(word, default, 1, 10**5)


def _bias(f: Fields, kind: str) -> bool:
    default = kind in family.BIAS_ALL or kind in family.BIAS_QKV
    found = [
        f.flag(n)
        for n in ("attention_bias", "qkv_bias", "add_qkv_bias", "add_bias_linear", "use_qkv_bias",
                  "use_bias")
        if f.raw.get(n) is not None
    ]  # fmt: skip
    return any(found) if found else default


def _heads(f: Fields, kind: str, mix: str, layer: int, hidden: int) -> Attention:
    """Full, sliding, chunked or sparse attention with query, key and value heads."""
    heads = _count(f, "heads", layer)
    kv = 1 if f.flag("multi_query") and not f.raw.get("new_decoder_architecture") else heads
    f.use(("new_decoder_architecture", "multi_query_attention"))
    kv = _count(f, "kv_heads", layer, kv)
    size = f.integer("head_dim", 0, 0, 10**5) or hidden // heads
    value = f.integer("v_head_dim", 0, 0, 10**5) or size
    other = f.table("attention_other_setting") or f.table("sliding_attention_setting")
    if mix == "sliding" and other:
        o = Fields(other, f"{f.where}: attention_other_setting")
        heads, kv = o.integer("heads", heads, 1), o.integer("kv_heads", kv, 1)
        size = value = o.integer("head_dim", size, 1)
    swa = {"swa_num_attention_heads": heads, "swa_num_key_value_heads": kv,
           "swa_head_dim": size, "swa_v_head_dim": value}  # fmt: skip
    local = [f.integer(name, default, 1, 10**5) for name, default in swa.items()]
    if mix == "sliding":
        heads, kv, size, value = local
    wide = f.integer("global_head_dim", size, 1, 10**5)
    few = f.integer("num_global_key_value_heads", kv, 1, 10**5)
    if mix == "full":
        size, value, kv = wide, wide if wide != size else value, few
    if heads % kv:
        raise InputError(f"{f.where}: {heads} heads are not a multiple of {kv} key/value heads")
    window, sparse = _window(f, mix)
    names = {"csa": "sparse", "hca": "sliding"}
    return Attention(
        kind="sparse" if sparse and mix == "full" else names.get(mix, mix),  # type: ignore[arg-type]
        heads=heads, kv_heads=kv, head_dim=size, v_head_dim=value, window=window,
        bias=_bias(f, kind), gate=_gate(f), qk_norm=_qk_norm(f, kind), **_compressed(f, mix),
    )  # fmt: skip


def _gate(f: Fields) -> bool:
    if f.flag("use_head_wise_attn_gate") or f.flag("headwise_attn_output_gate"):
        f.note("one gate a head on the attention output: its projection is not counted")
    gates = ("attn_output_gate", "use_output_gate", "gated_attention", "attention_output_gate",
             "elementwise_attn_output_gate")  # fmt: skip
    found = [f.flag(name) for name in gates]
    return any(found)


def _qk_norm(f: Fields, kind: str) -> bool:
    found = [
        f.flag(name)
        for name in ("use_qk_norm", "qk_norm", "qk_layernorm")
        if f.raw.get(name) is not None
    ]
    return any(found) if found else kind in family.QK_NORM


_SPARSE_WORDS = (
    ("block_size", "sparse_block_size", "moba_chunk_size"),
    ("topk", "sparse_topk_blocks", "moba_topk", "top_k"),
    ("window_size", "local_window", "sparse_local_block"),
)
"""Spellings of block, blocks chosen, and near tokens of block-sparse attention."""


def _window(f: Fields, mix: str) -> tuple[int, bool]:
    """Return tokens seen (0 sees all) and whether a sparse rule chooses them."""
    chunk = f.integer("attention_chunk_size", 0, 0, 10**9)
    window = f.integer("window", 0, 0, 10**9)
    topk = f.integer("index_topk", 0, 0, 10**9)
    if mix == "chunked":
        return chunk, False
    if mix == "sliding":
        return window, False
    if mix == "csa":
        f.note("compressed sparse attention costed as a window of sliding_window + index_topk")
        return window + topk, True
    if mix == "hca":
        f.note("heavily compressed attention: its compressed entries (1/128 of the tokens) are "
               "left out of the score")  # fmt: skip
        return window, False
    for name in ("sparse_config", "sparse_attention_config", "sparse_attn_config", "moba_config"):
        table = f.table(name)
        if table:
            s = Fields(table, f"{f.where}: {name}")
            block, top, near = (
                next((s.number(n, s.raw[n], 0, 10**9) for n in names if s.raw.get(n)), 0)
                for names in _SPARSE_WORDS
            )
            f.note(f"{name}: costed as a window of topk x block_size + window_size tokens; "
                   "choosing the blocks is not costed")  # fmt: skip
            if block * top + near:
                return block * top + near, True
    if topk and mix in ("full", "sparse"):
        f.note("sparse attention costed as a window of index_topk tokens")
        return topk, True
    return 0, mix == "sparse"


def _compressed(f: Fields, mix: str) -> Raw:
    """Return latent and compressed parts outside MLA: query and output ranks, the indexer."""
    rates = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    rates |= {k: v for k, v in f.table("compress_rates").items() if isinstance(v, int) and v > 0}
    f.use(("compress_ratios", "compress_rate_csa", "compress_rate_hca"))
    heads, dim = f.integer("index_n_heads", 0, 0, 10**5), f.integer("index_head_dim", 0, 0, 10**5)
    chooses = mix in ("csa", "sparse") or (mix == "full" and heads > 0)
    long_names = {"csa": "compressed_sparse_attention", "hca": "heavily_compressed_attention"}
    return {
        "q_lora": f.integer("q_lora_rank", 0) or f.integer("share_q_dim", 0),
        "o_lora": f.integer("o_lora_rank", 0),
        "o_groups": f.integer("o_groups", 0, 0, 10**5),
        "compress": rates[long_names[mix]] if mix in long_names else 0,
        "index_heads": heads if chooses else 0, "index_dim": dim if chooses else 0,
        "rope_dim": f.integer("qk_rope_head_dim", 0, 0, 10**5),
    }  # fmt: skip


def _linear(f: Fields, kind: str, hidden: int) -> Attention:
    """Linear attention: gated delta net, KDA, lightning and kin."""
    f.note("linear attention costed by chunks: projections, short convolution, state update")
    table = f.table("linear_attn_config")
    if table:
        t = Fields(table, f"{f.where}: linear_attn_config")
        heads, size = t.integer("num_heads", None, 1, 10**5), t.integer("head_dim", None, 1, 10**5)
        return Attention(
            kind="linear", heads=heads, kv_heads=heads, head_dim=size, v_head_dim=size, gate=False,
            conv=t.integer("short_conv_kernel_size", 4, 0, 64), state=size, gate_rank=size,
        )  # fmt: skip
    heads = f.integer("linear_num_value_heads", 0, 0, 10**5) or _count(f, "heads", 0, hidden // 64)
    plain = f.integer("head_dim", 0, 0, 10**5) or max(1, hidden // heads)
    size = f.integer("linear_key_head_dim", plain, 1, 10**5)
    if "linear_num_value_heads" not in f.raw:
        f.note(f"{kind}: linear layers taken with the heads of full attention and an output gate")
    return Attention(
        kind="linear", heads=heads, kv_heads=f.integer("linear_num_key_heads", heads, 1, 10**5),
        head_dim=size, v_head_dim=f.integer("linear_value_head_dim", plain, 1, 10**5), gate=True,
        conv=f.integer("linear_conv_kernel_dim", 0, 0, 64), state=size,
    )  # fmt: skip


def _first(f: Fields, names: tuple[str, ...], default: int, high: int = 10**7) -> int:
    values = [f.integer(name, 0, 0, high) for name in names]
    return next((v for v in values if v), default)


def _ssm(f: Fields, kind: str, hidden: int) -> Attention:
    """Selective state space, first (time-step rank) or second generation (heads)."""
    f.note("state space costed by chunks: projections, convolution, state update")
    state = _first(f, ("ssm_state_size", "mamba_d_state", "state_size", "mamba_state_dim"), 16)
    expand = f.get("mamba_expand", f.get("expand", 2))
    f.use(("expand", "mamba_expand"))
    if isinstance(expand, bool) or not isinstance(expand, int | float) or not 0 < expand < 100:
        raise f.bad("expand", expand, "a factor")
    conv = _first(
        f, ("mamba_d_conv", "conv_kernel", "mamba_conv_kernel", "conv_kernel_size"), 4, 64
    )
    heads = _first(f, ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads"), 0, 10**5)
    size = _first(f, ("mamba_head_dim", "mamba_d_head", "mamba_headdim"), 0, 10**5)
    groups = _first(f, ("mamba_n_groups", "n_groups", "mamba_ngroups"), 1, 10**5)
    inner = _first(f, ("mamba_d_ssm", "mamba_intermediate_size"), int(expand * hidden))
    f.use(("mamba_conv_bias", "use_conv_bias", "mamba_proj_bias", "use_bias", "mamba_dt_min",
           "mamba_dt_max", "mamba_dt_limit", "mamba_dt_init_floor", "mamba_norm_before_gate",
           "mamba_rms_norm", "mamba_inner_layernorms", "mamba_use_mlp"))  # fmt: skip
    second = kind == "mamba2" or heads or size
    if second:
        size = size or f.integer("head_dim", 0, 0, 10**5) * (kind == "mamba2")
        heads = heads or _count(f, "heads", 0, max(1, inner // (size or 64)))
        size = size or max(1, inner // heads)
        rank = 0
    else:
        rank = f.get("mamba_dt_rank", f.get("time_step_rank", "auto"))
        auto = -(-hidden // 16)
        rank = auto if rank == "auto" else f.number("mamba_dt_rank", rank, 1, 10**6)
        f.use(("time_step_rank", "mamba_dt_rank", "intermediate_size" if kind == "mamba" else ""))
        size = 64 if inner % 64 == 0 else 1
        heads = inner // size
    return Attention(kind="ssm", heads=heads, kv_heads=groups, head_dim=state, v_head_dim=size,
                     gate=True, conv=conv, state=state, dt_rank=rank)  # fmt: skip


def _rglru(f: Fields, hidden: int) -> Attention:
    width = f.integer("lru_width", hidden, 1, 10**6)
    heads = _count(f, "heads", 0, 1)
    f.note("gated linear recurrence costed as its projections and block-diagonal gates")
    return Attention(
        kind="linear", heads=heads, kv_heads=heads, head_dim=1, v_head_dim=max(1, width // heads),
        gate=True, conv=f.integer("conv1d_width", 4, 0, 64), state=1,
    )  # fmt: skip
