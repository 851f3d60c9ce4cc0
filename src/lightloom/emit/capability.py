"""Which target can express which part of a plan; what cannot be expressed is refused."""

from __future__ import annotations

from typing import NamedTuple

from lightloom.core.errors import InfeasibleError
from lightloom.core.plan import Plan

from .topology import vendor_of

FEATURES = {
    "tp": "tensor parallelism",
    "sp": "sequence parallelism",
    "pp": "pipeline parallelism",
    "vpp": "interleaved pipeline chunks",
    "uneven": "uneven stages",
    "cp": "context parallelism",
    "cp:all-to-all": "context parallelism by all-to-all",
    "ep": "expert parallelism",
    "etp": "expert tensor parallelism",
    "zero:1": "sharded optimiser",
    "zero:2": "sharded gradients",
    "zero:3": "sharded weights",
    "fsdp": "fully sharded data parallelism",
    "hsdp": "hybrid sharding",
    "selective": "selective recompute",
    "full": "full recompute",
    "layers": "recompute of some layers",
    "zero-bubble": "zero-bubble schedule",
    "zb-v": "ZB-V schedule",
    "dualpipe": "DualPipe",
    "dualpipe-v": "DualPipe-V",
    "gpipe": "GPipe",
    "fp8": "fp8 arithmetic",
    "fp4": "fp4 arithmetic",
    "fp16": "fp16 with loss scaling",
    "offload": "optimiser offload",
    "lora": "LoRA",
    "moe": "experts",
    "mla": "latent attention",
    "mtp": "multi-token prediction",
    "placement": "an explicit rank -> card map",
}
"""Every part of a plan that some target lacks."""

_COMMON = {"tp", "sp", "pp", "vpp", "cp", "ep", "moe", "mla", "full", "selective", "fp8", "fp16"}
CAN: dict[str, set[str]] = {
    "megatron": _COMMON
    | {
        "uneven",
        "cp:all-to-all",
        "etp",
        "zero:1",
        "zero:2",
        "zero:3",
        "fsdp",
        "layers",
        "offload",
        "mtp",
        "fp4",
        "hsdp",
    },
    "mindspeed": (_COMMON - {"fp8"})
    | {
        "uneven",
        "cp:all-to-all",
        "etp",
        "zero:1",
        "layers",
        "offload",
        "mtp",
        "dualpipe-v",
        "lora",
    },
    "mindspore": (_COMMON - {"fp8"})
    | {"uneven", "cp:all-to-all", "zero:1", "zero:3", "layers", "mtp", "gpipe", "lora"},
    "torchtitan": {
        "tp",
        "sp",
        "pp",
        "vpp",
        "cp",
        "ep",
        "etp",
        "moe",
        "mla",
        "fsdp",
        "hsdp",
        "zero:3",
        "selective",
        "full",
        "fp8",
        "zero-bubble",
        "zb-v",
        "dualpipe-v",
        "gpipe",
        "offload",
    },
    "deepspeed": {
        "pp",
        "zero:1",
        "zero:2",
        "zero:3",
        "fsdp",
        "hsdp",
        "full",
        "fp16",
        "offload",
        "tp",
        "moe",
        "lora",
        "mla",
    },
    "fsdp": {
        "tp",
        "sp",
        "fsdp",
        "hsdp",
        "zero:3",
        "zero:2",
        "full",
        "selective",
        "offload",
        "moe",
        "mla",
        "lora",
    },
}
NEAREST = {
    "vpp": "--vpp 1",
    "uneven": "a pp that divides the layers",
    "cp": "--cp 1",
    "cp:all-to-all": "ring context parallelism",
    "etp": "--etp 1",
    "zero:1": "--zero fsdp",
    "zero:2": "--zero 1 or 3",
    "zero:3": "--zero 1",
    "fsdp": "--zero 1",
    "hsdp": "--zero fsdp",
    "layers": "--recompute full or none",
    "zero-bubble": "1f1b",
    "zb-v": "1f1b",
    "dualpipe": "dualpipe-v or interleaved",
    "dualpipe-v": "interleaved",
    "gpipe": "1f1b",
    "fp8": "--precision bf16",
    "fp4": "--precision fp8",
    "fp16": "--precision bf16",
    "offload": "more cards, or full recompute",
    "lora": "--task finetune",
    "pp": "--pp 1",
    "ep": "--ep 1",
    "mtp": "the model without its prediction layers",
    "sp": "tp without it",
    "tp": "--tp 1",
    "selective": "--recompute full or none",
    "full": "--recompute none",
    "placement": "rank order (the launcher's host list decides)",
    "moe": "another framework",
    "mla": "another framework",
}


class Gap(NamedTuple):
    """A part of the plan that a target cannot express."""

    feature: str
    nearest: str


def needs_of(plan: Plan) -> set[str]:
    """Return the features that the plan uses."""
    s, model = plan.strategy, plan.model
    need = {axis for axis in ("tp", "pp", "vpp", "cp", "ep", "etp") if getattr(s, axis) > 1}
    need |= {s.recompute} - {"none"}
    need |= {"layers"} if s.recompute == "full" and s.recompute_layers else set()
    need |= {"sp"} if s.sequence_parallel and s.tp > 1 else set()
    need |= {"cp:all-to-all"} if s.cp > 1 and s.cp_kind == "all-to-all" else set()
    need |= {"uneven"} if len(set(s.stage_layers)) > 1 else set()
    zero = {"0": set(), "fsdp": {"fsdp"}, "hsdp": {"hsdp"}}.get(s.zero, {f"zero:{s.zero}"})
    need |= zero if s.dp * s.cp > 1 else set()
    need |= {s.schedule} - {"1f1b", "interleaved"} if s.pp > 1 else set()
    need |= {s.precision.split("-")[0]} & {"fp8", "fp4", "fp16"}
    need |= {"offload"} if s.offload_optimizer else set()
    need |= {"lora"} if s.task == "lora" else set()
    need |= {"moe"} if model.is_moe else set()
    need |= {"mla"} if any(b.attention.kind == "mla" for b in model.blocks) else set()
    need |= {"mtp"} if model.mtp_layers else set()
    return need


def gaps(plan: Plan, framework: str) -> list[Gap]:
    """Return what `framework` cannot express of the plan, with the nearest that it can."""
    missing = sorted(needs_of(plan) - CAN[framework])
    return [Gap(feature, NEAREST.get(feature, "")) for feature in missing]


def runs_on(plan: Plan, framework: str) -> bool:
    """Return whether a framework is emitted for the plan's cards."""
    return framework not in ("mindspeed", "mindspore") or vendor_of(plan) == "ascend"


def require(plan: Plan, framework: str) -> None:
    """Refuse, naming every part that cannot be expressed."""
    missing = gaps(plan, framework)
    if missing:
        others = [f for f in CAN if f != framework and runs_on(plan, f) and not gaps(plan, f)]
        raise InfeasibleError(
            f"{framework} cannot express this plan: "
            + "; ".join(f"{FEATURES[g.feature]} (nearest: {g.nearest})" for g in missing),
            out=f"frameworks that can: {', '.join(others)}" if others else "",
        )
