"""What a published row says, or its recipe implies, about memory that is not kept."""

from __future__ import annotations

import re

from lightloom.core.model import Model
from lightloom.core.strategy import Strategy

from .evidence_words import Said, Software
from .thrift import Thrift

FUSED_LOSS = {"composer": 4.0, "bridge": 4.0}
"""Bytes per logit by stack: bf16 logits and bf16 gradient. llm-foundry `loss_fn:
fused_crossentropy` (its default); Megatron-Bridge `cross_entropy_fusion_impl: te`."""
COMPILED_LOSS = 2025
"""Year from which torchtitan compiles the loss with the model (components/loss.py)."""
EXPANDABLE = ("bridge", "torchtitan")
"""Stacks whose launchers grow segments: torchtitan run_train.sh; Megatron-Bridge
scripts/performance (DGX Cloud executor, and the plug-in for its largest models); assumed for all
runs of theirs."""
TUNING_TOKENS = 256
"""Tokens of the longest sample of a batch of instruction data, where nothing is packed; assumed."""
OFFLOADED = 0.5
"""Share of layers that GB200 recipes with FSDP offload: Megatron-Bridge workload config
LLAMA3_70B_PRETRAIN_CONFIG_GB200_FP8_CS_V2, cpu_offloading_num_layers 40 of 80."""
_REMADE = (("norm", r"norm\b|layernorm"), ("act", r"moe_act|\bact\b|activation-function"),
           ("mla", r"mla_up_proj"), ("mlp", r"\bmlp\b"),
           ("attention", r"swap-attention"))  # fmt: skip


def thrift_of(
    cells: dict[str, str], soft: Software, s: Strategy, model: Model
) -> tuple[Thrift, Said]:
    """Return what is not kept, and the assumptions where a row is silent."""
    notes = (cells.get("notes") or "").lower()
    again = (cells.get("recompute") or "").lower()
    said: list[str] = []
    recipes = soft.flavour in ("nemo", "bridge")
    remade = {name for name, word in _REMADE if re.search(word, again)}
    if "recompute-norm" in notes:
        remade.add("norm")
    latent = model.blocks[-1].attention.kind == "mla"
    if not again and soft.flavour == "bridge" and latent:
        remade.add("mla")
        said.append("recompute of small modules not stated: MLA up-projections (Bridge recipes)")
    stated = re.search(r"cpu_offloading_num_layers=(\d+)", notes)
    offloaded = int(stated.group(1)) if stated else 0
    rack = (cells.get("chip") or "").startswith("GB")
    if not stated and recipes and rack and s.zero == "fsdp" and s.recompute == "none":
        offloaded = round(OFFLOADED * model.layers / s.pp)
        said.append(f"activation offload not stated: {offloaded} layers (recipes with FSDP)")
    filled = 1.0
    if soft.flavour == "mindspeed" and "tune_" in notes and "pack" not in notes and s.cp == 1:
        filled = min(TUNING_TOKENS / s.seq, 1.0)
        said.append(f"instruction data not packed: {TUNING_TOKENS} tokens a sequence in memory")
    loss = FUSED_LOSS.get(soft.flavour, 0.0)
    if soft.flavour == "torchtitan" and soft.era >= COMPILED_LOSS and "torch.compile" in notes:
        loss = 4.0
    return Thrift(
        remade=frozenset(remade), offloaded_layers=offloaded,
        shared_master="reuse-fp32-param" in (cells.get("zero_or_fsdp") or "").lower(),
        narrow_primary=recipes and s.precision in ("fp8", "mxfp8"),
        logit_bytes=loss, filled=filled,
        expandable=soft.flavour in EXPANDABLE,
    ), tuple(said)  # fmt: skip
