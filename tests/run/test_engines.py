"""The same job under torchrun and Ray loses an agent and goes on; files for other engines."""

from __future__ import annotations

import importlib.util
import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner
from run_jobs import Train

from lightloom.cli.run import run
from lightloom.core.catalog import load_cluster, load_model
from lightloom.core.errors import MissingExtraError
from lightloom.core.files import write_json
from lightloom.core.placement import Placement
from lightloom.core.plan import Plan, Prediction, StageMemory
from lightloom.core.strategy import Strategy
from lightloom.run import engines, launch


def plan_file(folder: Path, cluster: str, framework: str) -> str:
    """Write a plan by hand and return its path."""
    strategy = Strategy(tp=8, pp=2, dp=4, global_batch=1024, seq=4096, framework=framework)
    prediction = Prediction(
        step_s=4.67, low_s=4.1, high_s=5.3, extrapolated=True, trust="by hand",
        parts={"compute": 4.67}, hidden={}, tokens_per_s_per_card=1750.0, mfu=0.4, hfu=0.4,
        model_flops=1e18, memory=(StageMemory(stage=0, parts={"weights": 5e10}),),
        usable_bytes=6e10, bubble=0.1, exposed_comm=0.09, power_w=1e6, energy_j=5e6, goodput=0.95,
        wall="compute",
    )  # fmt: skip
    plan = Plan(
        model=load_model("llama-3.1-70b"), cluster=load_cluster(cluster), strategy=strategy,
        placement=Placement(), prediction=prediction, cards=strategy.world_size, made_by="test",
    )  # fmt: skip
    write_json(folder / "plan.json", plan)
    return str(folder / "plan.json")


@pytest.mark.torch
def test_under_torchrun_a_lost_agent_is_ours_to_recover(train: Train) -> None:
    hurt = train(ranks=2, agents=2, engine="torchrun", faults=("agent:1@step8",), steps=30)
    assert hurt.state == "done" and hurt.steps == 30 and hurt.lost_steps == 0
    assert hurt.recoveries[0].what.startswith("agent 1 lost") and hurt.pids_kept
    log = (Path(hurt.folder) / "torchrun.log").read_text()
    assert "Failed" not in log and "Traceback" not in log, "torchrun saw nothing of it"


@pytest.mark.torch
def test_a_killed_ray_actor_recovers_in_place(train: Train) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'lightloom[ray]'")
    killed: list[int] = []

    def kill(folder: Path) -> None:
        steps = [p for p in folder.glob("agent-*.steps") if p.stat().st_size]
        if not killed and len(steps) == 2:
            killed.append(int((folder / "actors").read_text().splitlines()[1].split()[1]))
            os.kill(killed[0], signal.SIGKILL)

    hurt = train(kill, ranks=2, agents=2, engine="ray", steps=400)
    assert killed and hurt.state == "done" and hurt.steps == 400 and hurt.lost_steps == 0
    assert hurt.recoveries[0].what.startswith("agent 1 lost")
    events = launch.events(Path(hurt.folder))
    assert {e["agent"] for e in events if e["kind"] == "agent"} == {0, 1, 2}, "another actor came"


def test_without_the_extra_ray_names_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"lightloom\[ray\]"):
        engines.require("ray")


@pytest.mark.parametrize(
    ("engine", "cluster", "framework", "file", "next_"),
    [
        ("slurm", "dgx-h100", "megatron", "job.sbatch", "sbatch job.sbatch"),
        ("kubernetes", "dgx-h100", "megatron", "", "kubectl apply"),
        ("mindspore", "atlas-900-a3", "mindspore", "job.yaml", "train.sh"),
    ],
)
def test_engines_elsewhere_get_files_and_what_to_type(
    tmp_path: Path, engine: str, cluster: str, framework: str, file: str, next_: str
) -> None:
    plan = plan_file(tmp_path, cluster, framework)
    out = tmp_path / "out"
    found = CliRunner().invoke(run, ["start", plan, "--on", engine, "--out", str(out)])
    assert found.exit_code == 0, found.output
    assert next_ in found.output and (out / file).exists() and any(out.iterdir())
    assert ("MindSpore does not run under" in found.output) == (engine == "mindspore")


def test_files_need_a_plan() -> None:
    found = CliRunner().invoke(run, ["start", "--example", "gpt", "--on", "slurm"])
    assert found.exception is not None and "needs a plan" in str(found.exception)
