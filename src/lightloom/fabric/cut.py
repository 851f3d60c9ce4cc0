"""Borders: bytes/s that can leave each unit, and across the middle of each level."""

from __future__ import annotations

import numpy as np

from .grid import table
from .network import Floats, Network
from .tiers import Tier


def unit_sizes(net: Network) -> list[int]:
    """Return the sizes (cards) of the units whose borders are looked at: a card, each child."""
    return sorted({1} | {t.c for t in net.tiers})


def egress(net: Network, unit: int) -> Floats:
    """Return bytes/s that can leave each unit of `unit` cards, faults included."""
    total = np.zeros(net.cards // unit)
    chains: dict[int, Tier] = {}
    for tier in net.tiers:
        base = net.chain(tier)[0].index
        if tier.c >= unit and base not in chains:
            chains[base] = tier
    for tier in chains.values():
        total += _border(net, tier, unit)
    return total


def _border(net: Network, tier: Tier, unit: int) -> Floats:
    """Bytes/s from each unit into one tier: ports, then what the ports lead to."""
    units = net.cards // unit
    room = np.full(units, np.inf)
    for block in (net.block(tier.index, "up"), net.block(tier.index, "pool up")):
        if block is None:
            continue
        capacity = net.capacity(block.first + np.arange(block.count))
        each = capacity.reshape(block.owners, block.slots).sum(axis=1)
        if block.owner_cards <= unit:
            each = each.reshape(units, -1).sum(axis=1)
        else:
            each = np.repeat(each, block.owner_cards // unit)
        room = np.minimum(room, each)
    links = net.block(tier.index, "link")
    if links is not None:
        used = (table(tier) != np.arange(tier.n)[:, None]).ravel()
        capacity = net.capacity(links.first + np.arange(links.count))
        capacity = capacity * np.tile(used, links.owners // tier.n)
        each = capacity.reshape(links.owners, links.slots).sum(axis=1)
        room = np.minimum(room, np.repeat(each, tier.c // unit))
    return room


def halves(net: Network) -> list[tuple[Tier, int, float]]:
    """Return (tier, cards of one side, bytes/s across) for every dimension of every grid, healthy:
    the links that a cut through the middle of the dimension meets."""
    found: list[tuple[Tier, int, float]] = []
    for tier in net.tiers:
        if tier.shape != "grid" or tier.twist:
            continue
        for size in tier.dims:
            if size > 1:
                low, rows = size // 2, tier.n // size
                lines = low * (size - low) if tier.full else 2 if tier.wrap and size > 2 else 1
                found.append((tier, tier.cards * low // size, rows * lines * tier.link))
    return found


def bisection(net: Network, tier: Tier) -> float:
    """Return bytes/s one way across the middle of one unit of a healthy tier."""
    if tier.shape == "grid":
        cuts = [room for t, _, room in halves(net) if t.index == tier.index]
        return min(cuts, default=float("inf"))
    if tier.shape == "dragonfly":
        g = tier.dims[2]
        far = net.block(tier.index, "global")
        assert far is not None
        return (g // 2) * (g - g // 2) * far.capacity
    return tier.n // 2 * tier.child_bandwidth / tier.oversubscription
