"""Max-min shares: against one-at-a-time water-filling, and by their own certificate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightloom.core.errors import FabricError
from lightloom.flow.share import Paths, max_min, paths_of, select


def one_at_a_time(paths: Paths, capacity_L: np.ndarray, weight_F: np.ndarray) -> np.ndarray:
    """The text-book algorithm on a dense matrix: raise all, freeze on the first full link."""
    matrix = np.zeros((len(capacity_L), paths.flows))
    count_E = np.ones(len(paths.link_E)) if paths.count_E is None else paths.count_E
    np.add.at(matrix, (paths.link_E, paths.flow_of_entry), count_E)
    matrix *= weight_F
    level, active = np.zeros(paths.flows), matrix.sum(0) > 0
    level[~active] = np.inf
    while active.any():
        need = matrix @ active
        room = capacity_L - matrix[:, ~active] @ np.where(active, 0, level)[~active].clip(max=1e300)
        share = np.where(need > 0, room / np.where(need > 0, need, 1), np.inf)
        tight = share <= share.min() * (1 + 1e-13)
        stop = active & (matrix[tight] > 0).any(0)
        level[stop], active = share.min(), active & ~stop
    return level * weight_F


def random_case(seed: int, flows: int, links: int) -> tuple[Paths, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = [list(rng.choice(links, rng.integers(0, 5), replace=False)) for _ in range(flows)]
    paths = paths_of(rows)
    counts = rng.choice([0.25, 0.5, 1.0, 3.0], len(paths.link_E)) if seed % 2 else None
    capacity = rng.choice([1.0, 2.0, 4.0], links) if seed % 3 else rng.uniform(0.0, 5.0, links)
    return Paths(paths.start_F, paths.link_E, counts), capacity, rng.choice([1.0, 2.0], flows)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(5, 25))
def test_equals_text_book(seed: int, flows: int, links: int) -> None:
    paths, capacity, weight = random_case(seed, flows, links)
    expected = one_at_a_time(paths, capacity, weight)
    np.testing.assert_allclose(max_min(paths, capacity, weight), expected, rtol=1e-9, atol=1e-9)


def test_thin_rounds_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    source, target = rng.integers(0, 256, (2, 20_000))
    paths = Paths(
        np.arange(0, 40_001, 2), np.stack([source, 256 + target], 1).ravel().astype(np.int64)
    )
    capacity = rng.uniform(1.0, 2.0, 512)
    quick = max_min(paths, capacity)
    monkeypatch.setattr("lightloom.flow.share._thin", lambda frozen, flows: False)
    np.testing.assert_allclose(quick, max_min(paths, capacity), rtol=1e-11)


def test_certificate_on_many_flows() -> None:
    rng = np.random.default_rng(1)
    links = rng.integers(0, 300, (20_000, 3)).astype(np.int64)
    paths = Paths(np.arange(0, 60_001, 3), links.ravel())
    capacity = rng.uniform(1.0, 9.0, 300)
    rate = max_min(paths, capacity)
    load = paths.load(rate, 300)
    assert np.all(load <= capacity * (1 + 1e-9))
    fastest = np.zeros(300)
    np.maximum.at(fastest, paths.link_E, np.repeat(rate, 3))
    full = load >= capacity * (1 - 1e-9)
    top = full[links] & (rate[:, None] >= fastest[links] * (1 - 1e-9))
    assert np.all(top.any(1))


def test_priorities_are_strict() -> None:
    paths = paths_of([[0], [0, 1], [1]])
    rate = max_min(paths, np.array([10.0, 4.0]), priority_F=np.array([0, 1, 1]))
    np.testing.assert_allclose(rate, [10.0, 0.0, 4.0])
    rate = max_min(paths, np.array([10.0, 4.0]), priority_F=np.array([1, 0, 1]))
    np.testing.assert_allclose(rate, [6.0, 4.0, 0.0])


def test_edges() -> None:
    assert max_min(paths_of([[], [0]]), np.array([3.0])).tolist() == [np.inf, 3.0]
    assert max_min(paths_of([[0, 1], [1]]), np.array([0.0, 3.0])).tolist() == [0.0, 3.0]
    assert max_min(paths_of([]), np.array([3.0])).tolist() == []
    with pytest.raises(FabricError, match="capacity"):
        max_min(paths_of([[0]]), np.array([np.nan]))
    with pytest.raises(FabricError, match="weight"):
        max_min(paths_of([[0]]), np.array([1.0]), np.array([0.0]))


def test_select_keeps_order() -> None:
    part = select(paths_of([[0], [1, 2], [3]]), np.array([2, 1]))
    assert part.link_E.tolist() == [3, 1, 2]
    assert part.start_F.tolist() == [0, 1, 3]
