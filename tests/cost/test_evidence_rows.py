"""Published rows read by rule: words, degrees, machines, refusals, and bad files."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from lightloom.core.errors import InputError
from lightloom.cost.evidence_rows import read_rows, row_of, shipped_rows, shipped_sweep
from lightloom.cost.evidence_words import (
    Software,
    precision_of,
    recompute_of,
    sequence_parallel_of,
    software_of,
    wire_of,
    zero_of,
)

NEMO = Software("megatron", 2025, "nemo")


@pytest.mark.parametrize(("text", "kind"), [
    ("BF16", "bf16"), ("amp_bf16", "bf16"), ("bfloat16", "bf16"), ("FP16", "fp16"),
    ("float16", "fp16"), ("FP8", "fp8"), ("amp_fp8", "fp8"), ("bf16 + float8 linear", "fp8"),
    ("float8 rowwise", "fp8"), ("MXFP8", "mxfp8"), ("FP8-MX", "mxfp8"),
    ("MXFP8 (parenthesised)", "mxfp8"), ("NVFP4", "fp4"), ("FP8 (alt granularity)", "fp8-block"),
    ("FP8 per-tensor current scaling", "fp8"), ("", "bf16"),
])  # fmt: skip
def test_types(text: str, kind: str) -> None:
    got, said = precision_of(text)
    assert got == kind
    assert bool(said) == (text == "" or "alt" in text)


@pytest.mark.parametrize(("text", "kind", "layers"), [
    ("none", "none", 0), ("full", "full", 0), ("full (uniform)", "full", 0),
    ("full/block/1", "full", 1), ("full/uniform/1", "full", 0),
    ("selective (attention only)", "selective", 0), ("selective (per-op SAC)", "selective", 0),
    ("granularity=None num_layers=None", "none", 0), ("null/null/null", "none", 0),
    ("modules=['layernorm', 'moe_act']", "none", 0), ("per-stage [6, 3, 2, 3]", "full", 6),
    ("full + select True", "full", 0), ("none + select True", "none", 0), ("", "none", 0),
])  # fmt: skip
def test_recompute_words(text: str, kind: str, layers: int) -> None:
    got, _ = recompute_of(text, NEMO)
    assert (got.kind, got.layers) == (kind, layers)


def test_blank_columns_are_said_aloud_and_by_software() -> None:
    old = Software("megatron", 2022, "megatron-classic")
    assert zero_of("", old, 8)[0] == "0"
    assert zero_of("", NEMO, 8)[0] == "1"
    assert zero_of("Megatron FSDP shard=64", NEMO, 256)[:2] == ("hsdp", 64)
    assert sequence_parallel_of("", old, 8) == (
        False, ("sequence parallelism not stated: off (software before 2023)",))  # fmt: skip
    assert sequence_parallel_of("", NEMO, 8)[0] is True
    assert all(said for said in (zero_of("", NEMO, 8)[2], recompute_of("", NEMO)[1]))


@pytest.mark.parametrize(("note", "gbit", "tier"), [
    ("DGX-H100: 8x400Gb/s per node (not stated on page)", 400, "infiniband"),
    ("1600 Gbps node-node RoCE", 200, "roce"),
    ("vTrain config inter_node_bandwidth=800 (Gb/s per node)", 100, "infiniband"),
    ("Intel Omni-Path, 4 x 100 Gb/s HFI per 8-GPU node", 50, "omnipath"),
    ("200GE RoCE per NPU (typical Atlas 800T A2; not stated)", 200, "roce"),
    ("400 Gb/s RDMA per GPU", 400, "infiniband"), ("InfiniBand 8x50 GB/s", 400, "infiniband"),
    ("Management: 1x Ethernet 10GB/Sec", 0, "roce"), ("", 0, "infiniband"),
])  # fmt: skip
def test_networks(note: str, gbit: float, tier: str) -> None:
    wire = wire_of(note, 8)
    assert wire.per_card * 8 / 1e9 == pytest.approx(gbit)
    assert wire.tier == tier


def test_software_generations() -> None:
    assert software_of("Megatron-LM (Megatron-DeepSpeed per paper)", 2024, "").era == 2022
    assert software_of("llm-foundry/Composer FSDP", 2023, "").framework == "fsdp"
    assert software_of("MindSpeed-LLM 2.0.0", 2025, "").framework == "mindspeed"
    assert software_of("NVIDIA NeMo Framework Release 25.09", 2025, "").flavour == "nemo"


def test_every_core_row_is_understood() -> None:
    core = [r for r in shipped_rows() if r.core]
    assert len(core) == 738
    assert not [r.id for r in core if r.job is None or not np.isfinite(r.measured)]
    assert len(shipped_sweep()) == 900
    assert all(r.job is not None for r in shipped_sweep())


def test_no_rule_looks_at_a_measured_time() -> None:
    cells = dict(next(r for r in shipped_rows() if r.core).cells)
    before = row_of(cells)
    after = row_of(cells | {"step_time_s": "123", "tokens_per_s_per_accel": "1", "mfu_pct": "9"})
    assert before.strategy == after.strategy
    assert before.job is not None and after.job is not None
    assert before.job.model == after.job.model and before.job.cluster == after.job.cluster


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, rows[0].keys())
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(stream.getvalue(), encoding="utf-8")
    return path


@pytest.mark.parametrize(("change", "word"), [
    ({"num_accel": ""}, "cards"), ({"hidden": "", "model": "who knows"}, "architecture"),
    ({"accelerator": "abacus", "chip": ""}, "accelerator"), ({"tp": "3"}, "divide"),
    ({"task": "dpo/rm"}, "task"), ({"global_batch": "many"}, "batch"),
])  # fmt: skip
def test_a_row_that_cannot_be_read_says_why(change: dict[str, str], word: str) -> None:
    cells = next(r for r in shipped_rows() if r.core).cells
    row = row_of(dict(cells) | change)
    assert row.job is None
    assert word in row.refused_why


def test_files_that_are_not_rows(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column `id`"):
        read_rows(write(tmp_path / "x.csv", [{"a": "1"}]))
    (tmp_path / "y.csv").write_bytes(b"\x1f\x8bnot gzip")
    with pytest.raises(InputError, match="cannot be read"):
        read_rows(tmp_path / "y.csv")
    with pytest.raises(InputError, match="does not exist"):
        read_rows(tmp_path / "z.csv")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(InputError, match="no column"):
        read_rows(tmp_path / "empty.csv")
