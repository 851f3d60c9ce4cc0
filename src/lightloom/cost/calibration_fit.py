"""A small robust least-squares optimiser, and constants as vectors.

Levenberg-Marquardt on residuals in log error; far rows lose weight (soft L1), priors are rows of
their own. Steps use finite differences: the models are cheap and vectorised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


def fit(
    residuals: Callable[[F64], F64],
    start: F64,
    prior: F64,
    scale: float = 0.1,
    rounds: int = 25,
) -> F64:
    """Return the vector that minimises soft-L1 of `residuals` plus (prior x (v - start))^2.

    `scale` is the residual beyond which a row counts linearly instead of squared.
    """
    now, damping = start.copy(), 1e-2
    res = residuals(now)
    cost = _cost(res, now, start, prior, scale)
    for _ in range(rounds):
        slope = np.empty((len(res), len(now)))
        for j in range(len(now)):
            moved = now.copy()
            moved[j] += 1e-4
            slope[:, j] = (residuals(moved) - res) / 1e-4
        weight = 1.0 / np.sqrt(1.0 + (res / scale) ** 2)
        normal = slope.T @ (slope * weight[:, None]) + np.diag(prior**2 * len(res))
        pull = slope.T @ (res * weight) + prior**2 * len(res) * (now - start)
        better = False
        for _ in range(8):
            lifted = normal + damping * np.diag(np.diag(normal) + 1e-9)
            step = np.linalg.lstsq(lifted, pull, rcond=None)[0]
            there = now - np.clip(step, -1.0, 1.0)
            other = residuals(there)
            lower = _cost(other, there, start, prior, scale)
            if np.isfinite(lower) and lower < cost:
                better, damping = True, max(damping * 0.3, 1e-7)
                break
            damping *= 4.0
        if not better:
            break
        gain = cost - lower
        now, res, cost = there, other, lower
        if gain < 1e-5 * cost:
            break
    return now


def _cost(res: F64, now: F64, start: F64, prior: F64, scale: float) -> float:
    loss = 2.0 * scale**2 * (np.sqrt(1.0 + (res / scale) ** 2) - 1.0)
    return float(loss.sum() + ((prior * (now - start)) ** 2).sum() * len(res))


@dataclass(frozen=True, slots=True)
class Knob:
    """One constant that a fit may turn: a field, or a factor of `key` in a table of a field."""

    field: str
    table: str = ""
    key: str = ""
    index: int = -1
    """Place in a tuple field."""
    share: bool = False
    """Stays between 0 and 1 (turned on the logistic scale)."""
    prior: float = 0.03
    """Weight of staying at the start, per row of data."""

    def read(self, law: Any) -> float:
        """Return the constant of `law` on the scale that is turned."""
        if self.table:
            value = getattr(law, self.table).get(self.key, {}).get(self.field, 1.0)
        else:
            value = getattr(law, self.field)
            value = value[self.index] if self.index >= 0 else value
        if self.share:
            value = min(max(value, 1e-3), 1.0 - 1e-3)
            return float(np.log(value / (1.0 - value)))
        return float(np.log(max(value, 1e-30)))


def turn(law: Any, knobs: tuple[Knob, ...], vector: F64) -> Any:
    """Return `law` with the constants of `vector`."""
    fields: dict[str, Any] = {}
    for knob, raw in zip(knobs, vector, strict=True):
        value = 1.0 / (1.0 + np.exp(-raw)) if knob.share else float(np.exp(np.clip(raw, -60, 60)))
        value = float(value)
        if knob.table:
            table = fields.setdefault(
                knob.table, {key: dict(row) for key, row in getattr(law, knob.table).items()}
            )
            table.setdefault(knob.key, {})[knob.field] = value
        elif knob.index >= 0:
            parts = list(fields.get(knob.field, getattr(law, knob.field)))
            parts[knob.index] = value
            fields[knob.field] = tuple(parts)
        else:
            fields[knob.field] = value
    return msgspec.structs.replace(law, **fields)


def fit_law(
    law: Any, knobs: tuple[Knob, ...], residuals: Callable[[Any], F64], scale: float = 0.1
) -> Any:
    """Return `law` with its knobs turned to minimise the residuals that `residuals(law)` gives."""
    start = np.array([knob.read(law) for knob in knobs])
    prior = np.array([knob.prior for knob in knobs])
    best = fit(lambda v: residuals(turn(law, knobs, v)), start, prior, scale)
    return turn(law, knobs, best)
