"""Flows through time: every start and finish changes the shares of the rest.

Axes: F flows (or classes of flows), L links. A flow waits its latency, then moves its bytes at its
max-min share; shares are solved anew at every start and finish.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import FabricError

from .share import Floats, Ints, Paths, Rows, fill, max_min, rows_of, select

SAME = 1e-12
"""Events closer than this (relative) are one."""


def finish(
    paths: Paths,
    capacity_L: Floats,
    bytes_F: Floats,
    latency_F: Floats | None = None,
    start_F: Floats | None = None,
    weight_F: Floats | None = None,
    priority_F: Ints | None = None,
) -> Floats:
    """Return the second at which each flow has delivered its last byte.

    Infinite `bytes_F` is background that never ends (it ends with infinity).
    """
    flows = paths.flows
    begin_F = np.zeros(flows) if start_F is None else np.array(start_F, np.float64)
    if latency_F is not None:
        begin_F = begin_F + latency_F
    left_F = np.array(bytes_F, np.float64)
    end_F = np.where(np.diff(paths.start_F) == 0, begin_F, np.inf)
    waiting = np.argsort(begin_F, kind="stable")
    waiting = waiting[np.isinf(end_F[waiting])]
    rows = rows_of(paths, weight_F, waiting[:0])
    now = float(begin_F[waiting[0]]) if len(waiting) else 0.0
    moving = int(np.isfinite(left_F[waiting]).sum())
    while moving:
        due = int(np.searchsorted(begin_F[waiting], now * (1 + SAME) + 1e-300, side="right"))
        if due:
            ready = np.sort(np.concatenate([rows.flow_F, waiting[:due]]))
            rows, waiting = rows_of(paths, weight_F, ready), waiting[due:]
        active = rows.flow_F
        rate = _rates(paths, rows, capacity_L, weight_F, priority_F)
        step, done = _next(left_F[active], rate)
        following = float(begin_F[waiting[0]]) - now if len(waiting) else np.inf
        if not np.isfinite(min(step, following)):
            raise FabricError(f"{moving} flows never end: no link gives them a share")
        if following < step * (1 - SAME):
            left_F[active] = np.maximum(left_F[active] - rate * following, 0.0)
            now += following
            continue
        now += step
        left_F[active] = np.where(done, 0.0, np.maximum(left_F[active] - rate * step, 0.0))
        end_F[active[done]] = now
        moving -= int(done.sum())
        rows = rows.keep(~done)
    return end_F


def _rates(
    paths: Paths, rows: Rows, capacity_L: Floats, weight_F: Floats | None, priority_F: Ints | None
) -> Floats:
    """Return the shares of the flows in `rows`, in their order."""
    active = rows.flow_F
    if priority_F is not None:
        weight = None if weight_F is None else weight_F[active]
        return max_min(select(paths, active), capacity_L, weight, priority_F[active])
    rate_F = np.full(paths.flows, np.nan)
    fill(rows, capacity_L.copy(), rate_F)
    return rate_F[active]


def _next(left: Floats, rate: Floats) -> tuple[float, NDArray[np.bool_]]:
    """Return seconds to the next finish and who finishes then."""
    if not len(left):
        return np.inf, np.zeros(0, bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        need = np.where(np.isinf(rate), 0.0, left / rate)
    need = np.where(np.isnan(need), 0.0, need)
    step = float(need.min())
    return step, need <= step * (1 + 10 * SAME)
