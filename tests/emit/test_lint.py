"""Checkers on users' own files: environments, scripts, manifests, batch files, hostile bytes."""

from __future__ import annotations

import random

import plans
import pytest
import yaml

from lightloom.core.errors import InputError
from lightloom.emit.check import check_bytes, check_text
from lightloom.emit.targets import emit

ARTICLE = """export HCCL_INTRA_ROCE_ENABLE=1
export HCCL_BUFFSIZE=200
export HCCL_ALGO=Ring
export HCCL_TIMEOUT=1800
export ASCEND_GLOBAL_LOG_LEVEL=3
"""


def codes(name: str, text: str) -> list[str]:
    return [f.code for f in check_text(name, text)[1]]


def test_the_settings_that_guides_print_are_named() -> None:
    _, findings = check_text("env.sh", ARTICLE)
    assert {f.code for f in findings} == {"algo", "no-such-variable"}
    assert "HCCL_EXEC_TIMEOUT" in next(f.remedy for f in findings if f.code == "no-such-variable")
    assert "level0:NA;level1:ring" in next(f.remedy for f in findings if f.code == "algo")
    assert codes("env.sh", "export NCCL_SOCKET_TIMEOUT=3600\n") == ["no-such-variable"]


@pytest.mark.parametrize(("line", "code"), [
    ("HCCL_ALGO=level0:NA;level1:ring", ""), ("HCCL_ALGO=allreduce=level0:NA;level1:NHR", ""),
    ("HCCL_ALGO=level0:ring", "algo"), ("HCCL_ALGO=level0:NA;level1:tree", "algo"),
    ("HCCL_ALGO=sum=level0:NA;level1:ring", "algo"), ("HCCL_CONNECT_TIMEOUT=60", "range"),
    ("HCCL_RDMA_TC=130", "range"), ("HCCL_RDMA_SL=9", "range"),
    ("HCCL_CONECT_TIMEOUT=600", "unknown-variable"), ("NCCL_DEBUG=LOUD", "value"),
    ("HCCL_EXEC_TIMEOUT=3600", "timeout-order"), ("HCCL_INTRA_PCIE_ENABLE=0", "intra"),
    ("NCCL_IB_TIMEOUT=22", ""), ("HCCL_DETERMINISTIC=yes", "value"),
])  # fmt: skip
def test_environment_rules(line: str, code: str) -> None:
    found = codes(".env", f'{line.partition("=")[0]}="{line.partition("=")[2]}"\n')
    assert found == ([code] if code else [])


SCRIPT = """#!/bin/bash
TP=8
export HCCL_CONNECT_TIMEOUT=1200
ARGS="
    --tensor-model-parallel-size ${TP} \\
    --pipeline-model-parallel-size 4 \\
    --num-layers 80 \\
    --num-attention-heads 64 \\
    --micro-batch-size 1 \\
    --global-batch-size 512 \\
    --seq-length 8192 \\
    --bf16
"
torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py $ARGS \\
    --distributed-backend nccl
"""


@pytest.mark.parametrize(("old", "new", "code"), [
    ("", "", ""), ("TP=8", "TP=7", "world"), ("--num-layers 80", "--num-layers 81", "divides"),
    ("--num-attention-heads 64", "--num-attention-heads 60", "divides"),
    ("--bf16", "--bf16 --fp16", "conflict"),
    ("--bf16", "--bf16 --noop-layers 78,79", ""), ("--bf16", "--bf16 --noop-layers 80", "noop"),
    ("--bf16", "--bf16 --noop-layers 3,3", "noop"), ("--bf16", "--bf16 --noop-layers x", "type"),
    ("--seq-length", "--sequence-length", "unknown-option"),
    ("--micro-batch-size 1", "--micro-batch-size 3", "batch"),
    ("--bf16", "--bf16 --recompute-method uniform", "needs"),
    ("--bf16", "--bf16 --overlap-param-gather", "needs"),
    ("--bf16", "--recompute-granularity everything", "choice"),
    ("--nnodes 4", "--nodes 4", "unknown-option"), ("8192", "8192 --num-layers 40", "twice"),
])  # fmt: skip
def test_script_rules(old: str, new: str, code: str) -> None:
    found = codes("train.sh", SCRIPT.replace(old, new, 1) if old else SCRIPT)
    assert (code in found) if code else not found, found


SBATCH = """#!/bin/bash
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --segment=4
#SBATCH --time=2-00:00:00
srun --kill-on-bad-exit=0 torchrun --nnodes 8 --nproc-per-node 8 train.py
"""


@pytest.mark.parametrize(("old", "new", "code"), [
    ("", "", ""), ("segment=4", "segment=3", "segment"), ("exit=0", "exit=1", "kill"),
    ("per-node=1\n", "per-node=8\n", "agents"), ("--nodes=8", "--node=8", "unknown-option"),
    ("srun --kill-on-bad-exit=0 ", "", "srun"), ("2-00:00:00", "two days", "value"),
    ("#!/bin/bash\n", "", "shebang"),
])  # fmt: skip
def test_batch_rules(old: str, new: str, code: str) -> None:
    found = codes("job.sbatch", SBATCH.replace(old, new, 1) if old else SBATCH)
    assert (code in found) if code else not found, found


def test_manifest_rules_beyond_the_schema() -> None:
    bundle = emit(plans.plan("gpt-oss-20b", "dgx-h100"), "volcano")
    documents = list(yaml.safe_load_all(bundle.files[0].text))
    job = documents[1]
    job["spec"]["minAvailable"] = 9
    box = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    box["resources"]["requests"]["nvidia.com/gpu"] = 4
    box["env"].append({"name": "HF_TOKEN", "value": "hf_secret"})
    box["volumeMounts"][0]["name"] = "elsewhere"
    found = codes("job.yaml", yaml.safe_dump_all(documents))
    assert {"gang", "cards", "secret", "volume"} <= set(found)


def test_container_versions_are_checked_against_the_matrix() -> None:
    good = "FROM quay.io/ascend/cann:8.5.0-x\nRUN pip install torch==2.7.1 torch_npu==2.7.1.post2\n"
    assert codes("Dockerfile", good) == []
    assert codes("Dockerfile", good.replace("8.5.0", "8.0.0")) == ["version"]


def test_hostile_files_never_crash() -> None:
    seeds = [f for t in ("ranktable", "hccl-topology", "volcano", "kueue", "slurm", "mindspeed",
                         "mindspore", "chakra")
             for f in emit(plans.plan("gpt-oss-20b", "supernode-8192",
                                      t if t.startswith("mind") else "mindspeed"), t).files
             if not f.path.endswith((".md", ".txt"))][:14]  # fmt: skip
    rng = random.Random(7)
    for _ in range(300):
        file = rng.choice(seeds)
        data = bytearray(file.data)
        for _ in range(rng.randrange(1, 6)):
            place = rng.randrange(len(data))
            kind = rng.randrange(3)
            if kind == 0:
                data[place] = rng.randrange(256)
            elif kind == 1:
                del data[place : place + rng.randrange(1, 200)]
            else:
                data[place:place] = rng.choice(
                    [b"[" * 300, b"{}", b'"', b"\x00", b"- : :\n", b"1e999"]
                )
        try:
            check_bytes(file.path, bytes(data))
        except InputError as error:
            assert str(error)
