"""The spine: as few channels as the busiest board, no clash, small change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightloom.core.errors import InfeasibleError, InputError
from lightloom.fabric.wavelength_spine import (
    bound,
    change,
    colour,
    degree,
    recolour,
    share_out,
    verify,
)


def random_demand(seed: int, boards: int, classes: int, most: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    demand = rng.integers(0, most + 1, (classes, boards, boards))
    return demand * (rng.random((classes, boards, boards)) < rng.uniform(0.1, 1.0))


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 4), st.integers(1, 5),
       st.booleans())  # fmt: skip
def test_exactly_the_lower_bound_is_used(
    seed: int, boards: int, classes: int, most: int, separate: bool
) -> None:
    demand = random_demand(seed, boards, classes, most)
    need = bound(demand, separate)
    spine = colour(demand, max(need, 1), separate)
    assert spine.used == need
    assert verify(spine, demand) == []
    if separate:
        owner: dict[int, int] = {}
        for (_, _, kind), channels in spine.pairs().items():
            assert all(owner.setdefault(c, kind) == kind for c in channels)


def test_articles_size_full_spine() -> None:
    rng = np.random.default_rng(0)
    demand = np.zeros((4, 64, 64), np.int64)
    for _ in range(1024):
        demand[rng.integers(4), np.arange(64), rng.permutation(64)] += 1
    spine = colour(demand, 1024)
    assert spine.used == degree(demand.sum(axis=0)) == 1024
    assert verify(spine, demand) == []


def test_optimum_by_exhaustion_on_three_boards() -> None:
    """No assignment with one channel less exists: the bound is the optimum."""
    demand = np.array([[[0, 2, 1], [1, 0, 1], [0, 1, 0]]])
    need = bound(demand, False)
    assert need == 3
    with pytest.raises(InfeasibleError, match="busiest board"):
        colour(demand, need - 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_change_touches_only_what_changed_while_room_is_left(seed: int) -> None:
    rng = np.random.default_rng(seed)
    demand = random_demand(seed, 6, 2, 3)
    channels = 2 * degree(demand.sum(axis=0)) + 8
    spine = colour(demand, channels)
    before = spine.pairs()
    delta = {(int(rng.integers(6)), int(rng.integers(6)), int(rng.integers(2))): int(n)
             for n in rng.integers(1, 3, 3)}  # fmt: skip
    lit = {key: len(value) for key, value in before.items()}
    dark = {key: -1 for key in list(lit)[:2] if key not in delta}
    done = change(spine, delta | dark)
    wanted = demand.copy()
    for (i, j, k), n in (delta | dark).items():
        wanted[k, i, j] += n
    assert verify(spine, wanted) == []
    assert done.swapped == 0
    assert (done.lit, done.darkened) == (sum(delta.values()), len(dark))
    after = spine.pairs()
    for key, channels_before in before.items():
        if key not in delta and key not in dark:
            assert after[key] == channels_before


def test_change_swaps_along_one_path_when_full() -> None:
    rng = np.random.default_rng(2)
    demand = np.zeros((1, 8, 8), np.int64)
    for _ in range(20):
        demand[0, np.arange(8), rng.permutation(8)] += 1
    take = next((i, j) for i in range(8) for j in range(8) if demand[0, i, j])
    spine = colour(demand, 20)
    change(spine, {(*take, 0): -1})
    done = change(spine, {(*take, 0): 1})
    assert verify(spine, demand) == []
    assert done.swapped <= 15, "at most one alternating path of two channels"
    with pytest.raises(InfeasibleError, match="no channel left"):
        change(spine, {(0, 1, 0): 1})
    with pytest.raises(InputError, match="to remove"):
        change(spine, {(0, 1, 0): -99})


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(8, 64))
def test_shares_fit_and_follow_bytes(seed: int, boards: int, channels: int) -> None:
    rng = np.random.default_rng(seed)
    sent = rng.exponential(1.0, (2, boards, boards)) * (rng.random((2, boards, boards)) < 0.4)
    if degree((sent > 0).sum(axis=0)) > channels:
        with pytest.raises(InfeasibleError):
            share_out(sent, channels)
        return
    if not sent.any():
        return
    lit = share_out(sent, channels)
    assert degree(lit.sum(axis=0)) <= channels
    assert ((lit > 0) == (sent > 0)).all()
    slowest = (sent[sent > 0] / lit[sent > 0]).max()
    assert degree(np.ceil(sent / (slowest * 0.999)).astype(int).sum(axis=0)) > channels


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 7))
def test_recolouring_is_right_and_keeps_what_it_can(seed: int, boards: int) -> None:
    old, new = random_demand(seed, boards, 2, 4), random_demand(seed + 1, boards, 2, 4)
    channels = max(bound(old, False), bound(new, False), 1)
    before = colour(old, channels).pairs()
    spine = recolour(before, new, channels)
    assert verify(spine, new) == []
    roomy = recolour(before, new, 4 * channels).pairs()
    for (i, j, k), was in before.items():
        count = min(len(was), int(new[k, i, j]))
        assert set(sorted(was)[:count]) <= set(roomy.get((i, j, k), []))
