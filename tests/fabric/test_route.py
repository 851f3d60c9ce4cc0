"""Routes: connected from end to end, minimal, around what is broken, the same every time."""

from __future__ import annotations

import numpy as np
import pytest
from fabric_samples import (
    CUBE,
    DGX,
    DRAGONFLY,
    ETHERNET,
    EVERY,
    HCCS,
    MESH_2D,
    OPTICAL,
    PLANES,
    TWISTED,
    fabric,
    level,
    random_faults,
)  # fmt: skip

from lightloom.core.errors import FabricError
from lightloom.fabric.faults import break_links
from lightloom.fabric.network import Network, build
from lightloom.fabric.route import Routes, route


def pairs(net: Network, seed: int = 0, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    live = np.array([c for c in range(net.cards) if c not in net.dead])
    source = rng.choice(live, count)
    target = rng.choice(live, count)
    keep = source != target
    return source[keep], target[keep]


def flow_is_conserved(net: Network, routes: Routes, source: int, target: int, f: int) -> bool:
    """What enters a node leaves it, but for the two ends (the share of every flow is 1)."""
    balance: dict[str, float] = {}
    for at in range(routes.start_F[f], routes.start_F[f + 1]):
        share = 1.0 if routes.share_E is None else float(routes.share_E[at])
        tail, head = net.ends(int(routes.link_E[at]))
        balance[tail] = balance.get(tail, 0.0) - share
        balance[head] = balance.get(head, 0.0) + share
    want = {f"card{source}": -1.0, f"card{target}": 1.0}
    return all(
        abs(balance.get(n, 0.0) - want.get(n, 0.0)) < 1e-9 for n in balance.keys() | want.keys()
    )


def bare(routes: Routes) -> np.ndarray:
    share = np.ones(len(routes.link_E)) if routes.share_E is None else routes.share_E
    flow = np.repeat(np.arange(len(routes.start_F) - 1), np.diff(routes.start_F))
    return np.bincount(flow, share, minlength=len(routes.start_F) - 1)


GRIDS_AND_SWITCHES = ["dgx", "hccs", "clos", "torus", "cube", "twisted", "ring", "racks"]


@pytest.mark.parametrize("name", GRIDS_AND_SWITCHES)
@pytest.mark.parametrize("seed", range(3))
def test_connected_with_faults(name: str, seed: int) -> None:
    net = build(EVERY[name])
    faults = random_faults(net, np.random.default_rng(seed), seed)
    net = break_links(net, faults)
    source, target = pairs(net, seed)
    try:
        routes = route(net, source, target)
    except FabricError as error:
        assert name in ("torus", "ring", "clos", "twisted", "cube"), error
        return
    assert np.all(net.capacity(routes.link_E) > 0)
    for f in range(len(source)):
        assert flow_is_conserved(net, routes, int(source[f]), int(target[f]), f)


def test_hops() -> None:
    net = build(OPTICAL)
    routes = route(net, np.array([0, 0, 0, 0]), np.array([1, 7, 8, 40]))
    assert bare(routes).tolist() == [1.0, 4.0, 3.0, 2.0]
    net = build(CUBE)
    routes = route(net, np.zeros(2, np.int64), np.array([1, 42]))
    assert bare(routes).tolist() == [1.0, 6.0]
    assert bare(route(build(DRAGONFLY), np.array([0, 0]), np.array([1, 39]))).max() <= 5


def test_latency_adds_up() -> None:
    net = build(ETHERNET)
    routes = route(net, np.array([0, 0, 0]), np.array([1, 8, 40]))
    np.testing.assert_allclose(routes.latency_F, [1e-6, 1e-6, 3e-6])


def test_rail_takes_a_neighbour_across() -> None:
    net = build(HCCS)
    same, other = route(net, np.array([0]), np.array([8])), route(net, np.array([0]), np.array([9]))
    assert len(same.link_E) == 2
    assert len(other.link_E) == 3
    assert net.link_name(int(other.link_E[0])) == "card0 -> card1"


def test_dead_link_is_gone_around_evenly() -> None:
    net = break_links(build(OPTICAL), ["link:module0-module1"])
    routes = route(net, np.array([0]), np.array([8]))
    hubs = [net.link_name(int(k)) for k in routes.link_E]
    assert "module0 -> module1" not in hubs
    assert {h for h in hubs if h.startswith("module") and "card" not in h} == {
        "module0 -> module2", "module0 -> module3", "module2 -> module1", "module3 -> module1",
    }  # fmt: skip


def test_dead_port_uses_a_sibling() -> None:
    net = break_links(build(OPTICAL), ["link:c0-spine"])
    routes = route(net, np.array([0]), np.array([40]))
    assert [net.link_name(int(k)) for k in routes.link_E] == [
        "card0 -> card1", "card1 -> spine0", "spine0 -> card40",
    ]  # fmt: skip


def test_package_falls_back_on_the_switch_above() -> None:
    net = break_links(build(PLANES), ["link:c0-c1"])
    assert len(route(net, np.array([0]), np.array([1])).link_E) == 2


def test_cut_off_cards_are_named() -> None:
    lone = fabric(level("net", "switch", [8], 1e9))
    net = break_links(build(lone), ["link:c3-net", "link:c5-net"])
    with pytest.raises(FabricError, match="cut off: card3, card5"):
        route(net, np.array([3, 5]), np.array([1, 2]))
    ring = break_links(build(fabric(level("loop", "mesh", [4], 1e9))), ["link:c1-c2"])
    with pytest.raises(FabricError, match="card 0 cannot reach card 3"):
        route(ring, np.array([0]), np.array([3]))


def test_all_paths_use_the_whole_mesh() -> None:
    net = build(MESH_2D)
    routes = route(net, np.array([0]), np.array([1]), way="all-path")
    assert len(routes.link_E) == 1 + 2 * 2
    assert bare(routes)[0] == pytest.approx((1 + 2 * 2) / 3)


def test_hashed_planes_are_repeatable_and_spread() -> None:
    net = build(PLANES, spread=False)
    source, target = np.arange(64), np.arange(64) + 64
    first, again = route(net, source, target, seed=7), route(net, source, target, seed=7)
    assert np.array_equal(first.link_E, again.link_E)
    assert not np.array_equal(first.link_E, route(net, source, target, seed=8).link_E)
    up = net.block(1, "up")
    assert up is not None and up.slots == 7
    slots = (first.link_E[(first.link_E >= up.first) & (first.link_E < up.first + up.count)]) % 7
    assert len(np.unique(slots)) == 7


def test_hash_avoids_a_dead_plane() -> None:
    net = break_links(build(PLANES, spread=False), ["plane:superpod.3"])
    routes = route(net, np.arange(64), np.arange(64) + 64)
    assert np.all(net.capacity(routes.link_E) > 0)


def test_twist_keeps_every_card_alike() -> None:
    net = build(TWISTED)
    lengths = []
    for card in (0, 13, 31):
        others = np.array([c for c in range(32) if c != card])
        lengths.append(np.sort(bare(route(net, np.full(31, card), others))))
    np.testing.assert_allclose(lengths[0], lengths[1])
    np.testing.assert_allclose(lengths[0], lengths[2])


def test_rails_and_leaves_of_dgx() -> None:
    net = build(DGX)
    routes = route(net, np.array([0]), np.array([33]))
    assert len(routes.link_E) == 2 + 4
