"""A fabric's levels as tiers: what a route is made of, with the number of every link.

A *tier* joins `n` children of `c` cards. Three shapes cover every kind: a *star* (children meet in
a switch: switch, spine, rail, each tier of a fat-tree), a *grid* (links between the children:
full mesh of n dimensions, mesh, ring, torus) and a *dragonfly*. Links are numbered by formula, so
a million cards cost no memory until somebody asks for a list.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from lightloom.core.errors import FabricError
from lightloom.core.fabric import Fabric, Level

Shape = Literal["star", "grid", "dragonfly"]
Role = Literal["up", "down", "pool up", "pool down", "link", "local", "global"]


@dataclass(frozen=True, slots=True)
class Block:
    """A run of links of one role: `first` .. `first + owners * slots`, owner-major."""

    tier: int
    role: Role
    first: int
    owners: int
    slots: int
    owner_cards: int
    """Cards of one owner: 1 where every card has its own."""
    capacity: float
    latency: float

    @property
    def count(self) -> int:
        """Links of this block (slots of a grid that point at nobody included)."""
        return self.owners * self.slots


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier; `c` cards a child, `n` children a unit, `units` units in the machine."""

    index: int
    level: int
    name: str
    shape: Shape
    dims: tuple[int, ...]
    c: int
    units: int
    planes: int
    child_bandwidth: float
    link: float
    latency: float
    ports: Literal["own", "through", "none"]
    below: int
    """Tier whose ports a `through` tier uses; its own index otherwise."""
    full: bool = False
    """Grid: every pair along a dimension is linked."""
    wrap: bool = False
    twist: int = 0
    rails: int = 0
    """Star: rails, a card's rail is its place in the child modulo this; 0 for none."""
    oversubscription: float = 1.0
    spare: int = 0

    @property
    def n(self) -> int:
        """Children of one unit."""
        return math.prod(self.dims)

    @property
    def cards(self) -> int:
        """Cards of one unit."""
        return self.n * self.c

    @property
    def interchangeable(self) -> bool:
        """Whether any permutation of healthy children leaves the tier as it was."""
        return self.shape == "star" or (self.shape == "grid" and self.full and len(self.dims) == 1)

    @property
    def slots(self) -> int:
        """Grid: link slots of one child, by dimension and peer or direction."""
        return sum(self.dims) if self.full else 2 * len(self.dims)


def check_level(level: Level) -> None:
    """Refuse figures that no level can have."""
    if not level.shape or min(level.shape) < 1:
        raise FabricError(f"level {level.name}: shape {list(level.shape)} has no children")
    if not (level.link > 0 and math.isfinite(level.link)):
        raise FabricError(f"level {level.name}: link {level.link:g} bytes/s is not positive")
    if level.links < 1 or level.planes < 1 or level.latency < 0:
        raise FabricError(f"level {level.name}: links, planes >= 1 and latency >= 0 are needed")
    if level.oversubscription < 1:
        raise FabricError(
            f"level {level.name}: oversubscription {level.oversubscription:g} is below 1",
            out="child bandwidth over bandwidth above it: 1 is non-blocking, 4 is 4:1",
        )
    if level.kind == "dragonfly" and len(level.shape) != 3:
        raise FabricError(
            f"level {level.name}: a dragonfly needs three numbers, not {list(level.shape)}",
            out="shape = [children per router, routers per group, groups]",
        )
    if level.twist and level.kind != "torus":
        raise FabricError(f"level {level.name}: only a torus can be twisted")


def tiers_of(fabric: Fabric, spread: bool = True) -> tuple[Tier, ...]:
    """Return the tiers of a fabric, innermost first; `spread` sprays traffic over all planes."""
    if not fabric.levels:
        raise FabricError("a fabric needs at least one level")
    tiers: list[Tier] = []
    c, total = 1, fabric.cards
    for number, level in enumerate(fabric.levels):
        check_level(level)
        below = fabric.levels[number - 1] if number else None
        base = Tier(
            index=len(tiers), level=number, name=level.name, shape="star", dims=level.shape, c=c,
            units=total // (c * level.units), planes=1 if spread else level.planes,
            child_bandwidth=level.child_bandwidth, link=level.link * level.links,
            latency=level.latency, ports="own", below=len(tiers),
            oversubscription=level.oversubscription, spare=level.spare,
        )  # fmt: skip
        if level.through(below):
            _fits(level, tiers[-1])
            base = replace(base, ports="through", below=len(tiers) - 1)
        if level.switched:
            tiers += _star(base, level)
        elif level.kind == "dragonfly":
            tiers.append(replace(base, shape="dragonfly"))
        else:
            full, wrap = level.kind == "full-mesh", level.kind in ("torus", "ring")
            ports: Literal["own", "none"] = "own" if c > 1 else "none"
            tiers.append(
                replace(base, shape="grid", ports=ports, full=full, wrap=wrap, twist=level.twist)
            )
        c *= level.units
    return tuple(tiers)


