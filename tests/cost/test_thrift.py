"""Memory that software spares: less of it, at the same step time, and said aloud in rows."""

from __future__ import annotations

import pytest

from lightloom.cost.calibration import default_calibration
from lightloom.cost.columns import columns_of
from lightloom.cost.evaluate import evaluate
from lightloom.cost.evidence_rows import row_of, shipped_rows
from lightloom.cost.predict import stage_memories
from lightloom.cost.thrift import Thrift
from tests.cost.helpers import job_of, plain


def parts_of(thrift: Thrift, **values: object) -> tuple[dict[str, float], float]:
    model = str(values.pop("model", "llama-3.1-8b"))
    job = job_of(model, "dgx-h100", 8, thrift=thrift)
    s = plain(job, **{"dp": 8, "tp": 1, **values})
    step = float(evaluate(job, columns_of([s]), default_calibration()).step_s[0])
    return stage_memories(job, s, default_calibration())[0].parts, step


@pytest.mark.parametrize(("thrift", "part", "values"), [
    (Thrift(remade=frozenset({"norm"})), "activations", {}),
    (Thrift(remade=frozenset({"act"})), "activations", {}),
    (Thrift(remade=frozenset({"mlp"})), "activations", {}),
    (Thrift(remade=frozenset({"attention"})), "activations", {}),
    (Thrift(remade=frozenset({"mla"})), "activations", {"model": "deepseek-v2", "ep": 8}),
    (Thrift(offloaded_layers=16), "activations", {}),
    (Thrift(shared_master=True), "optimizer", {}),
    (Thrift(narrow_primary=True), "weights", {"precision": "fp8"}),
    (Thrift(narrow_primary=True), "gathered", {"precision": "fp8", "zero": "fsdp"}),
    (Thrift(logit_bytes=4.0), "logits", {}),
    (Thrift(expandable=True), "fragmentation", {}),
    (Thrift(filled=0.25), "activations", {}),
])  # fmt: skip
def test_each_way_frees_its_part_and_costs_no_time(
    thrift: Thrift, part: str, values: dict[str, object]
) -> None:
    plainly, step = parts_of(Thrift(), **dict(values))
    spared, same = parts_of(thrift, **dict(values))
    assert spared[part] < plainly[part]
    assert same == step
    assert all(v <= plainly[k] * (1 + 1e-12) for k, v in spared.items())


def test_half_of_the_layers_offloaded_leave_half_of_what_is_kept() -> None:
    none, half, every = (
        parts_of(Thrift(offloaded_layers=n))[0]["activations"] for n in (0, 16, 32)
    )
    assert half - every == pytest.approx((none - every) / 2.0)
    assert parts_of(Thrift(offloaded_layers=99))[0]["activations"] == every


def test_rows_state_or_assume_what_is_spared() -> None:
    fsdp = next(r for r in shipped_rows() if r.job and "cpu_offloading" in r.cells["notes"])
    assert fsdp.job is not None
    assert fsdp.job.thrift.offloaded_layers == 40
    silent = row_of(fsdp.cells | {"notes": ""})
    assert silent.job is not None
    assert silent.job.thrift.offloaded_layers == 40
    assert any("offload not stated" in a for a in silent.assumptions)
    reuse = next(r for r in shipped_rows() if r.job and "reuse-fp32" in r.cells["zero_or_fsdp"])
    assert reuse.job is not None
    assert reuse.job.thrift.shared_master


def test_most_runs_that_ran_fit() -> None:
    pairs = [(r.job, r.strategy) for r in shipped_rows() if r.core and r.job and r.strategy][::6]
    cal = default_calibration()
    fits = [bool(evaluate(job, columns_of([s]), cal).fits[0]) for job, s in pairs]
    assert len(fits) > 100
    assert sum(fits) >= 0.94 * len(fits)
