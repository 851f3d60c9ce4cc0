"""Twenty seeded mutations of every target's files: all of them caught."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import mutate
import plans
import pytest
from test_targets import plan_for

from lightloom.core.errors import InputError
from lightloom.emit.check import check_bytes
from lightloom.emit.targets import emit

CASES: dict[str, tuple[str, Callable[..., Any], str]] = {
    "torchrun": ("launch.sh", mutate.script, "dgx-h100"),
    "megatron": ("train.sh", mutate.script, "dgx-h100"),
    "mindspeed": ("train.sh", mutate.script, "supernode-8192"),
    "mindspore": ("job.yaml", mutate.mindformers, "supernode-8192"),
    "torchtitan": ("job.toml", mutate.toml, "dgx-h100"),
    "deepspeed": ("ds_config.json", mutate.deepspeed, "dgx-h100"),
    "fsdp": ("launch.sh", mutate.script, "dgx-h100"),
    "ranktable": ("ranktable.json", mutate.table, "atlas-900-a3"),
    "hccl-topology": ("topology.json", mutate.table, "supernode-8192"),
    "kubernetes": ("jobset.yaml", mutate.manifest, "dgx-h100"),
    "volcano": ("volcano.yaml", mutate.manifest, "supernode-8192"),
    "kueue": ("kueue.yaml", mutate.manifest, "dgx-h100"),
    "slurm": ("job.sbatch", mutate.sbatch, "dgx-h100"),
    "ray": ("environment.sh", mutate.environment, "dgx-h100"),
    "chakra": ("rank.0.et", mutate.chakra, "dgx-h100"),
    "dockerfile": ("Dockerfile", mutate.dockerfile, "supernode-8192"),
}
MORE = (
    ("kubernetes", "trainjob.yaml", mutate.manifest, "gb200-nvl72"),
    ("ranktable", "ranktable.json", mutate.table, "supernode-8192"),
    ("mindspeed", "environment.sh", mutate.environment, "atlas-900-a3"),
)


def caught(name: str, data: bytes) -> bool:
    try:
        return bool(check_bytes(name, data)[1])
    except InputError:
        return True


def survivors(target: str, path: str, mutator: Callable[..., Any], cluster: str) -> list[str]:
    """Return the mutants that no checker noticed."""
    bundle = emit(plan_for(target, "llama-3.1-70b", cluster), target)
    file = next(f for f in bundle.files if f.path == path)
    assert not [f for f in check_bytes(path, file.data)[1] if f.severity == "error"]
    content: Any = file.raw or file.text
    alive = []
    for seed in range(20):
        mutant = mutator(content, random.Random(seed))
        assert mutant != content, seed
        if not caught(path, mutant if isinstance(mutant, bytes) else mutant.encode()):
            alive.append(f"seed {seed}: {difference(content, mutant)}")
    return alive


def difference(before: Any, after: Any) -> str:
    if isinstance(before, bytes):
        return "binary"
    old = set(before.splitlines())
    return " | ".join([line for line in after.splitlines() if line not in old][:3])


@pytest.mark.parametrize("target", list(CASES))
def test_all_twenty_mutations_are_caught(target: str) -> None:
    alive = survivors(target, *CASES[target])
    assert not alive, "\n".join(alive)


@pytest.mark.parametrize(("target", "path", "mutator", "cluster"), MORE)
def test_other_files_too(target: str, path: str, mutator: Callable[..., Any], cluster: str) -> None:
    alive = survivors(target, path, mutator, cluster)
    assert not alive, "\n".join(alive)


def test_every_target_is_mutated() -> None:
    from lightloom.emit.targets import TARGETS

    assert set(CASES) == set(TARGETS)
    assert plans.CLUSTERS
