"""Folding: cards that nothing tells apart become one class; flows and links follow.

Axes: N cards, C classes of cards, F flows (one for each class of flows), E crossings, L links
(one for each class of links). A fault singles out what it touches (`Network.touched`); the rest of
a level whose children are interchangeable stays one class. The trivial fold has one card a class:
the unfolded problem is the same code.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lightloom.fabric.network import Floats, Ints, Network
from lightloom.fabric.route import Routes, route
from lightloom.fabric.tiers import Block, Tier

from .refine import quotient, refine
from .share import Paths

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Fold:
    """Classes of cards."""

    class_N: Ints
    size_C: Ints
    first_C: Ints
    """Lowest card of each class: its representative."""
    root_C: Ints
    """What singles the class out (deepest special unit); classes of one root may be parted at
    several tiers."""
    kept: frozenset[int]
    """Tiers whose child number is part of the class."""
    exact_below: int = 0
    """Tiers below this one are not folded: only relays of singled-out cards cross their links."""
    transitive: bool = False
    """Whether any card can be moved onto any other: pairs fold by displacement."""

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.size_C)


def trivial(net: Network, cards: int | None = None) -> Fold:
    """Return the fold that folds nothing (dead cards included, as classes of their own)."""
    all_N = np.arange(net.cards if cards is None else cards)
    return Fold(all_N, np.ones_like(all_N), all_N, all_N, frozenset(t.index for t in net.tiers))


def _specials(
    net: Network, tiers: frozenset[int] | None = None, least: int = 1
) -> dict[int, list[int]]:
    """Return special units by cards of a unit, largest first, parents of special ones included;
    between single cards and units of `least` cards, sizes are left out."""
    sizes = sorted({1} | {t.c for t in net.tiers} | {t.cards for t in net.tiers})
    sizes = [size for size in sizes if size == 1 or size >= least]
    found: dict[int, set[int]] = {size: set() for size in sizes}
    for size, units in net.special_units(tiers).items():
        if size in found:
            found[size] |= units
    for small, large in pairwise(sizes):
        found[large] |= {unit // (large // small) for unit in found[small]}
    return {size: sorted(found[size]) for size in reversed(sizes)}


def _compress(
    code_N: Ints, digits_N: Ints, range_: int, kept: frozenset[int], exact: int = 0
) -> Fold:
    """Return classes of equal (code, digits); codes are what singles cards out."""
    key_N = code_N * range_ + digits_N
    count = np.bincount(key_N, minlength=1)
    present = np.flatnonzero(count)
    number = np.zeros(len(count), np.int64)
    number[present] = np.arange(len(present))
    first = np.zeros(len(count), np.int64)
    first[key_N[::-1]] = np.arange(len(key_N))[::-1]
    return Fold(
        number[key_N], count[present], first[present], present // range_, kept, exact_below=exact
    )


def fold_machine(net: Network) -> Fold:
    """Return classes for traffic between all cards: interchangeable children fold, places on a
    grid and rails stay apart, what a fault touches is alone."""
    card_N = np.arange(net.cards)
    whole = net.tiers[0]
    if net.healthy and len(net.tiers) == 1 and whole.shape == "grid" and (whole.wrap or whole.full):
        one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
        return Fold(0 * card_N, one * net.cards, zero, zero, frozenset({0}), transitive=True)
    kept = frozenset(t.index for t in net.tiers if not t.interchangeable)
    digits_N, range_ = np.zeros_like(card_N), 1
    for tier in net.tiers:
        if tier.index in kept:
            digits_N, range_ = digits_N * tier.n + card_N // tier.c % tier.n, range_ * tier.n
    rails = [t for t in net.tiers if t.rails > 1]
    if rails and not (net.tiers[0].index in kept and net.tiers[0].n == rails[0].rails):
        tier = rails[0]
        digits_N = digits_N * tier.rails + card_N % tier.c % tier.rails
        range_ *= tier.rails
    code_N, codes = np.zeros_like(card_N), 1
    for size, units in _specials(net).items():
        for unit in units:
            code_N[unit * size : (unit + 1) * size] = codes
            codes += 1
    return _compress(code_N, digits_N, range_, kept)


def fold_level(
    net: Network, level: int, active_N: Bools | None = None, last: int | None = None
) -> Fold:
    """Return classes for a pattern between the children of one level (or of levels up to `last`),
    alike in every unit and at every place inside the children: healthy units are one class, and so
    are healthy places.

    Cards outside `active_N` take no part and fold among themselves.
    """
    card_N = np.arange(net.cards)
    tiers = [t for t in net.tiers if level <= t.level <= (level if last is None else last)]
    child, unit = tiers[0].c, tiers[-1].cards
    ways = unit // child
    digits_N, range_ = card_N // child % ways, ways
    base = net.chain(tiers[0])[0]
    if base.rails > 1:
        digits_N = digits_N * base.rails + card_N % base.c % base.rails
        range_ *= base.rails
    if active_N is not None:
        digits_N, range_ = digits_N * 2 + active_N, range_ * 2
    code_N, codes = np.zeros_like(card_N), 1
    for start, size, ways_, child_ in _level_specials(net, tiers, base, child, unit):
        for way in range(ways_):
            code_N[start + way * child_ : start + way * child_ + size] = codes
        codes += 1
    kept = frozenset(t.index for t in tiers)
    return _compress(code_N, digits_N, range_, kept, base.index)


def _level_specials(
    net: Network, tiers: list[Tier], base: Tier, child: int, unit: int
) -> list[tuple[int, int, int, int]]:
    """Return (first card, cards, copies, cards between copies) of what is singled out, whole units
    first, then places inside the children: a place is special in every child of its unit. Faults
    of tiers that this level's traffic does not use single nothing out."""
    found: dict[tuple[int, int, int, int], None] = {}
    used = frozenset(t.index for tier in tiers for t in net.chain(tier))
    for size, units in _specials(net, used, base.c).items():
        for u in units:
            first = u * size
            if size == unit:
                found[(first, size, 1, 0)] = None
            elif size <= child:
                place = first - first % unit + first % child
                found[(place, size, unit // child, child)] = None
    return list(found)


@dataclass(frozen=True, slots=True)
class Folded:
    """Flows of a phase, ready for the solver: one row for each class."""

    paths: Paths
    capacity_L: Floats
    size_L: Ints
    """Links of each class."""
    link_L: Ints
    """One link of each class."""
    size_F: Floats
    """Flows of each class."""
    latency_F: Floats


def fold_flows(net: Network, fold: Fold, source_F: Ints, target_F: Ints, size_F: Floats) -> Folded:
    """Return flows folded: routes of the representatives over classes of links.

    A link of class L carries ``size(F) * crossings(F, L) / size(L)`` flows of class F.
    """
    routes = route(net, source_F, target_F)
    return fold_routes(net, fold, routes, size_F)


def fold_routes(net: Network, fold: Fold, routes: Routes, size_F: Floats) -> Folded:
    """Return routed flows over classes of links."""
    key_E, of_E, link_u = _link_classes(net, fold, routes.link_E)
    size_L = of_E
    count_E = np.repeat(size_F, np.diff(routes.start_F)) / size_L[key_E]
    if routes.share_E is not None:
        count_E = count_E * routes.share_E
    counts = None if np.all(count_E == 1.0) else count_E
    paths = Paths(routes.start_F, key_E, counts)
    return Folded(paths, net.capacity(link_u), size_L, link_u, size_F, routes.latency_F)


def _link_classes(net: Network, fold: Fold, link_E: Ints) -> tuple[Ints, Ints, Ints]:
    """Return (class of every crossing, size of every class, one link of every class)."""
    distinct, at_E = np.unique(link_E, return_inverse=True)
    key_u, size_u = np.zeros(len(distinct), np.int64), np.ones(len(distinct), np.int64)
    block_u = net.block_of(distinct)
    offset = 0
    for number in np.unique(block_u):
        block = net.blocks[int(number)]
        here = block_u == number
        owner, slot = np.divmod(distinct[here] - block.first, block.slots)
        key, size_u[here], width = _block_classes(net, fold, block, owner, slot)
        key_u[here] = key + offset
        offset += width
    _, first, class_u = np.unique(key_u, return_index=True, return_inverse=True)
    return class_u[at_E], size_u[first], distinct[first]


def _block_classes(
    net: Network, fold: Fold, block: Block, owner: Ints, slot: Ints
) -> tuple[Ints, Ints, int]:
    """Return a number for the class of each link in a block, the class's size, and a bound of the
    numbers: by class of the owner and slot, or by both ends where children are interchangeable."""
    tier = net.tiers[block.tier]
    class_O = fold.class_N[:: block.owner_cards]
    count_C = np.bincount(class_O, minlength=fold.classes)
    mine = class_O[owner]
    if tier.index < fold.exact_below:
        key = owner * block.slots + slot
        return key, np.ones_like(key), block.count
    if block.role != "link" or tier.index in fold.kept:
        return mine * block.slots + slot, count_C[mine], fold.classes * block.slots
    peer = class_O[owner - owner % tier.n + slot]
    beside = np.array([
        int(np.count_nonzero(class_O[o - o % tier.n : o - o % tier.n + tier.n] == p))
        for o, p in zip(owner.tolist(), peer.tolist(), strict=True)
    ]) - (mine == peer)  # fmt: skip
    return mine * fold.classes + peer, count_C[mine] * beside, fold.classes**2


def all_pairs(net: Network, fold: Fold) -> tuple[Ints, Ints, Floats]:
    """Return (source, target, number of flows) for every class of ordered pairs of live cards.

    Classes of different roots part at one tier, whatever the pair; inside one root the pairs are
    counted by the tier at which they part.
    """
    if fold.transitive:
        others = np.arange(1, net.cards)
        return 0 * others, others, np.full(len(others), float(net.cards))
    alive_C = np.ones(fold.classes, bool)
    alive_C[fold.class_N[np.fromiter(net.dead, np.int64)]] = False
    live = np.flatnonzero(alive_C)
    a, b = np.repeat(live, len(live)), np.tile(live, len(live))
    apart = fold.root_C[a] != fold.root_C[b]
    a, b = a[apart], b[apart]
    sources, targets = [fold.first_C[a]], [fold.first_C[b]]
    sizes = [(fold.size_C[a] * fold.size_C[b]).astype(np.float64)]
    root_N = fold.root_C[fold.class_N]
    for root in np.unique(fold.root_C[live]):
        mine = live[fold.root_C[live] == root]
        if fold.size_C[mine].sum() == 1:
            continue
        inside = np.flatnonzero(root_N == root)
        for c in mine:
            s, t, m = _pairs_from(net, fold, int(c), inside)
            sources.append(s)
            targets.append(t)
            sizes.append(m)
    return np.concatenate(sources), np.concatenate(targets), np.concatenate(sizes)


def _pairs_from(net: Network, fold: Fold, c: int, inside: Ints) -> tuple[Ints, Ints, Floats]:
    """Pairs from one class to every class of its own root, by the tier where they part."""
    card = int(fold.first_C[c])
    tier_n = net.parted(np.full(len(inside), card), inside)
    key_n = fold.class_N[inside] * len(net.tiers) + tier_n
    key_n, others = key_n[tier_n >= 0], inside[tier_n >= 0]
    _, first, count = np.unique(key_n, return_index=True, return_counts=True)
    size = count.astype(np.float64) * float(fold.size_C[c])
    return np.full(len(first), card), others[first], size


def fold_listed(folded: Folded, *start_F: Floats) -> tuple[Folded, Ints]:
    """Return listed flows folded further by colour refinement, and the class of every flow;
    `start_F` is what tells flows apart beside their latency."""
    classes = refine(folded.paths, folded.capacity_L, folded.latency_F, *start_F)
    paths, capacity_L, first = quotient(folded.paths, folded.capacity_L, classes)
    some = np.zeros(classes.links, np.int64)
    some[classes.link_L[::-1]] = np.arange(len(classes.link_L))[::-1]
    size_F: Floats = np.bincount(classes.flow_F, folded.size_F).astype(np.float64)
    return Folded(
        paths, capacity_L, np.bincount(classes.link_L), folded.link_L[some], size_F,
        folded.latency_F[first],
    ), classes.flow_F  # fmt: skip
