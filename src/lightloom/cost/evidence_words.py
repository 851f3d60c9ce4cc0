"""How words of published tables are read: one published rule per column (docs/truth.md).

Every function returns the value and, where the table was silent, the assumption made in words.
Nothing here looks at a measured time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lightloom.core.framework import FrameworkName

Said = tuple[str, ...]
"""Assumptions, in words; empty where the table said it."""


class Software(NamedTuple):
    """What trained a row."""

    framework: FrameworkName
    era: int
    """Year of the software: 2021 .. 2026; decides fused attention and overlap defaults."""
    flavour: str
    """Finer name that may carry its own overlap: megatron, nemo, megatron-deepspeed, jax ..."""


def software_of(text: str, year: int, notes: str) -> Software:
    """Return framework, generation and flavour. Rule: first word of the table that occurs."""
    t = text.lower()
    table: tuple[tuple[str, FrameworkName, str], ...] = (
        ("megatron-deepspeed per paper", "megatron", "megatron-classic"),
        ("megatron-deepspeed", "deepspeed", "megatron-deepspeed"),
        ("mindformers", "mindspore", "mindformers"), ("mindspore", "mindspore", "mindformers"),
        ("mindspeed", "mindspeed", "mindspeed"), ("modellink", "mindspeed", "mindspeed"),
        ("llm-foundry", "fsdp", "composer"), ("composer", "fsdp", "composer"),
        ("torchtitan", "torchtitan", "torchtitan"), ("automodel", "torchtitan", "automodel"),
        ("maxtext", "fsdp", "jax"), ("pax", "fsdp", "jax"), ("jax", "fsdp", "jax"),
        ("nemo", "megatron", "nemo"), ("bridge", "megatron", "bridge"),
        ("megatron-core", "megatron", "megatron-core"),
    )  # fmt: skip
    for word, framework, flavour in table:
        if word in t:
            old = flavour in ("megatron-classic", "megatron-deepspeed")
            return Software(framework, 2022 if old else year, flavour)
    if "megatron" in t and year <= 2022:
        return Software("megatron", year, "megatron-classic")
    if "megatron" in t:
        return Software("megatron", year, "megatron-core")
    return Software("megatron", year, "nemo" if "nvidia" in t or "ngc" in t else "megatron-core")


def precision_of(text: str) -> tuple[str, Said]:
    """Return the engine's precision. Narrowest kind named wins; blank is bf16."""
    t = text.lower()
    if not t.strip():
        return "bf16", ("dtype not stated: bf16",)
    if "nvfp4" in t or "fp4" in t:
        return "fp4", ()
    if "mxfp8" in t or "fp8-mx" in t:
        return "mxfp8", ()
    if "alt granularity" in t:
        return "fp8-block", ("another fp8 granularity, not named: blocks",)
    if "blockwise" in t or "block" in t or "subchannel" in t:
        return "fp8-block", ()
    if "fp8" in t or "float8" in t:
        return "fp8", ()
    if "fp16" in t or ("float16" in t and "bfloat16" not in t):
        return "fp16", ()
    if "fp32" in t or "float32" in t:
        return "fp32", ()
    return "bf16", ()


class Recomputed(NamedTuple):
    """How activations come back."""

    kind: str
    """none, selective, full."""
    layers: int
    """Layers per pipeline rank; 0 all."""


_SMALL = ("layernorm", "norm", "moe_act", "act", "mla_up_proj", "recompute-activation-function",
          "swap-attention")  # fmt: skip


def recompute_of(text: str, soft: Software) -> tuple[Recomputed, Said]:
    """Return what is recomputed.

    Blank: none for Megatron-like and MindSpeed recipes, full for JAX (MaxText's default). Words:
    `full` with `/block/N` or `/uniform/N` or a list per stage gives a count; attention or
    operator-level is selective; small modules alone (norms, activation functions, MLA
    up-projections) cost less than 2 % of a layer and count as none in time (`thrift_of` takes
    their memory away).
    """
    t = text.lower().strip()
    if not t:
        if soft.flavour == "jax":
            return Recomputed("full", 0), ("recompute not stated: full (MaxText's default policy)",)
        return Recomputed("none", 0), (f"recompute not stated: none ({soft.flavour} recipes)",)
    if t.startswith(("none", "null")) or "granularity=none" in t:
        return Recomputed("none", 0), ()
    if stages := re.search(r"per-stage \[([\d, ]+)\]", t):
        counts = [int(x) for x in stages.group(1).split(",") if x.strip()]
        return Recomputed("full", max(counts)), ("recomputed layers differ by stage: the largest",)
    if "full" in t:
        block = re.search(r"full/block/(\d+)", t)
        return Recomputed("full", int(block.group(1)) if block else 0), ()
    if "modules=[]" in t:
        return Recomputed("none", 0), ()
    words = set(re.findall(r"[a-z_\-]+", t)) - {"selective", "modules", "granularity", "num_layers"}
    if words & {"attention", "attn", "core_attn", "op", "op-level", "sac", "per-op", "layer"}:
        return Recomputed("selective", 0), ()
    if words & {"moe", "mlp"}:
        return Recomputed("selective", 0), ("MLP or expert modules recomputed: as selective",)
    if words and all(any(s in w for s in _SMALL) for w in words - {"select", "true", "none"}):
        return Recomputed("none", 0), ("small modules recomputed: counted as none",)
    return Recomputed("selective", 0), (f"recompute {text!r} read as selective",)


