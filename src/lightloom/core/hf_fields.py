"""Reading fields of a configuration: synonyms, checks, and which fields never change cost."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from .errors import InputError

Raw = dict[str, Any]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NAMES: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model", "dim", "model_dim", "hidden_dim"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "kv_n_heads",
                 "num_attention_groups", "num_query_groups", "multi_query_group_num"),
    "head_dim": ("head_dim", "kv_channels", "attention_head_size", "head_size", "d_kv", "d_head",
                 "attention_head_dim"),
    "inner": ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "inner_dim", "d_ff",
              "mlp_hidden_size", "ffn_intermediate_size", "intermediate_dim",
              "block_ff_dim"),
    "vocab": ("vocab_size", "padded_vocab_size", "n_vocab", "vocabulary_size"),
    "max_seq": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len",
                "max_sequence_length", "max_seq_length", "model_max_length", "seq_length",
                "seq_len", "max_position_embedding", "max_context_len", "context_length",
                "max_context_length"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts",
                "num_moe_experts", "num_routed_experts", "n_experts"),
    "topk": ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk",
             "moe_top_k", "top_k_experts", "num_selected_experts", "moe_router_topk", "moe_k",
             "num_experts_to_select", "router_topk", "top_k_expert"),
    "expert_inner": ("moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size",
                     "expert_ffn_hidden_size", "expert_hidden_size", "moe_inner_size",
                     "routed_expert_intermediate_size", "expert_dim"),
    "shared": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts",
               "num_shared_expert", "n_share_experts"),
    "shared_inner": ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
                     "share_expert_dim", "moe_shared_intermediate_size",
                     "shared_expert_hidden_size", "shared_intermediate_size"),
    "dense_inner": ("intermediate_size_mlp", "dense_intermediate_size"),
    "dense_first": ("first_k_dense_replace", "num_dense_layers", "n_dense_layers",
                    "moe_layer_start_index", "first_dense_layers", "n_dense_first"),
    "mtp": ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers",
            "mtp_num_layers", "num_mtp_layers", "num_nextn_predict_layer", "n_mtp_layers"),
    "window": ("sliding_window", "sliding_window_size", "window_size", "attention_window_size",
               "local_attention_window_size", "local_window_size"),
}  # fmt: skip
"""Our word -> names under which configurations give it, first found wins."""

NEUTRAL = _words("""
    _name_or_path _attn_implementation _experts_implementation _commit_hash activation
    activation_function add_cross_attention architectures attention_multiplier attention_scale
    attention_value_scale attn_logit_softcapping attn_scale attn_temperature_tuning auto_map
    begin_suppress_tokens chat_template chunk_size_feed_forward cross_attention_hidden_size
    decoder_start_token_id do_sample dtype early_stopping embd_pdrop embedding_multiplier ep_size
    final_logit_softcapping finetuning_task floor_scale forced_bos_token_id forced_eos_token_id
    hidden_act hidden_activation id2label image_token_id image_token_index is_decoder
    is_encoder_decoder keys_to_ignore_at_inference label2id layer_norm_epsilon length_penalty
    logit_scale logits_scaling max_length max_window_layers min_length mlp_hidden_act model_type
    moe_router_activation moe_router_dtype moe_router_pre_softmax moe_router_scaling_factor
    moe_router_score_function n_group no_repeat_ngram_size norm_expert_weight norm_topk_prob
    num_beam_groups num_beams num_expert_group num_logits_to_keep num_return_sequences
    output_attentions output_hidden_states output_scores partial_rotary_factor prefix
    pretraining_tp problem_type pruned_heads query_pre_attn_scalar qk_norm_type
    rescale_prenorm_residual residual_in_fp32 residual_multiplier return_dict
    return_dict_in_generate rotary rotary_base rotary_dim rotary_emb_base rotary_pct
    routed_scaling_factor scale_attention_softmax_in_fp32 scale_attn_by_inverse_layer_idx
    scale_attn_weights scale_emb scale_depth dim_model_base scoring_func score_func seq_aux
    suppress_tokens swiglu_limit task_specific_params task temperature tf_legacy_loss
    tie_encoder_decoder tokenizer_class top_k top_p topk_group topk_method torch_dtype torchscript
    transformers_version typical_p use_bfloat16 use_cache use_mrope use_moe_router_bias
    use_routing_bias video_token_id vision_config audio_config vision_end_token_id
    vision_start_token_id weight_init ignore_index language_model_type
    alibi alibi_bias_max apply_residual_connection_post_layernorm attention_softmax_in_fp32
    bias_dropout_fusion clip_qkv do_layer_norm_before fp32_residual_connection
    hidden_dropout_prob layerdrop learned_pos_emb
    mamba_ssm_dtype mamba_ssm_cache_dtype mamba_hidden_act mup_width_scale norm_after
    norm_type normalization_type use_parallel_residual parallel_attn position_embedding_type
    position_encoding_2d post_layer_norm pre_seq_len prefix_projection quantization_bit
    reorder_and_upcast_attn rope_interleave indexer_rope_interleave rms_norm rmsnorm rope_ratio
    seq_classif_dropout slow_but_exact softmax_scale summary_activation summary_first_dropout
    summary_proj_to_labels summary_type summary_use_proj time_step_floor time_step_init_scheme
    time_step_limit time_step_max time_step_min time_step_scale unk_token_id use_cache_kernels
    use_mamba_kernels mamba_chunk_size chunk_size use_mem_eff_path use_scaled_rope attn_impl
    attn_uses_sequence_id init_device no_bias norm_eps embd_method embedding_fraction
    moe_shared_expert_overlap expert_selection_fn router_bias use_grouped_mm sep_token_id
    use_unified_vision_chunk video_placeholder freeze_vision tokenizer tokenizer_mode
    moe_dropless moe_capacity moe_eval_capacity_token_fraction moe_z_loss_coef mup
    embedding_init_std input_jitter_noise router_jitter_noise
    layernorm_zero_centered fused_mlp fused_bias_gelu use_flash_attn use_flash_attention
    use_fused_rms_norm use_fused_rope parallel_block image_size patch_size
    mtp_use_dedicated_embeddings index_share_for_mtp_iteration index_skip_topk_offset
    multiple_of ffn_dim_multiplier non_causal use_logit_softcap
    attn_logit_softcap ffn_act_fn output_gate_type linear_attn_block max_model_len
    postnorm shared_moe_mode expert_dtype attn_type verbose mlp_type use_dynamic_ntk use_logn_attn
    original_rope attn_rotary_emb add_swa_attention_sink_bias add_full_attention_sink_bias
    logits_soft_cap rescale_every zero_expert_type block_dim
    block_mlp_init_scale block_use_xavier_init conv_dim conv_dim_out block_norm_eps use_pos_enc
    final_logit_softcap hc_eps hc_sinkhorn_iters
    encoder_no_repeat_ngram_size diversity_penalty compress_rope_theta
    """)
"""Fields that are known to change no cost (or only one that is counted elsewhere)."""

_NEUTRAL_SHAPE = re.compile(
    r".*(_token_ids?|_token_index|_dropout|_pdrop|dropout_p|_eps|_epsilon|_theta|_coef|_coeff"
    r"|_scaling|_loss_weight|_init_std|_init_range|_placeholder|_seed|_penalty|_multipliers?|_variance_scale"
    r"|_head_bias)$"
    r"|^(rope|rotary|yarn|mrope|initializer|initialization|init_|bos|eos|pad|dropout|generation"
    r"|label|loss|aux_loss|router_aux|router_z|output_router|image|video|audio|vision|mm_"
    r"|quantization_config|normalization|mup_|mla_scale|layernorm_.*(alpha|beta)$|embeddings_scale|original_max|attn_implementation|transformers).*"
)


def neutral(field: str) -> bool:
    """Return whether `field` is known not to change cost."""
    return field in NEUTRAL or bool(_NEUTRAL_SHAPE.match(field))


class Fields:
    """A configuration whose reads are recorded, so that what nobody read can be named."""

    def __init__(self, raw: Raw, where: str) -> None:
        self.raw = raw
        self.where = where
        self.used: set[str] = set()
        self.approximated: list[str] = []

    def note(self, text: str) -> None:
        """Say once what is only approximated."""
        if text not in self.approximated:
            self.approximated.append(text)

    def get(self, field: str, default: Any = None) -> Any:
        """Return a raw value, recorded as read; None counts as absent."""
        self.used.add(field)
        value = self.raw.get(field)
        return default if value is None else value

    def use(self, fields: Iterable[str]) -> None:
        """Record fields as understood without reading them."""
        self.used.update(fields)

    def bad(self, field: str, value: Any, wanted: str) -> InputError:
        """Return the error that says what `field` should have been."""
        return InputError(f"{self.where}: {field} is {str(value)[:60]!r}, not {wanted}")

    def number(self, field: str, value: Any, low: int, high: int) -> int:
        """Return `value` as a whole number between `low` and `high`."""
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.bad(field, value, f"a whole number from {low} to {high}")
        return int(value)

    def integer(
        self, word: str, default: int | None = None, low: int = 0, high: int = 10**7
    ) -> int:
        """Return the number under the first synonym of `word` present, or `default`."""
        names = NAMES.get(word, (word,))
        found: tuple[str, Any] | None = None
        for name in names:
            if self.raw.get(name) is not None and found is None:
                found = (name, self.raw[name])
            if name in self.raw:
                self.used.add(name)
        if found is not None:
            return self.number(found[0], found[1], low, high)
        if default is None:
            raise InputError(f"{self.where}: no {names[0]}", out=f"one of: {', '.join(names[:5])}")
        return default

    def flag(self, field: str, default: bool = False) -> bool:
        """Return a true/false field."""
        value = self.get(field, default)
        if isinstance(value, bool) or value in (0, 1):
            return bool(value)
        raise self.bad(field, value, "true or false")

    def text(self, field: str, default: str = "") -> str:
        """Return a text field."""
        value = self.get(field, default)
        if not isinstance(value, str):
            raise self.bad(field, value, "text")
        return value

    def table(self, field: str) -> Raw:
        """Return a nested table, empty where there is none."""
        value = self.get(field, {})
        if not isinstance(value, dict):
            raise self.bad(field, value, "an object")
        return value

    def items(self, field: str, count: int) -> list[Any] | None:
        """Return the first `count` entries of a per-layer list, or None where there is none."""
        value = self.get(field)
        if value is None or value == []:
            return None
        if not isinstance(value, list):
            raise self.bad(field, value, "a list with one entry per layer")
        if len(value) < count:
            raise InputError(f"{self.where}: {field} has {len(value)} entries for {count} layers")
        return value[:count]

    def indices(self, field: str) -> set[int] | None:
        """Return a set of layer numbers given as a list or as ``"3,4,5"``."""
        value = self.get(field)
        if value is None:
            return None
        if isinstance(value, str):
            parts = [p.strip() for p in value.split(",") if p.strip()]
            if not all(p.isdigit() and len(p) < 6 for p in parts):
                raise self.bad(field, value, "layer numbers")
            return {int(p) for p in parts}
        if not isinstance(value, list):
            raise self.bad(field, value, "a list of layer numbers")
        return {self.number(field, v, -1, 10**5) for v in value}

    def unknown(self) -> tuple[str, ...]:
        """Return fields that nobody read, are not known to be neutral and say something."""
        return tuple(
            sorted(
                str(k)[:80]
                for k, v in self.raw.items()
                if k not in self.used and not neutral(str(k)) and not _empty(v)
            )
        )


def _empty(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, str | list | dict) and not value)
