"""Memory against the formulas that papers print."""

from __future__ import annotations

import numpy as np
import pytest

from lightloom.core.catalog import load_model, names
from lightloom.core.params import Convention, parameters
from lightloom.cost.anatomy import anatomy_of
from lightloom.cost.calibration import default_calibration
from lightloom.cost.columns import columns_of
from lightloom.cost.layer_table import layer_table
from lightloom.cost.pipeline import even_layers, in_flight
from lightloom.cost.precision import parse_precision
from lightloom.cost.predict import stage_memories
from lightloom.cost.sharding import kind_parameters
from tests.cost.helpers import gpt, job_of, plain


@pytest.mark.parametrize(("layers", "hidden", "heads", "tp", "batch"), [
    (48, 6144, 64, 8, 4), (96, 12288, 96, 8, 1), (105, 20480, 128, 8, 1), (128, 25600, 160, 8, 1),
])  # fmt: skip
def test_activations_are_korthikantis(
    layers: int, hidden: int, heads: int, tp: int, batch: int
) -> None:
    """Equations 2, 4 and 6 of arXiv 2205.05198: sbh (10 + 24/t + 5as/(ht)), sbh/t (34 + 5as/h),
    and 34 sbh/t with selective recomputation; full keeps 2 sbh."""
    s = 2048
    job = job_of(gpt(layers, hidden, heads), "dgx-a100", 8, seq=s, flash=False)
    sbh = s * batch * hidden
    scores = 5 * heads * s / hidden
    cases = [
        (False, "none", sbh * (10 + 24 / tp + scores / tp)),
        (True, "none", sbh / tp * (34 + scores)),
        (True, "selective", sbh / tp * 34),
        (False, "full", 2 * sbh),
    ]
    for sequence_parallel, recompute, wanted in cases:
        c = columns_of(
            [
                plain(
                    job,
                    tp=tp,
                    dp=1,
                    micro_batch=batch,
                    precision="fp16",
                    sequence_parallel=sequence_parallel,
                    recompute=recompute,
                )
            ]
        )
        table = layer_table(job, c, parse_precision("fp16"), default_calibration())
        lse = 4 * heads / tp * s * batch if recompute == "none" else 0
        np.testing.assert_allclose(table.saved_XU[0, 0] - lse, wanted, rtol=1e-3)


@pytest.mark.parametrize(("zero", "wanted"), [("0", 120.0), ("1", 31.4), ("2", 16.6), ("3", 1.88)])
def test_model_states_are_those_of_the_zero_paper(zero: str, wanted: float) -> None:
    """Figure 1 of arXiv 1910.02054: 7.5 B parameters, 64 ranks, 16-bit gradients, GB."""
    job = job_of(gpt(37, 4096, 32), "dgx-a100", 64, seq=2048, framework="deepspeed")
    total = parameters(job.model).total
    s = plain(job, dp=64, zero=zero, precision="fp16", gradient_dtype="fp16")
    parts = stage_memories(job, s)[0].parts
    states = parts["weights"] + parts["gradients"] + parts["optimizer"]
    np.testing.assert_allclose(states / total * 7.5e9 / 1e9, wanted, rtol=0.01)


def test_megatron_counts_eighteen_bytes_a_parameter() -> None:
    """Megatron-LM docs, distributed optimizer table: bf16 with fp32 gradients 18, or 6 + 12/d."""
    job = job_of(gpt(24, 2048, 16), "dgx-a100", 8, seq=2048)
    total = parameters(job.model).total
    for zero, wanted in (("0", 18.0), ("1", 6.0 + 12.0 / 8)):
        parts = stage_memories(job, plain(job, dp=8, zero=zero))[0].parts
        states = parts["weights"] + parts["gradients"] + parts["optimizer"]
        np.testing.assert_allclose(states / total, wanted, rtol=1e-3)


@pytest.mark.parametrize("name", names("models"))
def test_parameters_on_one_rank_are_the_models(name: str) -> None:
    model = load_model(name)
    a, one = anatomy_of(model), np.ones(1)
    dense, expert = kind_parameters(a, one, one, one)
    counts = a.count_B.astype(float)
    counts[int(a.blocks_L[-1])] += a.mtp
    total = float((counts[:, None] * (dense[:-2] + expert[:-2])).sum() + dense[-2:].sum())
    total -= a.vocab * a.hidden * a.tied
    np.testing.assert_allclose(total, parameters(model, Convention(mtp=True)).total, rtol=3e-3)


def test_uneven_stages_spare_first_and_last() -> None:
    assert even_layers(126, 16) == (7, *[8] * 14, 7)
    spread = even_layers(61, 16)
    assert sum(spread) == 61
    assert spread[0] == spread[-1] == 3
    assert even_layers(96, 8) == (12,) * 8


def test_in_flight_micro_batches() -> None:
    def held(schedule: int, vpp: int, m: int, rank: int) -> float:
        one = np.array([1])
        return float(in_flight(schedule * one, 8 * one, vpp * one, m * one, rank * one)[0])

    assert [held(1, 1, 64, r) for r in range(8)] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert held(0, 1, 64, 3) == 64
    assert held(1, 1, 4, 0) == 4
    np.testing.assert_allclose(held(2, 4, 64, 0), 8 * (1 + 7 / (8 * 4)))  # Korthikanti 4.2.3


def test_every_stage_is_itemised_and_asymmetric() -> None:
    job = job_of("deepseek-v3", "dgx-h100", 1024)
    stages = stage_memories(job, plain(job, pp=16, ep=64, dp=64))
    assert len(stages) == 16
    assert stages[-1].parts["logits"] > 0
    assert stages[3].parts["logits"] == 0
    assert stages[0].parts["communicators"] > stages[1].parts["communicators"]
    assert stages[1].parts["activations"] > stages[8].parts["activations"]


def test_offload_and_small_optimisers_free_the_card() -> None:
    job = job_of("llama-3.1-8b", "dgx-h100", 8)
    usual, small, away = (
        stage_memories(job, plain(job, dp=8, **more))[0].parts["optimizer"]
        for more in ({}, {"optimizer_dtype": "fp8"}, {"offload_optimizer": True})
    )
    assert away == 0 < small < usual


def test_lora_needs_no_optimiser_for_the_base() -> None:
    whole = job_of("llama-2-70b", "dgx-h100", 8)
    some = job_of("llama-2-70b", "dgx-h100", 8, task="lora")
    full = stage_memories(whole, plain(whole, tp=8, dp=1))[0].parts
    lora = stage_memories(some, plain(some, tp=8, dp=1))[0].parts
    assert lora["optimizer"] + lora["gradients"] < 0.01 * (full["optimizer"] + full["gradients"])
    quantised = stage_memories(some, plain(some, tp=8, dp=1, precision="int4"))[0].parts
    assert quantised["weights"] < 0.3 * lora["weights"]
