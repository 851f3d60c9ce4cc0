"""What no schedule can beat: bytes that must leave or enter the worst unit, over its links.

Counted from links and their owners, not from routes: a second opinion on every schedule.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightloom.fabric.grid import table
from lightloom.fabric.network import Floats, Network
from lightloom.fabric.tiers import Tier

from .group import Group


def unit_sizes(net: Network) -> list[int]:
    """Return the sizes (cards) of the units whose borders are looked at."""
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
    up, pool = net.block(tier.index, "up"), net.block(tier.index, "pool up")
    for block in (up, pool):
        if block is None:
            continue
        capacity = net.capacity(block.first + np.arange(block.count))
        each = capacity.reshape(block.owners, block.slots).sum(1)
        if block.owner_cards <= unit:
            each = each.reshape(units, -1).sum(1)
        else:
            each = np.repeat(each, block.owner_cards // unit)
        room = np.minimum(room, each)
    block = net.block(tier.index, "link")
    if block is not None:
        to, capacity = table(tier), net.capacity(block.first + np.arange(block.count))
        used = (to != np.arange(tier.n)[:, None]).ravel()
        each = (capacity * np.tile(used, block.owners // tier.n)).reshape(block.owners, -1).sum(1)
        room = np.minimum(room, np.repeat(each, tier.c // unit))
    return room


def halves(net: Network) -> list[tuple[int, float]]:
    """Return (cards of a half, bytes/s across) for every dimension of every healthy grid."""
    found: list[tuple[int, float]] = []
    for tier in net.tiers:
        if tier.shape != "grid" or tier.twist:
            continue
        for size in tier.dims:
            if size < 2:
                continue
            low, rows = size // 2, tier.n // size
            lines = low * (size - low) if tier.full else 2 if tier.wrap and size > 2 else 1
            found.append((tier.cards * low // size, rows * lines * tier.link))
    return found


def lower_bound(net: Network, group: Group, kind: str, total_bytes: float) -> float:
    """Return seconds that the collective takes at least, whatever the schedule.

    For a unit holding s of a group's g cards: all-gather brings in (g - s)/g of the data,
    all-reduce also takes as much out (2 with reduction at the cards, 1 where switches add),
    all-to-all takes out s (g - s)/g. Over all groups, over the unit's border; the worst unit.
    """
    if group.size == 1:
        return 0.0
    worst = 0.0
    for unit in unit_sizes(net):
        room = egress(net, unit)[: max(1, group.cards // unit)]
        inside = max(1, min(group.size, unit // group.stride))
        live = _living(net, unit)[: len(room)]
        room = room[live]
        if not len(room) or inside >= group.size:
            continue
        first = next(t for t in net.tiers if t.c >= unit)
        switches_add = net.fabric.levels[first.level].reduces
        need = _demand(kind, inside, group.size, switches_add) * max(1, unit // inside)
        worst = max(worst, need * total_bytes / float(room.min()))
    if kind == "all-to-all" and group.size == net.cards and net.healthy:
        for half, room_ in halves(net):
            pairs = half * (half if half * 2 <= net.cards else net.cards - half)
            worst = max(worst, pairs * total_bytes / group.size / room_)
    return worst


def _demand(kind: str, inside: int, size: int, switches_add: bool) -> float:
    """Data that must cross the border of a unit holding `inside` of a group, per group."""
    share = 1.0 - inside / size
    return {
        "all-reduce": min(2.0 * share, 1.0) if switches_add else 2.0 * share,
        "reduce-scatter": share, "all-gather": share, "all-to-all": inside * share,
        "broadcast": 0.0, "send-recv": 1.0,
    }[kind]  # fmt: skip


def _living(net: Network, unit: int) -> NDArray[np.bool_]:
    """Whether every card of a unit is there (a unit with dead cards needs less)."""
    whole = np.ones(net.cards, bool)
    if net.dead:
        whole[np.fromiter(net.dead, np.int64)] = False
    return np.asarray(whole.reshape(-1, unit).all(axis=1))
