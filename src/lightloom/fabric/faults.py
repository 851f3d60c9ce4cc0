"""Faults of a fabric: what ``link:c17-spine``, ``card:3`` or ``plane:spine.2`` does to links.

Nodes are written ``c17`` or ``card17``, a unit as its level and number (``board3``, ``b3``); a
link as two ends (``c0-c1``, ``b3-b7``, ``c17-spine``, ``b3-spine``), both directions fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from lightloom.core.errors import FabricError, InputError, nearest
from lightloom.core.event import Fault, parse_fault

from .grid import table
from .network import LARGEST_CELL, Network, with_faults
from .tiers import Block, Tier

_END = re.compile(r"([a-zA-Z_-]*?)(\d+)?")
HERE = ("link", "card", "rank", "board", "host", "plane", "channel", "slow")


def break_links(net: Network, faults: Iterable[str | Fault], host_cards: int = 0) -> Network:
    """Return the network with faults present; InputError or FabricError names what is unknown."""
    for text in faults:
        fault = parse_fault(text) if isinstance(text, str) else text
        if fault.kind not in HERE:
            raise InputError(
                f"fault {fault.text!r}: a fabric knows {', '.join(HERE)}, not {fault.kind}"
            )
        left = 0.0 if fault.factor == float("inf") else 1.0 / fault.factor
        if left < 0 or left > 1:
            raise InputError(f"fault {fault.text!r}: a factor is at least 1, such as 1.2x")
        net = _apply(net, fault, left, host_cards)
    if len(net.dead) >= net.cards:
        raise FabricError("no card is left", out="fewer --fail")
    return net


def _apply(net: Network, fault: Fault, left: float, host_cards: int) -> Network:
    if fault.kind in ("card", "rank", "slow"):
        card = _card(net, fault)
        return _card_fault(net, [card], left)
    if fault.kind == "board":
        return _card_fault(net, _unit_cards(net, fault), left)
    if fault.kind == "host":
        if not host_cards or not fault.where.isdigit():
            raise InputError(f"fault {fault.text!r}: host number and cards per host are needed")
        first = int(fault.where) * host_cards
        if first >= net.cards:
            raise FabricError(f"fault {fault.text!r}: hosts are 0..{net.cards // host_cards - 1}")
        return _card_fault(net, list(range(first, first + host_cards)), left)
    if fault.kind == "plane":
        return _plane(net, fault, left)
    links, touched = find_links(net, fault.where, fault.text)
    if fault.kind == "channel":
        left = _without_a_channel(net, links[0], left)
    return with_faults(net, dict.fromkeys(links, left), touched=touched)


def _card(net: Network, fault: Fault) -> int:
    word, number = _split(fault.where)
    if number is None or not "card".startswith(word):
        raise InputError(f"fault {fault.text!r}: {fault.where!r} is not a card", out="card:17")
    if number >= net.cards:
        raise FabricError(f"fault {fault.text!r}: cards are 0..{net.cards - 1}")
    return number


def _split(text: str) -> tuple[str, int | None]:
    match = _END.fullmatch(text)
    if not match:
        return text, None
    return match[1].rstrip("-_"), int(match[2]) if match[2] else None


def _card_fault(net: Network, cards: list[int], left: float) -> Network:
    """Dead cards go, unless a spare of their unit takes their place; slow ones keep slow ports."""
    first_tier = net.tiers[0]
    if left == 0 and first_tier.spare:
        for card in cards:
            unit = card // first_tier.cards
            taken = sum(c // first_tier.cards == unit for c in net.replaced)
            if taken < first_tier.spare and card not in net.replaced:
                net = with_faults(net, {}, replaced=[card])
        cards = [card for card in cards if card not in net.replaced]
        if not cards:
            return net
    scale: dict[int, float] = {}
    if left == 0:
        grid = None if net.tiers[0].interchangeable else net.block(0, "link")
        if grid is not None:  # nothing passes through a dead card
            for card in cards:
                first = grid.first + card * grid.slots
                scale.update(dict.fromkeys(range(first, first + grid.slots), 0.0))
                scale.update(dict.fromkeys(_into(net.tiers[0], grid, card), 0.0))
        return with_faults(net, scale, dead=cards)
    for block in net.blocks:
        if block.owner_cards == 1 and block.role in ("up", "down", "link"):
            for card in cards:
                first = block.first + card * block.slots
                scale.update(dict.fromkeys(range(first, first + block.slots), left))
    touched = {(1, c, t.index) for c in cards for t in net.tiers if t.ports != "through"}
    grid = net.block(0, "link")
    if grid is not None and net.tiers[0].c == 1:
        cell = net.tiers[0].cards
        for card in cards:
            scale.update(dict.fromkeys(_into(net.tiers[0], grid, card), left))
            if cell <= LARGEST_CELL:
                first = card - card % cell
                touched |= {(1, k, 0) for k in range(first, first + cell)}
    return with_faults(net, scale, touched=touched)


def _into(tier: Tier, block: Block, child: int) -> list[int]:
    """Links of a grid that lead into a child."""
    start, place = child - child % tier.n, child % tier.n
    to = table(tier)
    rows, slots = np.nonzero(to == place)
    return [
        block.first + (start + int(r)) * block.slots + int(s)
        for r, s in zip(rows, slots, strict=True)
        if r != place
    ]


def _unit_cards(net: Network, fault: Fault) -> list[int]:
    word, number = _split(fault.where)
    tier = _tier(net, word or fault.kind, fault.text)
    if number is None or number >= tier.units:
        raise FabricError(f"fault {fault.text!r}: units of {tier.name} are 0..{tier.units - 1}")
    return list(range(number * tier.cards, (number + 1) * tier.cards))


def _tier(net: Network, word: str, where: str) -> Tier:
    """Return the tier whose name starts with `word`, if only one does."""
    names = [t.name for t in net.tiers]
    hits = [t for t in net.tiers if t.name == word] or [
        t for t in net.tiers if word and t.name.startswith(word)
    ]
    if len(hits) != 1:
        many = f" could be {', '.join(t.name for t in hits)}" if hits else " is no level here"
        raise FabricError(
            f"fault {where!r}: {word!r}{many}{nearest(word, names)}",
            out=f"levels: {', '.join(names)}",
        )
    return hits[0]


def _plane(net: Network, fault: Fault, left: float) -> Network:
    """One plane of a switched level: each child keeps the other planes' share."""
    name, _, plane = fault.where.rpartition(".")
    levels = [lv for lv in net.fabric.levels if lv.planes > 1]
    if not levels:
        raise FabricError(f"fault {fault.text!r}: no level of this fabric has planes")
    tier = _tier(net, name or levels[-1].name, fault.text)
    planes = net.fabric.levels[tier.level].planes
    if not plane.isdigit() or int(plane) >= planes:
        raise FabricError(f"fault {fault.text!r}: planes of {tier.name} are 0..{planes - 1}")
    scale: dict[int, float] = {}
    for block in net.blocks:
        if block.tier != tier.index or block.role not in ("up", "down"):
            continue
        if (block.slots > 1 and block.slots == planes) or tier.rails:
            owners = np.arange(block.owners)
            if tier.rails:
                ids = block.first + owners[owners % tier.c % tier.rails == int(plane)]
            else:
                ids = block.first + owners * block.slots + int(plane)
            scale.update(dict.fromkeys(ids.tolist(), left))
        else:
            part = 1.0 - (1.0 - left) / planes
            scale.update(dict.fromkeys(range(block.first, block.first + block.count), part))
    return with_faults(net, scale)


