"""Patterns: the traffic of a phase is the traffic of its moves; every schedule keeps its word."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from fabric_samples import DGX, EVERY, OPTICAL, PLANES, TORUS, fabric, level

from lightloom.collectives import patterns
from lightloom.collectives.check import check
from lightloom.collectives.choose import candidates, make
from lightloom.collectives.group import Axis, make_group
from lightloom.collectives.schedule import Schedule
from lightloom.collectives.stage import Player, algorithms
from lightloom.core.errors import InputError
from lightloom.fabric.network import build

PAIRS = {
    "ring": (lambda n: patterns.ring(n, False), patterns.ring_moves),
    "direct": (patterns.direct, patterns.direct_moves),
    "halving-doubling": (
        lambda n: patterns.butterfly(n, patterns.halving_peers),
        lambda n, gather: patterns.butterfly_moves(n, patterns.halving_peers, gather),
    ),
    "swing": (
        lambda n: patterns.butterfly(n, patterns.swing_peers),
        lambda n, gather: patterns.butterfly_moves(n, patterns.swing_peers, gather),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_phases_carry_what_the_moves_carry(name: str, n: int) -> None:
    phases, moves = PAIRS[name]
    by_phase: Counter[tuple[int, int]] = Counter()
    for phase in phases(n):
        for s, t in zip(phase.source_P.tolist(), phase.target_P.tolist(), strict=True):
            by_phase[s, t] += round(phase.share * phase.repeat * n)
    by_move: Counter[tuple[int, int]] = Counter()
    for step in moves(n, False):
        for move in step:
            by_move[move.source, move.target] += len(move.blocks)
    assert by_phase == by_move


def test_tree_moves_carry_what_the_phase_carries() -> None:
    for n in (2, 5, 8, 13):
        phase = patterns.tree(n)[0]
        edges = Counter(zip(phase.source_P.tolist(), phase.target_P.tolist(), strict=True))
        moved = Counter((m.source, m.target) for step in patterns.tree_moves(n) for m in step)
        assert edges == moved


@pytest.mark.parametrize("name", [n for n in EVERY if n not in ("cube", "mesh")])
def test_every_schedule_is_correct(name: str) -> None:
    net = build(EVERY[name])
    group = make_group(EVERY[name], size=None if net.cards < 64 else net.cards // 4)
    player = Player(net, group)
    for kind in ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast"):
        for algorithm in candidates(player, kind):
            assert check(make(player, kind, algorithm, 2**26), group) == [], (kind, algorithm)


def test_strided_groups_are_correct() -> None:
    group = make_group(OPTICAL, size=4, stride=8)
    player = Player(build(OPTICAL), group)
    for algorithm in candidates(player, "all-reduce"):
        assert check(make(player, "all-reduce", algorithm, 2**20), group) == []


def test_wrong_schedules_are_caught() -> None:
    group = make_group(DGX, size=32)
    good = make(Player(build(DGX), group), "all-reduce", "hierarchical", 2**26)
    weight, chain = good.chains[0]
    assert check(good, group) == []
    lost = Schedule("all-reduce", "x", ((weight, chain[:-1]),))
    assert "times" in check(lost, group)[0]
    half = Schedule("all-reduce", "x", ((0.5, chain),))
    assert "not all of it" in check(half, group)[0]


def test_swing_is_shorter_than_halving_on_a_ring() -> None:
    def hops(peers: patterns.Peers) -> int:
        total = 0
        for k in range(4):
            away = np.abs(peers(k, 16) - np.arange(16))
            total += int(np.minimum(away, 16 - away).max())
        return total

    assert hops(patterns.swing_peers) < hops(patterns.halving_peers)


def test_groups() -> None:
    group = make_group(OPTICAL, size=32)
    assert [(a.name, a.members, a.stride) for a in group.axes] == [
        ("module", 4, 1), ("module", 2, 4), ("board", 4, 8),
    ]  # fmt: skip
    assert group.groups == 4
    assert group.cards_of(1).tolist() == list(range(32, 64))
    strided = make_group(OPTICAL, size=4, stride=32)
    assert [a.name for a in strided.axes] == ["spine"]
    assert strided.cards_of(5).tolist() == [5, 37, 69, 101]
    assert [a.members for a in make_group(OPTICAL, cards=24).axes] == [4, 2, 3]


@pytest.mark.parametrize(
    ("cards", "size", "stride", "says"),
    [
        (100, None, 1, "nearest: 96, 128"), (0, None, 1, "1..128"), (999, None, 1, "1..128"),
        (None, 12, 1, "nearest: 8, 16"), (None, 8, 3, "do not fill"), (None, 0, 1, "do not fill"),
    ],
)  # fmt: skip
def test_counts_that_do_not_fill(
    cards: int | None, size: int | None, stride: int, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        make_group(OPTICAL, cards, size, stride)


def test_in_network_only_where_switches_add() -> None:
    adds = fabric(level("node", "switch", [8], 50e9, reduces=True))
    axis = make_group(adds).axes[0]
    assert "in-network" in algorithms(axis)
    assert "in-network" not in algorithms(axis, "all-gather")
    assert "in-network" not in algorithms(make_group(PLANES).axes[0])
    assert isinstance(axis, Axis) and not axis.wraps
    assert make_group(TORUS).axes[0].wraps
