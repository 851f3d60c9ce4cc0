"""Defragmentation: every state on the way is valid, nobody is paused, little is moved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightloom.core.channels import ChannelFile, Lit
from lightloom.core.errors import FabricError, InputError
from lightloom.fabric.defrag import (
    Step,
    apply,
    compact,
    copy_of,
    lit_of,
    pool_of,
    steps_to,
)
from lightloom.fabric.wavelength_pool import ChannelPool, Lightpath, Refusal, contiguity


def churned(seed: int, boards: int = 6, fibres: int = 2, channels: int = 24, load: float = 0.5):
    """A star after days of jobs coming and going."""
    rng = np.random.default_rng(seed)
    file = ChannelFile(boards=boards, fibres=fibres, channels=channels)
    pool, live = pool_of(file), []
    for number in range(int(boards * fibres * channels * load * 4)):
        lit = sum(channels - m.bit_count() for m in pool.free) / (channels * len(pool.free))
        if lit < load:
            a, b = (int(x) for x in rng.choice(boards, 2, replace=False))
            count = int(rng.integers(1, 4)) if rng.random() < 0.2 else 1
            cls = "expert" if rng.random() < 0.6 else "gradient"
            made = pool.admit(f"p{number}", f"j{number % 9}", cls, file.routes(a, b), count)
            if not isinstance(made, Refusal):
                live.append(made.name)
        else:
            for _ in range(max(1, len(live) // 8)):
                pool.release(live.pop(int(rng.integers(len(live)))))
    return file, pool


def play(pool: ChannelPool, steps: tuple[Step, ...] | list[Step]) -> ChannelPool:
    """Do the steps one by one; `apply` refuses any state with two owners of a channel."""
    twin = copy_of(pool)
    for step in steps:
        lit = sum(len(p.channels) for p in twin.paths.values())
        apply(twin, step)
        if step.how != "pause":
            assert sum(len(p.channels) for p in twin.paths.values()) == lit, "light is never lost"
        check_consistent(twin)
    return twin


def check_consistent(pool: ChannelPool) -> None:
    taken = [0] * len(pool.free)
    for path in pool.paths.values():
        for link in path.links:
            assert not taken[link] & path.mask
            taken[link] |= path.mask
    assert [pool.full & ~t for t in taken] == pool.free


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.3, 0.6))
def test_a_night_is_hitless_and_keeps_the_goal(seed: int, load: float) -> None:
    file, pool = churned(seed, load=load)
    before = lit_of(pool)
    report = compact(pool, 0.8, 1, lambda p: file.planes_of(p.links))
    assert lit_of(pool) == before, "planning leaves the machine alone"
    after = play(pool, report.steps)
    assert report.paused == 0
    assert contiguity(after) == pytest.approx(report.after)
    assert report.after >= min(0.8, report.before)
    assert report.floor <= report.moves
    assert report.bound <= report.moves
    for name, path in after.paths.items():
        was = pool.paths[name]
        assert (path.owner, path.cls, len(path.channels)) == (was.owner, was.cls, len(was.channels))
        assert path.links == was.links or path.links in file.planes_of(was.links)


def test_goal_is_reached_with_few_moves() -> None:
    ratios = []
    for seed in range(6):
        file, pool = churned(seed, boards=8, fibres=4, channels=48, load=0.55)
        report = compact(pool, 0.8, 1, lambda p, f=file: f.planes_of(p.links))
        assert report.after >= 0.8
        ratios.append(report.ratio)
    assert max(ratios) <= 1.2


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_any_target_is_reached_through_valid_states(seed: int) -> None:
    rng = np.random.default_rng(seed)
    _, pool = churned(seed, boards=4, fibres=1, channels=16, load=0.5)
    fresh = ChannelPool(len(pool.free), pool.channels)
    names = list(pool.paths)
    rng.shuffle(names)
    target = {}
    for name in names:
        p = pool.paths[name]
        made = fresh.admit(name, p.owner, p.cls, [p.links], len(p.channels))
        if isinstance(made, Refusal):
            return
        target[name] = made.channels
    steps = steps_to(pool, target)
    after = play(pool, steps)
    assert {n: p.channels for n, p in after.paths.items()} == target


def test_a_cycle_is_broken_by_a_spare_channel() -> None:
    pool = ChannelPool(1, 3)
    for name, channel in (("a", 0), ("b", 1)):
        pool.light(Lightpath(name, "j", "expert", (0,), (channel,)))
    steps = steps_to(pool, {"a": (1,), "b": (0,)})
    assert [s.parked for s in steps] == [True, False, False]
    assert all(s.how != "pause" for s in steps)
    after = play(pool, steps)
    assert (after.paths["a"].channels, after.paths["b"].channels) == ((1,), (0,))


def test_a_cycle_without_a_spare_channel_pauses_one_only() -> None:
    pool = ChannelPool(1, 3)
    for name, channel in (("a", 0), ("b", 1), ("c", 2)):
        pool.light(Lightpath(name, "j", "expert", (0,), (channel,)))
    steps = steps_to(pool, {"a": (1,), "b": (2,), "c": (0,)})
    assert {s.name for s in steps if s.how == "pause"} == {"a"}
    after = play(pool, steps)
    assert {n: p.channels for n, p in after.paths.items()} == {"a": (1,), "b": (2,), "c": (0,)}


def test_a_slide_through_free_channels_needs_no_spare_laser() -> None:
    pool = ChannelPool(1, 6)
    pool.light(Lightpath("a", "j", "expert", (0,), (4,)))
    assert [s.how for s in steps_to(pool, {"a": (0,)}, spare_lasers=0)] == ["push-pull"]
    pool.light(Lightpath("b", "j", "expert", (0,), (2,)))
    assert [s.how for s in steps_to(pool, {"a": (0,)}, spare_lasers=0)] == ["pause"]
    assert [s.how for s in steps_to(pool, {"a": (0,)}, spare_lasers=1)] == ["make-before-break"]


def test_a_step_onto_held_light_is_refused() -> None:
    pool = ChannelPool(2, 4)
    pool.light(Lightpath("a", "job1", "expert", (0, 1), (0,)))
    pool.light(Lightpath("b", "job2", "gradient", (1,), (1,)))
    with pytest.raises(FabricError, match=r"job1.*job2"):
        apply(copy_of(pool), Step("a", (0,), (1,), "make-before-break"))
    with pytest.raises(InputError, match="does not hold"):
        apply(copy_of(pool), Step("a", (3,), (2,), "push-pull"))


def test_a_file_with_two_owners_is_refused_by_name() -> None:
    lit = tuple(
        Lit(name=f"{job}-x", owner=job, cls="expert", links=(0, 5), channels=(3,))
        for job in ("red", "blue")
    )
    file = ChannelFile(boards=4, fibres=1, channels=8, lit=lit)
    with pytest.raises(FabricError, match=r"blue.*red|red.*blue"):
        pool_of(file)
