"""A fabric ready to carry flows: links by number, their capacity, what is broken, names.

Axes: F flows, E crossings (flow, link). Nothing here lists the links of the machine: capacity and
owner of a link follow from its number, faults are an overlay of a few numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lightloom.core.fabric import Fabric

from .tiers import Block, Role, Tier, blocks_of, tiers_of

Floats = NDArray[np.float64]
LARGEST_CELL = 128
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Network:
    """Tiers, runs of links, and an overlay of faults."""

    fabric: Fabric
    tiers: tuple[Tier, ...]
    blocks: tuple[Block, ...]
    scale: dict[int, float] = field(default_factory=dict)
    """Link -> share of its capacity that is left; 0 is a dead link."""
    dead: frozenset[int] = frozenset()
    """Cards that are gone."""
    touched: frozenset[tuple[int, int, int]] = frozenset()
    """(cards of a child, child, tier of the fault): what faults single out, besides dead cards."""
    replaced: frozenset[int] = frozenset()
    """Dead cards whose place a spare of their unit has taken (64 + 1): nothing is lost."""

    @property
    def cards(self) -> int:
        """Cards of the machine."""
        return self.fabric.cards

    @property
    def links(self) -> int:
        """Link numbers in use."""
        return self.blocks[-1].first + self.blocks[-1].count

    @property
    def healthy(self) -> bool:
        """Whether nothing is broken or slow."""
        return not (self.scale or self.dead or self.touched)

    def block(self, tier: int, role: Role) -> Block | None:
        """Return the run of links of one role in a tier."""
        return next((b for b in self.blocks if b.tier == tier and b.role == role), None)

    def block_of(self, link_E: Ints) -> Ints:
        """Return the index of each link's block."""
        firsts = np.array([b.first for b in self.blocks])
        return np.searchsorted(firsts, link_E, side="right") - 1

    def capacity(self, link_E: Ints) -> Floats:
        """Return bytes/s of each link, faults included."""
        base_E = np.array([b.capacity for b in self.blocks])[self.block_of(link_E)]
        return base_E * self.left(link_E)

    def left(self, link_E: Ints) -> Floats:
        """Return the share of each link's capacity that faults leave."""
        left_E = np.ones(len(link_E))
        if self.scale:
            known = np.array(sorted(self.scale), np.int64)
            factor = np.array([self.scale[int(k)] for k in known])
            at = np.minimum(np.searchsorted(known, link_E), len(known) - 1)
            hit = known[at] == link_E
            left_E[hit] = factor[at[hit]]
        return left_E

    def latency(self, link_E: Ints) -> Floats:
        """Return seconds to cross each link."""
        delay: Floats = np.array([b.latency for b in self.blocks])[self.block_of(link_E)]
        return delay

    def parted(self, source_F: Ints, target_F: Ints) -> Ints:
        """Return the tier at which each pair parts; -1 for a card and itself."""
        tier_F = np.full(len(source_F), -1, np.int64)
        for tier in self.tiers:
            tier_F[source_F // tier.c != target_F // tier.c] = tier.index
        return tier_F

    def chain(self, tier: Tier) -> list[Tier]:
        """Return the tiers whose ports a route through `tier` uses, innermost first."""
        chain = [tier]
        while chain[0].ports == "through":
            chain.insert(0, self.tiers[chain[0].below])
        return chain

    def special_units(self, tiers: frozenset[int] | None = None) -> dict[int, set[int]]:
        """Return, by cards of a unit, the units that faults singled out; only faults of `tiers`
        and dead cards where given, with the siblings that stand in for them; of all tiers, the
        whole cell of the innermost level around each."""
        special: dict[int, set[int]] = {1: set()}
        lost = set(self.dead)
        for size, child, tier in self.touched:
            if tiers is None or tier in tiers:
                special.setdefault(size, set()).add(child)
                if size == 1 and self._port_is_dead(child, tier):
                    lost.add(child)
        special[1] |= lost
        cell = self.tiers[0].cards
        for card in sorted(lost):
            first = card - card % cell
            if tiers is None and cell <= LARGEST_CELL:
                special[1].update(range(first, first + cell))
            mate = first + (card - first + 1) % cell
            while mate in lost and mate != card:
                mate = first + (mate - first + 1) % cell
            special[1].add(mate)
            for rail in self.tiers:  # on rails, a flow leaves by the port of a neighbour
                for place in (card, mate) if rail.rails else ():
                    tray = place - place % rail.c % rail.rails
                    special[1].update(range(tray, min(tray + rail.rails, self.cards)))
        if tiers is None and any(t.rails for t in self.tiers) and cell <= LARGEST_CELL:
            for card in list(special[1]):
                special[1].update(range(card - card % cell, card - card % cell + cell))
        return special

    def _port_is_dead(self, card: int, tier: int) -> bool:
        up = self.block(tier, "up")
        if up is None or up.owner_cards != 1:
            return False
        return all(self.scale.get(up.first + card * up.slots + s) == 0 for s in range(up.slots))

    def link_name(self, link: int) -> str:
        """Return ``board0.3 -> board0.7`` and the like: both ends of a link."""
        tail, head = self.ends(link)
        return f"{tail} -> {head}"

    def ends(self, link: int) -> tuple[str, str]:
        """Return the names of a link's two ends."""
        block = self.blocks[int(self.block_of(np.array([link]))[0])]
        tier = self.tiers[block.tier]
        owner, slot = divmod(link - block.first, block.slots)
        own = self.child_name(block.owner_cards, owner)
        unit = owner * block.owner_cards // tier.cards
        core = self.unit_name(tier, unit)
        if block.role in ("up", "down"):
            rail = f".rail{owner % tier.c % tier.rails}" if tier.rails else ""
            word = "rail" if self.chain(tier)[0].rails else "plane"
            plane = f".{word}{slot}" if block.slots > 1 else rail
            port = f"{core}{plane}"
            own += plane if tier.ports == "through" else ""
            if tier.shape == "grid":
                port = self.child_name(tier.c, owner // tier.c)
            return (own, port) if block.role == "up" else (port, own)
        if block.role in ("pool up", "pool down"):
            return (own, core) if block.role == "pool up" else (core, own)
        return own, self._peer(tier, block, owner, slot)

    def _peer(self, tier: Tier, block: Block, owner: int, slot: int) -> str:
        if tier.shape == "dragonfly":
            group = owner // tier.dims[1] if block.role == "local" else owner // tier.dims[2]
            width = tier.dims[1] if block.role == "local" else tier.dims[2]
            return self.child_name(block.owner_cards, group * width + slot)
        from .grid import slot_target

        child = owner % tier.n
        return self.child_name(tier.c, owner - child + slot_target(tier, child, slot))

    def child_name(self, cards: int, child: int) -> str:
        """Return ``card17`` or ``board3``: the child number `child` among those of that size."""
        if cards == 1:
            return f"card{child}"
        for tier in self.tiers:
            if tier.cards == cards:
                return self.unit_name(tier, child)
        return f"group{child}"

    def unit_name(self, tier: Tier, unit: int) -> str:
        """Return ``board3``: one unit of a tier."""
        return f"{tier.name}{unit}"


def build(fabric: Fabric, *, spread: bool = True) -> Network:
    """Return the network of a fabric; `spread` sprays each flow over all planes of a switch
    (adaptive), otherwise each plane is a link of its own and flows are hashed onto one."""
    tiers = tiers_of(fabric, spread)
    return Network(fabric, tiers, blocks_of(tiers))


def with_faults(
    net: Network,
    scale: dict[int, float],
    dead: Iterable[int] = (),
    touched: Iterable[tuple[int, int, int]] = (),
    replaced: Iterable[int] = (),
) -> Network:
    """Return the network with more faults: capacities multiply, dead cards join."""
    merged = dict(net.scale)
    for link, left in scale.items():
        merged[link] = merged.get(link, 1.0) * left
    return replace(
        net, scale=merged, dead=net.dead | set(dead), touched=net.touched | set(touched),
        replaced=net.replaced | set(replaced),
    )  # fmt: skip
