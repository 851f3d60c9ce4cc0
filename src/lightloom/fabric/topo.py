"""topo-gen: the light of one job, level by level.

For every level: what the job's groups ask (topo_demand), channels in proportion to bytes so that
the slowest pair is as fast as it can be, and an assignment without a clash: edge colouring where
children meet in a cross-connect, routes and first fit where guides join neighbours.

Axes: K axes of the job, I senders, J receivers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.cluster import Cluster
from lightloom.core.errors import InfeasibleError, InputError
from lightloom.core.fabric import Level
from lightloom.core.placement import Placement
from lightloom.core.topo import Circuit, LightLevel, LightRoute, Topo
from lightloom.core.traffic import AXIS_CLASS

from .light_grid import bands_for
from .topo_demand import PATTERN, RELATIVE, Demand, axis_groups, demands, edges, ring_order
from .wavelength_pool import ChannelPool, Lightpath, Refusal, runs
from .wavelength_routes import best_routes
from .wavelength_spine import colour, recolour, share_out

STAR = ("spine", "switch", "fat-tree", "rail", "dragonfly")
INNER_CHANNELS = 8
"""Channels of a guide where the machine states no channel plan (assumed)."""
F64 = NDArray[np.float64]
Edge = tuple[int, int]
Lit = tuple["Ask", tuple[int, ...], list[int]]
"""A lightpath: what it serves, the ports or guides it passes, its channels."""
Now = dict[tuple[str, int, int], list[tuple[tuple[int, ...], list[int]]]]
"""Light that is on: (axis, src, dst) -> ports or guides, and channels."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One lightpath wanted inside one unit."""

    axis: str
    src: int
    dst: int
    bytes: float


