"""The player: laws that hold in every run, and answers known from elsewhere."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightloom.core.schedule import Schedule
from lightloom.core.strategy import Strategy
from lightloom.step.contend import Policy
from lightloom.step.graph import build, longest
from lightloom.step.play import Record, play
from lightloom.step.program import Program, compile_step
from lightloom.step.result import bandwidth_of, memory_of, parts_of, shown_cards, timeline_of
from lightloom.step.schedules import NAMES, Times, make, seconds_of
from lightloom.step.units import Units, fold, groups_of
from lightloom.step.work import SELF, Piece, StageWork, StepWork, Transfer, alone, pair


def transfer(traffic: str, axis: str, seconds: float, load: tuple[float, ...]) -> Transfer:
    return Transfer(f"{axis} {traffic}", traffic, axis, seconds, seconds * 1e9, load)  # type: ignore[arg-type]


def moe_stage(scale: float = 1.0, grad: float = 0.3) -> StageWork:
    expert = transfer("expert", "ep", 0.2 * scale, (1.0, 0.5))
    tensor = transfer("tensor", "tp", 0.1 * scale, (1.0, 0.0))
    forward = (Piece("attention", 0.5 * scale, (tensor,)), Piece("dispatch", 0.0, (expert,)),
               Piece("experts", 0.4 * scale, routed_s=0.4 * scale))  # fmt: skip
    backward = tuple(Piece(p.name, 2 * p.compute_s, p.transfers) for p in reversed(forward))
    half = tuple(Piece(p.name, p.compute_s, p.transfers) for p in reversed(forward))
    weights = (Piece("weights", 0.9 * scale),)
    return StageWork(
        forward, half, weights, backward, send=transfer("pipeline", SELF, 0.05, (0.0, 1.0)),
        activation_bytes=10.0, between_bytes=4.0, static_bytes=100.0,
        gradients=(transfer("gradient", "dp", grad, (0.3, 1.0)),),
        parameters=(transfer("gradient", "dp", grad / 2, (0.3, 1.0)),), optimizer_s=0.1,
    )  # fmt: skip


def run(
    name: str, ranks: int, micro_batches: int, *, chunks: int = 2, policy: Policy | None = None,
    strategy: Strategy | None = None, unfolded: bool = False, slow: dict[int, float] | None = None,
    drag: float = 0.0, scales: tuple[float, ...] = (1.0,), **flags: bool,
) -> tuple[Record, Units, Program, Schedule]:  # fmt: skip
    schedule = make(name, ranks, micro_batches, chunks)
    stages = tuple(moe_stage(scales[i % len(scales)]) for i in range(schedule.stages))
    work = StepWork(stages, norm=transfer("gradient", "world", 0.01, (0.0, 0.1)), **flags)
    program = compile_step(build(schedule), work)
    strategy = strategy or Strategy(pp=ranks, dp=4, tp=2, ep=4, global_batch=4, seq=1)
    slow_C = np.ones(strategy.world_size)
    for card, factor in (slow or {}).items():
        slow_C[card] = factor
    units = fold(strategy, slow_C, unfolded=unfolded)
    record = play(program, units, policy, {"gradient": drag, "pipeline": drag})
    return record, units, program, schedule


CASES = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from([2, 4]),
    st.sampled_from(["fair", "fifo", "strict", "weighted"]),
    st.sampled_from([0.0, 0.2]),
    st.booleans(),
)


def played(case: tuple[str, int, str, float, bool]) -> tuple[Record, Units, Program, Schedule]:
    name, ranks, kind, drag, overlap = case
    return run(name, ranks, 2 * ranks, policy=Policy(kind=kind), drag=drag,  # type: ignore[arg-type]
               scales=(1.0, 1.3), overlap_grad=overlap, overlap_param=overlap,
               overlap_pp=overlap)  # fmt: skip


@given(CASES)
@settings(max_examples=40, deadline=None)
def test_no_lane_does_two_things_at_once(case: tuple[str, int, str, float, bool]) -> None:
    record = played(case)[0]
    lanes = defaultdict(list)
    for unit, lane, start, end, *_ in record.spans:
        lanes[unit, lane].append((start, end))
    for spans in lanes.values():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert start >= end - 1e-9


@given(CASES)
@settings(max_examples=30, deadline=None)
def test_every_byte_sent_is_received(case: tuple[str, int, str, float, bool]) -> None:
    """Messages: one per need of the graph. Collectives: every member took part as often."""
    record, units, program, _ = played(case)
    sent = sum(1 for span in record.spans if span[6] == SELF)
    needs = [sum(len(n) for n, r in zip(program.graph.needs_N, program.graph.rank_N, strict=True)
             if r == rank) for rank in range(len(program.rows))]  # fmt: skip
    assert sent == sum(needs[int(rank)] for rank in units.rank_U)
    took: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0] * len(units))
    for unit, _, _, _, _, _, axis, flow in record.spans:
        if flow >= 0 and axis != SELF:
            took[axis, flow][unit] += 1
    for (axis, _), count in took.items():
        members = [u for u, c in enumerate(count) if c]
        assert all(count[u] == 1 for u in members)
        assert set(members) == set(units.groups[axis][members[0]])


@given(CASES)
@settings(max_examples=40, deadline=None)
def test_makespan_is_at_least_the_critical_path_and_every_bound(
    case: tuple[str, int, str, float, bool],
) -> None:
    record, _, program, _ = played(case)
    graph = program.graph
    seconds = np.array([
        alone(next(s for s in program.rows[r] if s.ops == ops).pieces)
        for r, ops in zip(graph.rank_N, graph.ops_N, strict=True)
    ])  # fmt: skip
    path = longest(graph, seconds)[1].max()
    busiest = max(seconds[np.array(graph.rank_N) == r].sum() for r in range(len(program.rows)))
    compute = max(sum(p.compute_s for s in row for p in s.pieces) for row in program.rows)
    assert record.end >= path - 1e-9
    assert path >= busiest - 1e-9
    assert busiest >= compute - program.work.stages[0].optimizer_s * 2 - 1e-9


@given(CASES)
@settings(max_examples=30, deadline=None)
def test_memory_is_never_negative_and_comes_back(case: tuple[str, int, str, float, bool]) -> None:
    record, units, program, schedule = played(case)
    for unit, (times, held) in enumerate(memory_of(record, program, units)):
        base = 100.0 * len(set(schedule.stage_of[int(units.rank_U[unit])]))
        assert held.min() >= base - 1e-9
        assert held[0] == held[-1] == base
        assert np.all(np.diff(times) >= 0)
        assert held.max() > base


@given(CASES)
@settings(max_examples=30, deadline=None)
def test_parts_of_every_unit_add_up_to_the_step(case: tuple[str, int, str, float, bool]) -> None:
    record, units, *_ = played(case)
    for parts in record.parts:
        assert sum(parts.values()) == pytest.approx(record.end, rel=1e-9)
        assert min(parts.values()) >= -1e-9
    assert sum(parts_of(record, units).values()) == pytest.approx(record.end, rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_without_contention_the_player_is_the_longest_path(name: str) -> None:
    times = Times(1.0, 1.2, 0.7)
    schedule = make(name, 4, 16, 2)
    graph = build(schedule)
    seconds = seconds_of(schedule, times)
    stage = StageWork((Piece("f", 1.0),), (Piece("i", 1.2),), (Piece("w", 0.7),),
                      (Piece("b", 1.9),))  # fmt: skip
    program = compile_step(graph, StepWork((stage,) * schedule.stages))
    record = play(program, fold(Strategy(pp=4, global_batch=16, seq=1)))
    assert record.end == pytest.approx(longest(graph, seconds)[1].max(), abs=1e-9)


@given(
    slow=st.dictionaries(st.integers(0, 31), st.sampled_from([1.2, 1.5]), max_size=2),
    name=st.sampled_from(["1f1b", "interleaved", "zb-v", "dualpipe"]),
    kind=st.sampled_from(["fair", "strict"]),
    tp=st.sampled_from([1, 2]),
    cp=st.sampled_from([1, 2]),
    ep=st.sampled_from([1, 2, 4]),
)
@settings(max_examples=25, deadline=None)
def test_folded_is_unfolded(
    slow: dict[int, float], name: str, kind: str, tp: int, cp: int, ep: int
) -> None:
    """A fault unfolds only what it touches, and nothing else changes: to rounding."""
    strategy = Strategy(pp=4, dp=8 // (tp * cp), tp=tp, cp=cp, ep=ep, global_batch=8, seq=1)
    policy = Policy(kind=kind)  # type: ignore[arg-type]
    few, some, *_ = run(name, 4, 8, policy=policy, strategy=strategy, slow=slow)
    all_, every, *_ = run(name, 4, 8, policy=policy, strategy=strategy, slow=slow, unfolded=True)
    assert few.end == pytest.approx(all_.end, rel=1e-9)
    if not slow:
        assert len(some) == 4
    assert len(every) == 32
    for card in range(32):
        a, b = few.parts[int(some.unit_C[card])], all_.parts[card]
        for key in a.keys() | b.keys():
            assert a.get(key, 0.0) == pytest.approx(b.get(key, 0.0), abs=1e-9)


def test_one_straggler_plays_few_units_of_many_cards() -> None:
    strategy = Strategy(pp=16, dp=121, tp=8, ep=8, global_batch=121, seq=1)
    slow = np.ones(strategy.world_size)
    assert len(fold(strategy, slow)) == 16
    slow[5000] = 1.2
    units = fold(strategy, slow)
    assert len(units) <= 16 * 4
    assert int(units.cards_U.sum()) == 15488


def test_priorities_reorder_traffic() -> None:
    """Expert traffic first: it is less exposed than first-come-first-served, the step shorter."""

    # gradients of the first stages run into the experts' traffic of the last micro-batches
    def step(kind: str) -> tuple[float, float]:
        schedule = make("interleaved", 4, 4, 4)
        stages = tuple(moe_stage(grad=3.0) for _ in range(schedule.stages))
        work = StepWork(stages, overlap_param=False)
        units = fold(Strategy(pp=4, dp=4, tp=2, ep=4, global_batch=4, seq=1))
        policy = Policy(kind=kind)  # type: ignore[arg-type]
        record = play(compile_step(build(schedule), work), units, policy)
        return record.end, parts_of(record, units).get("expert", 0.0)

    strict, fifo = step("strict"), step("fifo")
    assert strict[1] < fifo[1]
    assert strict[0] <= fifo[0]


def test_preemption_waits_for_the_chunk_on_the_wire() -> None:
    low = Transfer("grad", "gradient", "dp", 8.0, 8e6, (1.0,))
    high = Transfer("a2a", "expert", "ep", 1.0, 1e6, (1.0,))
    stage = StageWork((Piece("f", 0.5),), (), (), (Piece("b", 0.3), Piece("x", 0.0, (high,))),
                      parameters=(low,))  # fmt: skip
    program = compile_step(build(make("1f1b", 1, 1)), StepWork((stage,)))
    program.rows[0][0].needs = 0
    program.first[0] = [(low, 2)]
    program.rows[0][2].needs = 1
    units = fold(Strategy(dp=2, ep=2, global_batch=2, seq=1))
    for chunk, wait in ((1e6, 0.2), (8e6, 7.2), (1.0, 0.0)):
        record = play(program, units, Policy(kind="strict", chunk_bytes=chunk))
        span = next(s for s in record.spans if s[1] == "expert")
        assert span[2] == pytest.approx(0.8 + wait, abs=1e-5)
        assert record.end == pytest.approx(9.0, abs=1e-5)  # no bandwidth is lost


def test_weighted_shares_follow_the_weights() -> None:
    policy = Policy(kind="weighted")
    a = Transfer("a", "expert", "ep", 1.0, 1e6, (1.0,))  # weight 8
    b = Transfer("b", "gradient", "dp", 1.0, 1e6, (1.0,))  # weight 2
    stage = StageWork((Piece("f", 0.0, (a, b)),), (), (), (Piece("b", 0.1),))
    record = play(compile_step(build(make("1f1b", 1, 1)), StepWork((stage,))),
                  fold(Strategy(dp=2, ep=2, global_batch=2, seq=1)), policy)  # fmt: skip
    ends = {span[1]: span[3] for span in record.spans}
    assert ends["expert"] == pytest.approx(1.25)  # 8 / 10 of the link
    assert ends["gradient"] == pytest.approx(2.0)


def test_compute_slows_beside_a_transfer() -> None:
    stage = StageWork((Piece("f", 1.0, (transfer("gradient", "dp", 0.6, (1.0,)),)),), (), (),
                      (Piece("b", 1.0),))  # fmt: skip
    program = compile_step(build(make("1f1b", 1, 1)), StepWork((stage,)))
    units = fold(Strategy(dp=2, global_batch=2, seq=1))
    record = play(program, units, None, {"gradient": 0.2})
    assert record.end == pytest.approx(2.0 + 0.6 - 0.6 / 1.2)  # 0.6 s at 1 / 1.2 of the speed
    assert record.parts[0]["slowed"] == pytest.approx(0.1)


def test_overlapping_pair_hides_communication() -> None:
    f, b = moe_stage().forward, moe_stage().backward
    assert alone(pair(f, b)) < alone(f) + alone(b)
    assert alone(pair(f, b)) >= sum(p.compute_s for p in (*f, *b))


def test_the_step_ends_with_its_last_span() -> None:
    """An event made stale by a change of rates is no end: gradients that contend speed up again."""
    for kind in ("fair", "strict", "weighted"):
        record = run("interleaved", 4, 4, policy=Policy(kind=kind))[0]  # type: ignore[arg-type]
        assert record.end == max(span[3] for span in record.spans)


def test_same_input_same_events() -> None:
    first = run("dualpipe", 4, 8, slow={3: 1.2}, drag=0.2)[0]
    again = run("dualpipe", 4, 8, slow={3: 1.2}, drag=0.2)[0]
    assert first.spans == again.spans
    assert first.steps == again.steps


def test_timeline_names_groups_and_matches() -> None:
    strategy = Strategy(pp=4, dp=4, tp=2, ep=4, global_batch=4, seq=1)
    record, units, *_ = run("1f1b", 4, 8, strategy=strategy)
    ranks = shown_cards(units)
    assert ranks == (0, 8, 16, 24)
    timeline = timeline_of(record, units, groups_of(strategy), (0, 1, 8))
    assert timeline.ranks == (0, 1, 8)
    assert "tp:0,1" in timeline.groups
    assert np.all(timeline.end_N >= timeline.start_N)
    tensor = timeline.lanes.index("tensor")
    match = [set(timeline.match_N[(timeline.rank_N == r) & (timeline.lane_N == tensor)].tolist())
             for r in (0, 1, 8)]  # fmt: skip
    assert match[0] == match[1]  # the same group
    assert not match[0] & match[2]  # another one
    assert set(bandwidth_of(record, units)) == {"expert", "tensor", "pipeline", "gradient"}