def _without_a_channel(net: Network, link: int, left: float) -> float:
    """Share of a link that is left when one wavelength of it fails or fades."""
    tier = net.tiers[net.blocks[int(net.block_of(np.array([link]))[0])].tier]
    optics = net.fabric.levels[tier.level].optics
    if optics is None:
        raise FabricError(f"level {tier.name} has no optics: no channel can fail there")
    return 1.0 - (1.0 - left) / (optics.fibres * optics.channels)


def find_links(net: Network, where: str, text: str) -> tuple[list[int], set[tuple[int, int, int]]]:
    """Return the numbers of the links between two nodes, and the children they single out."""
    left, dash, right = where.partition("-")
    if not dash:
        raise InputError(
            f"fault {text!r}: a link has two ends", out="link:c0-c1, link:b3-b7, link:c17-spine"
        )
    a, b = _node(net, left, text), _node(net, right, text)
    if a[0] > b[0] and b[1] is not None:
        a, b = b, a
    if a[0] == b[0] and a[1] is not None and b[1] is not None:
        return _between(net, a[0], a[1], b[1], text)
    return _uplink(net, a, b, text)


def _node(net: Network, word: str, text: str) -> tuple[int, int | None]:
    """Return (cards of the node, its number); no number for a bare level name."""
    name, number = _split(word)
    if number is not None and "card".startswith(name):
        if number >= net.cards:
            raise FabricError(f"fault {text!r}: cards are 0..{net.cards - 1}")
        return 1, number
    tier = _tier(net, name, text)
    if number is not None and number >= tier.units:
        raise FabricError(f"fault {text!r}: units of {tier.name} are 0..{tier.units - 1}")
    return tier.cards, number