def light_level(cluster: Cluster, index: int, bands: tuple[str, ...], spare: int) -> LightLevel:
    """Return the channel plan of one level, stated by the machine or assumed."""
    level = cluster.fabric.levels[index]
    units = cluster.cards // cluster.fabric.cards_below(index)
    cards = cluster.fabric.cards_below(index) // level.units
    star = level.kind in STAR
    optics = level.optics
    if optics is not None:
        fibres, channels, rate = optics.fibres, optics.channels, optics.channel_rate
        spacing = optics.spacing_hz
    else:
        fibres = level.links if star else 1
        plan = next((x.optics for x in cluster.fabric.levels if x.optics), None)
        fit = int(level.link / plan.channel_rate) if plan else 0
        channels = max(INNER_CHANNELS, fit)
        rate, spacing = level.link / channels, plan.spacing_hz if plan else 75e9
    if not 0 <= spare < channels:
        raise InputError(f"level {level.name}: {spare} spare channels of {channels}")
    return LightLevel(
        name=level.name, kind=level.kind, units=units, shape=level.shape, cards=cards, star=star,
        fibres=fibres if star else 1, channels=channels, spare=min(spare, channels // 8),
        channel_rate=rate, spacing_hz=spacing, bands=bands_for(channels, spacing, bands),
        assumed=optics is None,
    )  # fmt: skip


def guides(level: LightLevel | Level) -> list[Edge]:
    """Return the ordered pairs of neighbours of a level without a cross-connect, sorted."""
    shape = level.shape
    count = math.prod(shape)
    out = set()
    for node in range(count):
        at = np.unravel_index(node, shape)
        for axis, size in enumerate(shape):
            for other in _neighbours(int(at[axis]), size, level.kind):
                there = [int(x) for x in at]
                there[axis] = other
                out.add((node, int(np.ravel_multi_index(tuple(there), shape))))
    return sorted(out)


def _neighbours(at: int, size: int, kind: str) -> list[int]:
    if kind == "full-mesh":
        return [x for x in range(size) if x != at]
    if kind in ("torus", "ring"):
        return [x % size for x in (at - 1, at + 1) if x % size != at]
    return [x for x in (at - 1, at + 1) if 0 <= x < size]


def _world(cluster: Cluster, axes: dict[str, int]) -> int:
    world = math.prod(axes.get(axis, 1) for axis in ("tp", "cp", "dp", "pp"))
    for axis, size in axes.items():
        if size < 1 or axis not in (*PATTERN, "etp"):
            raise InputError(f"axis {axis} = {size}: axes are {', '.join(PATTERN)}, sizes >= 1")
    if world > cluster.cards:
        raise InfeasibleError(
            f"tp x cp x dp x pp = {world} ranks, {cluster.name} has {cluster.cards} cards"
        )
    return world


def generate(
    cluster: Cluster, axes: dict[str, int], placement: Placement | None = None, *,
    volume: dict[str, float] | None = None, ring_path: bool = True, spare: int = 1,
    bands: tuple[str, ...] = (), plan: str = "", plan_sha256: str = "",
    made_by: str = "", keep: Topo | None = None,
) -> Topo:  # fmt: skip
    """Return the light of a job cut into `axes` on `cluster`.

    `volume`: bytes per rank, axis and step (`axis_bytes`); None lays channels out in assumed
    proportions. `spare`: channels of each fibre kept dark for hitless moves. `keep`: light of the
    same machine that is on already; channels that are still wanted stay where they are.
    """
    place = placement or Placement()
    world = _world(cluster, axes)
    notes = []
    if volume is None:
        volume = RELATIVE
        notes.append("bytes per axis are assumed proportions: give a plan for real ones")
    dark = [x.name for x in cluster.fabric.levels if x.medium != "optical"]
    if len(dark) == len(cluster.fabric.levels):
        raise InfeasibleError(
            f"{cluster.name} has no optical level: {', '.join(dark)} are electrical",
            out="use a machine with light, for example --cluster supernode-8192",
        )
    if dark:
        notes.append(f"electrical levels carry no light: {', '.join(dark)}")
    levels: dict[int, LightLevel] = {}
    circuits: list[Circuit] = []
    routes: list[LightRoute] = []
    for need in demands(cluster.fabric, axis_groups(axes, place)):
        if cluster.fabric.levels[need.level].medium != "optical":
            continue
        if need.level not in levels:
            levels[need.level] = light_level(cluster, need.level, bands, spare)
        level = levels[need.level]
        made = _routes(level, need, volume)
        routes += made
        lit = _lit_now(keep, level, need.units)
        circuits += _circuits(level, need.units, _asks(made, ring_path), lit)
    if not circuits and world > 1:
        raise InfeasibleError(
            f"no group of this job crosses an optical level of {cluster.name}",
            out="a larger job, or a machine whose inner levels are light",
        )
    for level in levels.values():
        if level.assumed:
            notes.append(f"level {level.name}: channel plan assumed ({level.channels} a guide)")
        if len(level.bands) > 1:
            notes.append(
                f"level {level.name}: {level.channels} x {level.spacing_hz / 1e9:g} GHz need "
                f"bands {'+'.join(level.bands)}"
            )
    return Topo(
        plan=plan, plan_sha256=plan_sha256, cluster=cluster.name, cards=world, axes=axes,
        order=place.order, ring_path=ring_path, levels=tuple(levels[i] for i in sorted(levels)),
        circuits=tuple(circuits), routes=tuple(routes), notes=tuple(notes), made_by=made_by,
    )  # fmt: skip


def _routes(level: LightLevel, need: Demand, volume: dict[str, float]) -> list[LightRoute]:
    out = []
    for axis, members, groups in need.routes:
        pattern = PATTERN[axis]
        order = ring_order(level.shape, level.kind, members) if pattern == "ring" else members
        out.append(
            LightRoute(
                level=level.name,
                units=need.units,
                axis=axis,
                pattern=pattern,
                members=order,
                groups=groups,
                bytes=max(volume.get(axis, 0.0), 1.0),
            )
        )
    return out


def route_edges(route: LightRoute, ring_path: bool) -> dict[Edge, float]:
    """Return bytes of one step between children of one unit, all groups of the route."""
    share = edges(route.pattern, route.members, ring_path)
    return {edge: part * route.bytes * route.groups for edge, part in share.items()}


def _asks(routes: list[LightRoute], ring_path: bool) -> list[Ask]:
    total: dict[tuple[str, int, int], float] = {}
    for route in routes:
        for (src, dst), size in route_edges(route, ring_path).items():
            key = (route.axis, src, dst)
            total[key] = total.get(key, 0.0) + size
    return [Ask(axis, src, dst, size) for (axis, src, dst), size in sorted(total.items())]


def _lit_now(keep: Topo | None, level: LightLevel, units: tuple[tuple[int, int], ...]) -> Now:
    """Return (axis, src, dst) -> (via, channels) that is on in the first of `units`."""
    out: Now = {}
    if keep is None or level.name not in {x.name for x in keep.levels}:
        return out
    was = keep.level(level.name)
    if (was.kind, was.shape, was.fibres, was.channels) != (
        level.kind, level.shape, level.fibres, level.channels,
    ):  # fmt: skip
        return out
    unit = units[0][0]
    for c in keep.circuits:
        if c.level == level.name and any(first <= unit < first + n for first, n in c.units):
            channels = range(c.first, min(c.first + c.count, level.channels - level.spare))
            out.setdefault((c.axis, c.src, c.dst), []).append((c.via, list(channels)))
    return out


def _circuits(
    level: LightLevel, units: tuple[tuple[int, int], ...], asks: list[Ask], now: Now
) -> list[Circuit]:
    lit = _star(level, asks, now) if level.star else _direct(level, asks, now)
    out = []
    for ask, via, channels in lit:
        for first, count in runs(sum(1 << c for c in channels)):
            out.append(
                Circuit(
                    level=level.name,
                    units=units,
                    src=ask.src,
                    dst=ask.dst,
                    via=via,
                    first=first,
                    count=count,
                    axis=ask.axis,
                    cls=AXIS_CLASS[ask.axis],
                )
            )
    return out


def _star(level: LightLevel, asks: list[Ask], now: Now) -> list[Lit]:
    """Return channels of every ask through a cross-connect: provably no clash, none wasted."""
    axes = sorted({ask.axis for ask in asks})
    n, usable = level.children, level.channels - level.spare
    bytes_KIJ = np.zeros((len(axes), n, n))
    for ask in asks:
        bytes_KIJ[axes.index(ask.axis), ask.src, ask.dst] += ask.bytes
    on = {
        (src, dst, axes.index(axis)): [
            via[0] % level.fibres * usable + c for via, channels in rows for c in channels
        ]
        for (axis, src, dst), rows in now.items()
        if axis in axes
    }
    try:
        total = level.fibres * usable
        need = share_out(bytes_KIJ, total)
        lit = (recolour(on, need, total) if on else colour(need, total)).pairs()
    except InfeasibleError as error:
        raise InfeasibleError(f"level {level.name}: {error.what}", out=error.out) from error
    out: list[Lit] = []
    for ask in asks:
        per_fibre: dict[int, list[int]] = {}
        for channel in lit[ask.src, ask.dst, axes.index(ask.axis)]:
            per_fibre.setdefault(channel // usable, []).append(channel % usable)
        for fibre, channels in per_fibre.items():
            ports = (ask.src * level.fibres + fibre, ask.dst * level.fibres + fibre)
            out.append((ask, ports, channels))
    return out


def _direct(level: LightLevel, asks: list[Ask], now: Now) -> list[Lit]:
    """Return channels of every ask along guides between neighbours, continuity kept."""
    pairs = guides(level)
    out: list[list[tuple[int, int, float]]] = [[] for _ in range(level.children)]
    for number, (a, b) in enumerate(pairs):
        out[a].append((b, number, 1.0))
    way = {
        edge: best_routes(out, *edge, 1, "hops")[0].links for edge in {(a.src, a.dst) for a in asks}
    }
    usable = level.channels - level.spare
    crossing = np.zeros(len(pairs), np.int64)
    for ask in asks:
        crossing[list(way[ask.src, ask.dst])] += 1
    if crossing.max() > usable:
        a, b = pairs[int(np.argmax(crossing))]
        raise InfeasibleError(
            f"level {level.name}: {crossing.max()} lightpaths cross the guide {a} -> {b}, "
            f"it has {usable} channels",
            out="another axis order, --no-ring-path, or a level with more channels",
        )
    time = _fair_time(asks, way, len(pairs), usable)
    for _ in range(200):
        lit = _first_fit(asks, way, len(pairs), usable, time, now)
        if lit is not None:
            return lit
        time *= 1.03
    lit = _first_fit(asks, way, len(pairs), usable, math.inf, {})
    if lit is None:
        raise InfeasibleError(
            f"level {level.name}: no assignment keeps one channel per lightpath end to end"
        )
    return lit


def _fair_time(asks: list[Ask], way: dict[Edge, tuple[int, ...]], count: int, usable: int) -> float:
    """Return the least time at which ceil(bytes / time) channels fit every guide."""
    size = np.array([ask.bytes for ask in asks])
    rows = [list(way[ask.src, ask.dst]) for ask in asks]
    flat = np.concatenate([np.array(row) for row in rows])
    owner = np.repeat(np.arange(len(asks)), [len(row) for row in rows])

    def fits(time: float) -> bool:
        need = np.ceil(size / time - 1e-9)
        return bool(np.bincount(flat, need[owner], minlength=count).max() <= usable)

    low, high = 0.0, float(size.max())
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if middle > 0 and fits(middle) else (middle, high)
    return high


def _first_fit(
    asks: list[Ask], way: dict[Edge, tuple[int, ...]], count: int, usable: int, time: float,
    now: Now,
) -> list[Lit] | None:  # fmt: skip
    pool, have = ChannelPool(count, usable), {}
    for ask in asks:
        links = way[ask.src, ask.dst]
        rows = now.get((ask.axis, ask.src, ask.dst), [])
        on = [c for via, channels in rows if via == links for c in channels]
        have[ask] = tuple(sorted(on)[: max(1, math.ceil(ask.bytes / time - 1e-9))])
        if have[ask]:
            pool.light(Lightpath(f"{ask.axis} {ask.src}-{ask.dst}", "job", "", links, have[ask]))
    lit = []
    order = sorted(asks, key=lambda a: (-len(way[a.src, a.dst]), -a.bytes, a.axis, a.src, a.dst))
    for ask in order:
        links = way[ask.src, ask.dst]
        need = max(1, math.ceil(ask.bytes / time - 1e-9)) - len(have[ask])
        name = f"{ask.axis} {ask.src}-{ask.dst}+"
        new: tuple[int, ...] = ()
        if need > 0:
            path: Lightpath | Refusal = pool.admit(name, "job", ask.axis, [links], need)
            if isinstance(path, Refusal):
                return None
            new = path.channels
        lit.append((ask, links, sorted((*have[ask], *new))))
    return lit


def channels_of_card(topo: Topo, card: int) -> list[tuple[str, Circuit, int]]:
    """Return (level, circuit, cards that share it) for every channel a card may send on."""
    out = []
    for level in topo.levels:
        node = card // level.cards
        unit, child = divmod(node, level.children)
        for circuit in topo.circuits:
            inside = any(first <= unit < first + n for first, n in circuit.units)
            if circuit.level == level.name and circuit.src == child and inside:
                out.append((level.name, circuit, level.cards))
    return out
