"""One path for one row and for many; parts add up; the right things make it slower or bigger."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from lightloom.core.catalog import load_cluster, names
from lightloom.core.strategy import Strategy
from lightloom.cost.calibration import Calibration, default_calibration
from lightloom.cost.columns import columns_of
from lightloom.cost.evaluate import Costs, evaluate
from lightloom.cost.job import Job
from lightloom.cost.operations import stage_operations
from lightloom.cost.predict import make_plan, predict, stage_memories
from tests.cost.helpers import gpt, job_of, plain, random_columns, rows_of

JOBS = [
    ("deepseek-v3", "supernode-8192", 1024, {}),
    ("llama-3.1-70b", "dgx-h100", 256, {"framework": "torchtitan"}),
    ("qwen3-next-80b-a3b", "dgx-b200", 128, {"framework": "deepspeed"}),
    ("gemma-3-27b", "tpu-v5p", 64, {"task": "lora"}),
    ("gpt3-175b", "dgx-a100", 384, {"flash": False, "seq": 2048}),
]


def cost(job: Job, **values: Any) -> Costs:
    return evaluate(job, columns_of([plain(job, **values)]))


@pytest.mark.parametrize(("model", "cluster", "cards", "more"), JOBS)
def test_a_row_of_many_equals_the_row_alone(
    model: str, cluster: str, cards: int, more: dict[str, Any]
) -> None:
    job = job_of(model, cluster, cards, **more)
    columns = random_columns(job, 60, 3)
    assert len(columns) > 20
    many = evaluate(job, columns)
    for i, strategy in enumerate(rows_of(columns)):
        one = evaluate(job, columns_of([strategy]))
        for name in ("step_s", "peak_bytes", "mfu", "hfu", "energy_j", "goodput", "low_s"):
            np.testing.assert_allclose(getattr(many, name)[i], getattr(one, name)[0], rtol=1e-11)
        for part in many.parts:
            np.testing.assert_allclose(
                many.parts[part][i], one.parts[part][0], rtol=1e-9, atol=1e-12 * one.step_s[0]
            )
        stages = stage_memories(job, strategy)
        np.testing.assert_allclose(max(s.total for s in stages), many.peak_bytes[i], rtol=1e-11)


@pytest.mark.parametrize(("model", "cluster", "cards", "more"), JOBS)
def test_parts_add_up_and_are_never_negative(
    model: str, cluster: str, cards: int, more: dict[str, Any]
) -> None:
    job = job_of(model, cluster, cards, **more)
    costs = evaluate(job, random_columns(job, 400, 5))
    total = sum(costs.parts.values())
    np.testing.assert_allclose(total, costs.step_s, rtol=1e-12)
    for name, seconds in {**costs.parts, **costs.hidden}.items():
        assert (seconds >= -1e-12).all(), name
        assert np.isfinite(seconds).all(), name
    assert (costs.low_s < costs.step_s).all()
    assert (costs.high_s > costs.step_s).all()
    assert ((costs.mfu > 0) & (costs.mfu < 1) & (costs.hfu < 1)).all()
    assert (costs.hfu >= costs.mfu * (1 - 1e-12)).all()


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of("mixtral-8x7b-v0.1", "dgx-h100", 64)
    columns = random_columns(job, 300, 7)
    whole = evaluate(job, columns)
    monkeypatch.setattr("lightloom.cost.evaluate.CHUNK", 17)
    np.testing.assert_array_equal(evaluate(job, columns).step_s, whole.step_s)


def test_recomputation_trades_memory_for_time() -> None:
    job = job_of("llama-3.1-70b", "dgx-h100", 64)
    none, part, full = (
        cost(job, tp=4, pp=4, dp=4, recompute=r, recompute_layers=n)
        for r, n in (("none", 0), ("full", 5), ("full", 0))
    )
    assert none.peak_bytes > part.peak_bytes > full.peak_bytes
    assert none.step_s < part.step_s < full.step_s
    assert full.parts["recompute"] > 0.2 * full.step_s * 0.5
    np.testing.assert_allclose(full.hfu / full.mfu, 4.0 / 3.0, rtol=0.03)


def test_sharding_saves_what_zero_says() -> None:
    job = job_of("llama-3.1-8b", "dgx-h100", 64)
    peaks = [cost(job, dp=64, zero=z).peak_bytes[0] for z in ("0", "1", "2", "3")]
    assert peaks == sorted(peaks, reverse=True)


def _bent(change: dict[str, Any]) -> Job:
    job = job_of("llama-3.1-70b", "dgx-h100", 512, seq=8192)
    chip = msgspec.structs.replace(job.cluster.chip, **change.get("chip", {}))
    levels = job.cluster.fabric.levels
    if "link" in change:
        levels = tuple(msgspec.structs.replace(x, link=x.link * change["link"]) for x in levels)
    fabric = msgspec.structs.replace(job.cluster.fabric, levels=levels)
    cluster = msgspec.structs.replace(job.cluster, chip=chip, fabric=fabric)
    return Job(model=job.model, cluster=cluster, cards=512, seq=8192, global_batch=1024)


@pytest.mark.parametrize("how", [{"tp": 8, "dp": 64}, {"tp": 8, "pp": 8, "dp": 8}, {"dp": 512,
                         "zero": "fsdp"}, {"tp": 4, "cp": 4, "dp": 32}])  # fmt: skip
def test_faster_links_and_wider_memory_never_hurt(how: dict[str, Any]) -> None:
    base, quick = _bent({}), _bent({"link": 2.0})
    wide = _bent({"chip": {"hbm_bandwidth": 2 * base.cluster.chip.hbm_bandwidth}})
    usual = cost(base, **how).step_s[0]
    assert cost(quick, **how).step_s[0] <= usual * (1 + 1e-12)
    assert cost(wide, **how).step_s[0] <= usual * (1 + 1e-12)
    faster = cost(quick, **how)
    slow = cost(base, **how)
    for axis in ("tp", "cp", "pp", "dp"):
        assert faster.parts[axis][0] <= slow.parts[axis][0] + 1e-12


def test_more_micro_batches_make_the_bubble_smaller() -> None:
    job = job_of("llama-3.1-70b", "dgx-h100", 64, global_batch=64)
    shares = []
    for batch in (32, 64, 128, 512):
        s = msgspec.structs.replace(plain(job, tp=8, pp=8, dp=1), global_batch=batch)
        shares.append(evaluate(job, columns_of([s])).bubble[0])
    assert shares == sorted(shares, reverse=True)
    plain_share = cost(job, tp=8, pp=8, dp=1)
    chunks = cost(job, tp=8, pp=8, dp=1, vpp=5, schedule="interleaved")
    assert chunks.bubble[0] < plain_share.bubble[0] / 3


def test_bubble_of_equal_stages_is_the_textbook_one() -> None:
    job = job_of(gpt(64, 4096, 32, vocab=256), "dgx-a100", 8, seq=2048, global_batch=32)
    costs = cost(job, pp=8, dp=1)
    np.testing.assert_allclose(costs.bubble[0] / (1 - costs.bubble[0]), 7 / 32, rtol=0.05)


def test_idle_cards_count_against_the_figures() -> None:
    used = cost(job_of("llama-3.1-8b", "dgx-h100", 64), dp=64)
    some = cost(job_of("llama-3.1-8b", "dgx-h100", 72), dp=64)
    assert used.step_s == some.step_s
    np.testing.assert_allclose(some.mfu / used.mfu, 64 / 72)
    np.testing.assert_allclose(some.tokens_per_s_per_card / used.tokens_per_s_per_card, 64 / 72)


def test_stage_operations_add_up_to_the_closed_form() -> None:
    job = job_of("deepseek-v3", "dgx-h100", 1024)
    s = plain(job, pp=16, ep=32, dp=64, recompute="full")
    step = stage_operations(job, s)
    assert sum(stage.layers for stage in step.stages) == 61
    slowest = max(
        x.forward_s + x.input_grad_s + x.weight_grad_s
        + sum(m.seconds - m.hidden for m in (*x.forward_comm, *x.backward_comm))
        for x in step.stages
    )  # fmt: skip
    parts = evaluate(job, columns_of([s])).parts
    busy = sum(float(parts[n][0]) for n in ("gemm", "attention", "experts", "elementwise",
                                            "recompute", "launch", "tp", "cp", "ep"))  # fmt: skip
    np.testing.assert_allclose(slowest * s.micro_batches, busy, rtol=1e-9)
    for stage in step.stages:
        for m in (*stage.forward_comm, *stage.backward_comm):
            assert m.axis == "ep"
            assert m.group == 32


def test_a_plan_is_self_contained_and_itemised() -> None:
    job = job_of("qwen3-30b-a3b", "atlas-900-a3", 384)
    plan = make_plan(job, plain(job, pp=4, ep=32, dp=64), allow_misfit=True)
    p = plan.prediction
    assert plan.idle_cards == 128
    assert len(p.memory) == 4
    np.testing.assert_allclose(sum(p.parts.values()), p.step_s)
    assert any("128" not in note and note for note in p.assumptions)
    raw = msgspec.json.encode(plan)
    assert msgspec.json.decode(raw, type=type(plan)) == plan


def test_a_calibration_can_be_given() -> None:
    job = job_of("llama-3.1-8b", "dgx-h100", 64)
    usual = default_calibration()
    slow = msgspec.structs.replace(usual, overhead={**usual.overhead, "step_s": 1.0})
    base = evaluate(job, columns_of([plain(job, dp=64)]), usual)
    more = evaluate(job, columns_of([plain(job, dp=64)]), slow)
    np.testing.assert_allclose(
        more.step_s - base.step_s, 1.0 - usual.overhead.get("step_s", 0.0), atol=0.2
    )
    assert isinstance(slow, Calibration)
    assert isinstance(predict(job, plain(job, dp=64), slow).step_s, float)


def test_mixed_precision_per_operator() -> None:
    job = job_of("llama-3.1-70b", "dgx-h100", 64)
    times = [
        float(cost(job, tp=8, dp=8, precision=p).step_s[0])
        for p in ("fp8", "bf16,mlp=fp8", "bf16", "fp32")
    ]
    assert times == sorted(times)


def test_strategy_type_is_kept() -> None:
    job = job_of("llama-3.1-8b", "dgx-h100", 8)
    assert isinstance(rows_of(random_columns(job, 5, 0))[0], Strategy)


FRAMEWORK = ("megatron", "torchtitan", "deepspeed", "fsdp", "mindspeed", "mindspore")


@pytest.mark.parametrize("turn", range(6))
def test_every_model_has_a_finite_price(turn: int) -> None:
    """Every model of the catalogue, clusters, tasks, frameworks in turn; warnings are errors."""
    clusters = names("clusters")
    for i, model in list(enumerate(names("models")))[turn::6]:
        name = clusters[i % len(clusters)]
        cards = min(load_cluster(name).cards, (64, 256, 1024)[i % 3])
        job = job_of(model, name, cards, task=("pretrain", "finetune", "lora")[i % 3],
                     framework=FRAMEWORK[turn], flash=bool(i % 4), seq=2048)  # fmt: skip
        columns = random_columns(job, 12, i)
        costs = evaluate(job, columns)
        for values in (*costs.parts.values(), *costs.hidden.values(), costs.peak_bytes):
            assert np.isfinite(values).all(), model
            assert (values >= -1e-12).all(), model
        assert ((costs.mfu > 0) & (costs.hfu < 1)).all(), model
        for stage in stage_operations(job, rows_of(columns)[0]).stages:
            assert min(stage.forward_s, stage.input_grad_s, stage.weight_grad_s) > -1e-12, model
