"""Who goes first on a card's links: the rate of every transfer that shares a port.

A port is one card's way out (or in) at every fabric level, each level one unit of bandwidth. A
transfer that alone takes share ``load[level]`` runs at a rate between 0 and 1 of its speed alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError, nearest
from lightloom.core.traffic import CLASSES, DEFAULT_PRIORITY, PRIORITIES, Priority, TrafficClass

F64 = NDArray[np.float64]
FULL = 1e-12
"""Room below this share of a level is none."""
PolicyKind = Literal["fair", "fifo", "strict", "weighted"]
WEIGHT: dict[Priority, float] = {"highest": 8.0, "high": 4.0, "medium": 2.0, "low": 1.0}
"""Shares of the weighted policy, powers of two as 802.1Qaz traffic classes are usually set."""


@dataclass(frozen=True)
class Policy:
    """How transfers of different classes share a link."""

    kind: PolicyKind = "fair"
    """fair: equal shares; fifo: the one that came first; strict: the highest class, the rest gets
    what it leaves; weighted: shares in proportion 8:4:2:1."""
    priority: dict[TrafficClass, Priority] = field(default_factory=lambda: dict(DEFAULT_PRIORITY))
    chunk_bytes: float = 4 * 2**20
    """A transfer gives way only when the chunk on the wire is through (NCCL's buffer: 4 MiB)."""

    def rank(self, traffic: TrafficClass) -> int:
        """0 for the highest priority."""
        return PRIORITIES.index(self.priority[traffic])

    def weight(self, traffic: TrafficClass) -> float:
        """Share of the weighted policy."""
        return WEIGHT[self.priority[traffic]]


def parse_priorities(text: str) -> dict[TrafficClass, Priority]:
    """Return the priority of every class: the house's, changed by ``class=priority,...``."""
    found = dict(DEFAULT_PRIORITY)
    for part in (p.strip() for p in text.split(",") if p.strip()):
        name, _, level = part.partition("=")
        if name not in CLASSES:
            what = f"priority {part!r}: no traffic class {name!r}{nearest(name, CLASSES)}"
            raise InputError(what, out=", ".join(CLASSES))
        if level not in PRIORITIES:
            raise InputError(f"priority {part!r}: {level!r} is none of {', '.join(PRIORITIES)}",
                             out=f"{name}=highest")  # fmt: skip
        found[name] = level
    return found


Kind = tuple[tuple[float, ...], TrafficClass]
"""What decides the share of a transfer: its load and its class."""


class Shares:
    """Rates at one port, remembered by what is there: steps repeat themselves."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.kinds: list[Kind] = []
        self._index: dict[Kind, int] = {}
        self._known: dict[tuple[int, ...], tuple[float, ...]] = {}

    def kind_of(self, load: tuple[float, ...], traffic: TrafficClass) -> int:
        """Return a number for this kind of transfer."""
        key = (load, traffic)
        if key not in self._index:
            self._index[key] = len(self.kinds)
            self.kinds.append(key)
        return self._index[key]

    def rates(self, kinds: tuple[int, ...]) -> tuple[float, ...]:
        """Return the rate of each transfer at a port, given in order of arrival."""
        known = self._known.get(kinds)
        if known is None:
            known = self._known[kinds] = self._solve([self.kinds[k] for k in kinds])
        return known

    def _solve(self, kinds: list[Kind]) -> tuple[float, ...]:
        """Rates of all transfers at a port: group by group where some go first."""
        policy = self.policy
        rank = [0] * len(kinds)
        if policy.kind == "fifo":
            rank = list(range(len(kinds)))
        elif policy.kind == "strict":
            rank = [policy.rank(traffic) for _, traffic in kinds]
        weighted = policy.kind == "weighted"
        levels = max(len(load) for load, _ in kinds)
        room = np.ones(levels)
        rates = np.zeros(len(kinds))
        for turn in sorted(set(rank)):
            mine = [i for i, r in enumerate(rank) if r == turn]
            load = np.array([(*kinds[i][0], *([0.0] * levels))[:levels] for i in mine])
            weight = np.array([policy.weight(kinds[i][1]) if weighted else 1.0 for i in mine])
            rates[mine] = level_shares(load, weight, room)
            room = np.maximum(room - rates[mine] @ load, 0.0)
            room[room < FULL] = 0.0
        return tuple(min(float(rate), 1.0) for rate in rates)


def level_shares(load_FL: F64, weight_F: F64, room_L: F64) -> F64:
    """Return the rate of each transfer, 0 to 1, when every level shares its room by weight.

    Each level fills the demands of those that cross it in proportion to their weights, a transfer
    asks a level for no more than its other levels let through, and goes at its slowest level:
    weighted max-min, found by repeating until nothing changes. Axes: F transfers, L levels.
    """
    limit_FL = np.where(load_FL > 0.0, 1.0, np.inf)
    for _ in range(4 * load_FL.shape[0] + 4):
        before = limit_FL.copy()
        for level in np.flatnonzero(load_FL.any(axis=0)):
            others = np.delete(limit_FL, level, axis=1).min(axis=1, initial=1.0)
            load = load_FL[:, level]
            got = _fill(load * np.minimum(others, 1.0), weight_F * (load > 0.0), room_L[level])
            limit_FL[:, level] = np.divide(got, load, out=np.full_like(load, np.inf),
                                           where=load > 0.0)  # fmt: skip
        if np.array_equal(np.isfinite(before), np.isfinite(limit_FL)) and np.allclose(
            np.where(np.isfinite(before), before, 0.0),
            np.where(np.isfinite(limit_FL), limit_FL, 0.0), rtol=1e-12, atol=0.0,
        ):  # fmt: skip
            break
    rate_F: F64 = np.minimum(limit_FL.min(axis=1, initial=1.0), 1.0)
    return rate_F


def _fill(demand_F: F64, weight_F: F64, room: float) -> F64:
    """Return water-filling of `room`: nobody gets more than asked, the rest by weight."""
    got = np.zeros_like(demand_F)
    left = demand_F > 0.0
    while left.any() and room > 0.0:
        share = room * weight_F / weight_F[left].sum()
        done = left & (demand_F <= share * (1.0 + 1e-15))
        if not done.any():
            got[left] = share[left]
            break
        got[done] = demand_F[done]
        room -= float(demand_F[done].sum())
        left &= ~done
    return got
