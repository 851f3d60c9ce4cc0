"""Published step times against the shipped constants, with the tolerance stated at each.

Rows in the shipped evidence helped to make the constants; the tables typed here did not.
"""

from __future__ import annotations

import pytest

from lightloom.core.catalog import load_cluster, load_model
from lightloom.core.strategy import Strategy
from lightloom.cost.columns import columns_of
from lightloom.cost.evaluate import Costs, evaluate
from lightloom.cost.evidence_rows import Row, shipped_rows
from lightloom.cost.job import Job


def priced(job: Job, strategy: Strategy) -> Costs:
    return evaluate(job, columns_of([strategy]))


def error(row: Row) -> float:
    assert row.job is not None and row.strategy is not None
    got = float(priced(row.job, row.strategy).step_s[0]) * row.scale
    return got / row.measured - 1.0


def rows_of(start: str) -> list[Row]:
    return [r for r in shipped_rows() if r.id.startswith(start) and r.job is not None]


@pytest.mark.parametrize("row", rows_of("korthikanti-tab5"), ids=lambda r: r.id)
def test_table_5_of_reducing_activation_recomputation(row: Row) -> None:
    assert abs(error(row)) < 0.08


@pytest.mark.parametrize("row", rows_of("sc21-tab1"), ids=lambda r: r.id)
def test_table_1_of_the_sc21_paper(row: Row) -> None:
    assert abs(error(row)) < 0.13


def classic(model: str, cards: int, batch: int, **degrees: int) -> float:
    """Seconds of a step of Megatron-LM of 2021: full recompute, no overlap, no fused attention."""
    strategy = Strategy(
        global_batch=batch, seq=2048, micro_batch=1, precision="fp16", recompute="full", zero="0",
        sequence_parallel=False, overlap_grad=False, overlap_param=False, **degrees,
    )  # type: ignore[arg-type]  # fmt: skip
    job = Job(model=load_model(model), cluster=load_cluster("dgx-a100"), cards=cards, seq=2048,
              global_batch=batch, flash=False, stack="megatron-classic", era=2021)  # fmt: skip
    return float(priced(job, strategy).step_s[0])


@pytest.mark.parametrize(("cards", "dp", "seconds"), [(384, 4, 76.8), (768, 8, 39.4),
                                                      (1536, 16, 20.8)])  # fmt: skip
def test_gpt3_175b_of_table_2_within_8_percent(cards: int, dp: int, seconds: float) -> None:
    got = classic("gpt3-175b", cards, 1536, tp=8, pp=12, dp=dp)
    assert abs(got / seconds - 1.0) < 0.08


@pytest.mark.parametrize(("cards", "dp", "seconds"), [(560, 2, 206.2), (1120, 4, 105.6),
                                                      (2240, 8, 55.4)])  # fmt: skip
def test_530b_of_table_2_within_10_percent(cards: int, dp: int, seconds: float) -> None:
    got = classic("mt-nlg-530b", cards, 2240, tp=8, pp=35, dp=dp)
    assert abs(got / seconds - 1.0) < 0.10


@pytest.mark.parametrize(("cards", "dp", "tflops"), [(8192, 64, 430e12), (16384, 128, 400e12)])
def test_llama_3_405b_within_10_percent(cards: int, dp: int, tflops: float) -> None:
    """FLOP/s a card as the paper prints; interleaving is not printed: one layer a chunk."""
    model = load_model("llama-3.1-405b")
    strategy = Strategy(
        global_batch=2048, seq=8192, micro_batch=1, tp=8, pp=16, dp=dp, vpp=8,
        schedule="interleaved", zero="1", gradient_dtype="fp32",
    )  # fmt: skip
    job = Job(model=model, cluster=load_cluster("dgx-h100"), cards=cards, seq=8192,
              global_batch=2048, stack="megatron-core", era=2024)  # fmt: skip
    costs = priced(job, strategy)
    reached = float(costs.model_flops[0] / costs.step_s[0]) / cards
    assert abs(reached / tflops - 1.0) < 0.10


def test_weak_scaling_of_llama_70b_from_64_to_2048_cards() -> None:
    """Published +1.8 %: within 2 points, and no step down on the way."""
    rows = rows_of("dgxc-v24.11.1-Llama_3.1_70B-BF16-H100-g")
    rows = sorted((r for r in rows if r.cells["cp"] == "2"), key=lambda r: r.job.cards)  # type: ignore[union-attr]
    steps = [float(priced(r.job, r.strategy).step_s[0]) for r in rows if r.job and r.strategy]
    assert next(r.job.cards for r in rows if r.job) == 64
    assert -0.002 <= steps[-1] / steps[0] - 1.0 <= 0.038
    assert steps == sorted(steps)
