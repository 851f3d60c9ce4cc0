"""How wide to believe a prediction: 90 % intervals from residuals of rows never fitted.

A row's residual is log(measured / predicted) by factors that never saw its fold. Its spread
depends on what the row is (generation, stack, experts, size); quantiles of residual over spread
give the interval. Coverage is checked on rows whose fold the interval never saw (docs/truth.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from .calibration import Calibration
from .calibration_scale import keys_of
from .job import Job
from .memo import per_object

F64 = NDArray[np.float64]
LEVEL = 0.90
FLOOR = 0.015
"""Smallest residual that counts (1.5 %): identical runs differ by more."""
OUTSIDE = 1.6
"""How much wider an interval is outside the evidence; assumed."""
WIDEST = 0.9
"""Largest log half-width that is printed."""
HOLD = 10.0
"""Rows at the general spread that each special spread is held by."""


MOST_MEASURED = 16384
"""Cards of the largest published run with its configuration (Llama 3 405B)."""
MEASURED = ("ampere", "hopper", "blackwell", "davinci")
"""Generations of chips whose training runs are published with their configuration."""
LAST_SOLD = 2026
"""Chips of later years are road maps."""


def outside_reasons(job: Job, cards: int, cal: Calibration) -> list[str]:
    """Return why a job of `cards` cards lies outside the evidence; empty where it does not."""
    reasons = []
    if cards > MOST_MEASURED:
        reasons.append(f"no run above {MOST_MEASURED:,} cards is published")
    if any(level.optics is not None for level in job.cluster.fabric.levels):
        reasons.append("no run on an optical fabric is published")
    chip = job.cluster.chip
    if chip.arch not in MEASURED:
        reasons.append(f"no run on {chip.title} is published with its configuration")
    if chip.year > LAST_SOLD:
        reasons.append(f"{chip.title} is a road map ({chip.year})")
    if cal.made_from.startswith("assumed"):
        reasons.append("constants are textbook shares, not calibrated")
    return reasons


def bounds_of(
    cal: Calibration, job: Job, dtype: str, world_N: NDArray[np.int64]
) -> tuple[F64, F64]:
    """Return factors (low, high) on the step time of candidates of `world_N` cards."""
    always = bool(outside_reasons(job, 0, cal))
    low, high = (np.full(len(world_N), np.exp(x)) for x in interval_of(cal, job, dtype, always))
    large = world_N > MOST_MEASURED
    if large.any() and not always:
        wide = interval_of(cal, job, dtype, True)
        low, high = (np.where(large, np.exp(w), x) for w, x in zip(wide, (low, high), strict=True))
    return low, high


def width_keys(job: Job, dtype: str) -> tuple[str, ...]:
    """Return what may change the spread of a job's residuals."""
    keys = keys_of(job, dtype)
    kind = "experts" if job.model.is_moe else "dense"
    size = "to-8-cards" if job.cards <= 8 else "large" if job.cards > 2048 else "middle"
    return (keys[1], keys[2], keys[4], kind, f"{kind} {keys[1]}", size)


def fit_spread(keys_R: Sequence[tuple[str, ...]], residual_R: F64) -> dict[str, float]:
    """Return the factor of the spread by key; ``*`` is the general spread.

    Log spreads add up over keys, fitted by ridge regression to log |residual|.
    """
    size = np.log(np.maximum(np.abs(residual_R), FLOOR))
    names = sorted({k for keys in keys_R for k in keys})
    place = {name: i for i, name in enumerate(names)}
    design = np.zeros((len(size), len(names) + 1))
    design[:, -1] = 1.0
    for row, keys in enumerate(keys_R):
        for key in keys:
            design[row, place[key]] = 1.0
    hold = np.diag([HOLD] * len(names) + [1e-6])
    weights = np.linalg.solve(design.T @ design + hold, design.T @ size)
    factors = {n: float(np.exp(w)) for n, w in zip(names, weights[:-1].tolist(), strict=True)}
    return factors | {"*": float(np.exp(weights[-1]))}


def _spread(factors: dict[str, float], keys: tuple[str, ...]) -> float:
    value = factors.get("*", 1.0)
    for key in keys:
        value *= factors.get(key, 1.0)
    return value


def with_interval(
    cal: Calibration,
    keys_R: Sequence[tuple[str, ...]],
    residual_R: F64,
    fold_R: NDArray[np.int64],
) -> Calibration:
    """Return `cal` with intervals from these residuals.

    The quantiles are of residuals over a spread that never saw the row's fold either, so that
    fitting the spread cannot make them too small.
    """
    unit = np.zeros(len(residual_R))
    for fold in np.unique(fold_R).tolist():
        seen, kept = np.flatnonzero(fold_R != fold), np.flatnonzero(fold_R == fold)
        if not len(seen):
            seen = kept
        factors = fit_spread([keys_R[i] for i in seen.tolist()], residual_R[seen])
        unit[kept] = [residual_R[i] / _spread(factors, keys_R[i]) for i in kept.tolist()]
    edge = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(unit, [edge, 1.0 - edge])
    spread = fit_spread(keys_R, residual_R)
    interval = cal.interval | {"*": (float(low), float(high))}
    return msgspec.structs.replace(cal, spread=spread, interval=interval)


@per_object(256)
def interval_of(cal: Calibration, job: Job, dtype: str, outside: bool) -> tuple[float, float]:
    """Return log-ratios (low, high) of measured over predicted that hold 90 % of runs.

    Wider by `OUTSIDE` where nothing like the job was measured.
    """
    if not cal.interval:
        return -0.35, 0.35
    low, high = cal.interval.get("*", (-0.35, 0.35))
    unit = _spread(cal.spread, width_keys(job, dtype)) if cal.spread else 1.0
    unit *= OUTSIDE if outside else 1.0
    return max(low * unit, -WIDEST), min(high * unit, WIDEST)
