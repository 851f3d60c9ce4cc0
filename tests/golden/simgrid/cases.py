"""Write cases.json.gz: links, routes, flows of every case, from our own fabrics and routes.

Run with the project's Python: ``python tests/golden/simgrid/cases.py``; then ``run_simgrid.py``
with the Python that has SimGrid 3.32 (Debian: ``apt install python3-simgrid``).
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "fabric"))

from fabric_samples import (  # noqa: E402
    CLOS,
    CUBE,
    DGX,
    DRAGONFLY,
    ETHERNET,
    HCCS,
    MESH_2D,
    OPTICAL,
    PLANES,
    RACKS,
    RING,
    fabric,
    level,
)  # fmt: skip

from lightloom.core.fabric import Fabric  # noqa: E402
from lightloom.fabric.faults import break_links  # noqa: E402
from lightloom.fabric.network import build  # noqa: E402
from lightloom.fabric.route import route  # noqa: E402

FLAT = fabric(level("net", "switch", [256], 50e9))
SMALL = fabric(level("net", "switch", [64], 50e9))


def everyone(cards: int) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.repeat(np.arange(cards), cards), np.tile(np.arange(cards), cards)
    return a[a != b], b[a != b]


def ring(cards: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(cards), (np.arange(cards) + 1) % cards


def shuffle(cards: int, seed: int, count: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    if not count:
        return np.arange(cards), rng.permutation(cards)
    pairs = {(int(a), int(b)) for a, b in rng.integers(0, cards, (count, 2)) if a != b}
    source, target = zip(*sorted(pairs), strict=True)
    return np.array(source), np.array(target)


def spread(value: object, count: int) -> list[float]:
    """One number for all, or the first `count` of many; whole bytes as SimGrid counts them."""
    many = np.broadcast_to(value, count) if np.ndim(value) == 0 else np.asarray(value)[:count]
    return [float(v) for v in many]


def case(
    name: str, machine: Fabric, pairs: tuple[np.ndarray, np.ndarray], size: object = 1e7,
    fail: tuple[str, ...] = (), start: object = 0.0,
) -> dict[str, object]:  # fmt: skip
    net = break_links(build(machine), fail)
    source, target = pairs
    keep = source != target
    source, target = source[keep], target[keep]
    routes = route(net, source, target)
    assert routes.share_E is None, f"{name}: SimGrid knows single paths only"
    links, at = np.unique(routes.link_E, return_inverse=True)
    rows = np.split(at, routes.start_F[1:-1])
    return {
        "name": name, "cards": net.cards,
        "capacity": net.capacity(links).tolist(), "latency": net.latency(links).tolist(),
        "source": source.tolist(), "target": target.tolist(),
        "paths": [row.tolist() for row in rows],
        "bytes": spread(size, len(source)),
        "start": spread(start, len(source)),
    }  # fmt: skip


def cases() -> list[dict[str, object]]:
    rng = np.random.default_rng(9)
    mixed = np.rint(rng.uniform(1e6, 2e7, 2000))
    return [
        case("one flow", SMALL, (np.array([0]), np.array([1]))),
        case("all-to-all, switch of 64", SMALL, everyone(64), 1e6),
        case("ring, switch of 256", FLAT, ring(256)),
        case("shuffle, switch of 256", FLAT, shuffle(256, 1)),
        case("1000 random flows, switch of 256", FLAT, shuffle(256, 2, 1000)),
        case("random sizes, switch of 256", FLAT, shuffle(256, 3), mixed),
        case("staggered starts, switch of 64", SMALL, ring(64), 1e7, (), rng.uniform(0, 1e-3, 64)),
        case("slow card, switch of 64", SMALL, everyone(64), 1e6, ("card:5=2x",)),
        case("incast, switch of 64", SMALL, (np.arange(1, 64), np.zeros(63, np.int64))),
        case("all-to-all, full mesh 4 x 4 and switch", MESH_2D, shuffle(128, 4, 600)),
        case("ring, optical 8 x 4 x 4", OPTICAL, ring(128), 1e6),
        case("600 random flows, optical", OPTICAL, shuffle(128, 5, 600), 1e6),
        case("slow links, optical", OPTICAL, shuffle(128, 6), 1e6, ("link:m0-m1=3x", "card:9=2x")),
        case("600 random flows, rails with a tapered spine", DGX, shuffle(128, 7, 600)),
        case("ring, rails with a tapered spine", DGX, ring(128)),
        case("shuffle, rails beside a full mesh", HCCS, shuffle(128, 8)),
        case("shuffle, leaf and spine 2:1", ETHERNET, shuffle(128, 9)),
        case("random sizes, leaf and spine 2:1", ETHERNET, shuffle(128, 10, 300), mixed),
        case("600 random flows, three-tier Clos 4:1", CLOS, shuffle(128, 11, 600)),
        case("shuffle, two switched levels", PLANES, shuffle(128, 12)),
        case("ring, torus 4 x 4 x 4", CUBE, ring(64)),
        case("neighbours, torus 4 x 4 x 4", CUBE, (np.arange(64), np.arange(64) ^ 21)),
        case("shuffle, dragonfly 2 x 4 x 5", DRAGONFLY, shuffle(40, 13)),
        case("200 random flows, dragonfly", DRAGONFLY, shuffle(40, 14, 200)),
        case("shuffle, racks of 16 with four rails", RACKS, shuffle(128, 15)),
        case("ring of 6", RING, ring(6)),
    ]


if __name__ == "__main__":
    data = json.dumps(cases()).encode()
    (HERE / "cases.json.gz").write_bytes(gzip.compress(data, 9, mtime=0))
    print(f"{len(cases())} cases, {len(data):,} bytes before compression")
