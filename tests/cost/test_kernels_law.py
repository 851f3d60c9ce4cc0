"""Kernel laws and surfaces: shapes, bounds, what data sheets say, storage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightloom.core.catalog import load_chip
from lightloom.cost import kernels
from lightloom.cost.calibration import Kernels, default_calibration
from lightloom.cost.kernels_fit import folds_by_shape, out_of_fold
from lightloom.cost.kernels_rows import chip_of, skew_of
from lightloom.cost.kernels_surface import Surface, pack, shipped, unpack

CHIPS = ("a100-80g", "h100", "h200", "b200", "gb300", "ascend-910b2", "tpu-v5p", "mi300x")
size = st.integers(128, 20000)


@pytest.mark.parametrize("name", CHIPS)
def test_large_products_reach_a_share_of_the_peak_and_never_more(name: str) -> None:
    chip = load_chip(name)
    m = np.array([2048, 8192, 16384])
    seconds = kernels.gemm_seconds(chip, m, 8192, 8192)
    share = 2.0 * m * 8192 * 8192 / seconds / chip.peak_of("bf16")
    assert (share < 1.0).all() and (share > 0.4).all()


@given(m=size, n=size, k=size)
@settings(max_examples=40, deadline=None)
def test_a_law_never_beats_the_roof_and_grows_with_k(m: int, n: int, k: int) -> None:
    chip = load_chip("h100")
    plain = Kernels()
    seconds = float(kernels.gemm_seconds(chip, m, n, k, kernels=plain))
    assert seconds > 2.0 * m * n * k / chip.peak_of("bf16")
    assert seconds > 2.0 * (m * k + k * n + m * n) / chip.hbm_bandwidth
    assert float(kernels.gemm_seconds(chip, m, n, 2 * k, kernels=plain)) > seconds


def test_arrays_broadcast_and_equal_scalars() -> None:
    chip = load_chip("h100")
    m = np.array([512, 4096])[:, None]
    n = np.array([1024, 8192, 100])[None, :]
    many = kernels.gemm_seconds(chip, m, n, 4096)
    assert many.shape == (2, 3)
    assert float(many[1, 2]) == pytest.approx(float(kernels.gemm_seconds(chip, 4096, 100, 4096)))


def test_a_chip_with_more_bandwidth_is_quicker_where_bandwidth_binds() -> None:
    slow, fast = load_chip("h100"), load_chip("h200")
    one = float(kernels.gemm_seconds(slow, 16384, 128, 128))
    assert float(kernels.gemm_seconds(fast, 16384, 128, 128)) < one


def test_backward_attention_costs_more_and_causal_less() -> None:
    chip = load_chip("h100")
    shape = {"batch": 2, "q_tokens": 4096, "kv_tokens": 4096, "heads": 32, "kv_heads": 8,
             "qk_dim": 128, "v_dim": 128}  # fmt: skip
    ahead = float(kernels.attention_seconds(chip, **shape))
    assert float(kernels.attention_seconds(chip, **shape, backward=True)) > 2.0 * ahead
    assert float(kernels.attention_seconds(chip, **shape, causal=False)) > 1.3 * ahead


def test_narrow_heads_are_bound_by_exponentials_on_quick_chips() -> None:
    def share(name: str, dim: int) -> float:
        chip = load_chip(name)
        seconds = kernels.attention_seconds(
            chip, batch=4, q_tokens=16384, kv_tokens=16384, heads=32, kv_heads=32, qk_dim=dim,
            v_dim=dim, kernels=Kernels(),
        )  # fmt: skip
        return float(2.0 * 4 * 32 * 16384**2 * dim / seconds) / chip.peak_of("bf16")

    assert share("b200", 64) < 0.65 * share("b200", 128)
    assert share("a100-80g", 64) > 0.85 * share("a100-80g", 128)


def test_experts_pay_for_every_row_and_every_weight() -> None:
    chip = load_chip("h100")

    def seconds(tokens: int, experts: int) -> float:
        return float(kernels.expert_seconds(
            chip, tokens=tokens, hidden=4096, inner=2048, experts=experts, topk=2))  # fmt: skip

    assert seconds(32768, 8) > 1.8 * seconds(16384, 8)
    assert seconds(16, 64) > 2.5 * seconds(16, 8)
    flops = 2.0 * 3 * 32768 * 2 * 4096 * 2048
    assert seconds(32768, 1) > flops / chip.peak_of("bf16")


def test_surfaces_survive_storage_and_interpolate() -> None:
    axes = {"x": np.array([0.0, 1.0, 2.0]), "y": np.array([0.0, 1.0])}
    table = np.array([[0.0, 0.1], [0.2, 0.3], [0.4, 0.5]])
    surface = Surface(axes, {("x", "y"): table, ("x",): np.array([0.0, 0.0, 0.25])})
    back = unpack(pack({"gemm/hopper/bf16": surface}))["gemm/hopper/bf16"]
    at = {"x": np.array([0.5, 2.0, 9.0]), "y": np.array([0.5, 1.0, -3.0])}
    np.testing.assert_allclose(surface(at), [0.15, 0.75, 0.65], atol=1e-12)
    np.testing.assert_allclose(back(at), surface(at), atol=0.01)


def test_surfaces_ship_for_measured_generations_only() -> None:
    generations = {name.split("/")[1] for name in shipped()}
    assert {"ampere", "hopper", "blackwell"} <= generations
    assert default_calibration().kernels.surfaces
    assert not any(name.startswith("gemm/davinci") for name in shipped())


def test_names_of_systems_and_routing_laws() -> None:
    assert chip_of("h200_sxm").name == "h200"
    assert chip_of("gb300").name == "gb300"
    assert skew_of("balanced") == 0.0
    assert skew_of("power_law_1.2") == 1.2
    assert skew_of("power_law_1.2_eplb") == 0.6


def test_unseen_attention_shapes_are_within_five_percent() -> None:
    """A seeded tenth of the shipped attention table; benchmarks/accuracy.md has all of it."""
    from lightloom.cost.evidence_live import sample
    from lightloom.cost.evidence_pack import shipped_kernels

    rows = sample(shipped_kernels()["attention"], 6000)
    seconds = out_of_fold(rows, folds_by_shape(rows, folds=2))
    errors = np.abs(seconds / rows.seconds_N - 1.0)
    assert np.median(errors) < 0.05
    assert np.quantile(errors, 0.9) < 0.16
