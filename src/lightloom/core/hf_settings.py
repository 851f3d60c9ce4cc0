"""What a configuration says that changes no cost, but that launch files must repeat exactly."""

from __future__ import annotations

from typing import Any

Setting = str | int | float | bool
FIELDS: dict[str, tuple[str, ...]] = {
    "rope_theta": ("rope_theta", "rotary_emb_base", "rope_base"),
    "norm_eps": ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps",
                 "layernorm_epsilon"),
    "activation": ("hidden_act", "hidden_activation", "activation_function", "activation"),
    "router_score": ("scoring_func", "router_scoring_func", "moe_router_activation_func"),
    "router_scale": ("routed_scaling_factor", "router_scaling_factor"),
    "router_groups": ("n_group",),
    "router_group_topk": ("topk_group",),
    "norm_topk": ("norm_topk_prob",),
    "bos_token": ("bos_token_id",),
    "eos_token": ("eos_token_id",),
}  # fmt: skip
"""Our name -> the names that configurations use, in order of preference."""


def settings_of(raw: dict[str, Any]) -> dict[str, Setting]:
    """Return the settings that a configuration states; what it does not state is absent."""
    out: dict[str, Setting] = {}
    for name, keys in FIELDS.items():
        value = next((raw[k] for k in keys if raw.get(k) is not None), None)
        if isinstance(value, str | int | float):
            out[name] = value
    nested = raw.get("rope_parameters")
    if "rope_theta" not in out and isinstance(nested, dict):
        theta = nested.get("rope_theta")
        if isinstance(theta, int | float):
            out["rope_theta"] = theta
    if raw.get("topk_method") == "noaux_tc":
        out["router_bias"] = True
    return {**out, **scaling_of(raw)}


def scaling_of(raw: dict[str, Any]) -> dict[str, Setting]:
    """Return rotary scaling: its kind, factor and original length."""
    scaling = raw.get("rope_scaling")
    if not isinstance(scaling, dict):
        return {}
    kind = scaling.get("rope_type", scaling.get("type"))
    out: dict[str, Setting] = {}
    if isinstance(kind, str):
        out["rope_scaling"] = kind
    names = {"rope_factor": "factor", "rope_original": "original_max_position_embeddings",
             "rope_low": "low_freq_factor", "rope_high": "high_freq_factor"}  # fmt: skip
    for name, key in names.items():
        value = scaling.get(key)
        if isinstance(value, int | float):
            out[name] = value
    return out
