"""Folded answers equal unfolded ones: rates, finishing times, random faults, relabelled links."""

from __future__ import annotations

import numpy as np
import pytest
from fabric_samples import DGX, FOLDING, OPTICAL, fabric, level, random_faults
from hypothesis import given, settings
from hypothesis import strategies as st

from lightloom.core.errors import FabricError
from lightloom.fabric.faults import break_links
from lightloom.fabric.network import Network, build
from lightloom.flow.fold import Fold, all_pairs, fold_flows, fold_machine, trivial
from lightloom.flow.play import finish
from lightloom.flow.refine import equitable, quotient, refine
from lightloom.flow.share import Paths, max_min, paths_of

BIG_OPTICAL = fabric(
    level("module", "mesh", [2, 4], 366e9, tier="optical"),
    level("board", "full-mesh", [8], 7e9, tier="optical"),
    level("spine", "spine", [8], 1280e9, links=8, tier="optical"),
)


def broken(net: Network, seed: int, count: int) -> Network:
    rng = np.random.default_rng(seed)
    while True:  # a draw may cut a card off: draw again
        try:
            hurt = break_links(net, random_faults(net, rng, count))
            fold_flows(hurt, trivial(hurt), *all_pairs(hurt, trivial(hurt)))
            return hurt
        except FabricError:
            continue


def rates(net: Network, fold: Fold, play: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes of the classes, a matrix of rates and one of ends, zero where no class is shown."""
    source, target, size = all_pairs(net, fold)
    folded = fold_flows(net, fold, source, target, size)
    rate = np.zeros((net.cards, net.cards))
    end = np.zeros_like(rate)
    rate[source, target] = max_min(folded.paths, folded.capacity_L)
    if play:
        end[source, target] = finish(
            folded.paths, folded.capacity_L, np.full(len(source), 1e6), folded.latency_F
        )
    many = np.zeros_like(rate)
    many[source, target] = size
    return many, rate, end


def same(net: Network, play: bool) -> None:
    many, rate, end = rates(net, fold_machine(net), play)
    _, full_rate, full_end = rates(net, trivial(net), play)
    shown = many > 0
    np.testing.assert_allclose(rate[shown], full_rate[shown], rtol=1e-9)
    np.testing.assert_allclose(end[shown], full_end[shown], rtol=1e-9)
    order = np.argsort(rate[shown])
    repeated = np.repeat(rate[shown][order], many[shown][order].astype(int))
    everyone = np.sort(full_rate[full_rate > 0])
    assert len(repeated) == len(everyone)
    np.testing.assert_allclose(repeated, everyone, rtol=1e-9)


@pytest.mark.parametrize("name", FOLDING)
@pytest.mark.parametrize("seed", range(3))
def test_all_pairs_with_faults(name: str, seed: int) -> None:
    same(broken(build(FOLDING[name]), seed, seed), play=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_512_cards(seed: int) -> None:
    same(broken(build(BIG_OPTICAL), 100 + seed, 1 + seed % 5), play=False)


def test_a_healthy_machine_folds_to_a_handful() -> None:
    net = build(DGX)
    folded = fold_flows(net, fold_machine(net), *all_pairs(net, fold_machine(net)))
    assert folded.paths.flows < 200
    assert folded.size_F.sum() == net.cards * (net.cards - 1)
    assert folded.size_L.sum() <= net.links


def test_a_million_cards_equal_a_thousand() -> None:
    """Same levels, same share of traffic in each: the rate of a spine flow scales exactly."""
    seconds = []
    for domains in (1, 64):
        cards = 128 * domains
        net = build(
            fabric(
                level("node", "switch", [8], 450e9),
                level("net", "switch", [16 * domains], 50e9, links=8),
            )
        )
        source, target, size = all_pairs(net, fold_machine(net))
        folded = fold_flows(net, fold_machine(net), source, target, size)
        ends = finish(folded.paths, folded.capacity_L, np.full(len(source), 1e9 / cards))
        seconds.append(float(ends.max()) * cards / (cards - 8))
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-9)


@st.composite
def listed(draw: st.DrawFn) -> tuple[Paths, np.ndarray, np.ndarray]:
    links = draw(st.integers(4, 40))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    rows = [list(rng.choice(links, rng.integers(1, 4), replace=False)) for _ in range(30)]
    copies = draw(st.integers(1, 4))  # several copies side by side make something to fold
    many = [[k * links + link for link in row] for k in range(copies) for row in rows]
    capacity = np.tile(rng.choice([1.0, 2.0, 5.0], links), copies)
    return paths_of(many), capacity, np.tile(rng.choice([1.0, 2.0], 30), copies)


@settings(max_examples=40, deadline=None)
@given(listed())
def test_refined_equals_listed(case: tuple[Paths, np.ndarray, np.ndarray]) -> None:
    paths, capacity, size = case
    classes = refine(paths, capacity, size)
    assert equitable(paths, capacity, classes)
    small, small_capacity, first = quotient(paths, capacity, classes)
    np.testing.assert_allclose(
        max_min(small, small_capacity)[classes.flow_F], max_min(paths, capacity), rtol=1e-9
    )
    np.testing.assert_allclose(
        finish(small, small_capacity, size[first])[classes.flow_F],
        finish(paths, capacity, size), rtol=1e-9,
    )  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(listed(), st.integers(0, 1000))
def test_refinement_does_not_depend_on_names(
    case: tuple[Paths, np.ndarray, np.ndarray], seed: int
) -> None:
    paths, capacity, size = case
    name = np.random.default_rng(seed).permutation(len(capacity))
    renamed = Paths(paths.start_F, name[paths.link_E], paths.count_E)
    other = np.zeros_like(capacity)
    other[name] = capacity
    a, b = refine(paths, capacity, size), refine(renamed, other, size)
    pairs = set(zip(a.flow_F.tolist(), b.flow_F.tolist(), strict=True))
    assert a.flows == b.flows == len(pairs)


def test_certificate_refuses_a_wrong_partition() -> None:
    paths, capacity = paths_of([[0], [0], [1]]), np.array([1.0, 1.0])
    classes = refine(paths, capacity)
    assert equitable(paths, capacity, classes)
    wrong = type(classes)(np.zeros(3, np.int64), np.zeros(2, np.int64))
    assert not equitable(paths, capacity, wrong)
    assert not equitable(paths, np.array([1.0, 2.0]), wrong)


def test_optical_machine_is_conserved() -> None:
    net = broken(build(OPTICAL), 3, 3)
    fold = fold_machine(net)
    folded = fold_flows(net, fold, *all_pairs(net, fold))
    rate = max_min(folded.paths, folded.capacity_L)
    load = folded.paths.load(rate, len(folded.capacity_L))
    assert np.all(load <= folded.capacity_L * (1 + 1e-9))
