"""A plan's step, played: figures, faults, skew, schedules, clusters."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightloom.core.errors import InputError
from lightloom.core.event import parse_fault
from lightloom.core.placement import Placement
from lightloom.core.plan import Plan
from lightloom.core.strategy import Strategy
from lightloom.simulate.faults import ranks_of, slowness
from lightloom.simulate.imbalance import parse_skew, popularity
from lightloom.simulate.scenario import Scenario, simulate, timeline
from lightloom.simulate.sweep import KINDS, sweep
from lightloom.step.contend import Policy, parse_priorities
from lightloom.step.noise import parse_jitter


@pytest.mark.parametrize("cluster", ["dgx-h100", "supernode-8192", "gb200-nvl72"])
@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_dense_and_moe_play_on_three_machines(
    made: Callable[[str, str], Plan], cluster: str, kind: str
) -> None:
    plan = made(kind, cluster)
    r = simulate(plan).result
    assert sum(r.parts.values()) == pytest.approx(r.step_s, rel=1e-6)
    assert abs(r.gap) < 0.25  # the closed form and the played step see the same kernels
    assert 0.0 < r.mfu < 1.0
    assert r.units == plan.strategy.pp
    assert all(s.peak_bytes > s.rest_bytes > 0.0 for s in r.stages)
    assert min(r.hidden.values()) >= 0.0


def test_memory_peaks_are_those_of_the_closed_form(dense: Plan) -> None:
    played = [s.peak_bytes for s in simulate(dense).result.stages]
    closed = [s.total for s in dense.prediction.memory]
    assert played == pytest.approx(closed, rel=0.05)


def test_overlap_off_exposes_communication_and_costs_time(dense: Plan) -> None:
    with_, without = simulate(dense).result, simulate(dense, Scenario(overlap=False)).result
    assert without.step_s > with_.step_s
    assert without.exposed_comm > with_.exposed_comm
    assert without.hidden["gradient"] < with_.hidden["gradient"]


@pytest.mark.parametrize("kind", ["fair", "fifo", "strict", "weighted"])
def test_every_policy_moves_the_same_bytes(moe: Plan, kind: str) -> None:
    r = simulate(moe, Scenario(policy=Policy(kind))).result  # type: ignore[arg-type]
    quiet = simulate(moe).result
    for name, row in quiet.bandwidth.items():
        assert r.bandwidth[name]["bytes"] == pytest.approx(row["bytes"], rel=1e-9)


def test_a_slow_card_slows_the_step_by_less_than_its_own_slowness(dense: Plan) -> None:
    quiet = simulate(dense).result
    slow = simulate(dense, Scenario(faults=(parse_fault("card:17=1.3x"),))).result
    assert quiet.step_s < slow.step_s <= 1.3 * quiet.step_s
    assert slow.units > quiet.units
    assert "1 cards" in slow.faults[0]


def test_a_slow_link_slows_what_crosses_it(moe: Plan) -> None:
    quiet = simulate(moe).result
    slow = simulate(moe, Scenario(faults=(parse_fault("link:card:3=4x"),))).result
    assert slow.step_s > quiet.step_s
    compute = quiet.parts["compute"]
    assert slow.parts["compute"] == pytest.approx(compute, rel=1e-9)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("card:17", "nothing to play"), ("card:99999=1.2x", "cards"), ("card:3@12s=1.2x", "start"),
        ("card:x=1.2x", "not a number"), ("rank:64=1.2x", "ranks"), ("card:3=0.5x", "at least 1"),
        ("card:3=big", "factor"), ("board:4000=1.5x", "units"), ("disk:mars:3=1.2x", "mars"),
        ("link:c0-q1=2x", "no end"),
    ],
)  # fmt: skip
def test_faults_that_cannot_be_played_are_answered(dense: Plan, fault: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        simulate(dense, Scenario(faults=(parse_fault(fault),)))


@pytest.mark.parametrize(
    ("fault", "many"),
    [("link:17=2x", 1), ("link:c0-c1=2x", 2), ("link:c17-spine=2x", 1), ("link:n0-n1=2x", 16)],
)
def test_links_are_named_as_the_fabric_names_them(
    made: Callable[[str, str], Plan], fault: str, many: int
) -> None:
    cluster = "supernode-8192" if "spine" in fault else "dgx-h100"
    slow = slowness(made("dense", cluster), (parse_fault(fault),))
    assert int((slow.wait_C > 1.0).sum()) == many
    assert slow.slow_C.max() == 1.0


def test_a_host_slows_all_its_cards(dense: Plan) -> None:
    slow = slowness(dense, (parse_fault("host:1=1.5x"),))
    assert np.flatnonzero(slow.slow_C > 1.0).tolist() == list(range(8, 16))


@given(
    order=st.permutations(["tp", "cp", "dp", "pp"]),
    sizes=st.tuples(*(st.sampled_from([1, 2, 3]) for _ in range(4))),
)
@settings(max_examples=40, deadline=None)
def test_ranks_follow_the_placement_order(
    order: list[str], sizes: tuple[int, int, int, int]
) -> None:
    tp, cp, dp, pp = sizes
    strategy = Strategy(tp=tp, cp=cp, dp=dp, pp=pp, global_batch=dp, seq=64)
    rank_C = ranks_of(strategy, Placement(order=tuple(order)))
    assert sorted(rank_C.tolist()) == list(range(strategy.world_size))
    first = next((axis for axis in order if getattr(strategy, axis) > 1), None)
    stride = {"tp": 1, "cp": tp, "dp": tp * cp, "pp": tp * cp * dp}
    if first is not None:  # the fastest axis steps by one rank
        assert rank_C[stride[first]] - rank_C[0] == 1


def test_skew_makes_experts_wait_for_the_busiest(moe: Plan) -> None:
    quiet = simulate(moe).result
    mild = simulate(moe, Scenario(skew=parse_skew("zipf:0.3"))).result
    strong = simulate(moe, Scenario(skew=parse_skew("zipf:1.0"))).result
    fixed = simulate(moe, Scenario(skew=parse_skew("1.5"))).result
    assert quiet.step_s < mild.step_s < strong.step_s
    assert quiet.step_s < fixed.step_s


@given(experts=st.sampled_from([8, 64, 256]), topk=st.sampled_from([1, 2, 8]),
       exponent=st.floats(0.0, 3.0))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_popularity_is_a_share_and_no_expert_takes_a_token_twice(
    experts: int, topk: int, exponent: float
) -> None:
    share = popularity(experts, topk, exponent)
    assert share.sum() == pytest.approx(1.0, abs=1e-9)
    assert share.max() <= max(1.0 / topk, 1.0 / experts) * (1 + 1e-9)
    assert np.all(np.diff(share) <= 1e-12)


@pytest.mark.parametrize("bad", ["zipf", "zipf:x", "0.5", "heavy", "zipf:9"])
def test_bad_skew_is_answered(bad: str) -> None:
    with pytest.raises(InputError):
        parse_skew(bad)


def test_jitter_gives_a_distribution(dense: Plan) -> None:
    r = simulate(dense, Scenario(jitter=parse_jitter("measured"))).result
    assert r.spread is not None
    assert r.step_s < r.spread.p50_s < r.spread.p95_s <= r.spread.p99_s
    assert 1.001 < r.spread.p95_over_median < 1.03


def test_ranks_that_are_not_there_are_answered(dense: Plan) -> None:
    outcome = simulate(dense)
    assert timeline(outcome, (0, 63)).ranks == (0, 63)
    with pytest.raises(InputError, match="rank 64"):
        timeline(outcome, (64,))


def test_priorities_in_words() -> None:
    assert parse_priorities("expert=low")["expert"] == "low"
    for bad in ("experts=low", "expert=top", "expert"):
        with pytest.raises(InputError):
            parse_priorities(bad)


@pytest.mark.parametrize("over", KINDS)
def test_sweeps_play_every_setting_or_say_why_not(dense: Plan, over: str) -> None:
    result = sweep(over, dense, Scenario(samples=50))
    assert len(result.rows) >= 5
    assert result.best is not None
    for row in result.rows:
        assert row.refused or row.step_s > 0.0
    with pytest.raises(InputError, match="no sweep"):
        sweep("prioritys", dense, Scenario())


def test_more_micro_batches_less_bubble(dense: Plan) -> None:
    rows = [row for row in sweep("micro-batches", dense, Scenario()).rows if not row.refused]
    bubbles = [row.bubble for row in rows]
    assert bubbles == sorted(bubbles, reverse=True)


def test_order_of_schedules_flips_with_micro_batches_and_recomputation(dense: Plan) -> None:
    """Few micro-batches: zero bubble beats 1F1B. Full recomputation in a PyTorch framework: W
    repeats the forward of a block once per weight, and zero bubble collapses below 1F1B."""

    def step(schedule: str, **change: object) -> float:
        s = msgspec.structs.replace(dense.strategy, schedule=schedule, **change)
        return simulate(msgspec.structs.replace(dense, strategy=s)).result.step_s

    assert step("zero-bubble") < step("1f1b")
    torch = {"framework": "torchtitan", "recompute": "full", "zero": "fsdp"}
    assert step("zero-bubble", **torch) > 2.0 * step("1f1b", **torch)
    megatron = {"recompute": "full"}
    assert step("zero-bubble", **megatron) < step("1f1b", **megatron)


def test_same_seed_same_bytes(moe: Plan) -> None:
    scenario = Scenario(jitter=parse_jitter("measured"), skew=parse_skew("zipf:0.5"), seed=3)
    one, two = (simulate(moe, scenario).result for _ in range(2))
    assert msgspec.json.encode(one) == msgspec.json.encode(two)
