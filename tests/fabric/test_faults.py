"""Faults: which links they touch, and answers to what does not exist."""

from __future__ import annotations

import numpy as np
import pytest
from fabric_samples import DGX, MESH_2D, OPTICAL, PLANES, fabric, level

from lightloom.core.errors import FabricError, InputError
from lightloom.core.fabric import Optics
from lightloom.fabric.cut import egress
from lightloom.fabric.faults import break_links
from lightloom.fabric.network import build


def test_both_directions_fail() -> None:
    net = break_links(build(OPTICAL), ["link:c0-c1", "link:m0-m3=4x"])
    names = {net.link_name(link): left for link, left in net.scale.items()}
    assert names == {
        "card0 -> card1": 0.0, "card1 -> card0": 0.0,
        "module0 -> module3": 0.25, "module3 -> module0": 0.25,
    }  # fmt: skip


def test_uplinks_of_a_unit_and_planes() -> None:
    net = break_links(build(OPTICAL), ["link:board0-spine=2x"])
    assert len(net.scale) == 2 * 32
    net = break_links(build(PLANES), ["plane:superpod.2"])
    assert np.isclose(min(net.scale.values()), 6 / 7)


def test_channel_is_one_of_many() -> None:
    light = Optics(fibres=8, channels=128, channel_rate=10e9)
    net = build(fabric(level("a", "spine", [4], 1.28e12, links=8, optics=light)))
    left = set(break_links(net, ["channel:c0-a"]).scale.values())
    assert left == {1 - 1 / 1024}


def test_dead_and_slow_cards() -> None:
    net = break_links(build(DGX), ["card:5", "card:9=2x", "host:1"], host_cards=8)
    assert net.dead == frozenset({5, *range(8, 16)})
    whole, hurt = egress(build(DGX), 1), egress(break_links(build(DGX), ["card:9=2x"]), 1)
    assert hurt[9] == whole[9] / 2
    assert hurt[8] == whole[8]


def test_a_dead_card_of_a_mesh_forwards_nothing() -> None:
    net = break_links(build(MESH_2D), ["card:1"])
    assert egress(net, 1)[1] < egress(net, 1)[0]


@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        ("link:c0-c9", FabricError, "nearest: card0-card1"),
        ("link:m0-m9", FabricError, "no link joins module0 and module9"),
        ("link:x3-y4", FabricError, "no level here"),
        ("link:modul0-m3", FabricError, None),
        ("link:c0", InputError, "two ends"),
        ("card:999", FabricError, "0..127"),
        ("link:c999-spine", FabricError, "0..127"),
        ("plane:3", FabricError, "no level of this fabric has planes"),
        ("nan:0", InputError, "a fabric knows"),
        ("card:x", InputError, "is not a card"),
        ("card:1=0.5x", InputError, "at least 1"),
        ("host:3", InputError, "cards per host"),
        ("channel:c0-spine", FabricError, "no optics"),
        ("board:99", FabricError, "0..3"),
    ],
)
def test_what_does_not_exist(fault: str, error: type[Exception], says: str | None) -> None:
    if says is None:
        assert break_links(build(OPTICAL), [fault]).scale
        return
    with pytest.raises(error, match=says):
        break_links(build(OPTICAL), [fault])


def test_nobody_left() -> None:
    with pytest.raises(FabricError, match="no card is left"):
        break_links(build(fabric(level("a", "switch", [2], 1e9))), ["card:0", "card:1"])


def test_a_spare_takes_one_place() -> None:
    net = build(fabric(level("rack", "full-mesh", [8, 8], 50e9, spare=1)))
    one = break_links(net, ["card:5"])
    assert not one.dead and one.replaced == {5}
    two = break_links(net, ["card:5", "card:9"])
    assert two.dead == {9} and two.replaced == {5}
