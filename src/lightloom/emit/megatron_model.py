"""Megatron's flags for a model; MindSpeed shares most of them."""

from __future__ import annotations

from lightloom.core.errors import InfeasibleError
from lightloom.core.model import Attention, Block, Model

from .bundle import Setting, setting

_KINDS = {"full", "mla", "sliding"}


def model_settings(model: Model) -> list[Setting]:
    """Return the flags that describe the network, each from the model's configuration."""
    refuse_unknown(model)
    return [
        *widths(model),
        *attention_settings(model, model.blocks[-1].attention),
        *position_settings(model),
        *mlp_settings(model),
        *(mtp_settings(model) if model.mtp_layers else []),
    ]


def refuse_unknown(model: Model) -> None:
    """Refuse layers that Megatron's GPT model does not have."""
    kinds = {block.attention.kind for block in model.blocks} - _KINDS
    if kinds:
        raise InfeasibleError(
            f"{model.name}: {', '.join(sorted(kinds))} attention has no flags in this framework's"
            " GPT model",
            out="emit the launch level (--for torchrun, slurm, kubernetes) and bring the script",
        )


def known(model: Model, key: str, fallback: object) -> tuple[object, str, str]:
    """Return (value, origin, why) of a cost-neutral setting of the model."""
    if key in model.settings:
        return model.settings[key], "model", ""
    return fallback, "default", f"{key} is not in the plan: check it against config.json"


def neutral(name: str, model: Model, key: str, fallback: object) -> Setting:
    """Return a flag for a cost-neutral setting of the model."""
    value, origin, why = known(model, key, fallback)
    return setting(name, value, "model" if origin == "model" else "default", why)


def widths(model: Model) -> list[Setting]:
    """Return sizes that every layer shares."""
    layer = model.norm == "layer"
    dense = next((b.mlp.hidden for b in model.blocks if b.mlp.hidden), 0)
    inner = dense or model.blocks[-1].mlp.expert_hidden
    out = [
        setting("--num-layers", model.layers, "model"),
        setting("--hidden-size", model.hidden, "model"),
        setting("--ffn-hidden-size", inner, "model"),
        setting("--normalization", "LayerNorm" if layer else "RMSNorm", "model"),
        neutral("--norm-epsilon", model, "norm_eps", 1e-5),
        setting("--attention-dropout", 0, "default", "large-scale pre-training practice"),
        setting("--hidden-dropout", 0, "default", "large-scale pre-training practice"),
    ]
    if not model.tied:
        out.append(setting("--untie-embeddings-and-output-weights", None, "model"))
    if not any(b.mlp.bias for b in model.blocks):
        out.append(setting("--disable-bias-linear", None, "model"))
    return out


def attention_settings(model: Model, attention: Attention) -> list[Setting]:
    """Return heads, latent attention, windows."""
    out = [setting("--num-attention-heads", attention.heads, "model")]
    if attention.kind == "mla":
        out += [
            setting("--multi-latent-attention", None, "model"),
            *([setting("--q-lora-rank", attention.q_lora, "model")] if attention.q_lora else []),
            setting("--kv-lora-rank", attention.kv_lora, "model"),
            setting("--qk-head-dim", attention.head_dim - attention.rope_dim, "model"),
            setting("--qk-pos-emb-head-dim", attention.rope_dim, "model"),
            setting("--v-head-dim", attention.v_head_dim, "model"),
        ]
    else:
        if attention.kv_heads != attention.heads:
            out += [
                setting("--group-query-attention", None, "model"),
                setting("--num-query-groups", attention.kv_heads, "model"),
            ]
        if attention.head_dim * attention.heads != model.hidden:
            out.append(setting("--kv-channels", attention.head_dim, "model"))
    if attention.qk_norm or attention.kind == "mla":
        out.append(setting("--qk-layernorm", None, "model"))
    if attention.bias and not any(b.mlp.bias for b in model.blocks):
        out.append(setting("--add-qkv-bias", None, "model"))
    windows = [b.attention.window for b in model.blocks if b.attention.kind == "sliding"]
    if windows:
        out.append(setting("--window-size", f"{windows[0] - 1},0", "model"))
    return out


def position_settings(model: Model) -> list[Setting]:
    """Return positions: rotary or learned."""
    out = [setting("--max-position-embeddings", model.max_seq, "model")]
    if model.learned_positions:
        return [*out, setting("--position-embedding-type", "learned_absolute", "model")]
    return [
        *out,
        setting("--position-embedding-type", "rope", "model"),
        neutral("--rotary-base", model, "rope_theta", 10000),
    ]


def mlp_settings(model: Model) -> list[Setting]:
    """Return the feed-forward part, dense or experts."""
    out = [setting("--swiglu", None, "model")] if model.blocks[-1].mlp.gated else []
    moe = next((b for b in model.blocks if b.mlp.is_moe), None)
    return out if moe is None else [*out, *moe_settings(model, moe)]


def moe_settings(model: Model, block: Block) -> list[Setting]:
    """Return experts and their router."""
    mlp = block.mlp
    marks = [int(model.blocks[i].mlp.is_moe) for i in model.layer_blocks]
    out = [
        setting("--num-experts", mlp.experts, "model"),
        setting("--moe-router-topk", mlp.topk, "model"),
        setting("--moe-ffn-hidden-size", mlp.expert_hidden, "model"),
        setting("--moe-grouped-gemm", None, "default", "one kernel for all local experts"),
        setting("--moe-router-dtype", "fp32", "default", "stable routing"),
        neutral("--moe-router-score-function", model, "router_score", "softmax"),
        setting("--moe-router-load-balancing-type", "aux_loss", "default", "balance of experts"),
        setting("--moe-aux-loss-coeff", 0.0001, "default", "small: balance without harm"),
    ]
    if "router_scale" in model.settings:
        out.append(neutral("--moe-router-topk-scaling-factor", model, "router_scale", 1.0))
    if "router_groups" in model.settings:
        out += [
            neutral("--moe-router-num-groups", model, "router_groups", 1),
            neutral("--moe-router-group-topk", model, "router_group_topk", 1),
        ]
    if model.settings.get("router_bias"):
        out.append(setting("--moe-router-enable-expert-bias", None, "model"))
    if mlp.shared_hidden:
        out.append(setting("--moe-shared-expert-intermediate-size", mlp.shared_hidden, "model"))
    if 0 in marks:
        out.append(setting("--moe-layer-freq", runs(marks), "model", "1 is an expert layer"))
    return out


def mtp_settings(model: Model) -> list[Setting]:
    """Return multi-token prediction."""
    return [
        setting("--mtp-num-layers", model.mtp_layers, "model"),
        setting("--mtp-loss-scaling-factor", 0.1, "default", "the framework's own"),
    ]


def runs(marks: list[int]) -> str:
    """Return ``([0]*3+[1]*58)`` for a list of marks."""
    parts: list[list[int]] = []
    for mark in marks:
        if parts and parts[-1][0] == mark:
            parts[-1][1] += 1
        else:
            parts.append([mark, 1])
    return "(" + "+".join(f"[{mark}]*{count}" for mark, count in parts) + ")"
