"""Every target, on every machine and model of the release: a checked set, or a reason why not."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import plans
import pytest
import yaml

from lightloom.cli.emit import judged
from lightloom.core.errors import InfeasibleError, InputError
from lightloom.core.plan import Plan
from lightloom.cost.pipeline import even_layers
from lightloom.emit.bundle import Bundle
from lightloom.emit.capability import CAN, FEATURES, NEAREST, gaps
from lightloom.emit.targets import TARGETS, emit

ASCEND = ("supernode-8192", "atlas-960", "atlas-900-a3", "traditional-8192")
FRAMEWORKS = tuple(CAN)
SHELLCHECK = str(Path(sys.executable).with_name("shellcheck"))
OVER: dict[str, dict[str, object]] = {
    "deepspeed": {"zero": "3", "pp": 1, "ep": 1, "vpp": 1, "tp": 1, "recompute": "full"},
    "fsdp": {"pp": 1, "ep": 1, "vpp": 1, "dp": 8},
    "torchtitan": {"pp": 1, "vpp": 1},
}


def plan_for(target: str, model: str, cluster: str) -> Plan:
    if target in FRAMEWORKS:
        return plans.plan(model, cluster, target, **OVER.get(target, {}))
    return plans.plan(model, cluster, "mindspeed" if cluster in ASCEND else "megatron")


@pytest.mark.parametrize("cluster", plans.CLUSTERS)
@pytest.mark.parametrize("model", plans.MODELS)
def test_every_target_emits_a_checked_set_or_says_why_not(model: str, cluster: str) -> None:
    emitted = []
    for target in TARGETS:
        if target == "chakra" and cluster != "dgx-h100":
            continue
        try:
            bundle = emit(plan_for(target, model, cluster), target)
        except InfeasibleError as error:
            assert error.what and (error.out or "cannot" in error.what), target
            continue
        errors = [f for f in judged(bundle) if f.severity == "error"]
        assert not errors, (target, errors[:3])
        check_syntax(bundle)
        emitted.append(target)
    assert {"torchrun", "kubernetes", "volcano", "kueue", "slurm", "ray"} <= set(emitted)
    assert set(FRAMEWORKS) & set(emitted)
    assert ("ranktable" in emitted) == (cluster in ASCEND)


def check_syntax(bundle: Bundle) -> None:
    """Every file parses in its own language."""
    for file in bundle.files:
        if file.path.endswith(".json"):
            json.loads(file.text)
        elif file.path.endswith(".toml"):
            tomllib.loads(file.text)
        elif file.path.endswith((".yaml", ".yml")):
            assert all(isinstance(d, dict) for d in yaml.safe_load_all(file.text))
        elif file.path.endswith(".py"):
            ast.parse(file.text)


@pytest.mark.parametrize("target", ["megatron", "mindspeed", "torchrun", "slurm", "ray", "fsdp"])
def test_scripts_pass_bash_and_shellcheck(target: str, tmp_path: Path) -> None:
    cluster = "supernode-8192" if target == "mindspeed" else "dgx-h100"
    bundle = emit(plan_for(target, "llama-3.1-70b", cluster), target)
    scripts = [f for f in bundle.files if f.path.endswith((".sh", ".sbatch"))]
    assert scripts
    for file in scripts:
        path = tmp_path / file.path
        path.write_text(file.text)
        shell = ["bash", "-n", str(path)]
        assert subprocess.run(shell, capture_output=True, check=False).returncode == 0, file.path
        lint = [SHELLCHECK, "-s", "bash", "-e", "SC1091,SC2034", str(path)]
        done = subprocess.run(lint, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_every_setting_says_where_it_comes_from() -> None:
    bundle = emit(plans.plan("llama-3.1-70b", "dgx-h100"), "megatron")
    train = next(f.text for f in bundle.files if f.path == "train.sh")
    options = [line for line in train.splitlines() if line.startswith("  --") and "#" not in line]
    launcher = ("  --node-rank", "  --master", "  --max-restarts", "  --no-python")
    assert all(line.startswith(launcher) for line in options), options


def test_no_secret_in_any_file() -> None:
    for target in TARGETS:
        if target in ("mindspeed", "mindspore", "ranktable", "hccl-topology"):
            continue
        bundle = emit(plan_for(target, "gpt-oss-20b", "dgx-h100"), target)
        for file in bundle.files:
            assert "password" not in file.text.lower(), (target, file.path)


def test_megatron_says_what_the_plan_says() -> None:
    plan = plans.plan("llama-3.1-405b", "dgx-h100", recompute="full")
    text = emit(plan, "megatron").files[0].text
    for words in ("--tensor-model-parallel-size 8", "--pipeline-model-parallel-size 7",
                  "--num-layers-per-virtual-pipeline-stage 9", "--global-batch-size 1008",
                  "--recompute-granularity full", "--rotary-base 500000",
                  "--num-query-groups 8"):  # fmt: skip
        assert words in text, words
    uneven = plans.plan("deepseek-v3", "dgx-h100")
    assert "|" in emit(uneven, "megatron").files[0].text.split("pipeline-model-parallel-layout")[1]


def test_what_cannot_be_expressed_is_refused_with_the_nearest() -> None:
    plan = plans.plan("deepseek-v3", "dgx-h100", "torchtitan")
    with pytest.raises(InfeasibleError, match="multi-token prediction"):
        emit(plan, "torchtitan")
    for framework in CAN:
        for feature in FEATURES:
            assert feature in CAN[framework] or NEAREST.get(feature), (framework, feature)
    wanted = plans.plan("llama-3.1-70b", "dgx-h100", "fsdp", pp=2, dp=4)
    assert [g.feature for g in gaps(wanted, "fsdp")] == ["pp"]


def test_unknown_target_names_the_nearest() -> None:
    with pytest.raises(InputError, match="megatron"):
        emit(plans.plan("llama-3.1-70b", "dgx-h100"), "megatrom")


def test_hosts_must_fill() -> None:
    plan = plans.plan("gpt-oss-20b", "dgx-h100", dp=12, ep=4)
    with pytest.raises(InfeasibleError, match="12 ranks do not fill hosts of 8"):
        emit(plan, "torchrun")


def test_deepspeed_batches_multiply_out() -> None:
    plan = plan_for("deepspeed", "llama-3.1-70b", "dgx-h100")
    config = json.loads(emit(plan, "deepspeed").files[0].text)
    product = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"]
    assert config["train_batch_size"] == product * plan.strategy.dp


def test_fsdp_module_shards_a_model_on_four_ranks(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the run extra is not installed")
    small = plans.plan("gpt-oss-20b", "dgx-h100", "fsdp", dp=4, ep=1, global_batch=8)
    for file in emit(small, "fsdp").files:
        path = tmp_path / file.path
        path.write_text(file.text)
        path.chmod(0o755)
    (tmp_path / "train.py").write_text(TRAIN)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "launch.sh", "train.py"], cwd=tmp_path, capture_output=True,
                          text=True, check=False, timeout=240,
                          env={**os.environ, "PATH": path})  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("sharded") == 4


TRAIN = """
import torch, torch.distributed as dist, fsdp_plan
dist.init_process_group("gloo")
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(3)])
layers = torch.nn.ModuleList(model)
holder = torch.nn.Module(); holder.layers = layers
mesh = fsdp_plan.mesh("cpu")
fsdp_plan.shard(holder, holder.layers, mesh)
x = torch.randn(2, 64)
for layer in holder.layers:
    x = layer(x)
