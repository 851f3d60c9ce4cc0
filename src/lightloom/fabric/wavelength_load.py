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

    Bracket, then secant, on the logarithm of blocking, close to linear in the load; the same
    seeds at every load, so that policies are compared on the same demand.
    """
    floor = 0.25 / (len(seeds) * count)

    def height(erlang: float) -> float:
        mean = float(np.mean(blocking(setting, table, policy, erlang, seeds, count)))
        return math.log(max(mean, floor) / target)

    below = above = start
    below_y = above_y = height(start)
    step = 0.04
    while below_y > 0:
        above, above_y, below = below, below_y, below / (1 + step)
        below_y, step = height(below), min(2 * step, 1.0)
    while above_y < 0:
        below, below_y, above = above, above_y, above * (1 + step)
        above_y, step = height(above), min(2 * step, 1.0)
    for _ in range(8):
        if above / below < 1.002 or above_y - below_y < 0.02:
            break
        middle = below - below_y * (above - below) / (above_y - below_y)
        middle = min(max(middle, below + 0.1 * (above - below)), above - 0.1 * (above - below))
        middle_y = height(middle)
        if abs(middle_y) < 0.02:
            return middle
        if middle_y < 0:
            below, below_y = middle, middle_y
        else:
            above, above_y = middle, middle_y
    return below - below_y * (above - below) / (above_y - below_y) if above > below else below
