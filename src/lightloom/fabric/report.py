"""What a fabric is made of: levels in numbers, and every cable with both of its ends."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from lightloom.core.fabric import Level

from .cut import bisection
from .grid import table
from .network import Network
from .tiers import Tier

CABLE_200G = 25e9
"""Bytes/s of one active 200G cable, one direction."""


class LevelReport(msgspec.Struct, frozen=True, kw_only=True):
    """One level in numbers; rates one direction, derived from the fabric's figures."""

    name: str
    kind: str
    shape: tuple[int, ...]
    units: int
    """Units of this level in the machine."""
    cards: int
    """Cards of one unit."""
    links: int
    """Links of the whole machine at this level, both directions as one."""
    link: float
    child_bandwidth: float
    card_bandwidth: float
    """Bytes/s of one card into this level when all its neighbours send too."""
    bisection: float
    """Bytes/s across the middle of one unit."""
    latency: float
    ports: str
    """own, through (the ports of the level below) or none (links between neighbours)."""
    planes: int
    oversubscription: float
    medium: str
    tier: str
    fibres: int = 0
    """Fibres from one child into this level, one direction; 0 without optics."""
    cables_200g: int = 0
    """Active 200G cables that would carry the same."""
    all_fibres: int = 0
    """Fibres of the whole machine at this level."""


class Cable(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle of equal links between two ends."""

    level: str
    end_a: str
    port_a: str
    end_b: str
    port_b: str
    links: int
    rate: float
    """Bytes/s of one link, one direction."""
    medium: str
    label_a: str
    """What to print on the label at end A: itself, and where the other end is."""
    label_b: str


def levels(net: Network) -> list[LevelReport]:
    """Return every level in numbers, innermost first."""
    found = []
    for number, level in enumerate(net.fabric.levels):
        tiers = [t for t in net.tiers if t.level == number]
        child, unit = tiers[0].c, tiers[-1].cards
        units = net.cards // unit
        links = units * _links(level)
        optics = level.optics
        found.append(LevelReport(
            name=level.name, kind=level.kind, shape=level.shape, units=units, cards=unit,
            links=links, link=level.link, child_bandwidth=level.child_bandwidth,
            card_bandwidth=level.child_bandwidth / child / level.oversubscription,
            bisection=bisection(net, tiers[-1]), latency=level.latency, ports=tiers[0].ports,
            planes=level.planes, oversubscription=level.oversubscription, medium=level.medium,
            tier=level.tier, fibres=optics.fibres if optics else 0,
            all_fibres=optics.fibres * level.units * units if optics else 0,
            cables_200g=round(level.child_bandwidth / CABLE_200G) if optics else 0,
        ))  # fmt: skip
    return found


def _links(level: Level) -> int:
    """Links of one unit, both directions as one."""
    if level.switched or level.kind == "dragonfly":
        return level.links * level.units
    total = 0
    for size in level.shape:
        lines = level.units // size
        if level.kind == "full-mesh":
            total += lines * size * (size - 1) // 2
        else:
            closed = level.kind in ("torus", "ring") and size > 2
            total += lines * (size if closed else size - 1)
    return total * level.links


def cables(net: Network) -> Iterator[Cable]:
    """Yield every bundle of cables, level by level: switch ports one bundle a child and plane,
    grids one bundle a pair. Board traces are listed too; their medium says so."""
    for tier in net.tiers:
        level = net.fabric.levels[tier.level]
        yield from (_grid_cables if tier.shape == "grid" else _star_cables)(net, tier, level)


def _star_cables(net: Network, tier: Tier, level: Level) -> Iterator[Cable]:
    children = net.cards // tier.c
    planes = max(1, min(level.planes, level.links))
    each = level.links // planes
    rate = tier.child_bandwidth / level.links
    for child in range(children):
        unit = child // tier.n
        for plane in range(planes):
            first = plane * each
            word = "rail" if level.kind == "rail" else "plane"
            below = net.child_name(tier.c, child)
            above = net.unit_name(tier, unit) + (f".{word}{plane}" if planes > 1 else "")
            port = child % tier.n * each
            yield _cable(
                level, (below, f"{first}-{first + each - 1}"),
                (above, f"{port}-{port + each - 1}"), each, rate,
            )  # fmt: skip


def _grid_cables(net: Network, tier: Tier, level: Level) -> Iterator[Cable]:
    to = table(tier)
    children = net.cards // tier.c
    for child in range(children):
        place = child % tier.n
        for slot in range(tier.slots):
            peer = int(to[place, slot])
            if peer == place or (peer < place and _reverse(to, peer, place)):
                continue
            there = child - place + peer
            back = _reverse(to, peer, place)
            yield _cable(
                level, (net.child_name(tier.c, child), str(slot)),
                (net.child_name(tier.c, there), str(back[0] if back else slot)),
                level.links, level.link,
            )  # fmt: skip


def _reverse(to: np.ndarray, peer: int, place: int) -> list[int]:
    return [int(s) for s in np.flatnonzero(to[peer] == place)]


def _cable(level: Level, a: tuple[str, str], b: tuple[str, str], links: int, rate: float) -> Cable:
    ends = [f"{node}:{port}" for node, port in (a, b)]
    return Cable(
        level=level.name, end_a=a[0], port_a=a[1], end_b=b[0], port_b=b[1], links=links, rate=rate,
        medium=level.medium, label_a=f"{ends[0]} > {ends[1]}", label_b=f"{ends[1]} > {ends[0]}",
    )  # fmt: skip
