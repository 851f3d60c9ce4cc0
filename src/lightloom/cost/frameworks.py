"""What each framework does when nothing is said: flags that change cost, with pinned source."""

from __future__ import annotations

from dataclasses import dataclass

from lightloom.core.errors import InputError, nearest
from lightloom.core.framework import FRAMEWORKS, Framework


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Framework defaults, and how it recomputes and hides."""

    defaults: Framework
    selective: str
    """What `selective` recomputes: attention (the core only) or operators (all but every second
    matrix product and attention)."""
    hides: dict[str, float]
    """Axis -> share of its communication that can hide where the overlap is switched on; assumed
    until calibration says otherwise."""
    master_is_weight: bool = False
    """Weights are kept in fp32 shards that are also the optimiser's copy (FSDP2)."""


_HIDES = {"tp": 0.7, "cp": 0.8, "ep": 0.7, "dp": 0.9, "pp": 0.9, "param": 0.9}
_MEGATRON = ("Megatron-LM core_v0.13, megatron/training/arguments.py "
             "(github.com/NVIDIA/Megatron-LM)")  # fmt: skip


def _named(name: str, pinned: str, **flags: object) -> Framework:
    values = {"zero": "1", "sequence_parallel": True, "overlap_grad": True, "overlap_param": True,
              "overlap_tp": False, "overlap_pp": True} | flags  # fmt: skip
    return Framework(name=name, pinned=pinned, **values)  # type: ignore[arg-type]


BEHAVIOUR: dict[str, Behaviour] = {
    "megatron": Behaviour(_named("megatron", f"{_MEGATRON}; overlap flags as its recipes set"),
                          "attention", _HIDES),
    "mindspeed": Behaviour(
        _named("mindspeed", "MindSpeed-LLM 2.1 scripts (gitcode.com/Ascend/MindSpeed-LLM)"),
        "attention", _HIDES),
    "torchtitan": Behaviour(
        _named("torchtitan", "torchtitan 0.2 config_manager (github.com/pytorch/torchtitan)",
               zero="fsdp", gradient_dtype="fp32"), "operators", _HIDES, True),
    "fsdp": Behaviour(
        _named("fsdp", "PyTorch 2.6 torch.distributed.fsdp FullyShardedDataParallel",
               zero="fsdp", sequence_parallel=False, gradient_dtype="fp32"),
        "operators", _HIDES, True),
    "deepspeed": Behaviour(
        _named("deepspeed", "DeepSpeed 0.16 runtime/zero/config.py (overlap_comm on for stage 3)",
               sequence_parallel=False, overlap_pp=False, gradient_dtype="bf16"),
        "attention", _HIDES),
    "mindspore": Behaviour(
        _named("mindspore", "MindFormers 1.3 parallel config (gitee.com/mindspore/mindformers)",
               overlap_param=False, gradient_dtype="fp32"), "attention", _HIDES),
}  # fmt: skip
assert set(BEHAVIOUR) == set(FRAMEWORKS)


def framework_of(name: str) -> Behaviour:
    """Return what framework `name` does by default."""
    if name not in BEHAVIOUR:
        raise InputError(f"unknown framework {name!r}{nearest(name, BEHAVIOUR)}",
                         out=f"one of {', '.join(BEHAVIOUR)}")  # fmt: skip
    return BEHAVIOUR[name]
