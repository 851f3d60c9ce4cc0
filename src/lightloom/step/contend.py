"""Who goes first on a card's links: the rate of every transfer that shares a port.

A port is one card's way out (or in) at every fabric level, each level one unit of bandwidth. A
transfer that alone takes share ``load[level]`` runs at a rate between 0 and 1 of its speed alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from lightloom.core.traffic import DEFAULT_PRIORITY, PRIORITIES, Priority, TrafficClass
from lightloom.flow.share import Paths, max_min

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
        """Max-min over levels; one more link per transfer caps its rate at 1."""
        levels = max(len(load) for load, _ in kinds)
        start, link, count = [0], [], []
        for i, (load, _) in enumerate(kinds):
            used = [(level, share) for level, share in enumerate(load) if share > 0.0]
            link += [level for level, _ in used] + [levels + i]
            count += [share for _, share in used] + [1.0]
            start.append(len(link))
        paths = Paths(np.array(start), np.array(link), np.array(count))
        priority = weight = None
        size = np.array([max(load, default=0.0) or 1.0 for load, _ in kinds])
        if self.policy.kind == "fifo":
            priority = np.arange(len(kinds))
        elif self.policy.kind == "strict":
            priority = np.array([self.policy.rank(traffic) for _, traffic in kinds])
            weight = 1.0 / size
        else:
            given = [
                self.policy.weight(traffic) if self.policy.kind == "weighted" else 1.0
                for _, traffic in kinds
            ]
            weight = np.array(given) / size
        rates = max_min(paths, np.ones(levels + len(kinds)), weight, priority)
        return tuple(min(float(rate), 1.0) for rate in rates)
