"""Faults of a played step: which cards compute slower, which cards' links carry less.

Axes: C cards of the job in the order of `step.units` (pp, dp, cp, tp).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.cluster import Cluster
from lightloom.core.errors import InputError, nearest
from lightloom.core.event import Fault
from lightloom.core.placement import Placement
from lightloom.core.plan import Plan
from lightloom.core.strategy import Strategy

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
AXES = ("pp", "dp", "cp", "tp")
"""Slowest to fastest in the order in which the player counts cards."""


@dataclass(frozen=True, slots=True, eq=False)
class Slowness:
    """What the faults do to every card of the job."""

    slow_C: F64
    """Compute takes this many times longer."""
    wait_C: F64
    """Transfers take this many times longer."""
    told: tuple[str, ...]
    """One sentence per fault: what it touches."""


def ranks_of(strategy: Strategy, placement: Placement) -> I64:
    """Return the rank number of every card counted (pp, dp, cp, tp), by the placement's order."""
    sizes = {"pp": strategy.pp, "dp": strategy.dp, "cp": strategy.cp, "tp": strategy.tp}
    index = np.arange(strategy.world_size)
    place: dict[str, I64] = {}
    rest = index
    for axis in reversed(AXES):
        place[axis] = rest % sizes[axis]
        rest = rest // sizes[axis]
    rank, stride = np.zeros_like(index), 1
    for axis in (a for a in placement.order if a in sizes):
        rank += place[axis] * stride
        stride *= sizes[axis]
    return rank


def slowness(plan: Plan, faults: tuple[Fault, ...]) -> Slowness:
    """Return what `faults` do, or say which of them cannot be played and why."""
    cards = plan.strategy.world_size
    slow_C, wait_C = np.ones(cards), np.ones(cards)
    rank_C = ranks_of(plan.strategy, plan.placement)
    order = np.argsort(rank_C)
    told = []
    for fault in faults:
        hit = _touched(plan, fault, rank_C, order)
        factor = _factor(fault)
        if fault.kind in ("link", "plane", "channel"):
            wait_C[hit] = np.maximum(wait_C[hit], factor)
            told.append(
                f"{fault.text}: transfers of {len(hit)} cards take {factor:g} times as long"
            )
        else:
            slow_C[hit] = np.maximum(slow_C[hit], factor)
            told.append(f"{fault.text}: compute of {len(hit)} cards takes {factor:g} times as long")
    return Slowness(slow_C, wait_C, tuple(told))


def _factor(fault: Fault) -> float:
    if fault.step is not None or fault.at_s is not None:
        raise InputError(
            f"fault {fault.text!r}: a played step has its faults from the start",
            out=f"leave out the time, or give it to a drill: {fault.kind}:{fault.where}",
        )
    factor = fault.factor
    if np.isnan(factor) or factor < 1.0:
        raise InputError(f"fault {fault.text!r}: a factor is at least 1, times as long",
                         out=f"{fault.kind}:{fault.where}=1.2x")  # fmt: skip
    if not np.isfinite(factor):
        raise InputError(
            f"fault {fault.text!r}: what is gone stops the step, there is nothing to play",
            out=f"{fault.kind}:{fault.where}=1.2x for a slow one, or a drill for a dead one",
        )
    return factor


def _touched(plan: Plan, fault: Fault, rank_C: I64, order: I64) -> I64:
    """Return the positions (0 .. C-1) of the cards that the fault touches."""
    kind, where = fault.kind, fault.where
    if "-" in where and ":" not in where:
        cards = sorted({c for end in where.split("-") for c in _end(plan.cluster, end, fault)})
        return _by_card(plan, cards, fault, order)
    if ":" in where:
        kind, where = where.split(":", 1)
    if kind == "rank":
        rank = _number(where, fault, len(rank_C), "ranks")
        return order[[rank]]
    if kind in ("card", "slow", "link", "channel"):
        return _by_card(plan, [_number(where, fault, plan.cluster.cards, "cards")], fault, order)
    low, high = _unit(plan.cluster, kind, where, fault)
    return _by_card(plan, range(low, high), fault, order)


def _end(cluster: Cluster, word: str, fault: Fault) -> range:
    """Return the cards at one end of a link: ``c17``, ``b3``, or none for a bare level
    (``spine``)."""
    match = re.fullmatch(r"([a-zA-Z_]+)(\d+)?", word)
    names = ["card", *(level.name for level in cluster.fabric.levels)]
    kind = next((n for n in names if match and n.startswith(match[1])), "")
    if match is None or not kind:
        raise InputError(f"fault {fault.text!r}: no end {word!r}", out="link:c17-spine, link:b3-b7")
    if match[2] is None:
        return range(0)
    if kind == "card":
        card = _number(match[2], fault, cluster.cards, "cards")
        return range(card, card + 1)
    return range(*_unit(cluster, kind, match[2], fault))


def _number(text: str, fault: Fault, many: int, what: str) -> int:
    if not text.isdigit():
        raise InputError(f"fault {fault.text!r}: {text!r} is not a number",
                         out=f"{fault.kind}:17=1.2x")  # fmt: skip
    number = int(text)
    if number >= many:
        raise InputError(f"fault {fault.text!r}: there are {many} {what}, 0 to {many - 1}")
    return number


def _unit(cluster: Cluster, kind: str, where: str, fault: Fault) -> tuple[int, int]:
    """Return the cards [low, high) of one host, or of one unit of a fabric level."""
    levels = {level.name: cluster.fabric.cards_below(i)
              for i, level in enumerate(cluster.fabric.levels)}  # fmt: skip
    sizes = {"host": cluster.host.cards, **levels}
    sizes.setdefault("board", cluster.host.cards)
    if kind not in sizes:
        raise InputError(
            f"fault {fault.text!r}: {cluster.name} has no {kind!r}{nearest(kind, sizes)}",
            out=f"card, rank, {', '.join(sizes)}",
        )
    size = sizes[kind]
    unit = _number(where, fault, cluster.cards // size, f"units of {kind}")
    return unit * size, (unit + 1) * size


def _by_card(plan: Plan, cards: Sequence[int], fault: Fault, order: I64) -> I64:
    """Return positions of the job's cards among physical `cards`."""
    world = len(order)
    if plan.placement.cards:
        rank_of = {card: rank for rank, card in enumerate(plan.placement.cards)}
        ranks = [rank_of[card] for card in cards if card in rank_of]
    else:
        ranks = [card for card in cards if card < world]
    if not ranks:
        raise InputError(
            f"fault {fault.text!r} touches no card of the job",
            out=f"the job runs on {world} cards, 0 to {world - 1}",
        )
    found: I64 = order[ranks]
    return found
