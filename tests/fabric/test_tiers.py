"""Levels become tiers; figures that no level can have are refused."""

from __future__ import annotations

import msgspec
import pytest
from fabric_samples import CLOS, DGX, EVERY, OPTICAL, fabric, level

from lightloom.core.catalog import load_cluster, names
from lightloom.core.errors import FabricError
from lightloom.fabric.network import build
from lightloom.fabric.tiers import tiers_of


@pytest.mark.parametrize("name", EVERY)
def test_cards_and_numbers(name: str) -> None:
    net = build(EVERY[name])
    assert net.cards == net.tiers[-1].cards * net.tiers[-1].units
    assert net.blocks[0].first == 0
    for before, after in zip(net.blocks, net.blocks[1:], strict=False):
        assert after.first == before.first + before.count
    for tier in net.tiers:
        assert tier.units * tier.cards == net.cards


def test_fat_tree_has_a_tier_for_each_number() -> None:
    tiers = tiers_of(CLOS)
    assert [(t.n, t.c, t.ports) for t in tiers] == [
        (8, 1, "own"), (4, 8, "through"), (4, 32, "through"),
    ]  # fmt: skip
    assert tiers[1].child_bandwidth == 8 * 50e9
    assert tiers[1].oversubscription == 4.0
    assert tiers[2].child_bandwidth == 32 * 50e9 / 4


def test_one_technology_shares_ports_and_two_do_not() -> None:
    assert [t.ports for t in tiers_of(DGX)] == ["own", "own", "through"]
    assert [t.ports for t in tiers_of(OPTICAL)] == ["none", "own", "own"]
    apart = [msgspec.structs.replace(lv, shared=False) for lv in DGX.levels]
    assert [t.ports for t in tiers_of(fabric(*apart))] == ["own", "own", "own"]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (level("a", "switch", [8], 0.0), "not positive"),
        (level("a", "switch", [0], 1.0), "no children"),
        (level("a", "switch", [8], 1.0, oversubscription=0.5), "below 1"),
        (level("a", "dragonfly", [8], 1.0), "three numbers"),
        (level("a", "mesh", [4, 4], 1.0, twist=1), "only a torus"),
        (level("a", "switch", [8], 1.0, links=0), ">= 1"),
    ],
)
def test_bad_levels(bad: object, says: str) -> None:
    with pytest.raises(FabricError, match=says):
        build(fabric(bad))  # type: ignore[arg-type]


def test_capacity_between_levels() -> None:
    low = level("leaf", "switch", [8], 10e9, tier="eth")
    high = level("spine", "switch", [4], 10e9, links=9, tier="eth")
    with pytest.raises(FabricError, match=r"90 GB/s.*80 GB/s") as caught:
        build(fabric(low, high))
    assert "8 links" in caught.value.out


def test_every_catalogue_cluster_builds() -> None:
    for name in names("clusters"):
        net = build(load_cluster(name).fabric)
        assert net.links > net.cards // 2
