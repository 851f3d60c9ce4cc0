"""What the light of a `.topo` carries: bytes per step on every circuit, as heat; and differences.

Axes: A senders, B receivers of one unit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.topo import Circuit, LightLevel, Topo, expand

from .topo import route_edges

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Heat:
    """One level, its busiest unit."""

    level: str
    unit: int
    bytes_AB: F64
    """Bytes from child to child in one step."""
    channels_AB: NDArray[np.int64]
    """Channels lit from child to child."""
    seconds_AB: F64
    """Bytes over lit channels: how long the pair needs at full rate; 0 where nothing is sent."""
    by_class: dict[str, float]
    """Bytes of the unit by traffic class."""
    channels_by_class: dict[str, int]

    @property
    def slowest_s(self) -> float:
        """Seconds of the pair that needs longest."""
        return float(self.seconds_AB.max(initial=0.0))


def heat(topo: Topo) -> list[Heat]:
    """Return the heat of the busiest unit of every level; pairs of a class share nothing."""
    out = []
    for level in topo.levels:
        units = sorted({u for r in topo.routes if r.level == level.name for u in expand(r.units)})
        seen: dict[tuple[int, ...], int] = {}
        for unit in units:
            mine = tuple(
                i for i, r in enumerate(topo.routes)
                if r.level == level.name and any(f <= unit < f + n for f, n in r.units)
            )  # fmt: skip
            seen.setdefault(mine, unit)
        made = [_unit(topo, level, unit, mine) for mine, unit in seen.items()]
        if made:
            out.append(max(made, key=lambda h: (float(h.bytes_AB.sum()), -h.unit)))
    return out


def _unit(topo: Topo, level: LightLevel, unit: int, mine: tuple[int, ...]) -> Heat:
    n = level.children
    sent: dict[tuple[str, int, int], float] = {}
    for index in mine:
        route = topo.routes[index]
        for (a, b), size in route_edges(route, topo.ring_path).items():
            key = (route.axis, a, b)
            sent[key] = sent.get(key, 0.0) + size
    lit: dict[tuple[str, int, int], int] = {}
    classes: dict[str, str] = {}
    for c in topo.circuits:
        if c.level == level.name and any(f <= unit < f + k for f, k in c.units):
            lit[c.axis, c.src, c.dst] = lit.get((c.axis, c.src, c.dst), 0) + c.count
            classes[c.axis] = c.cls
    bytes_AB, seconds_AB = np.zeros((n, n)), np.zeros((n, n))
    channels_AB = np.zeros((n, n), np.int64)
    by_class: dict[str, float] = {}
    count: dict[str, int] = {}
    for (axis, a, b), size in sent.items():
        channels = lit.get((axis, a, b), 0)
        bytes_AB[a, b] += size
        channels_AB[a, b] += channels
        if channels:
            seconds_AB[a, b] = max(seconds_AB[a, b], size / (channels * level.channel_rate))
        name = classes.get(axis, axis)
        by_class[name] = by_class.get(name, 0.0) + size
        count[name] = count.get(name, 0) + channels
    return Heat(level.name, unit, bytes_AB, channels_AB, seconds_AB, by_class, count)


@dataclass(frozen=True, slots=True)
class Difference:
    """What one level must change to go from one `.topo` to another."""

    level: str
    added: int
    """Channels lit only in the second, unit by unit."""
    removed: int
    moved: int
    """Channels of a pair and class that stay lit but change number, fibre or way."""
    kept: int
    pairs: int
    """Pairs of children that are touched."""


def difference(old: Topo, new: Topo) -> list[Difference]:
    """Return the change of light by level; equal files give no added, removed or moved."""
    out = []
    for name in dict.fromkeys([x.name for x in old.levels] + [x.name for x in new.levels]):
        before, after = _by_unit(old, name), _by_unit(new, name)
        same = Counter((before.get(u, ()), after.get(u, ())) for u in before.keys() | after.keys())
        total = np.zeros(5, np.int64)
        for (was, now), units in same.items():
            total += units * np.array(_change(_lit(old, was), _lit(new, now)))
        out.append(Difference(name, *total.tolist()))
    return out


Places = dict[tuple[int, int, str], set[tuple[object, int]]]


def _change(before: Places, after: Places) -> tuple[int, int, int, int, int]:
    added = removed = moved = kept = touched = 0
    for key in before.keys() | after.keys():
        was, now = before.get(key, set()), after.get(key, set())
        same = len(was & now)
        both = min(len(was), len(now)) - same
        kept += same
        moved += both
        added += max(0, len(now) - same - both)
        removed += max(0, len(was) - same - both)
        touched += was != now
    return added, removed, moved, kept, touched


def _by_unit(topo: Topo, level: str) -> dict[int, tuple[int, ...]]:
    """Return the circuits of every unit, as indices."""
    out: dict[int, list[int]] = {}
    for index, c in enumerate(topo.circuits):
        if c.level == level:
            for unit in expand(c.units):
                out.setdefault(unit, []).append(index)
    return {unit: tuple(rows) for unit, rows in out.items()}


def _lit(topo: Topo, rows: tuple[int, ...]) -> Places:
    out: Places = {}
    for index in rows:
        c = topo.circuits[index]
        places = {(c.via, channel) for channel in range(c.first, c.first + c.count)}
        out.setdefault((c.src, c.dst, c.axis), set()).update(places)
    return out


def summary(topo: Topo) -> list[dict[str, object]]:
    """Return one row per level: channels lit, circuits, what a card may send on."""
    rows: list[dict[str, object]] = []
    for level in topo.levels:
        mine = [c for c in topo.circuits if c.level == level.name]
        lit = sum(c.count * sum(n for _, n in c.units) for c in mine)
        rows.append({
            "level": level.name, "units": level.units, "children": level.children,
            "circuits": len(mine), "channels_lit": lit,
            "channels_per_card": _per_card(level, mine), "cards_share": level.cards,
            "bands": list(level.bands), "assumed": level.assumed,
        })  # fmt: skip
    return rows


def _per_card(level: LightLevel, circuits: list[Circuit]) -> float:
    """Return channels that the busiest child sends on, over the cards below it."""
    if not circuits:
        return 0.0
    sent: dict[tuple[tuple[tuple[int, int], ...], int], int] = {}
    for c in circuits:
        sent[c.units, c.src] = sent.get((c.units, c.src), 0) + c.count
    return max(sent.values()) / level.cards
