"""HCCL topology file 2.0: peers of one group and their links, from the fabric's levels."""

from __future__ import annotations

import itertools
import json
from typing import Any

from lightloom.core.errors import InfeasibleError
from lightloom.core.fabric import Level
from lightloom.core.plan import Plan

from .bundle import Bundle, EmittedFile, head, lines_of
from .ranktable import peers_of
from .topology import vendor_of


def emit(plan: Plan) -> Bundle:
    """Return ``topology.json`` for one group of peers (64 + spares at most)."""
    if vendor_of(plan) != "ascend":
        raise InfeasibleError(
            f"HCCL topology files are for Ascend; {plan.cluster.name} has"
            f" {plan.cluster.chip.title}",
            out="--for torchrun",
        )
    notes = lines_of(
        head(plan, "HCCL topology file 2.0", "-"),
        "- peers and links: cluster (levels of the fabric)",
        "- ports: default numbering per die; the factory's file of your board wins",
        "- two-dimensional meshes are written as one 1DMESH instance per row and column",
    )
    files = (
        EmittedFile("topology.json", json.dumps(topology_of(plan), indent=1) + "\n"),
        EmittedFile("ORIGIN.md", notes),
    )
    return Bundle("hccl-topology", files)


def topology_of(plan: Plan) -> dict[str, Any]:
    """Return the topology of the widest group of at most 64 cards."""
    peers = peers_of(plan)
    spare = sum(level.spare for level in plan.cluster.fabric.levels)
    count = peers + (1 if spare and peers <= 64 else 0)
    edges = [*peer_edges(plan, peers), *up_edges(plan, peers, count)]
    return {
        "version": "2.0",
        "peer_count": count,
        "peer_list": [{"local_id": i} for i in range(count)],
        "edge_count": len(edges),
        "edge_list": edges,
    }


def pairs_of(level: Level) -> list[tuple[tuple[int, ...], tuple[int, ...], str]]:
    """Return linked children of one unit, with the name of their mesh instance."""
    out = []
    for place in itertools.product(*(range(n) for n in level.shape)):
        for dim, size in enumerate(level.shape):
            line = "-".join(str(p) for i, p in enumerate(place) if i != dim)
            for other in range(place[dim] + 1, size):
                near = other == place[dim] + 1
                wrap = place[dim] == 0 and other == size - 1 and size > 2
                joined = level.kind == "full-mesh" or near
                joined |= level.kind in ("torus", "ring") and wrap
                if joined:
                    there = (*place[:dim], other, *place[dim + 1 :])
                    out.append((place, there, f"{level.name}-d{dim}-{line or 0}"))
    return out


def flat(place: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Return the index of a child, last dimension fastest."""
    index = 0
    for p, size in zip(place, shape, strict=True):
        index = index * size + p
    return index


def peer_edges(plan: Plan, peers: int) -> list[dict[str, Any]]:
    """Return card-to-card links inside the group."""
    out: list[dict[str, Any]] = []
    ports: dict[int, itertools.count[int]] = {}
    below = 1
    for level in plan.cluster.fabric.levels:
        span = below * level.units
        if span > peers:
            break
        if level.kind in ("full-mesh", "mesh", "torus", "ring"):
            for base, (a, b, name) in itertools.product(range(0, peers, span), pairs_of(level)):
                for k in range(below):
                    ends = [base + flat(p, level.shape) * below + k for p in (a, b)]
                    used = [f"0/{next(ports.setdefault(e, itertools.count(1)))}" for e in ends]
                    out.append(peer_edge(ends, used, f"{name}-{base}-{k}"))
        below = span
    return out


def peer_edge(ends: list[int], ports: list[str], name: str) -> dict[str, Any]:
    """Return one PEER2PEER edge."""
    return {
        "net_layer": 0, "link_type": "PEER2PEER", "protocols": ["UB_CTP"],
        "local_a": ends[0], "local_a_ports": [ports[0]],
        "local_b": ends[1], "local_b_ports": [ports[1]],
        "topo_instance_id": name, "topo_type": "1DMESH", "position": "DEVICE",
    }  # fmt: skip


def up_edges(plan: Plan, peers: int, count: int) -> list[dict[str, Any]]:
    """Return every card's port into the switched levels: inside the group, then above it."""
    fabric = plan.cluster.fabric
    out: list[dict[str, Any]] = []
    layer = 0
    for index, level in enumerate(fabric.levels):
        above = fabric.cards_below(index) > peers
        layer += above
        if not above and level.kind in ("full-mesh", "mesh", "torus", "ring"):
            continue
        out += [up_edge(local, layer, index, level.name) for local in range(count)]
    return out


def up_edge(local: int, layer: int, index: int, name: str) -> dict[str, Any]:
    """Return one PEER2NET edge."""
    return {
        "net_layer": layer, "link_type": "PEER2NET", "protocols": ["UB_CTP"],
        "local_a": local, "local_a_ports": [f"1/{index}"],
        "topo_instance_id": name, "topo_type": "CLOS", "position": "DEVICE",
    }  # fmt: skip
