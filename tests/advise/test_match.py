from dataclasses import replace

import pytest
from toy import Toy, play

from lightloom.advise.match import clocks_of, collectives_of, match, shifted
from lightloom.advise.profile import RankProfile
from lightloom.advise.sync import waits_of
from lightloom.core.timeline import COMM, COMPUTE
from lightloom.core.timeline_file import Span, timeline_of


def ranks(timelines, world=0):
    return [RankProfile(rank=r, source="toy", path=str(r), timeline=t, world_size=world)
            for r, t in timelines.items()]  # fmt: skip


def moved(timelines, offsets):
    return {r: replace(t, origin_ns=t.origin_ns + offsets.get(r, 0)) for r, t in timelines.items()}


def test_waiting_and_transfer_are_told_apart():
    timelines, _ = play(Toy(slow={2: 1.5}, latency_us=0.0))
    waits = waits_of(ranks(timelines))
    assert waits.clocks.state == "verified"
    assert waits.sync.late_rank == 2
    assert waits.sync.late_same
    assert waits.sync.by_rank[2] > max(waits.sync.by_rank[r] for r in (0, 1, 3))
    assert 0 < waits.sync.transfer_share < 1


def test_constant_clock_offsets_are_found_and_taken_out():
    timelines, _ = play(Toy(slow={2: 1.5}))
    truth = waits_of(ranks(timelines)).sync
    waits = waits_of(ranks(moved(timelines, {1: 50_000_000, 3: -20_000_000})))
    assert waits.clocks.state == "corrected"
    ahead = waits.clocks.offsets_s
    assert ahead[1] - ahead[0] == pytest.approx(0.05, abs=1e-5)
    assert ahead[3] - ahead[0] == pytest.approx(-0.02, abs=1e-5)
    assert waits.sync.transfer_share == pytest.approx(truth.transfer_share, rel=1e-3)
    assert waits.sync.late_rank == 2


def test_clocks_that_drift_are_refused_and_durations_bound_the_transfer():
    timelines, _ = play(Toy(slow={2: 1.5}))
    truth = waits_of(ranks(timelines)).sync
    t = timelines[1]
    drifted = replace(t, start_N=t.start_N * 3, end_N=t.start_N * 3 + (t.end_N - t.start_N))
    waits = waits_of(ranks(timelines | {1: drifted}))
    assert waits.clocks.state == "refused"
    assert waits.sync.how == "durations"
    assert waits.sync.transfer_share is None
    assert waits.sync.high >= 0.9 * truth.transfer_share


def test_windows_of_different_length_are_laid_on_one_another():
    timelines, _ = play(Toy(ranks=2, steps=4))
    t = timelines[1]
    keep = slice(len(t) // 4, None)
    names = ("start", "end", "rank", "lane", "kind", "name", "bytes", "group", "match", "step")
    late = replace(t, **{f"{n}_N": getattr(t, f"{n}_N")[keep] for n in names})
    blocks, alone = match({0: timelines[0], 1: late})
    assert alone > 0
    assert clocks_of(blocks).state == "verified"
    assert clocks_of(blocks).worst_end_skew_s < 1e-6


def test_own_match_numbers_win_over_order():
    def rank(r, order):
        rows = [Span(100 * i, 100 * i + 50, r, "c", COMM, "all-reduce", 8, "dp:0,1", m)
                for i, m in enumerate(order)]  # fmt: skip
        return timeline_of(rows, source="run")

    blocks, alone = match({0: rank(0, [5, 6]), 1: rank(1, [6, 5])})
    assert alone == 0
    assert sorted(int(b.start_KR[0, 0] - b.start_KR[0, 1]) for b in blocks) == [-100, 100]


def test_groups_are_not_mixed():
    def rank(r, group):
        return timeline_of([Span(10, 20, r, "c", COMM, "all-reduce", 8, group)], source="run")

    blocks, alone = match({0: rank(0, "tp:0,1"), 1: rank(1, "tp:0,1"), 2: rank(2, "tp:2,3")})
    assert [b.ranks for b in blocks] == [(0, 1)]
    assert alone == 1


def test_ranks_outside_the_set_make_the_transfer_an_upper_bound():
    timelines, _ = play(Toy(ranks=2))
    sync = waits_of(ranks(timelines, world=64)).sync
    assert sync.low == 0.0
    assert sync.high == sync.transfer_share


def test_no_communication_at_all():
    t = timeline_of([Span(0, 9, 0, "s", COMPUTE, "k")], source="x")
    waits = waits_of(ranks({0: t, 1: t}))
    assert waits.sync.how == "none"


def test_shifted_blocks_and_nouns_agree():
    timelines, _ = play(Toy())
    blocks, _ = match(moved(timelines, {1: 10**9}))
    blocks = shifted(blocks, clocks_of(blocks))
    worst = max(c.end_skew_s for c in collectives_of(blocks))
    assert worst < 1e-6


def test_messages_of_different_pairs_are_not_one_collective():
    def rank(r):
        rows = [Span(1000 * i + 100 * r, 1000 * i + 100 * r + 50, r, "to 1", COMM, "send forward")
                for i in range(5)]  # fmt: skip
        return timeline_of(rows, source="x")

    waits = waits_of(ranks({r: rank(r) for r in range(3)}))
    assert waits.blocks == []


def test_simulated_communication_is_transfer():
    from lightloom.advise.read_others import _pure

    rows = [Span(0, 100, 0, "s", COMPUTE, "F"), Span(100, 160, 0, "c", COMM, "tp", 8, "tp:0,1", 4)]
    t = timeline_of(rows, source="simulated")
    profile = RankProfile(rank=0, source="simulated", path="x", timeline=t, library=_pure(t))
    sync = waits_of([profile]).sync
    assert (sync.how, sync.transfer_share) == ("library", 1.0)
    assert sync.transfer_s == pytest.approx(60e-9)
