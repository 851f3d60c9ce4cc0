"""Every schedule against its published order, bubble and memory."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightloom.core.errors import InputError
from lightloom.core.schedule import Op, Schedule
from lightloom.step.graph import build
from lightloom.step.schedules import (
    NAMES,
    Times,
    bubble_of,
    in_flight,
    make,
    published_bubble,
)


def text(row: tuple[Op, ...]) -> str:
    return " ".join(f"{op.kind}{op.micro_batch}" for op in row)


def test_1f1b_is_figure_4_of_narayanan() -> None:
    ops = make("1f1b", 4, 8).ops
    assert text(ops[0]) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"
    assert text(ops[3]) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"


def test_interleaved_warms_up_as_megatron_does() -> None:
    ops = make("interleaved", 4, 8, 2).ops
    first = [(op.chunk, op.micro_batch) for op in ops[0] if op.kind == "F"]
    assert first == [(c, g + m) for g in (0, 4) for c in (0, 1) for m in range(4)]
    for rank, row in enumerate(ops):
        warm = next(i for i, op in enumerate(row) if op.kind == "B") - 1
        assert warm == 2 * (4 - rank - 1) + 4


def test_zb_h1_is_figure_2_of_qi() -> None:
    ops = make("zero-bubble", 4, 8).ops
    assert text(ops[0]).startswith("F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2")
    assert text(ops[3]).startswith("F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1")


def test_dualpipe_is_figure_5_of_deepseek_v3() -> None:
    """Rank 0 of 8 with 20 micro-batches: 6 + 1 forwards of its own direction before the first of
    the other; 3 rounds of I W F; the last backwards split."""
    row = make("dualpipe", 8, 20).ops[0]
    kinds = [(op.kind, op.chunk) for op in row]
    assert kinds[:8] == [("F", 0)] * 7 + [("F", 1)]
    assert kinds[8:17] == [("I", 1), ("W", 1), ("F", 1)] * 3
    assert kinds[17:21] == [("F", 0), ("B", 1), ("F", 1), ("B", 0)]
    assert kinds[-8:] == [("I", 0), *[("W", 0), ("I", 0)] * 3, ("W", 0)][-8:]


EXACT = [
    ("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 3), ("zero-bubble", 1),
]  # fmt: skip


@given(
    case=st.sampled_from(EXACT),
    ranks=st.integers(2, 9),
    groups=st.integers(2, 4),
    f=st.integers(1, 9),
    i=st.integers(1, 9),
    w=st.integers(1, 9),
)
@settings(max_examples=60, deadline=None)
def test_bubble_equals_the_published_formula(
    case: tuple[str, int], ranks: int, groups: int, f: int, i: int, w: int
) -> None:
    name, chunks = case
    if name == "zero-bubble":  # the formula is stated for W no longer than what it must fill
        w = min(w, f, i)
    times = Times(f, i, w)
    schedule = make(name, ranks, groups * ranks, chunks)
    bubble = bubble_of(schedule, times)
    assert bubble.max() == published_bubble(name, ranks, chunks, times)


@pytest.mark.parametrize("ranks", [2, 4, 6, 8, 16])
@pytest.mark.parametrize("unit", [1.0, 0.5])
def test_bubble_of_the_equal_time_schedules(ranks: int, unit: float) -> None:
    """ZB-H2, ZB-V and both DualPipes state their bubble for F = I = W: equal, not close."""
    times = Times(unit, unit, unit)
    for name in ("zb-h2", "zb-v", "dualpipe", "dualpipe-v"):
        schedule = make(name, ranks, 4 * ranks, 2)
        assert bubble_of(schedule, times).max() == published_bubble(name, ranks, 2, times)


@given(f=st.integers(1, 9), more=st.integers(0, 5), w=st.integers(1, 9), hide=st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_dualpipe_never_idles_longer_than_published(f: int, more: int, w: int, hide: int) -> None:
    """With unequal times (W <= F <= I) the reference order is no worse than DeepSeek's formula."""
    i, w = f + more, min(w, f)
    times = Times(f, i, w, max(f + i + w - hide, i + w))
    for name, ranks in (("dualpipe", 8), ("dualpipe-v", 4)):
        bubble = bubble_of(make(name, ranks, 20), times).max()
        assert bubble <= published_bubble(name, ranks, 2, times)


