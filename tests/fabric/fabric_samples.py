"""Small fabrics of every kind, and random faults for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightloom.core.fabric import Fabric, Level
from lightloom.fabric.grid import table
from lightloom.fabric.network import Network


def level(name: str, kind: Any, shape: list[int], link: float, **more: Any) -> Level:
    more = {"latency": 1e-6} | more
    return Level(name=name, kind=kind, shape=tuple(shape), link=link, **more)


def fabric(*levels: Level) -> Fabric:
    return Fabric(levels=levels)


OPTICAL = fabric(
    level("module", "mesh", [2, 4], 366e9, tier="optical"),
    level("board", "full-mesh", [4], 7e9, tier="optical"),
    level("spine", "spine", [4], 1280e9, links=8, tier="optical"),
)
DGX = fabric(
    level("node", "switch", [8], 25e9, links=18, tier="nvlink"),
    level("rail", "rail", [4], 50e9, links=8, planes=8, tier="ib"),
    level("spine", "fat-tree", [4], 50e9, links=32, planes=8, tier="ib", oversubscription=2.0),
)
HCCS = fabric(
    level("node", "full-mesh", [8], 28e9, tier="hccs"),
    level("rail", "rail", [4], 25e9, links=8, planes=8, tier="roce"),
    level("spine", "fat-tree", [4], 25e9, links=32, planes=8, tier="roce"),
)
PLANES = fabric(
    level("package", "full-mesh", [2], 224e9, tier="hccs"),
    level("node", "switch", [8], 28e9, links=14, planes=7, tier="ub"),
    level("superpod", "switch", [8], 28e9, links=112, planes=7, tier="ub"),
)
ETHERNET = fabric(
    level("node", "switch", [8], 25e9, links=12, tier="nvlink"),
    level("leaf", "fat-tree", [4], 12.5e9, links=2, planes=2, tier="eth"),
    level("spine", "fat-tree", [4], 12.5e9, links=8, planes=2, oversubscription=2.0, tier="eth"),
)
CLOS = fabric(level("net", "fat-tree", [8, 4, 4], 50e9, oversubscription=4.0))
MESH_2D = fabric(
    level("rack", "full-mesh", [4, 4], 50e9), level("pod", "switch", [8], 50e9, links=64)
)
RACKS = fabric(
    level("rack", "switch", [16], 50e9, links=18, tier="nvlink"),
    level("rail", "rail", [4], 50e9, links=16, planes=4, tier="ib"),
    level("spine", "fat-tree", [2], 50e9, links=64, planes=4, tier="ib"),
)
TORUS = fabric(level("pod", "torus", [3, 4], 100e9))
CUBE = fabric(level("pod", "torus", [4, 4, 4], 100e9))
DRAGONFLY = fabric(level("fly", "dragonfly", [2, 4, 5], 25e9))
TWISTED = fabric(level("pod", "torus", [4, 8], 100e9, twist=2))
RING = fabric(level("loop", "ring", [6], 10e9))

FOLDING = {
    "optical": OPTICAL, "dgx": DGX, "hccs": HCCS, "planes": PLANES, "ethernet": ETHERNET,
    "clos": CLOS, "mesh": MESH_2D, "racks": RACKS, "torus": TORUS,
}  # fmt: skip
EVERY = FOLDING | {"cube": CUBE, "dragonfly": DRAGONFLY, "twisted": TWISTED, "ring": RING}


def random_faults(net: Network, rng: np.random.Generator, count: int) -> list[str]:
    """Dead and slow cards, ports and links at random places."""
    faults: list[str] = []
    for _ in range(count):
        kind = rng.integers(4)
        slow = "" if rng.integers(2) else "=2x"
        if kind == 0:
            faults.append(f"card:{rng.integers(net.cards)}")
        elif kind == 1 and (ports := [t for t in net.tiers if t.ports == "own" and t.c > 1]):
            port = ports[rng.integers(len(ports))]
            faults.append(f"link:c{rng.integers(net.cards)}-{port.name}{slow}")
        elif kind == 2 and (grids := [t for t in net.tiers if t.shape == "grid"]):
            tier = grids[rng.integers(len(grids))]
            child = int(rng.integers(net.cards // tier.c))
            place = child % tier.n
            peers = [int(p) for p in table(tier)[place] if p != place]
            peer = child - place + peers[rng.integers(len(peers))]
            ends = [net.child_name(tier.c, child), net.child_name(tier.c, peer)]
            faults.append(f"link:{ends[0]}-{ends[1]}{slow}")
        else:
            faults.append(f"card:{rng.integers(net.cards)}=1.5x")
    return faults
