"""Every target by name, what it is for, and the one door to all of them."""

from __future__ import annotations

import importlib
from typing import NamedTuple

from lightloom.core.errors import InputError, nearest
from lightloom.core.plan import Plan

from .bundle import Bundle
from .capability import CAN, FEATURES, gaps, runs_on


class Target(NamedTuple):
    """One thing that a plan can become."""

    module: str
    what: str


TARGETS = {
    "torchrun": Target("torchrun", "launch line for any script, environment, NUMA wrapper"),
    "megatron": Target("megatron", "Megatron-LM core_v0.15.0 arguments"),
    "mindspeed": Target("mindspeed", "MindSpeed-LLM v2.3.0 script and environment"),
    "mindspore": Target("mindspore", "MindFormers YAML and msrun line"),
    "torchtitan": Target("torchtitan", "torchtitan v0.2.2 job TOML"),
    "deepspeed": Target("deepspeed", "ds_config.json and launch line"),
    "fsdp": Target("fsdp", "PyTorch FSDP2 mesh and sharding module"),
    "ranktable": Target("ranktable", "HCCL rank table 1.0, 1.2 or 2.0, by chip"),
    "hccl-topology": Target("hccl_topology", "HCCL topology file 2.0"),
    "kubernetes": Target("kubernetes", "Kubeflow TrainJob and JobSet"),
    "volcano": Target("volcano", "Volcano Job with network topology"),
    "kueue": Target("kueue", "Kueue topology, queues and job"),
    "slurm": Target("slurm", "sbatch file with segments"),
    "ray": Target("ray", "Ray job: placement group and agents"),
    "chakra": Target("chakra", "Chakra execution traces and a SimAI workload"),
    "dockerfile": Target("dockerfile", "container file with pinned versions"),
}


def emit(plan: Plan, target: str) -> Bundle:
    """Return the files of one target for a plan, or say what it cannot express."""
    if target not in TARGETS:
        raise InputError(f"no target {target!r}{nearest(target, TARGETS)}",
                         out=f"targets: {', '.join(TARGETS)}")  # fmt: skip
    module = importlib.import_module(f"lightloom.emit.{TARGETS[target].module}")
    bundle: Bundle = module.emit(plan)
    return bundle


def capability_table() -> dict[str, dict[str, bool]]:
    """Return framework -> part of a plan -> can express it."""
    return {name: {FEATURES[f]: f in can for f in FEATURES} for name, can in CAN.items()}


def gaps_of(plan: Plan) -> dict[str, list[str]]:
    """Return framework -> parts of this plan that it cannot express."""
    return {
        name: [FEATURES[g.feature] for g in gaps(plan, name)]
        if runs_on(plan, name)
        else [f"cards of {plan.cluster.chip.vendor}"]
        for name in CAN
    }