@pytest.mark.parametrize(
    ("name", "chunks", "peak"),
    [
        ("gpipe", 1, (16, 16, 16, 16)),
        ("1f1b", 1, (4, 3, 2, 1)),
        ("interleaved", 2, (11, 9, 7, 5)),  # 2 (p - r - 1) + (v - 1) p + 1, Korthikanti 4.2.3
        ("zero-bubble", 1, (4, 4, 4, 4)),  # as 1F1B's worst rank, Qi table 1
        ("zb-h2", 1, (7, 7, 7, 7)),  # 2 p - 1, ibid.
        ("zb-v", 2, (8, 8, 8, 8)),  # p whole stages, ibid. section 6
        ("dualpipe", 2, (5, 5, 5, 5)),  # PP + 1, DeepSeek-V3 table 2
        ("dualpipe-v", 2, (9, 9, 9, 9)),  # PP + 1 of 8 stages
    ],
)
def test_activations_in_flight(name: str, chunks: int, peak: tuple[int, ...]) -> None:
    assert in_flight(make(name, 4, 16, chunks)) == peak


@given(
    name=st.sampled_from(NAMES),
    half=st.integers(1, 5),
    more=st.integers(0, 9),
    chunks=st.integers(2, 4),
)
@settings(max_examples=120, deadline=None)
def test_every_schedule_runs_every_piece_once(name: str, half: int, more: int, chunks: int) -> None:
    ranks = 2 * half
    micro_batches = ranks * (2 + more) if name == "interleaved" else 2 * ranks + 2 * more
    schedule = make(name, ranks, micro_batches, chunks)
    graph = build(schedule)  # raises where a rank would wait for ever
    work = [
        (op.kind, stage, op.micro_batch)
        for ops, stages in zip(graph.ops_N, graph.stage_N, strict=True)
        for op, stage in zip(ops, stages, strict=True)
    ]
    assert len(work) == len(set(work))
    done = set(work)
    for stage in range(schedule.stages):
        for m in range(micro_batches):
            assert ("F", stage, m) in done
            whole = ("B", stage, m) in done
            halves = ("I", stage, m) in done and ("W", stage, m) in done
            assert whole != halves


def test_a_schedule_that_cannot_run_is_named() -> None:
    bad = Schedule("odd", ((Op("B", 0, 0), Op("F", 0, 0)),), ((0,),))
    with pytest.raises(InputError, match="rank 0 waits for ever at B0"):
        build(bad)


@pytest.mark.parametrize(
    ("name", "ranks", "micro_batches", "chunks"),
    [("interleaved", 4, 3, 2), ("interleaved", 4, 6, 2), ("interleaved", 1, 4, 2),
     ("dualpipe", 3, 12, 2), ("dualpipe", 4, 6, 2), ("dualpipe-v", 4, 7, 2), ("zb-v", 1, 4, 2),
     ("1f1b", 4, 0, 1), ("1f2b", 4, 8, 1)],
)  # fmt: skip
def test_impossible_schedules_say_what_would_do(
    name: str, ranks: int, micro_batches: int, chunks: int
) -> None:
    with pytest.raises(InputError) as caught:
        make(name, ranks, micro_batches, chunks)
    assert caught.value.out


@pytest.mark.torch
def test_orders_equal_torch_pipelining() -> None:
    """PyTorch ships ZB-V, DualPipe-V and interleaved 1F1B as its own code: an outside witness."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    ranks, count = 4, 12

    def plain(action: object) -> list[tuple[str, int, int]]:
        subs = getattr(action, "sub_actions", None)
        if subs:
            return [x for sub in subs for x in plain(sub)]
        kind = action.computation_type.value  # type: ignore[attr-defined]
        return [(kind, action.stage_index, action.microbatch_index)]  # type: ignore[attr-defined]

    stub = SimpleNamespace(pp_group_size=ranks, num_stages=2 * ranks, _num_stages=2 * ranks,
                           _n_microbatches=count, n_local_stages=2, microbatches_per_round=ranks,
                           number_of_rounds=count // ranks)  # fmt: skip
    for name, kind in (("zb-v", "ScheduleZBVZeroBubble"), ("dualpipe-v", "ScheduleDualPipeV"),
                       ("interleaved", "ScheduleInterleaved1F1B")):  # fmt: skip
        schedule = make(name, ranks, count, 2)
        for rank in range(ranks):
            actions = getattr(schedules, kind)._calculate_single_rank_operations(stub, rank)
            theirs = [x for action in actions if action is not None for x in plain(action)]
            ours = [
                (op.kind, schedule.stage_of[rank][op.chunk], op.micro_batch)
                for op in schedule.ops[rank]
            ]
            assert ours == theirs, (name, rank)


def test_one_rank_needs_no_pipeline() -> None:
    for name in ("gpipe", "1f1b", "zero-bubble"):
        assert np.all(bubble_of(make(name, 1, 4), Times(1.0, 1.0, 1.0)) == 0.0)
