"""An independent reader of `.topo`: it shares no code with the generator.

Every channel of every fibre is painted with its owner; a second coat names both owners and the
fibre. The rest is geometry: guides that exist, ports in range, bands, and every group connected.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lightloom.core.cluster import Cluster
from lightloom.core.finding import Finding
from lightloom.core.placement import Placement
from lightloom.core.topo import Circuit, LightLevel, Topo
from lightloom.core.traffic import AXIS_CLASS

I64 = NDArray[np.int64]
MOST = 50
"""Findings of one kind that are listed; the rest are counted."""
LARGEST = 400_000_000
MOST_CHILDREN = 4096
"""Beyond these a file is damaged, not large: 400 million channels of one level."""
BAND_THZ = {"C": 4.8, "L": 4.8, "S": 6.0}


def check(
    topo: Topo, cluster: Cluster | None = None, placement: Placement | None = None
) -> list[Finding]:
    """Return what is wrong; no error means conflict-free, connected and within the grid."""
    out = list(_header(topo))
    known = {level.name for level in topo.levels}
    loose = [c for c in topo.circuits if c.level not in known]
    out += [_error("unknown-level", _name(c), f"level {c.level!r} is not listed") for c in loose]
    if cluster is not None:
        out += _machine(topo, cluster)
    broken = [f for level in topo.levels for f in _sane(level)]
    if broken:
        return out + broken
    for level in topo.levels:
        circuits = [c for c in topo.circuits if c.level == level.name]
        shaped = list(_geometry(level, circuits))
        out += shaped or list(_conflicts(level, circuits))
        out += _grid(level)
    if not any(f.severity == "error" for f in out):
        out += _connected(topo, placement or Placement(order=topo.order))
    return out


def _error(code: str, subject: str, what: str, remedy: str = "", **numbers: float) -> Finding:
    return Finding(
        severity="error", code=code, subject=subject, what=what, numbers=numbers, remedy=remedy
    )


def _name(c: Circuit) -> str:
    last = c.first + c.count - 1
    span = f"{c.first}" if c.count == 1 else f"{c.first}-{last}"
    return f"{c.axis} ({c.cls}) {c.level} {c.src}->{c.dst} channel {span}"


def _header(topo: Topo) -> Iterator[Finding]:
    if topo.kind != "topo" or topo.version != 1:
        yield _error("version", "file", f"kind {topo.kind!r} version {topo.version}, wanted topo 1")
    ranks = 1
    for axis in ("tp", "cp", "dp", "pp"):
        ranks *= topo.axes.get(axis, 1)
    small = [axis for axis, size in topo.axes.items() if size < 1]
    if small:
        yield _error("axes", "file", f"sizes below 1: {', '.join(small)}")
        return
    lost = [a for a in ("tp", "cp", "dp", "pp") if topo.axes.get(a, 1) > 1 and a not in topo.order]
    if lost or len(set(topo.order)) != len(topo.order):
        yield _error("axes", "file", f"order {topo.order} does not name every axis once")
    experts = topo.axes.get("ep", 1) * topo.axes.get("etp", 1)
    if ranks // topo.axes.get("pp", 1) % experts:
        yield _error("axes", "file", f"ep x etp = {experts} does not divide tp x cp x dp")
    if ranks != topo.cards:
        yield _error("cards", "file", f"axes give {ranks} ranks, the file says {topo.cards}")
    for c in topo.circuits:
        if AXIS_CLASS.get(c.axis) != c.cls:
            yield _error(
                "class", _name(c), f"axis {c.axis} is {AXIS_CLASS.get(c.axis)}, not {c.cls}"
            )
            break


def _sane(level: LightLevel) -> Iterator[Finding]:
    """Sizes that can be painted at all."""
    sizes = (level.units, level.cards, level.fibres, level.channels, *level.shape)
    cells = 2 * level.units * level.children * level.fibres * level.channels
    if min(sizes, default=0) < 1 or level.spare < 0 or not level.shape:
        yield _error("level", f"level {level.name}", f"sizes {sizes} must all be at least 1")
    elif cells > LARGEST or level.children > MOST_CHILDREN:
        yield _error(
            "level", f"level {level.name}", f"{cells:,} channels are more than any machine has"
        )  # fmt: skip


def _machine(topo: Topo, cluster: Cluster) -> Iterator[Finding]:
    if cluster.name != topo.cluster:
        yield _error("machine", "file", f"made for {topo.cluster}, checked on {cluster.name}")
        return
    by_name = {level.name: level for level in cluster.fabric.levels}
    for level in topo.levels:
        real = by_name.get(level.name)
        if real is None or real.shape != level.shape or real.kind != level.kind:
            yield _error("machine", f"level {level.name}", "not a level of this machine")
        elif real.optics and (real.optics.fibres, real.optics.channels) != (
            level.fibres, level.channels,
        ):  # fmt: skip
            yield _error(
                "machine", f"level {level.name}",
                f"{level.fibres} x {level.channels} channels, the machine has "
                f"{real.optics.fibres} x {real.optics.channels}",
            )  # fmt: skip


def _pairs(level: LightLevel) -> list[tuple[int, int]]:
    """Return neighbours, from coordinates (independent of the generator's walk)."""
    spots = list(itertools.product(*(range(n) for n in level.shape)))
    out = []
    for i, a in enumerate(spots):
        for j, b in enumerate(spots):
            apart = [(abs(x - y), n) for x, y, n in zip(a, b, level.shape, strict=True) if x != y]
            if len(apart) != 1:
                continue
            gap, size = apart[0]
            wrap = level.kind in ("torus", "ring") and gap == size - 1
            if level.kind == "full-mesh" or gap == 1 or wrap:
                out.append((i, j))
    return out


def _geometry(level: LightLevel, circuits: list[Circuit]) -> Iterator[Finding]:
    n, ports = level.children, level.children * level.fibres
    pairs = [] if level.star else _pairs(level)
    for c in circuits:
        bad = ""
        if c.count < 1 or c.first < 0 or c.first + c.count > level.channels:
            bad = f"channels outside 0-{level.channels - 1}"
        elif not (0 <= c.src < n and 0 <= c.dst < n) or c.src == c.dst:
            bad = f"children outside 0-{n - 1}, or the same"
        elif not c.units or any(f < 0 or k < 1 or f + k > level.units for f, k in c.units):
            bad = f"units outside 0-{level.units - 1}"
        elif level.star:
            if len(c.via) != 2 or not all(0 <= p < ports for p in c.via):
                bad = f"ports {c.via} outside 0-{ports - 1}"
            elif (c.via[0] // level.fibres, c.via[1] // level.fibres) != (c.src, c.dst):
                bad = f"ports {c.via} do not belong to {c.src} and {c.dst}"
            elif (c.via[0] - c.via[1]) % level.fibres:
                bad = "leaves and arrives on different planes of the cross-connect"
        elif not c.via or not all(0 <= g < len(pairs) for g in c.via):
            bad = f"guides {c.via} do not exist (0-{len(pairs) - 1})"
        else:
            walk = [pairs[g] for g in c.via]
            joined = all(x[1] == y[0] for x, y in itertools.pairwise(walk))
            if not joined or walk[0][0] != c.src or walk[-1][1] != c.dst:
                bad = f"guides {walk} do not lead from {c.src} to {c.dst}"
        if bad:
            yield _error("geometry", _name(c), bad)


def _conflicts(level: LightLevel, circuits: list[Circuit]) -> Iterator[Finding]:
    """Paint (unit, fibre end, channel) with circuit numbers; report second coats."""
    ports = level.children * level.fibres
    ends = 2 * ports if level.star else len(_pairs(level))
    owner = np.full((level.units, ends, level.channels), -1, np.int32)
    seen: set[tuple[int, int]] = set()
    for number, c in enumerate(circuits):
        spots = [c.via[0], ports + c.via[1]] if level.star else list(c.via)
        for first, count in c.units:
            for end in spots:
                block = owner[first : first + count, end, c.first : c.first + c.count]
                taken = block >= 0
                if taken.any():
                    unit, channel = (int(x[0]) for x in np.nonzero(taken))
                    other = int(block[unit, channel])
                    if (other, number) in seen or len(seen) >= MOST:
                        continue
                    seen.add((other, number))
                    yield _error(
                        "conflict", f"{level.name} {first + unit}, {_fibre(level, end)}",
                        f"channel {c.first + channel}: {_name(circuits[other])} and {_name(c)} "
                        "both own it", "generate again, or move one of them to a free channel",
                    )  # fmt: skip
                block[...] = number


def _fibre(level: LightLevel, end: int) -> str:
    if not level.star:
        a, b = _pairs(level)[end]
        return f"guide {a}->{b}"
    ports = level.children * level.fibres
    child, fibre = divmod(end % ports, level.fibres)
    return f"{'output' if end >= ports else 'input'} fibre {fibre} of {child}"


def _grid(level: LightLevel) -> Iterator[Finding]:
    room = sum(BAND_THZ.get(band, 0.0) for band in level.bands) * 1e12
    need = level.channels * level.spacing_hz
    if need > room * (1 + 1e-9):
        yield _error(
            "band", f"level {level.name}",
            f"{level.channels} x {level.spacing_hz / 1e9:g} GHz = {need / 1e12:g} THz do not fit "
            f"band {'+'.join(level.bands) or 'none'} ({room / 1e12:g} THz)",
            "a denser grid, or C+L",
        )  # fmt: skip


def _connected(topo: Topo, placement: Placement) -> list[Finding]:
    """Follow every group of every axis: neighbours in it must be joined by its own light."""
    joined = _reach(topo)
    out: list[Finding] = []
    missing = 0
    for axis, cards_GS in _groups(topo, placement).items():
        for row in cards_GS.tolist():
            for a, b in itertools.pairwise(row):
                where = _meet(topo, a, b)
                if where is None:
                    continue
                level, unit, x, y = where
                found = joined.get((level, axis, unit))
                if found is None or found[x] != found[y]:
                    missing += 1
                    if missing <= MOST:
                        out.append(
                            _error(
                                "dark",
                                f"{axis} group of card {row[0]}",
                                f"cards {a} and {b} have no {axis} light at level {level}",
                            )
                        )
    if missing > MOST:
        out.append(_error("dark", "groups", f"{missing - MOST} more pairs without light"))
    return out


def _reach(topo: Topo) -> dict[tuple[str, str, int], list[int]]:
    """Return the connected component of every child, by (level, axis, unit)."""
    edges: dict[tuple[str, str, tuple[tuple[int, int], ...]], set[tuple[int, int]]] = {}
    for c in topo.circuits:
        edges.setdefault((c.level, c.axis, c.units), set()).add((c.src, c.dst))
    size = {level.name: level.children for level in topo.levels}
    per_unit: dict[tuple[str, str, int], set[tuple[int, int]]] = {}
    for (level, axis, ranges), pairs in edges.items():
        for first, count in ranges:
            for unit in range(first, first + count):
                key = (level, axis, unit)
                per_unit[key] = per_unit[key] | pairs if key in per_unit else pairs
    known: dict[tuple[int, int], list[int]] = {}
    out = {}
    for key, pairs in per_unit.items():
        mark = (id(pairs), size[key[0]])
        if mark not in known:
            known[mark] = _components(size[key[0]], pairs)
        out[key] = known[mark]
    return out


def _components(count: int, pairs: set[tuple[int, int]]) -> list[int]:
    root = list(range(count))

    def find(x: int) -> int:
        while root[x] != x:
            root[x] = root[root[x]]
            x = root[x]
        return x

    for a, b in pairs:
        root[find(a)] = find(b)
    return [find(x) for x in range(count)]


def _meet(topo: Topo, a: int, b: int) -> tuple[str, int, int, int] | None:
    """Return the lit level at which two cards part: (level, unit, child, child)."""
    for level in topo.levels:
        x, y = a // level.cards, b // level.cards
        if x != y and x // level.children == y // level.children:
            return level.name, x // level.children, x % level.children, y % level.children
    return None


def _groups(topo: Topo, placement: Placement) -> dict[str, I64]:
    """Return the cards of every group, by arithmetic on rank numbers."""
    order = [a for a in placement.order if a in ("tp", "cp", "dp", "pp")]
    rank = np.arange(topo.cards)
    cards = np.asarray(placement.cards[: topo.cards], np.int64) if placement.cards else rank
    out, stride = {}, 1
    for axis in order:
        size = topo.axes.get(axis, 1)
        if size > 1:
            base = rank[(rank // stride) % size == 0]
            out[axis] = cards[base[:, None] + stride * np.arange(size)]
        stride *= size
    ep, etp, pp = (topo.axes.get(axis, 1) for axis in ("ep", "etp", "pp"))
    if ep > 1:
        faster = order[: order.index("pp")] if "pp" in order else order
        below = math.prod(topo.axes.get(axis, 1) for axis in faster)
        place = np.arange(topo.cards // pp)
        first = place[(place // etp) % ep == 0]
        for stage in range(pp):
            inside = rank[(rank // below) % pp == stage]
            rows = inside[first[:, None] + etp * np.arange(ep)]
            out["ep"] = np.concatenate([out["ep"], cards[rows]]) if stage else cards[rows]
    return out
