"""Where a run's agents are started: on this host, under torchrun, as Ray actors; or as files.

Agents are the same everywhere. torchrun and Ray only start them (no restarts of theirs): a lost
rank or agent is the other agents' to recover. Slurm, Kubernetes and MindSpore get files of `emit`.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from lightloom.core.errors import InputError, MissingExtraError
from lightloom.core.files import read_json, write_bytes
from lightloom.core.plan import Plan

from . import agent as agents
from .spec import Spec

LIVE = ("local", "torchrun", "ray")
FILES = ("slurm", "kubernetes", "mindspore")
START_S = {"local": 20.0, "torchrun": 120.0, "ray": 180.0}
"""Longest time until every agent must have said where it listens."""

NEXT = {
    "slurm": "sbatch job.sbatch",
    "kubernetes": "kubectl apply -f .   (review the lines marked site first)",
    "mindspore": "NODE_RANK=0 MASTER_ADDR=first-host bash train.sh   (on every host)",
}
MINDSPORE = (
    "MindSpore does not run under lightloom's agents: a rank lost there is not replaced in place, "
    "hangs are not named, state is not kept in memory and steps are not committed. msrun ends "
    "the job with the first lost process; go on from MindSpore's own checkpoint. The plan, its "
    "files, simulate and advise work as for any framework."
)
FILES_ONLY = (
    "These files start the plan's framework, not lightloom's agents: a lost rank is recovered as "
    "the framework can, from its checkpoint."
)


class Written(NamedTuple):
    """Files for an engine that this host cannot start."""

    engine: str
    folder: str
    files: tuple[str, ...]
    next: str
    """What to type in that folder."""
    cannot: str
    notes: tuple[str, ...] = ()


def require(engine: str) -> None:
    """Raise unless the engine's own package is installed."""
    needed = {"torchrun": ("torch", "run"), "ray": ("ray", "ray")}.get(engine)
    if needed and importlib.util.find_spec(needed[0]) is None:
        raise MissingExtraError(*needed)


def share(spec: Spec, index: int) -> int:
    """Return the number of ranks that agent `index` starts with."""
    return spec.ranks * (index + 1) // spec.agents - spec.ranks * index // spec.agents


def open_agents(folder: Path, spec: Spec) -> list[subprocess.Popen[bytes]]:
    """Start all agents of a run by its engine; returns the processes started here."""
    if spec.engine == "local":
        return [agents.launch(folder, i, share(spec, i)) for i in range(spec.agents)]
    require(spec.engine)
    if spec.engine == "torchrun":
        words = ["torch.distributed.run", "--standalone", "--nnodes", "1", "--nproc-per-node",
                 str(spec.agents), "--max-restarts", "0", "--monitor-interval", "0.1",
                 "-m", "lightloom.run.engines_under", str(folder)]  # fmt: skip
    else:
        words = ["lightloom.run.engines_ray", str(folder)]
    with open(folder / f"{spec.engine}.log", "ab") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    return [started]


def write(words: tuple[str, ...], options: dict[str, Any]) -> Written:
    """Write the launch files of a plan for an engine elsewhere; says what to type next."""
    from lightloom.emit.targets import emit

    engine = options["on"]
    if not words or not words[0].endswith(".json"):
        raise InputError(
            f"--on {engine} needs a plan: its files start the plan's framework on the real machine",
            out=f"lightloom run plan.json --on {engine}; this host trains with --on local",
        )
    plan = read_json(words[0], Plan, "plan")
    folder = Path(options["out"] or f"{Path(words[0]).stem}-{engine}")
    bundle = emit(plan, engine)
    errors = [f for f in bundle.findings if f.severity == "error"]
    if errors:
        raise InputError(f"{errors[0].subject}: {errors[0].what}", out=errors[0].remedy)
    for file in bundle.files:
        write_bytes(folder / file.path, file.data)
        if file.executable:
            (folder / file.path).chmod(0o755)
    return Written(
        engine, str(folder), tuple(f.path for f in bundle.files), NEXT[engine],
        MINDSPORE if engine == "mindspore" else FILES_ONLY,
        tuple(f"{f.severity} {f.subject} {f.what}" for f in bundle.findings),
    )  # fmt: skip
