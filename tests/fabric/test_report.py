"""Counts, cables and borders of a fabric."""

from __future__ import annotations

import numpy as np
from fabric_samples import CUBE, DGX, EVERY, MESH_2D, OPTICAL, RING

from lightloom.core.catalog import load_cluster
from lightloom.fabric.cut import bisection, egress
from lightloom.fabric.network import build
from lightloom.fabric.report import cables, levels


def test_articles_machine() -> None:
    net = build(load_cluster("supernode-8192").fabric)
    found = {r.name: r for r in levels(net)}
    assert net.cards == 8192
    assert found["module"].links == 1024 * 10
    assert found["board"].links == 64 * 120
    assert found["spine"].links == 64 * 8
    assert found["spine"].fibres == 8
    assert found["spine"].cables_200g == 410  # 81.92 Tb/s; the article's 256 are 51.2 Tb/s
    assert found["spine"].bisection == 32 * 10.24e12


def test_cables_count_every_link_once() -> None:
    for name in ("optical", "dgx", "hccs", "planes", "mesh", "torus", "cube", "ring", "racks"):
        net = build(EVERY[name])
        counted: dict[str, int] = {}
        for cable in cables(net):
            counted[cable.level] = counted.get(cable.level, 0) + cable.links
        assert counted == {r.name: r.links for r in levels(net)}, name


def test_labels_name_both_ends() -> None:
    cable = next(c for c in cables(build(DGX)) if c.level == "rail")
    assert cable.label_a == "node0:0-0 > rail0.rail0:0-0"
    assert cable.label_b == "rail0.rail0:0-0 > node0:0-0"


def test_bisection_of_grids() -> None:
    assert bisection(build(CUBE), build(CUBE).tiers[0]) == 16 * 2 * 100e9
    assert bisection(build(MESH_2D), build(MESH_2D).tiers[0]) == 4 * 4 * 50e9
    assert bisection(build(RING), build(RING).tiers[0]) == 2 * 10e9


def test_border_of_units() -> None:
    net = build(OPTICAL)
    card = egress(net, 1)
    corner, inner = 2 * 366e9, 3 * 366e9
    other = 21e9 / 8 + 10.24e12 / 32
    np.testing.assert_allclose(card[:3], [corner + other, inner + other, inner + other])
    np.testing.assert_allclose(egress(net, 32), 10.24e12)
