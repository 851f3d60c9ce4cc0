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
_RECIPES = ("bare defaults are off; those its recipes set are used: --use-distributed-optimizer "
            "--overlap-grad-reduce --overlap-param-gather --sequence-parallel")  # fmt: skip


def _named(name: str, pinned: str, **flags: object) -> Framework:
    values = {"zero": "1", "sequence_parallel": True, "overlap_grad": True, "overlap_param": True,
              "overlap_tp": False, "overlap_pp": True} | flags  # fmt: skip
    return Framework(name=name, pinned=pinned, **values)  # type: ignore[arg-type]


BEHAVIOUR: dict[str, Behaviour] = {
    "megatron": Behaviour(
        _named("megatron", "Megatron-LM core_v0.15.0 megatron/training/arguments.py, "
               f"github.com/NVIDIA/Megatron-LM: {_RECIPES}"), "attention", _HIDES),
    "mindspeed": Behaviour(
        _named("mindspeed", "MindSpeed-LLM v2.3.0 on Megatron core_v0.12.1, "
               f"gitcode.com/Ascend/MindSpeed-LLM: {_RECIPES}"), "attention", _HIDES),
    "torchtitan": Behaviour(
        _named("torchtitan", "torchtitan v0.2.2 config (mixed_precision_reduce float32, "
               "reshard_after_forward default: not with a pipeline), github.com/pytorch/torchtitan",
               zero="fsdp"), "operators", _HIDES, True),
    "fsdp": Behaviour(
        _named("fsdp", "PyTorch 2.6 fully_shard: fp32 shards, bf16 gathers, fp32 reduction as "
               "torchtitan sets it", zero="fsdp", sequence_parallel=False),
        "operators", _HIDES, True),
    "deepspeed": Behaviour(
        _named("deepspeed", "DeepSpeed deepspeed/runtime/zero/config.py at 1b88ac36: overlap_comm "
               "unset is on for stage 3 only", sequence_parallel=False, overlap_grad=False,
               overlap_param=False, overlap_pp=False, gradient_dtype="bf16"),
        "attention", _HIDES),
    "mindspore": Behaviour(
        _named("mindspore", "MindFormers 1.3 parallel_config, from memory of its guides "
               "(gitee.com/mindspore/mindformers)", overlap_param=False), "attention", _HIDES),
}  # fmt: skip
assert set(BEHAVIOUR) == set(FRAMEWORKS)


def framework_of(name: str) -> Behaviour:
    """Return what framework `name` does by default."""
    if name not in BEHAVIOUR:
        raise InputError(f"unknown framework {name!r}{nearest(name, BEHAVIOUR)}",
                         out=f"one of {', '.join(BEHAVIOUR)}")  # fmt: skip
    return BEHAVIOUR[name]
