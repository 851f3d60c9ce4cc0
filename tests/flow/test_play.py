"""Flows through time: latency, starts, priorities, background, bytes conserved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightloom.core.errors import FabricError
from lightloom.flow.play import finish
from lightloom.flow.share import paths_of


def test_one_flow_is_alpha_beta() -> None:
    end = finish(paths_of([[0, 1]]), np.array([10.0, 5.0]), np.array([20.0]), np.array([3.0]))
    assert end.tolist() == [7.0]


def test_a_short_flow_leaves_room() -> None:
    end = finish(paths_of([[0], [0]]), np.array([2.0]), np.array([1.0, 3.0]))
    assert end.tolist() == [1.0, 2.0]


def test_starts_and_latencies() -> None:
    end = finish(
        paths_of([[0], [0], []]), np.array([1.0]), np.array([4.0, 1.0, 9.0]),
        np.array([0.0, 0.5, 0.25]), np.array([0.0, 1.5, 1.0]),
    )  # fmt: skip
    np.testing.assert_allclose(end, [5.0, 4.0, 1.25])


def test_priorities_and_weights() -> None:
    paths = paths_of([[0], [0]])
    first = finish(paths, np.array([1.0]), np.array([2.0, 2.0]), priority_F=np.array([1, 0]))
    assert first.tolist() == [4.0, 2.0]
    shared = finish(paths, np.array([3.0]), np.array([2.0, 2.0]), weight_F=np.array([2.0, 1.0]))
    np.testing.assert_allclose(shared, [1.0, 4.0 / 3.0])


def test_background_never_ends() -> None:
    end = finish(paths_of([[0], [0]]), np.array([2.0]), np.array([1.0, np.inf]))
    assert end.tolist() == [1.0, np.inf]


def test_a_dead_link_is_an_answer() -> None:
    with pytest.raises(FabricError, match="never end"):
        finish(paths_of([[0]]), np.array([0.0]), np.array([1.0]))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 25))
def test_no_link_moves_more_than_it_can(seed: int, flows: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [list(rng.choice(8, rng.integers(1, 4), replace=False)) for _ in range(flows)]
    paths, capacity = paths_of(rows), rng.uniform(1.0, 4.0, 8)
    size, latency = rng.uniform(0.1, 5.0, flows), rng.choice([0.0, 0.1], flows)
    end = finish(paths, capacity, size, latency)
    moved = paths.load(size, 8)
    assert np.all(moved <= capacity * end.max() * (1 + 1e-9))
    alone = size / np.minimum.reduceat(capacity[paths.link_E], paths.start_F[:-1]) + latency
    assert np.all(end >= alone * (1 - 1e-12))
