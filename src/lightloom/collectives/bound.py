"""What no schedule can beat: bytes that must leave or enter the worst unit, over its links.

Counted from links and their owners, not from routes: a second opinion on every schedule.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightloom.fabric.cut import egress, halves, unit_sizes
from lightloom.fabric.network import Network

from .group import Group


def lower_bound(net: Network, group: Group, kind: str, total_bytes: float) -> float:
    """Return seconds that the collective takes at least, whatever the schedule.

    For a unit holding s of a group's g cards: all-gather brings in (g - s)/g of the data,
    all-reduce takes all of it out once, all-to-all takes out s (g - s)/g. Over all groups, over the
    unit's border; the worst unit. Where no switch adds, an all-reduce of u units takes the data
    out 2 (u - 1) times in all (u - 1 sums, u - 1 copies), over the borders of all units together.
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
        data = total_bytes * max(1, unit // inside)
        worst = max(worst, _demand(kind, inside, group.size) * data / float(room.min()))
        if kind == "all-reduce" and not switches_add:
            units = max(1.0, group.size / inside - int((~live).sum()))
            worst = max(worst, 2.0 * (1.0 - 1.0 / units) * data / float(room.mean()))
    if kind == "all-to-all" and group.size == net.cards and net.healthy:
        for tier, half, room_ in halves(net):
            if tier.cards != net.cards:
                continue
            pairs = half * (half if half * 2 <= net.cards else net.cards - half)
            worst = max(worst, pairs * total_bytes / group.size / room_)
    return worst


def _demand(kind: str, inside: int, size: int) -> float:
    """Data that must cross the border of a unit holding `inside` of a group, per group."""
    share = 1.0 - inside / size
    return {
        "all-reduce": 1.0,
        "reduce-scatter": share, "all-gather": share, "all-to-all": inside * share,
        "broadcast": 0.0, "send-recv": 1.0,
    }[kind]  # fmt: skip


def _living(net: Network, unit: int) -> NDArray[np.bool_]:
    """Whether every card of a unit is there (a unit with dead cards needs less)."""
    whole = np.ones(net.cards, bool)
    if net.dead:
        whole[np.fromiter(net.dead, np.int64)] = False
    return np.asarray(whole.reshape(-1, unit).all(axis=1))