def zero_of(text: str, soft: Software, replicas: int) -> tuple[str, int, Said]:
    """Return (sharding, ranks of an HSDP shard, assumptions).

    Blank: distributed optimiser for Megatron recipes of 2023 and later and MindSpeed, none
    before, FSDP for FSDP frameworks, stage 1 for DeepSpeed.
    """
    t = text.lower().strip()
    if shard := re.search(r"shard=(\d+)", t):
        size = int(shard.group(1))
        if 1 < size < replicas:
            return "hsdp", size, ()
        return ("0", 0, ()) if size == 1 else ("fsdp", 0, ())
    if "grad_op" in t or "no reshard" in t or "zero-2" in t:
        return "2", 0, ()
    if "hybrid" in t or "hsdp" in t:
        return "hsdp", 0, ()
    if "fsdp" in t or "zero-3" in t:
        return "fsdp", 0, ()
    if "distributed optimizer" in t or "zero-1" in t or "optimizer parallel" in t:
        return "1", 0, ()
    if t.startswith("none") or t == "ddp":
        return "0", 0, ()
    if soft.framework in ("fsdp", "torchtitan"):
        return "fsdp", 0, ("sharding not stated: FSDP",)
    if soft.flavour == "megatron-classic" or (soft.era <= 2022 and soft.framework == "megatron"):
        return "0", 0, ("sharding not stated: none (software before 2023)",)
    return "1", 0, ("sharding not stated: distributed optimiser",)


def sequence_parallel_of(text: str, soft: Software, tp: int) -> tuple[bool, Said]:
    """Return whether norms are cut by sequence. Blank: yes from 2023 on with tp > 1."""
    t = text.lower().strip()
    if t:
        return t in ("yes", "true", "1"), ()
    if tp <= 1:
        return False, ()
    if soft.era <= 2022 or soft.framework == "deepspeed":
        return False, ("sequence parallelism not stated: off (software before 2023)",)
    return True, ("sequence parallelism not stated: on",)


class Wire(NamedTuple):
    """Inter-node network as a table states it."""

    per_card: float
    """Bytes/s of one card; 0: not stated."""
    tier: str


def wire_of(note: str, per_node: int) -> Wire:
    """Return the inter-node rate of one card.

    ``8x400Gb/s`` is per node unless `per GPU` or `per NPU` follows; management and storage
    adapters are not counted; a bare ``1600 Gbps node-node`` or ``Gb/s per node`` is per node.
    """
    t = note.lower()
    tier = "infiniband"
    if "roce" in t or "200ge" in t or ("ethernet" in t and "ib " not in t):
        tier = "roce"
    if "omni-path" in t:
        tier = "omnipath"
    parts = [p for p in re.split(r"[,;]", t) if "management" not in p and "storage:" not in p]
    body = ",".join(parts)
    if ge := re.search(r"(\d+)ge roce per npu", body):
        return Wire(float(ge.group(1)) * 1e9 / 8.0, tier)
    if one := re.search(r"(\d+) ?gb/s (?:rdma |cx-?\d |roce |ib )?per (?:gpu|npu|card)", body):
        return Wire(float(one.group(1)) * 1e9 / 8.0, tier)
    if bytes_ := re.search(r"(\d+) ?x ?(\d+) ?GB/s", note):
        return Wire(float(bytes_.group(2)) * 1e9, tier)
    found = [
        float(n) * float(rate) * 1e9 / 8.0 / per_node
        for n, rate in re.findall(r"(\d+) ?x[^,;]*?(\d{2,3}) ?gb?(?:/s|ps|/sec| )", body)
    ]
    for pattern in (r"(\d{3,4}) ?gb(?:ps|/s) (?:per node|node-node)",
                    r"inter_node_bandwidth=(\d+)"):  # fmt: skip
        found += [float(rate) * 1e9 / 8.0 / per_node for rate in re.findall(pattern, body)]
    return Wire(max(found, default=0.0), tier)
