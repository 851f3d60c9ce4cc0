"""Plans of a dense and an MoE job on three machines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lightloom.core.catalog import load_cluster, load_model
from lightloom.core.plan import Plan
from lightloom.core.strategy import Strategy
from lightloom.cost.job import Job
from lightloom.cost.predict import make_plan

DENSE = Strategy(tp=4, pp=4, dp=4, global_batch=64, seq=4096)
MOE = Strategy(tp=1, pp=8, dp=16, ep=8, global_batch=256, seq=4096)


def plan_of(model: str, cluster: str, strategy: Strategy) -> Plan:
    job = Job(model=load_model(model), cluster=load_cluster(cluster), cards=strategy.world_size,
              seq=strategy.seq, global_batch=strategy.global_batch)  # fmt: skip
    return make_plan(job, strategy, allow_misfit=True)


@pytest.fixture(scope="session")
def made() -> Callable[[str, str], Plan]:
    """(dense or moe, cluster) -> plan."""
    table = {"dense": ("llama-3.1-70b", DENSE), "moe": ("qwen3-235b-a22b", MOE)}
    return lambda kind, cluster: plan_of(table[kind][0], cluster, table[kind][1])


@pytest.fixture(scope="session")
def dense() -> Plan:
    return plan_of("llama-3.1-70b", "dgx-h100", DENSE)


@pytest.fixture(scope="session")
def moe() -> Plan:
    return plan_of("qwen3-235b-a22b", "dgx-h100", MOE)