def _fits(level: Level, lower: Tier) -> None:
    """A level must not promise its child more than the level below can send."""
    below = lower.child_bandwidth * lower.n
    if level.child_bandwidth > below * (1 + 1e-9):
        raise FabricError(
            f"level {level.name}: a child is given {level.child_bandwidth / 1e9:.6g} GB/s, but the "
            f"{lower.n} children of level {lower.name} below send {below / 1e9:.6g} GB/s together",
            out=f"at most {math.floor(below / level.link)} links a child, or shared = false for "
            "ports of their own",
        )


def _star(base: Tier, level: Level) -> list[Tier]:
    """One star, or one for each tier of a fat-tree (uplinks sum what is below, over the
    oversubscription where the first tier goes up)."""
    if level.kind == "rail":
        rails = level.planes if level.planes > 1 else base.c
        return [replace(base, dims=(base.n,), planes=1, rails=min(rails, base.c))]
    if level.kind != "fat-tree":
        return [replace(base, dims=(base.n,))]
    stars: list[Tier] = []
    c, bandwidth, units = base.c, base.child_bandwidth, base.units * base.n
    for step, n in enumerate(level.shape):
        units //= n
        several = len(level.shape) > 1
        over = base.oversubscription if step == int(several) else 1.0
        stars.append(
            replace(
                base, index=base.index + step, dims=(n,), c=c, units=units,
                name=f"{base.name}{step + 1}" if several else base.name,
                child_bandwidth=bandwidth, oversubscription=over,
                ports=base.ports if step == 0 else "through",
                below=base.below if step == 0 else base.index + step - 1,
            )
        )  # fmt: skip
        c, bandwidth = c * n, bandwidth * n / over
    return stars


def blocks_of(tiers: tuple[Tier, ...]) -> tuple[Block, ...]:
    """Return the runs of links of every tier, numbered from 0."""
    cards = tiers[-1].units * tiers[-1].cards
    blocks: list[Block] = []

    def add(tier: Tier, role: Role, slots: int, owner: int, capacity: float, delay: float) -> None:
        first = blocks[-1].first + blocks[-1].count if blocks else 0
        blocks.append(Block(tier.index, role, first, cards // owner, slots, owner, capacity, delay))

    for tier in tiers:
        whole = tier.child_bandwidth
        if tier.ports == "through":
            delay = (tiers[tier.below].latency + tier.latency) / 2
            room = whole / tier.planes / tier.oversubscription
            slots = max(tier.planes, _rails(tiers, tier))
            room = room * tier.planes / slots
            add(tier, "up", slots, tier.c, room, delay)
            add(tier, "down", slots, tier.c, room, delay)
            continue
        if tier.ports == "own":
            delay = 0.0 if tier.shape == "grid" else tier.latency / 2
            room = whole / tier.c / tier.planes
            add(tier, "up", tier.planes, 1, room, delay)
            add(tier, "down", tier.planes, 1, room, delay)
            if tier.shape == "star" and tier.oversubscription > 1:
                room = whole / tier.oversubscription
                add(tier, "pool up", 1, tier.c, room, 0.0)
                add(tier, "pool down", 1, tier.c, room, 0.0)
        if tier.shape == "grid":
            add(tier, "link", tier.slots, tier.c, tier.link, tier.latency)
        if tier.shape == "dragonfly":
            p, a, g = tier.dims
            add(tier, "local", a, tier.c * p, 2 * p * whole / a, tier.latency)
            room = a * p * whole / max(g - 1, 1) / tier.oversubscription
            add(tier, "global", g, tier.c * p * a, room, tier.latency)
    return tuple(blocks)


def _rails(tiers: tuple[Tier, ...], tier: Tier) -> int:
    """Rails that a tier above a rail keeps apart; 1 where it joins them or there are none."""
    while tier.ports == "through":
        tier = tiers[tier.below]
    return max(tier.rails, 1)