def _between(
    net: Network, cards: int, one: int, two: int, text: str
) -> tuple[list[int], set[tuple[int, int, int]]]:
    """Both directions of a grid link between two children."""
    tier = next((t for t in net.tiers if t.c == cards and t.shape == "grid"), None)
    block = net.block(tier.index, "link") if tier else None
    links: list[int] = []
    peers: list[int] = []
    if tier is not None and block is not None:
        to, start = table(tier), one - one % tier.n
        peers = [start + int(p) for p in np.unique(to[one % tier.n]) if p != one % tier.n]
        for a, b in ((one, two), (two, one)):
            if a - a % tier.n == b - b % tier.n and a != b:
                slots = np.flatnonzero(to[a % tier.n] == b % tier.n)
                links += [block.first + a * block.slots + int(s) for s in slots]
    if not links:
        names = [f"{net.child_name(cards, one)}-{net.child_name(cards, p)}" for p in peers[:3]]
        raise FabricError(
            f"fault {text!r}: no link joins {net.child_name(cards, one)} and "
            f"{net.child_name(cards, two)}",
            out=f"nearest: {', '.join(names)}" if names else _ports_of(net),
        )
    assert tier is not None
    return links, {(cards, one, tier.index), (cards, two, tier.index)}


def _ports_of(net: Network) -> str:
    names = [t.name for t in net.tiers if t.ports != "none"]
    return "links here join a card or unit to a level: " + ", ".join(f"c0-{n}" for n in names)


def _uplink(
    net: Network, a: tuple[int, int | None], b: tuple[int, int | None], text: str
) -> tuple[list[int], set[tuple[int, int, int]]]:
    """Ports of a card or unit into a level."""
    tier = next((t for t in net.tiers if t.cards == b[0]), None)
    up = net.block(tier.index, "up") if tier else None
    down = net.block(tier.index, "down") if tier else None
    if a[1] is None or tier is None or up is None or down is None:
        raise FabricError(f"fault {text!r}: no such link", out=_ports_of(net))
    inside = b[1] is None or a[1] * a[0] // tier.cards == b[1]
    if a[0] < up.owner_cards or a[0] > tier.c or not inside:
        raise FabricError(
            f"fault {text!r}: {net.child_name(a[0], a[1])} has no port of its own into {tier.name}",
            out=f"{net.child_name(up.owner_cards, a[1] * a[0] // up.owner_cards)}-{tier.name}",
        )
    owners = range(a[1] * a[0] // up.owner_cards, (a[1] + 1) * a[0] // up.owner_cards)
    links = [
        block.first + owner * block.slots + slot
        for block in (up, down)
        for owner in owners
        for slot in range(block.slots)
    ]
    return links, {(up.owner_cards, owner, tier.index) for owner in owners}
