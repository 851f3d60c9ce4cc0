"""Routes: which links a flow crosses, for many flows at once, around what is broken.

Default is the shortest path, sprayed over the planes of a switch; a dead plane, link or port is
avoided: other planes, all equal detours inside the unit, then a sibling's port. Axes: F flows,
E crossings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from lightloom.core.errors import FabricError

from . import grid
from .network import Floats, Ints, Network
from .tiers import Tier

MIX = 0x9E3779B97F4A7C15
Way = Literal["minimal", "all-path"]


@dataclass(frozen=True, slots=True)
class Routes:
    """Crossings in flow order: flow f owns ``start_F[f]:start_F[f + 1]``."""

    start_F: Ints
    link_E: Ints
    share_E: Floats | None
    """Share of the flow on each link; None where every flow takes one path."""
    latency_F: Floats


@dataclass(slots=True)
class _Trace:
    """Crossings as they are found."""

    seed: int = 0
    way: Way = "minimal"
    flow: list[Ints] = field(default_factory=list)
    link: list[Ints] = field(default_factory=list)
    share: list[Floats] = field(default_factory=list)

    def add(self, flow: Ints, link: Ints, share: Floats | None = None) -> None:
        self.flow.append(flow)
        self.link.append(link)
        self.share.append(np.ones(len(flow)) if share is None else share)


def route(
    net: Network, source_F: Ints, target_F: Ints, seed: int = 0, way: Way = "minimal"
) -> Routes:
    """Return the routes of flows between cards; raises FabricError with the cards cut off.

    `way`: one shortest path, or (``all-path``) on grids an equal share on every path that is
    shortest or, in one dimension of a full mesh, one hop longer (UB-Mesh's APR). `seed` matters
    only where planes are links of their own and flows are hashed onto them.
    """
    source_F, target_F = np.asarray(source_F, np.int64), np.asarray(target_F, np.int64)
    trace = _Trace(seed, way)
    flow_F = np.arange(len(source_F))
    _climb(net, trace, flow_F, source_F, target_F, len(net.tiers))
    if not trace.flow:
        nothing = np.zeros(0, np.int64)
        return Routes(np.zeros(len(flow_F) + 1, np.int64), nothing, None, np.zeros(len(flow_F)))
    flow_E, link_E = np.concatenate(trace.flow), np.concatenate(trace.link)
    share_E = np.concatenate(trace.share)
    order = np.argsort(flow_E, kind="stable")
    flow_E, link_E, share_E = flow_E[order], link_E[order], share_E[order]
    if net.scale:
        _refuse_cut(net, flow_E, link_E, source_F, target_F)
    start_F = np.searchsorted(flow_E, np.arange(len(flow_F) + 1))
    delay_F = np.bincount(flow_E, net.latency(link_E) * share_E, minlength=len(flow_F)).astype(
        np.float64
    )
    return Routes(start_F, link_E, share_E if np.any(share_E != 1.0) else None, delay_F)


def _refuse_cut(net: Network, flow_E: Ints, link_E: Ints, source_F: Ints, target_F: Ints) -> None:
    gone = np.flatnonzero(net.left(link_E) <= 0)
    if not len(gone):
        return
    flow, pairs = int(flow_E[gone[0]]), len(np.unique(flow_E[gone]))
    owners: dict[str, None] = {}
    for link in np.unique(link_E[gone])[:64].tolist():
        block = net.blocks[int(net.block_of(np.array([link]))[0])]
        owner = (link - block.first) // block.slots
        owners[net.child_name(block.owner_cards, owner)] = None
    names = list(owners)
    raise FabricError(
        f"cut off: {', '.join(names[:8])}{' ...' if len(names) > 8 else ''}; for example card "
        f"{source_F[flow]} cannot reach card {target_F[flow]}: "
        f"{net.link_name(int(link_E[gone[0]]))} is down and nothing goes around it "
        f"({pairs} kinds of pairs)",
        out="take it out of the job (--fail card:N or board:N) or repair a link",
    )


def _climb(net: Network, trace: _Trace, flow: Ints, source: Ints, target: Ints, limit: int) -> None:
    """Route flows tier by tier; relays through a sibling come back here one tier lower."""
    part_F = net.parted(source, target)
    for tier in net.tiers[:limit]:
        here = np.flatnonzero(part_F == tier.index)
        if not len(here):
            continue
        f, s, t = flow[here], source[here], target[here]
        if tier.shape == "dragonfly":
            _dragonfly(net, trace, tier, f, s, t)
            continue
        base = net.chain(tier)[0]
        x, y = (s, t) if base.ports == "none" else _ports(net, tier, s, t)
        if base.c > 1:
            _climb(net, trace, f, s, x, base.index)
        (_star if tier.shape == "star" else _grid)(net, trace, tier, f, x, y)
        if base.c > 1:
            _climb(net, trace, f, y, t, base.index)


def _ports(net: Network, tier: Tier, source: Ints, target: Ints) -> tuple[Ints, Ints]:
    """Return the cards whose ports each flow leaves and enters by: its own, or a sibling's on the
    target's rail, or the next sibling that still has a way."""
    base = net.chain(tier)[0]
    exit_, entry = _pair(net.tiers[0].cards, base, source, target, 0)
    if not net.scale:
        return exit_, entry
    open_ = _open(net, tier, exit_, entry)
    for offset in range(1, base.c):
        shut = np.flatnonzero(~open_)
        if not len(shut):
            break
        x, y = _pair(net.tiers[0].cards, base, source[shut], target[shut], offset)
        if not base.rails:  # ends are independent: move only the end that is shut
            ok_out = _open(net, tier, source[shut], None)
            ok_in = _open(net, tier, None, target[shut])
            x, y = np.where(ok_out, source[shut], x), np.where(ok_in, target[shut], y)
        good = _open(net, tier, x, y) & _alive(net, x) & _alive(net, y)
        at = shut[good]
        exit_[at], entry[at], open_[at] = x[good], y[good], True
    return exit_, entry


def _alive(net: Network, card: Ints) -> np.ndarray:
    if not net.dead:
        return np.ones(len(card), bool)
    return ~np.isin(card, np.fromiter(net.dead, np.int64))


def sibling(card: Ints, offset: int, cell: int, c: int) -> Ints:
    """Return the card `offset` places on among the `c` of its child: first round its own cell of
    the innermost level, then the cells after it."""
    cell = min(cell, c)
    place = card % c
    group = (place // cell + offset // cell) % (c // cell)
    return card - place + group * cell + (place + offset) % cell


def _pair(cell: int, base: Tier, source: Ints, target: Ints, offset: int) -> tuple[Ints, Ints]:
    """Return the siblings `offset` places on; on rails the exit is on the entry's rail."""
    c = base.c
    entry = sibling(target, offset, cell, c)
    if not base.rails:
        return sibling(source, offset, cell, c), entry
    place, rail = source % c, entry % c % base.rails
    mate = place - place % base.rails + rail
    mate = np.where(mate < c, mate, rail)
    return source - place + mate, entry


def _open(net: Network, tier: Tier, exit_: Ints | None, entry: Ints | None) -> np.ndarray:
    """Return whether every port on the way up from `exit_` and down to `entry` works."""
    size = len(exit_ if exit_ is not None else entry if entry is not None else ())
    good = np.ones(size, bool)
    for card, roles in ((exit_, ("up", "pool up")), (entry, ("down", "pool down"))):
        if card is None:
            continue
        for link in _ladder(net, tier, card, roles):
            works = np.zeros(size, bool)
            for plane in link:
                works |= net.left(plane) > 0
            good &= works
    return good


def _ladder(net: Network, tier: Tier, card: Ints, roles: tuple[str, str]) -> list[list[Ints]]:
    """Return, rung by rung, the links (one for each plane) between a card and `tier`'s switches."""
    rungs: list[list[Ints]] = []
    chain = net.chain(tier)
    base = chain[0]
    for rung in chain:
        for role in roles:
            block = net.block(rung.index, role)  # type: ignore[arg-type]
            if block is None:
                continue
            owner = card // block.owner_cards
            if base.rails and block.slots > 1:
                rungs.append([block.first + owner * block.slots + card % base.c % block.slots])
            else:
                first = block.first + owner * block.slots
                rungs.append([first + plane for plane in range(block.slots)])
    return rungs


def _star(net: Network, trace: _Trace, tier: Tier, flow: Ints, exit_: Ints, entry: Ints) -> None:
    up = _ladder(net, tier, exit_, ("up", "pool up"))
    down = _ladder(net, tier, entry, ("down", "pool down"))
    planes = max((len(rung) for rung in up + down), default=1)
    if planes == 1:
        for rung in up + down[::-1]:
            trace.add(flow, rung[0])
        return
    chosen = _hash(exit_, entry, trace.seed) % planes
    for _ in range(planes):  # a dead plane hands its flows to the next
        works = np.ones(len(flow), bool)
        for rung in up + down:
            works &= net.left(np.stack(rung)[chosen % len(rung), np.arange(len(flow))]) > 0
        chosen = np.where(works, chosen, (chosen + 1) % planes)
    for rung in up + down[::-1]:
        trace.add(flow, np.stack(rung)[chosen % len(rung), np.arange(len(flow))])


def _hash(source: Ints, target: Ints, seed: int) -> Ints:
    """Return an evenly mixed number for each pair, as ECMP hashes a flow's addresses."""
    with np.errstate(over="ignore"):
        mixed = source.astype(np.uint64) * np.uint64(MIX) + target.astype(np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(29)) ^ np.uint64(seed)) * np.uint64(MIX)
        mixed ^= mixed >> np.uint64(32)
    return (mixed >> np.uint64(1)).astype(np.int64)


def _grid(net: Network, trace: _Trace, tier: Tier, flow: Ints, exit_: Ints, entry: Ints) -> None:
    for card, role in ((exit_, "up"), (entry, "down")):
        block = net.block(tier.index, role)  # type: ignore[arg-type]
        if block is not None:
            trace.add(flow, block.first + card * block.slots)
    block = net.block(tier.index, "link")
    assert block is not None
    start, end = exit_ // tier.c % tier.n, entry // tier.c % tier.n
    unit = exit_ // tier.cards
    first = block.first + unit * tier.n * block.slots
    around = np.zeros(len(flow), bool)
    if tier.twist or trace.way == "all-path":
        around[:] = True
    else:
        hops = grid.ordered(tier, start, end)
        if net.scale:
            for f, place, slot, _share in hops:
                around[f[net.left(first[f] + place * block.slots + slot) <= 0]] = True
        for f, place, slot, share in hops:
            keep = ~around[f]
            f, link = f[keep], (first[f] + place * block.slots + slot)[keep]
            trace.add(flow[f], link, share[keep])
    lost = [
        row
        for row in np.flatnonzero(around).tolist()
        if not _spread(net, trace, tier, int(flow[row]), int(first[row]), start[row], end[row])
    ]
    if lost:
        _lift(net, trace, tier, flow[lost], exit_[lost], entry[lost])


def _spread(
    net: Network, trace: _Trace, tier: Tier, flow: int, first: int, start: int, end: int
) -> bool:
    """All shortest paths inside the unit around what is down, equal shares; False without any."""
    last = first + tier.n * tier.slots
    closed = frozenset(
        divmod(link - first, tier.slots)
        for link, left in net.scale.items()
        if left <= 0 and first <= link < last
    )
    steps = None
    if trace.way == "all-path":
        steps = grid.all_paths(tier, int(start), int(end), closed)
    steps = steps or grid.spread_over_shortest(tier, int(start), int(end), closed)
    links = np.array([first + place * tier.slots + slot for place, slot, _ in steps], np.int64)
    trace.add(np.full(len(steps), flow), links, np.array([share for _, _, share in steps]))
    return bool(steps)


def _lift(net: Network, trace: _Trace, tier: Tier, flow: Ints, exit_: Ints, entry: Ints) -> None:
    """Take flows that a cell of cards cannot carry through the switch of the level above."""
    above = next((t for t in net.tiers[tier.index + 1 :] if t.ports == "own"), None)
    if tier.ports != "none" or above is None or above.shape != "star" or above.rails:
        raise FabricError(
            f"card {exit_[0]} cannot reach card {entry[0]} inside "
            f"{net.unit_name(tier, int(exit_[0]) // tier.cards)}: every path between them is down",
            out=f"take a card out (--fail card:{exit_[0]}) or repair a link",
        )
    _star(net, trace, above, flow, exit_, entry)


def _dragonfly(
    net: Network, trace: _Trace, tier: Tier, flow: Ints, source: Ints, target: Ints
) -> None:
    """Minimal: own router, local link to the gateway, one global link, local link, router."""
    p, a, g = tier.dims
    up, down = net.block(tier.index, "up"), net.block(tier.index, "down")
    local, far = net.block(tier.index, "local"), net.block(tier.index, "global")
    assert local is not None and far is not None
    if up is not None and down is not None:
        trace.add(flow, up.first + source)
    router_s, router_t = source // (tier.c * p), target // (tier.c * p)
    group_s, group_t = router_s // a, router_t // a
    gate_s = np.where(
        group_s == group_t, router_t, group_s * a + _gate(group_s % g, group_t % g, a)
    )
    gate_t = np.where(
        group_s == group_t, router_t, group_t * a + _gate(group_t % g, group_s % g, a)
    )
    for here, there in ((router_s, gate_s), (gate_t, router_t)):
        move = here != there
        trace.add(flow[move], local.first + here[move] * a + there[move] % a)
    move = group_s != group_t
    trace.add(flow[move], far.first + group_s[move] * g + group_t[move] % g)
    if up is not None and down is not None:
        trace.add(flow, down.first + target)


def _gate(group: Ints, other: Ints, a: int) -> Ints:
    """Return the router of `group` that holds the global link to `other`."""
    return np.where(other > group, other - 1, other) % a
