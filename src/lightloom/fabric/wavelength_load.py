"""How much load an allocator carries at a given blocking, and how far the bound is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .wavelength import Setting, draw
from .wavelength_replay import Policy, replay
from .wavelength_routes import RouteTable

WARM_UP = 3000
"""Requests left out of the count while the empty network fills (as XLRON does)."""


def blocking(
    setting: Setting, table: RouteTable, policy: Policy, erlang: float, seeds: Sequence[int],
    count: int = 100_000,
) -> list[float]:  # fmt: skip
    """Return the share of requests refused, one entry per seed."""
    out = []
    for seed in seeds:
        requests = draw(setting, len(table.pairs), count, np.random.default_rng(seed), erlang)
        out.append(replay(setting, table, requests, policy).blocking(WARM_UP))
    return out


def load_at(
    setting: Setting, table: RouteTable, policy: Policy, target: float, seeds: Sequence[int],
    start: float, count: int = 100_000,
) -> float:  # fmt: skip
    """Return the Erlang at which `policy` refuses the share `target` of requests.

    Secant on the logarithm of blocking, which is close to linear in the load; the same seeds at
    every load, so that policies are compared on the same demand.
    """
    floor = 0.25 / (len(seeds) * count)

    def height(erlang: float) -> float:
        mean = float(np.mean(blocking(setting, table, policy, erlang, seeds, count)))
        return math.log(max(mean, floor) / target)

    low, low_y = start, height(start)
    high = start * (1.04 if low_y < 0 else 0.96)
    for _ in range(6):
        high_y = height(high)
        if abs(high_y) < 0.02 or abs(high_y - low_y) < 1e-12:
            return high
        step = high - high_y * (high - low) / (high_y - low_y)
        low, low_y, high = high, high_y, min(max(step, 0.8 * high), 1.2 * high)
        if abs(high / low - 1.0) < 1e-3:
            return high
    return high
