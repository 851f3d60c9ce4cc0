"""What families of models do without saying so in their configuration."""

from __future__ import annotations

from typing import Any


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KNOWN = _words("""
    gpt2 gpt3 gpt_neo gptj gpt_neox gpt_bigcode megatron codegen bloom opt mpt falcon falcon_h1
    llama llama2 llama4 llama4_text mllama mllama_text_model mistral mistral3 ministral mixtral
    qwen qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen2_vl_text qwen2_5_vl_text qwen3 qwen3_moe
    qwen3_next qwen3_vl qwen3_vl_text qwen3_vl_moe qwen3_vl_moe_text qwen3_5 qwen3_5_text
    qwen3_5_moe qwen3_5_moe_text qwen3_omni_moe_text deepseek deepseek_v2 deepseek_v3 deepseek_v32
    deepseek_v4 kimi_k2 kimi_k25 kimi_linear kimi_vl glm glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe
    glm_moe_dsa chatglm minimax minimax_m1 minimax_m2 minimax_text_01 gpt_oss gemma gemma2 gemma3
    gemma3_text pangu pangu_pro_moe pangu_ultra_moe pangu_embedded mimo mimo_v2_flash step3
    step3_text step3p5 step3p7 phi phi3 phimoe phi-msft stablelm starcoder2 internlm internlm2
    internlm3 baichuan yi olmo olmo2 olmo3 olmoe dbrx grok grok-1 jamba mamba mamba2 falcon_mamba
    bamba granite granitemoe granitemoeshared granitemoehybrid nemotron nemotron_h nemotron-nas
    recurrent_gemma rwkv rwkv5 rwkv6 rwkv7 lfm2 lfm2_moe zamba zamba2 cohere cohere2 exaone exaone4
    ernie4_5 ernie4_5_moe hunyuan_v1_dense hunyuan_v1_moe hunyuan seed_oss smollm3 longcat_flash
    bailing_moe bailing_moe_v2 bailing_moe_linear dots1 arctic aquila xverse orion minicpm minicpm3
    apertus arcee persimmon biogpt openelm ministral3 gemma3n_text gemma4_text
    """)
"""``model_type`` whose layers are understood."""

NOT_DECODERS = _words("""
    bert roberta xlm-roberta albert electra deberta deberta-v2 distilbert modernbert t5 mt5 umt5
    bart mbart pegasus marian m2m_100 whisper wav2vec2 hubert clip vit siglip beit dinov2 swin
    longt5 switch_transformers nllb-moe blip
    """)

PLAIN_MLP = _words("""
    gpt2 gpt3 gpt_neo gptj gpt_neox gpt_bigcode megatron codegen bloom opt mpt falcon phi phi-msft
    starcoder2 nemotron nemotron_h biogpt persimmon apertus arcee rwkv rwkv5 rwkv6 rwkv7
    """)
"""Two matrices, no gate."""

BIAS_ALL = _words("gpt2 gpt3 gpt_bigcode megatron bloom opt phi phi-msft biogpt")
BIAS_QKV = _words("qwen qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen2_vl_text qwen2_5_vl_text")
LEARNED_POSITIONS = _words("gpt2 gpt3 gpt_neo gpt_bigcode megatron opt biogpt")
TIED = _words("""
    gpt2 gpt3 gpt_neo gpt_bigcode megatron bloom opt mpt falcon gemma gemma2 gemma3 gemma3_text
    cohere cohere2 starcoder2 mamba mamba2 recurrent_gemma lfm2 lfm2_moe
    """)
LAYER_NORM = _words("""
    gpt2 gpt3 gpt_neo gptj gpt_neox gpt_bigcode megatron codegen bloom opt mpt falcon phi phi-msft
    starcoder2 biogpt persimmon stablelm cohere cohere2 nemotron dbrx
    """)
QK_NORM = _words("""
    qwen3 qwen3_moe qwen3_next qwen3_vl_text qwen3_vl_moe_text qwen3_5_text qwen3_5_moe_text
    gemma3 gemma3_text olmo2 olmo3 olmoe minimax_m2 step3p5 step3p7
    """)
SANDWICH = _words("gemma2 gemma3 gemma3_text glm4 pangu_ultra_moe pangu")
"""Four norms a layer: before and after each part."""

PURE_SSM = _words("mamba mamba2 falcon_mamba codestral_mamba")
EXPERTS_WITH_BIAS = frozenset({"gpt_oss"})
LLAMA4 = frozenset({"llama4", "llama4_text"})

ALIASES = {"refinedwebmodel": "falcon", "refinedweb": "falcon", "mixformer-sequential": "phi"}
"""Older names of a family."""

_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
              "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048},
    "qwen2": {"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
              "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
              "max_position_embeddings": 32768},
    "mistral": {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
                "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                "max_position_embeddings": 131072},
    "gemma3_text": {"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
                    "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
                    "head_dim": 256, "max_position_embeddings": 131072, "sliding_window": 4096},
    "deepseek_v2": {"vocab_size": 102400, "hidden_size": 4096, "intermediate_size": 11008,
                    "moe_intermediate_size": 1407, "num_hidden_layers": 30,
                    "num_attention_heads": 32, "kv_lora_rank": 512, "q_lora_rank": 1536,
                    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
                    "max_position_embeddings": 2048},
}  # fmt: skip


def defaults(raw: dict[str, Any]) -> dict[str, Any]:
    """Return what transformers takes for fields that a nested configuration leaves out."""
    kind = raw.get("model_type")
    return _DEFAULTS.get(kind, {}) if isinstance(kind, str) else {}