x.float().sum().backward()
print("sharded", [p.to_local().shape for p in holder.parameters()][:1], flush=True)
dist.destroy_process_group()
"""


def test_uneven_chunks_are_filled_with_layers_that_do_nothing() -> None:
    plan = plans.plan("deepseek-v3", "supernode-8192", "mindspeed", pp=16, vpp=3,
                      schedule="interleaved", tp=1, dp=8, ep=8)  # fmt: skip
    words = emit(plan, "mindspeed").files[0].text.split()
    value = {w: words[i + 1] for i, w in enumerate(words) if w.startswith("--")}
    noops = [int(n) for n in value["--noop-layers"].strip("'").split(",")]
    per = int(value["--num-layers-per-virtual-pipeline-stage"])
    assert int(value["--num-layers"]) == 16 * 3 * per == 61 + len(noops)
    held = [sum(i not in noops for i in range(c * per, c * per + per)) for c in range(48)]
    assert tuple(held) == even_layers(61, 48)
    first = int(value["--first-k-dense-replace"])
    assert sum(i not in noops for i in range(first)) == 3
    assert first not in noops


def test_even_chunks_need_no_empty_layers() -> None:
    plan = plans.plan("llama-3.1-70b", "supernode-8192", "mindspeed", pp=4, vpp=5,
                      schedule="interleaved")  # fmt: skip
    text = emit(plan, "mindspeed").files[0].text
    assert "noop" not in text
    assert "--num-layers 80 " in text
