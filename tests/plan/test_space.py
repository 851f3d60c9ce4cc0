"""The space: fixes, counting, legality; the arrays equal the estimate of each row."""

from __future__ import annotations

import numpy as np
import pytest

from lightloom.core.catalog import load_cluster, load_model
from lightloom.core.errors import InputError
from lightloom.cost.columns import strategy_of
from lightloom.cost.evaluate import evaluate
from lightloom.cost.job import Job, legal
from lightloom.cost.predict import predict
from lightloom.plan.space import (
    Fixes,
    Space,
    batches,
    candidates,
    columns,
    complete,
    count,
    divisors,
    outline,
    parse_fixes,
)


def job(model: str = "llama-3.1-8b", cluster: str = "dgx-h100", cards: int = 64, seq: int = 4096,
        batch: int = 128) -> Job:  # fmt: skip
    return Job(model=load_model(model), cluster=load_cluster(cluster), cards=cards, seq=seq,
               global_batch=batch)  # fmt: skip


def test_fixes_are_read() -> None:
    fixes = parse_fixes(("tp=8", "pp=1..4", "recompute=none,full", "mbs=2"))
    assert fixes.values == {"tp": (8,), "pp": (1, 2, 3, 4), "recompute": ("none", "full"),
                            "micro_batch": (2,)}  # fmt: skip
    assert parse_fixes(("pp=1..8", "pp=4,8,16")).values == {"pp": (4, 8)}


@pytest.mark.parametrize("text", ["tp", "width=3", "tp=0", "tp=many", "pp=8..2", "zero=9",
                                  "recompute=some"])  # fmt: skip
def test_wrong_fixes_are_answered(text: str) -> None:
    with pytest.raises(InputError) as error:
        parse_fixes((text,))
    assert "--fix" in error.value.what


def test_contradicting_fixes_are_named() -> None:
    with pytest.raises(InputError, match="exclude one another"):
        parse_fixes(("tp=8", "tp=4"))


def test_the_count_is_what_listing_gives() -> None:
    for model, cluster in (("llama-3.1-8b", "dgx-h100"), ("qwen3-30b-a3b", "supernode-8192")):
        space = Space(job(model, cluster), Fixes())
        rows = outline(space)
        listed = complete(space, batches(space, rows))
        assert count(space, rows) == len(listed["tp"])


def test_every_candidate_is_legal_and_keeps_the_batch() -> None:
    the_job = job("qwen3-30b-a3b", cards=64, batch=96)
    space = Space(the_job, Fixes())
    found = candidates(space, outline(space))
    assert legal(the_job, found).all()
    assert (found.global_batch == 96).all()
    assert (found.world <= 64).all()
    assert ((found.dp * found.micro_batch * found.micro_batches) == 96).all()


def test_fixed_axes_stay_fixed() -> None:
    space = Space(job(), parse_fixes(("tp=4", "pp=2", "recompute=full", "zero=1")))
    found = candidates(space, outline(space))
    assert len(found)
    assert set(found.tp.tolist()) == {4}
    assert set(found.pp.tolist()) == {2}
    assert {strategy_of(found, i).recompute for i in range(0, len(found), 7)} == {"full"}


@pytest.mark.parametrize(("model", "cluster", "framework"), [
    ("llama-3.1-70b", "dgx-h100", "megatron"), ("deepseek-v3", "supernode-8192", "mindspeed"),
    ("gpt-oss-20b", "gb200-nvl72", "fsdp"), ("qwen3-235b-a22b", "traditional-8192", "megatron"),
])  # fmt: skip
def test_arrays_equal_the_estimate_of_each_row(model: str, cluster: str, framework: str) -> None:
    the_job = Job(model=load_model(model), cluster=load_cluster(cluster), cards=512, seq=4096,
                  global_batch=512, framework=framework)  # type: ignore[arg-type]  # fmt: skip
    space = Space(the_job, Fixes())
    found = candidates(space, outline(space))
    rows = np.random.default_rng(3).choice(len(found), 250, replace=False)
    some = found.take(np.sort(rows))
    costs = evaluate(the_job, some)
    for i in range(len(some)):
        one = predict(the_job, strategy_of(some, i))
        assert one.step_s == pytest.approx(float(costs.step_s[i]), rel=1e-9)
        assert one.peak_bytes == pytest.approx(float(costs.peak_bytes[i]), rel=1e-9)
        for name, seconds in one.parts.items():
            expected = float(costs.parts[name][i])
            assert seconds == pytest.approx(expected, rel=1e-9, abs=1e-12 * one.step_s)


def test_divisors() -> None:
    assert divisors(15488)[:6] == [1, 2, 4, 8, 11, 16]
    assert all(15488 % d == 0 for d in divisors(15488))


def test_columns_carry_the_framework() -> None:
    space = Space(job(), Fixes())
    rows = {n: np.array([1]) for n in ("tp", "cp", "pp", "dp", "micro_batch", "vpp", "zero",
                                       "recompute", "cp_kind", "ep", "etp",
                                       "schedule")}  # fmt: skip
    assert columns(space, rows).framework == "megatron"
