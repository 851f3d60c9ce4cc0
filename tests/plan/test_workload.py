"""Bounds for inference, recommender and HPC move the way they must."""

from __future__ import annotations

import pytest

from lightloom.core.catalog import load_cluster, load_model
from lightloom.core.errors import InfeasibleError, InputError
from lightloom.plan.workload import Bound, hpc, kv_bytes, parse_workload, recommender, serve


def value(rows: list[Bound], name: str) -> float:
    return next(r.value for r in rows if r.name == name)


def test_keys_and_values_of_known_models() -> None:
    # 2 x 8 heads x 128 x 80 layers x 2 bytes = 327,680 bytes a token
    assert kv_bytes(load_model("llama-3.1-70b"), 1.0) == pytest.approx(327_680)
    # (512 + 64) x 61 layers x 2 bytes
    assert kv_bytes(load_model("deepseek-v3"), 1.0) == pytest.approx(70_272)


def test_longer_context_costs_memory_and_time() -> None:
    model, cluster = load_model("llama-3.1-70b"), load_cluster("dgx-h100")
    short = serve(model, cluster, parse_workload("serve", "context=4k"), "bf16", 64)
    long = serve(model, cluster, parse_workload("serve", "context=128k"), "bf16", 64)
    name = "share of memory for keys and values"
    assert value(long, name) > value(short, name)
    assert value(long, "least time to first token") > value(short, "least time to first token")


def test_published_decode_rates_lie_under_the_bound() -> None:
    # DeepSeek-V3 on H800: 1,850 tokens/s/GPU in production (open-infra-index day 6)
    said = parse_workload("serve", "context=4989,output=1,concurrency=8192")
    rows = serve(load_model("deepseek-v3"), load_cluster("dgx-h100"), said, "fp8", 144)
    assert value(rows, "most output tokens") > 1850


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(InfeasibleError, match="do not fit"):
        serve(load_model("deepseek-v3"), load_cluster("dgx-h100"),
              parse_workload("serve", "concurrency=100k,context=128k"), "bf16", 16)  # fmt: skip
    with pytest.raises(InfeasibleError, match="tables need"):
        recommender(load_cluster("dgx-h100"), parse_workload("recommender", "tables=1PB"), 8)


def test_more_cards_shorten_arithmetic_not_reductions() -> None:
    cluster = load_cluster("dgx-h100")
    few, many = (hpc(cluster, parse_workload("hpc", ""), n) for n in (64, 4096))
    assert value(many, "arithmetic") < value(few, "arithmetic")
    assert value(many, "global reductions") > value(few, "global reductions")


@pytest.mark.parametrize("text", ["speed=3", "context", "context=-5", "context=long"])
def test_wrong_descriptions_are_answered(text: str) -> None:
    with pytest.raises(InputError):
        parse_workload("serve", text)
