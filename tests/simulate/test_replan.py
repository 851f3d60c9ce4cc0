"""Measured load -> a better split (row C8)."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from lightloom.cli.replan import splits_around
from lightloom.core.errors import InputError
from lightloom.core.event import parse_fault
from lightloom.core.plan import Plan
from lightloom.core.timeline import Timeline
from lightloom.core.timeline_file import timeline_of
from lightloom.simulate.replan import load_of, moved_bytes, replan
from lightloom.simulate.scenario import Scenario, simulate, timeline


def measured(plan: Plan, *faults: str) -> Timeline:
    outcome = simulate(plan, Scenario(faults=tuple(map(parse_fault, faults))))
    return timeline(outcome, tuple(range(0, 64, 4)))


def test_a_job_that_runs_as_planned_has_load_one(dense: Plan) -> None:
    answer = replan(dense, measured(dense), lambda plan: [])
    assert answer.keep
    assert all(value == pytest.approx(1.0, abs=0.03) for value in answer.load.values())
    assert answer.stages == pytest.approx((1.0,) * 4, abs=0.01)


def test_a_slow_pipeline_rank_gets_fewer_layers(dense: Plan) -> None:
    """Cards 32 to 47 (pipeline rank 2) are 1.5 times slower: layers move away from them."""
    slow = measured(dense, *(f"card:{card}=1.5x" for card in range(32, 48)))
    answer = replan(dense, slow, lambda plan: [])
    assert answer.stages[2] > 1.3
    assert not answer.keep
    best = answer.choices[0]
    layers = best.strategy.stage_layers
    assert sum(layers) == dense.model.layers
    assert layers[2] == min(layers)
    assert best.saved_s > 0.05 * answer.step_s
    assert best.reshard_s > 0.0
    assert best.pays_after == pytest.approx(best.reshard_s / best.saved_s)


def test_a_short_job_keeps_its_split(dense: Plan) -> None:
    slow = measured(dense, *(f"card:{card}=1.1x" for card in range(32, 48)))
    answer = replan(dense, slow, lambda plan: [], steps=0.01)
    assert answer.keep


def test_neighbours_are_legal_and_judged_under_the_same_load(dense: Plan) -> None:
    around = splits_around(dense)
    assert len(around) >= 6
    assert all(s.world_size == dense.strategy.world_size for _, s in around)
    answer = replan(dense, measured(dense), splits_around, top=20)
    times = [c.step_s for c in answer.choices]
    assert times == sorted(times)
    assert len({c.change for c in answer.choices}) == len(times)


def test_what_stays_does_not_move(dense: Plan) -> None:
    s = dense.strategy
    assert moved_bytes(dense, s) == 0.0
    other = msgspec.structs.replace(s, tp=8, dp=2)
    wider = msgspec.structs.replace(s, tp=2, dp=8)
    assert moved_bytes(dense, other) > 0.0
    assert moved_bytes(dense, wider) > 0.0
    shifted = msgspec.structs.replace(s, stage_layers=(19, 21, 20, 20))
    assert 0.0 < moved_bytes(dense, shifted) < moved_bytes(dense, wider)


def test_transfer_is_what_the_last_rank_saw(dense: Plan) -> None:
    """Two ranks in one collective: the early one waits; only the late one's span is transfer."""
    from lightloom.core.timeline_file import Span

    spans = [Span(0, 900, 0, "compute", 0, "F0"), Span(0, 100, 1, "compute", 0, "F0"),
             Span(900, 1000, 0, "tensor", 1, "ag", 1, "tp:0,1", 7),
             Span(100, 1000, 1, "tensor", 1, "ag", 1, "tp:0,1", 7)]  # fmt: skip
    load = load_of(timeline_of(spans, source="run"))
    assert load.transfer_s["tensor"] == pytest.approx(100e-9)
    assert load.compute_R == {0: pytest.approx(900e-9), 1: pytest.approx(100e-9)}


def test_strange_timelines_are_answered(dense: Plan) -> None:
    with pytest.raises(InputError, match="empty"):
        replan(dense, timeline_of([], source="run"), lambda plan: [])
    spans = measured(dense)
    stray = Timeline(**{name: getattr(spans, name) for name in Timeline.__slots__}
                     | {"rank_N": np.where(spans.rank_N == 0, 999, spans.rank_N)})  # fmt: skip
    with pytest.raises(InputError, match="rank 999"):
        replan(dense, stray, lambda plan: [])


def test_a_timeline_of_another_job_is_refused(dense: Plan) -> None:
    real = measured(dense)
    fields = {name: getattr(real, name) for name in Timeline.__slots__}
    short = fields | {"start_N": real.start_N // 1000, "end_N": real.end_N // 1000}
    with pytest.raises(InputError, match="another job"):
        replan(dense, Timeline(**short), lambda plan: [])
