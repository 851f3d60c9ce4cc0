"""The recovery protocol in simulated time, and its judgements one by one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as hs

from lightloom.recover import protocol
from lightloom.recover.decide import LINK, Ready, balanced, decide, sticky
from lightloom.recover.record import (
    RECUT,
    SNAPSHOT,
    Epoch,
    Kept,
    Member,
    Rank,
    Rules,
    may_speak,
    write_quorum,
)
from lightloom.recover.simulate import simulate
from lightloom.recover.suspect import Sample, judge, look, slept_s, verdict

BLOCK = 250


@pytest.mark.parametrize("block", range(8))
def test_two_thousand_seeded_schedules_keep_every_invariant(block: int) -> None:
    commits = able = 0
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        try:
            world = simulate(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        commits += world.commits
        able += world.able()
    assert commits > 20 * BLOCK and able > BLOCK / 3


def test_a_seed_replays_exactly() -> None:
    first, second = simulate(11), simulate(11)
    assert first.hashes == second.hashes and first.epochs == second.epochs


@given(n=hs.integers(1, 9), data=hs.data())
def test_a_reader_meets_every_durable_commit_and_two_majorities_meet(
    n: int, data: hs.DataObject
) -> None:
    agents = tuple(range(n))
    epoch = Epoch(number=1, agents=agents)
    writers = data.draw(hs.sets(hs.sampled_from(agents), min_size=write_quorum(n)))
    here = data.draw(hs.sets(hs.sampled_from(agents)))
    dead = data.draw(hs.sets(hs.sampled_from(agents))) - here
    if may_speak(epoch, here, dead, True):
        assert here & writers
    other = data.draw(hs.sets(hs.sampled_from(agents)))
    if may_speak(epoch, here, (), True) and may_speak(epoch, other, (), True):
        assert here & other


def test_two_agents_without_proof_the_lower_number_goes_on() -> None:
    epoch = Epoch(number=1, agents=(3, 8))
    assert may_speak(epoch, {3}, (), same_host=False)
    assert not may_speak(epoch, {8}, (), same_host=False)
    assert not may_speak(epoch, {3}, (), same_host=True)
    assert may_speak(epoch, {8}, {3}, same_host=True)


def ready(*uids: int, holds: int = 0) -> dict[int, Ready]:
    return {u: Ready(Rank(u, holds=holds), 0) for u in uids}


def epoch_of(*uids: int, shards: int = 1, **more: object) -> Epoch:
    members = tuple(Member(i, u, 0) for i, u in enumerate(uids))
    share = balanced(uids, len(uids) // shards, 4)
    fields = {"number": 3, "agents": (0,), "members": members, "base": 7, "first": share,
              "shards": shards,
              "share": share, "cursor": 28} | more  # fmt: skip
    return Epoch(**fields)  # type: ignore[arg-type]


def test_the_lost_micro_batches_go_to_those_with_fewest_and_nobody_redoes_his_own() -> None:
    before = epoch_of(11, 12, 13)
    assert before.first == (11, 12, 13, 11)
    after = decide(Rules(slots=3, micro_batches=4), before, 7, (0,), ready(11, 13), (-1, 0))
    assert after is not None and after.first == (11, 13, 13, 11)
    assert after.uids == (11, 13) and after.joins == () and after.position(8) == 28


def test_a_spare_takes_the_slot_and_gets_the_state_from_a_holder() -> None:
    rules = Rules(slots=3, micro_batches=4)
    after = decide(rules, epoch_of(11, 12, 13), 9, (0,), ready(11, 13, 20), (-1, 0))
    assert after is not None and after.uids == (11, 20, 13)
    assert after.joins == ((20, 11),) and after.position(10) == 36


def test_a_rank_inside_a_replica_is_replaced_from_its_own_shard_or_the_replica_is_dropped() -> None:
    rules = Rules(slots=4, shards=2, micro_batches=4)
    before = epoch_of(11, 12, 13, 14, shards=2)
    with_spare = decide(rules, before, 8, (0,), ready(11, 13, 14, 20), (-1, 0))
    assert with_spare is not None and dict(with_spare.joins) == {20: 14}, "shard 1 lives in 14"
    dropped = decide(rules, before, 8, (0,), ready(11, 13, 14), (-1, 0))
    assert dropped is not None and dropped.uids == (13, 14), "the broken replica idles"
    without = decide(rules, before, 8, (0,), ready(11, 14), (-1, 0))
    assert without is not None and without.uids == (11, 14), "a holder of the shard moves over"
    assert without.joins == ()


def kept(uid: int, step: int, shard: int = 0, layout: int = 0, life: int = 0, number: int = -1
         ) -> Kept:  # fmt: skip
    return Kept(uid, step, shard, layout, life, number, info=f"memory of {uid}")


def test_a_spare_gets_the_state_of_a_lost_rank_out_of_what_an_agent_keeps() -> None:
    rules = Rules(slots=2, shards=2, micro_batches=1)
    before = epoch_of(11, 12, shards=2)
    live = ready(11, 20)
    assert decide(rules, before, 8, (0,), live, (-1, 0)) is None, "shard 1 is nowhere"
    after = decide(rules, before, 8, (0,), live, (5, 5), kept=[kept(12, 8, shard=1)])
    assert after is not None and after.joins == ((20, 12),) and after.kept == (12,)
    assert after.lost == 0 and dict(after.infos)[12] == "memory of 12"


def test_a_copy_counts_only_if_it_is_the_committed_state() -> None:
    rules = Rules(slots=1, micro_batches=1)
    before = epoch_of(11)
    for wrong in (
        kept(11, 7), kept(11, 9), kept(11, 8, life=1), kept(11, 8, number=2), kept(11, 8, layout=1)
    ):  # fmt: skip
        assert decide(rules, before, 8, (0,), ready(20), (-1, 0), kept=[wrong]) is None, wrong
    for right in (kept(11, 8), kept(11, 8, number=3)):
        after = decide(rules, before, 8, (0,), ready(20), (-1, 0), kept=[right])
        assert after is not None and after.joins == ((20, 11),)


def test_a_gradient_counts_only_in_the_epoch_that_committed_it() -> None:
    """Reduced in epoch 1, given up; reduced again and committed in 2; epoch 3 commits nothing."""
    rules = Rules(slots=1, micro_batches=1)
    before = epoch_of(11, made=2)
    assert decide(rules, before, 7, (0,), ready(20), (-1, 0), kept=[kept(11, 7, number=1)]) is None
    after = decide(rules, before, 7, (0,), ready(20), (-1, 0), kept=[kept(11, 7, number=2)])
    assert after is not None and after.made == 2
    stranger = kept(99, 7)
    assert decide(rules, before, 7, (0,), ready(20), (-1, 0), kept=[stranger]) is None


def test_twins_of_one_shard_make_a_replica_with_what_is_kept_or_on_disk() -> None:
    rules = Rules(slots=4, shards=2, micro_batches=2)
    before = epoch_of(11, 12, 13, 14, shards=2)
    twins = ready(11, 13)
    after = decide(rules, before, 9, (0,), twins, (-1, 0), kept=[kept(14, 9, shard=1)])
    assert after is not None and after.uids == (11, 13) and after.joins == ((13, 14),)
    back = decide(rules, before, 9, (0,), twins, (5, 10))
    assert back is not None and back.base == 5 and set(dict(back.joins).values()) == {SNAPSHOT}
    assert decide(rules, before, 9, (0,), twins, (-1, 0)) is None


def test_ranks_in_reserve_do_not_change_a_layout_that_cannot_get_better() -> None:
    rules = Rules(slots=8, shards=2, least=3, fallbacks=(1,), micro_batches=8)
    epoch = msgspec.structs.replace(epoch_of(11, 12, 13, 14, 15), layout=1, shards=1)
    state = protocol.State(me=0, rules=rules, epoch=epoch, durable=20, appended=20,
                           ranks={u: Rank(u) for u in (11, 12, 13, 14, 15)})  # fmt: skip
    assert protocol.changes(state) == ""
    more = msgspec.structs.replace(state, ranks={u: Rank(u) for u in range(11, 17)})
    assert protocol.changes(more) == "ranks ready"


def test_too_few_for_a_replica_re_plan_and_come_back() -> None:
    rules = Rules(slots=4, shards=4, fallbacks=(2, 1), micro_batches=2)
    before = epoch_of(11, 12, 13, 14, shards=4)
    memory = [kept(14, 9, shard=3)]
    less = decide(rules, before, 9, (0,), ready(11, 12, 13), (-1, 0), kept=memory)
    assert less is not None and (less.layout, less.shards, len(less.members)) == (1, 2, 2)
    assert dict(less.sources) == {0: 11, 1: 12, 2: 13, 3: 14} and less.kept == (14,)
    assert set(dict(less.joins).values()) == {RECUT}
    assert less.position(10) == before.position(10), "no sample is lost or seen twice"
    waits = msgspec.structs.replace(rules, wait=True)
    assert decide(waits, before, 9, (0,), ready(11, 12, 13), (-1, 0), kept=memory) is None
    again = msgspec.structs.replace(less, joins=())
    more = decide(rules, again, 12, (0,), ready(11, 12, 13, 15), (-1, 0))
    assert more is not None and (more.layout, len(more.members)) == (0, 4)
    assert more.source_layout == 1 and dict(more.sources) == {0: 11, 1: 12}


def test_a_cut_that_failed_begins_again_from_the_old_parts() -> None:
    rules = Rules(slots=4, shards=4, fallbacks=(2, 1), micro_batches=2)
    less = decide(rules, epoch_of(11, 12, 13, 14, shards=4), 9, (0,), ready(11, 12, 13), (-1, 0),
                  kept=[kept(14, 9, shard=3)])  # fmt: skip
    assert less is not None
    memory = [kept(14, 9, shard=3), kept(12, 9, shard=1)]
    after = decide(rules, less, 9, (0,), ready(11, 13), (-1, 0), kept=memory)
    assert after is not None and after.sources == less.sources and after.kept == (12, 14)
    assert decide(rules, less, 9, (0,), ready(11, 13), (-1, 0), kept=memory[:1]) is None


def test_who_was_to_give_the_state_still_holds_it_when_the_taker_dies() -> None:
    rules = Rules(slots=2, shards=1, micro_batches=2, least=1)
    before = epoch_of(20, joins=((20, 11),))
    after = decide(rules, before, 7, (0,), ready(11), (-1, 0))
    assert after is not None and after.uids == (11,) and after.joins == ()


def test_a_broken_link_makes_the_groups_again_and_then_takes_another_way() -> None:
    rules = Rules(slots=2, micro_batches=2)
    epoch = epoch_of(11, 12)
    for times in (1, 2, 3):
        after = decide(rules, epoch, 7, (0,), ready(11, 12), (-1, 0), LINK)
        assert after is not None and after.uids == (11, 12) and after.joins == ()
        assert (after.regroups, after.rerouted) == (times, times >= 2)
        epoch = after
    calm = decide(rules, epoch, 9, (0,), ready(11, 12), (-1, 0), "rank 3 lost")
    assert calm is not None and calm.regroups == 0 and calm.rerouted


def test_without_a_holder_all_rewind_and_without_a_snapshot_nothing_is_decided() -> None:
    rules = Rules(slots=2, micro_batches=2)
    before = epoch_of(11, 12)
    assert decide(rules, before, 8, (0,), ready(20, 21), (-1, 0)) is None
    after = decide(rules, before, 8, (0,), ready(20, 21), (5, 10))
    assert after is not None and (after.base, after.cursor, after.lost) == (5, 10, 3)
    assert after.joins == ((20, SNAPSHOT), (21, SNAPSHOT))


@given(hs.integers(1, 6), hs.integers(1, 20), hs.data())
def test_every_micro_batch_has_exactly_one_living_owner(
    ranks: int, count: int, data: hs.DataObject
) -> None:
    uids = tuple(range(10, 10 + ranks))
    before = balanced(uids, ranks, count)
    alive = tuple(data.draw(hs.sets(hs.sampled_from(uids), min_size=1)))
    after = sticky(before, tuple(sorted(alive)))
    assert len(after) == count and set(after) <= set(alive)
    assert all(a == b for a, b in zip(after, before, strict=True) if b in alive)


def watch_of(samples: list[Sample]) -> tuple[object, Sample]:
    watch = None
    for sample in samples:
        watch = look(watch, sample)
    return watch, samples[-1]


def sample(at: float, state: str = "S", cpu: float = 1.0, mark: int = 5) -> Sample:
    return Sample(at, state, cpu, mark, False)


def test_stopped_blocked_and_looping_are_told_from_starved_and_slow() -> None:
    stopped, last = watch_of([sample(t / 10, "T") for t in range(4)])
    assert judge(stopped, last, 0.0, 0.1) == "stopped"  # type: ignore[arg-type]
    blocked, last = watch_of([sample(t / 10) for t in range(8)])
    assert judge(blocked, last, 0.7, 0.1) == "blocked"  # type: ignore[arg-type]
    assert judge(blocked, last, 0.1, 0.1) == "", "nobody waits for it"  # type: ignore[arg-type]
    assert judge(blocked, last, 0.7, 0.1, benign_s=0.3) == "", "it has read slowly before"  # type: ignore[arg-type]
    loop, last = watch_of([sample(t / 10, "R", t / 10) for t in range(8)])
    assert judge(loop, last, 0.6, 0.1) == "looping"  # type: ignore[arg-type]
    starved, last = watch_of([sample(t / 10, "R", t / 1000) for t in range(80)])
    assert judge(starved, last, 8.0, 0.1) == "", "runnable but without CPU"  # type: ignore[arg-type]
    long, last = watch_of([sample(t / 10, "R", t / 10) for t in range(20)])
    assert judge(long, last, 2.0, None) == "", "the first steps may take long"  # type: ignore[arg-type]


def test_a_slow_reader_is_remembered() -> None:
    watch, _ = watch_of([sample(t / 10) for t in range(6)])
    assert slept_s(watch, sample(0.6, "R", mark=6)) == pytest.approx(0.6)  # type: ignore[arg-type]


def test_a_slot_named_twice_in_the_same_collective_is_excluded() -> None:
    assert verdict([], 2, 9) == verdict([(1, 9)], 2, 9) == verdict([(2, 9)], 2, 90) == "replace"
    assert verdict([(2, 9)], 2, 9) == verdict([(2, 9)], 2, 11) == "exclude"
