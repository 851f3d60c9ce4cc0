"""The tuning table's words."""

from __future__ import annotations

import msgspec
import pytest

from lightloom.core.catalog import load_cluster, load_model
from lightloom.core.plan import Plan
from lightloom.cost.predict import make_plan
from lightloom.cost.request import Asked, request
from lightloom.show.plan import interval


@pytest.fixture(scope="module")
def made() -> Plan:
    asked = Asked(cards=64, tp=2, zero="1", global_batch="512")
    job, strategy, _ = request(load_model("llama-3.1-8b"), load_cluster("dgx-h100"), asked)
    return make_plan(job, strategy)


@pytest.mark.parametrize(("step", "low", "high", "words"), [
    (6.47, 5.8, 7.2, "±0.7"), (0.671, 0.6, 0.88, "±140"), (13.1, 5.34, 32.3, "5.3..32"),
    (0.671, 0.3, 1.2, "300..1200"),
])  # fmt: skip
def test_the_interval_has_the_unit_of_the_step_and_no_negative_end(
    made: Plan, step: float, low: float, high: float, words: str
) -> None:
    p = msgspec.structs.replace(made.prediction, step_s=step, low_s=low, high_s=high)
    assert interval(msgspec.structs.replace(made, prediction=p)) == words
