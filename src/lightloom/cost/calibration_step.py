"""Fitting a step's factors to measured runs: sums of the engine's parts, robust in log error.

Axes: R rows, P parts, V factors. The engine prices every row once with all factors at 1; a step
is then a sum of parts times factors (hidden communication costs a share, hosts and devices meet
in a 4-norm as in the engine), so a fit takes seconds. Factors multiply: one for all, one for what
a row is (`calibration_scale.keys_of`), each held near 1 by a prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from .anatomy import anatomy_of
from .calibration import Calibration, Kernels
from .calibration_scale import ABSOLUTE, keys_of
from .columns import columns_of
from .evaluate import evaluate
from .evidence_rows import Row
from .layer_table import BACKWARD_WORK, host_seconds
from .layer_time import attention_costs
from .precision import parse_precision

F64 = NDArray[np.float64]
KERNELS = ("gemm", "attention", "experts", "elementwise")
WIRES = ("tp", "cp", "ep")
SHOWN = (*KERNELS, "floor", "recompute", *WIRES, "pp", "dp", "bubble", "optimizer")
AXES = ("tp", "cp", "ep", "pp", "dp")
KINDS: dict[str, tuple[str, ...]] = {
    "soft": ("*", "arch", "stack", "stack arch"),
    "gemm": ("width", "arch width", "stack width"),
    "attention": ("*", "era", "arch era", "stack"),
    "attention_floor": ("*", "stack arch"),
    "experts": ("*", "arch"),
    "elementwise": ("*", "stack"),
    "host": ("*", "stack"),
    "tp": ("*", "stack"), "cp": ("*",), "ep": ("*", "arch"), "pp": ("*",),
    "dp": ("*", "net", "stack"), "optimizer": ("*",),
    "under_tp": ("*",), "under_cp": ("*",), "under_ep": ("*",), "under_pp": ("*",),
    "under_dp": ("*", "stack"), "step_s": ("*", "stack"), "jitter": ("*",),
}  # fmt: skip
"""Part -> what may change its factor. Few on purpose: each is a cause, none a source."""
START = {"under_tp": 0.13, "under_cp": 0.13, "under_ep": 0.13, "under_pp": 0.13, "under_dp": 0.13,
         "step_s": 0.02, "jitter": 0.006, "attention_floor": 1.5}  # fmt: skip
LOOSE = ("host", "attention_floor")
"""Parts whose causes differ by factors, not by shares: hardly held."""
ALL_PRIOR, KIND_PRIOR, LOOSE_PRIOR = 0.02, 0.05, 0.005
"""How strongly a general factor and a special one are held at their start."""


def kinds_of(keys: tuple[str, ...]) -> dict[str, str]:
    """Return the key of each kind of cause."""
    names = ("*", "arch", "width", "arch width", "stack", "stack arch", "era", "arch era",
             "stack width", "net")  # fmt: skip
    return dict(zip(names, keys, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class StepTable:
    """Measured rows as the engine's parts with every factor at 1."""

    shown_PR: F64
    hidden_AR: F64
    host_R: F64
    cards_R: F64
    measured_R: F64
    keys_R: tuple[tuple[str, ...], ...]

    def take(self, rows: NDArray[np.int64]) -> StepTable:
        """Return some rows."""
        return StepTable(self.shown_PR[:, rows], self.hidden_AR[:, rows], self.host_R[rows],
                         self.cards_R[rows], self.measured_R[rows],
                         tuple(self.keys_R[i] for i in rows.tolist()))  # fmt: skip


def step_table(rows: Sequence[Row], cal: Calibration) -> StepTable:
    """Return the parts of every row (all must have a job)."""
    plain = msgspec.structs.replace(cal, scale={"host": {"*": 1e-3}}, interval={})
    shown, hidden, host = [], [], []
    for row in rows:
        assert row.job is not None and row.strategy is not None
        c = columns_of([row.strategy])
        costs = evaluate(row.job, c, plain)
        parts = {n: float(v[0]) for n, v in costs.parts.items()} | {"floor": _floor(row)}
        shown.append([parts[p] * row.scale for p in SHOWN])
        hidden.append([float(costs.hidden[a][0]) * row.scale for a in AXES])
        host.append(_host(row, plain) * row.scale)
    return StepTable(
        np.array(shown).T, np.array(hidden).T, np.array(host),
        np.array([float(r.job.cards) for r in rows if r.job]),
        np.array([r.measured for r in rows]),
        tuple(keys_of(r.job, parse_precision(r.strategy.precision).mlp)
              for r in rows if r.job and r.strategy),
    )  # fmt: skip


def _floor(row: Row) -> float:
    """Return seconds of a step's attention, forward and backward, at the chip's peak."""
    job, s = row.job, row.strategy
    assert job is not None and s is not None
    c, precision = columns_of([s]), parse_precision(s.precision)
    a = anatomy_of(job.model)
    flops = attention_costs(job, a, precision, c, Kernels())[2]
    layers = float((flops[:, 0] * a.count_B).sum()) / s.pp
    return (
        s.micro_batches * layers * (1.0 + BACKWARD_WORK) / job.cluster.chip.peak_of(precision.core)
    )


def _host(row: Row, cal: Calibration) -> float:
    """Return seconds that a host of the fullest stage spends launching one step's kernels."""
    job, s = row.job, row.strategy
    assert job is not None and s is not None
    a = anatomy_of(job.model)
    each = host_seconds(a, columns_of([s]), parse_precision(s.precision), cal)[:, 0]
    layers = float((each[:-2] * a.count_B).sum()) / s.pp
    again = 1.0 if s.recompute == "full" else 0.0
    return s.micro_batches * layers * (3.0 + again)


@dataclass(frozen=True, slots=True, eq=False)
class _Design:
    """Which factors each row has. Names in order of the vector."""

    names: tuple[tuple[str, str], ...]
    rows: dict[str, list[tuple[int, F64]]]
    start: F64
    prior: F64


def _design(table: StepTable) -> _Design:
    names: list[tuple[str, str]] = []
    rows: dict[str, list[tuple[int, F64]]] = {}
    start, prior = [], []
    kinds = [kinds_of(k) for k in table.keys_R]
    for part, causes in KINDS.items():
        for cause in causes:
            values = [k[cause] for k in kinds]
            for key in sorted(set(values)):
                mask = np.array([v == key for v in values], np.float64)
                rows.setdefault(part, []).append((len(names), mask))
                names.append((part, key))
                general = cause == "*"
                start.append(np.log(START[part]) if general and part in START else 0.0)
                held = LOOSE_PRIOR if part in LOOSE else KIND_PRIOR
                prior.append(ALL_PRIOR if general else held)
    return _Design(tuple(names), rows, np.array(start), np.array(prior))


def step_seconds(t: StepTable, g: dict[str, F64]) -> F64:
    """Return seconds of every row for factors `g` of each part. Shape (R,)."""
    p = dict(zip(SHOWN, t.shown_PR, strict=True))
    h = dict(zip(AXES, t.hidden_AR, strict=True))
    plain = sum((p[k] for k in KERNELS), np.zeros_like(t.host_R))
    scaled = {k: p[k] * g[k] for k in KERNELS}
    least = p["floor"] * g["attention_floor"]
    scaled["attention"] = np.sqrt(np.sqrt(scaled["attention"] ** 4 + least**4))
    busy = g["soft"] * sum(scaled.values(), np.zeros_like(plain))
    busy = busy * (1.0 + p["recompute"] / np.maximum(plain, 1e-12))
    wires = sum((p[k] * g[k] + h[k] * g[f"under_{k}"] for k in WIRES), np.zeros_like(plain))
    before = plain + p["recompute"] + sum((p[k] for k in WIRES), np.zeros_like(plain))
    work = np.sqrt(np.sqrt((busy + wires) ** 4 + (t.host_R * g["host"]) ** 4))
    bubble = p["bubble"] * work / np.maximum(before, 1e-12)
    late = np.sqrt(2.0 * np.log(np.maximum(t.cards_R, 2.0)))
    total = (work + bubble) * (1.0 + g["jitter"] * late)
    total = total + p["pp"] * g["pp"] + h["pp"] * g["under_pp"]
    total = total + p["dp"] * g["dp"] + h["dp"] * g["under_dp"]
    every: F64 = total + p["optimizer"] * g["optimizer"] + g["step_s"]
    return every


def _factors(d: _Design, v: F64, size: int) -> dict[str, F64]:
    logs = {part: np.zeros(size) for part in d.rows}
    for part, entries in d.rows.items():
        for index, mask in entries:
            logs[part] += v[index] * mask
    return {part: np.exp(np.clip(x, -12.0, 4.0)) for part, x in logs.items()}


def fit_scale(
    table: StepTable, *, soft: float = 0.1, rounds: int = 30
) -> dict[str, dict[str, float]]:
    """Return factors by part and key that fit the rows best (soft-L1 in log error, priors).

    The slope of a factor is the slope of its part, so that one round costs as many evaluations as
    there are parts.
    """
    d = _design(table)
    size = len(table.measured_R)
    log = np.log(table.measured_R)
    now, damping = d.start.copy(), 1e-2

    def residual(v: F64) -> F64:
        got: F64 = np.log(step_seconds(table, _factors(d, v, size))) - log
        return got

    def cost(res: F64, v: F64) -> float:
        loss = 2.0 * soft**2 * (np.sqrt(1.0 + (res / soft) ** 2) - 1.0)
        return float(loss.sum() + ((d.prior * (v - d.start)) ** 2).sum() * size)

    res = residual(now)
    best = cost(res, now)
    for _ in range(rounds):
        slope = _slopes(table, d, now, res, log)
        weight = 1.0 / np.sqrt(1.0 + (res / soft) ** 2)
        normal = slope.T @ (slope * weight[:, None]) + np.diag(d.prior**2 * size)
        pull = slope.T @ (res * weight) + d.prior**2 * size * (now - d.start)
        gain = 0.0
        for _ in range(8):
            lifted = normal + damping * np.diag(np.diag(normal))
            there = now - np.clip(np.linalg.solve(lifted, pull), -1.0, 1.0)
            other = residual(there)
            lower = cost(other, there)
            if np.isfinite(lower) and lower < best:
                gain, now, res, best = best - lower, there, other, lower
                damping = max(damping * 0.3, 1e-7)
                break
            damping *= 4.0
        if gain < 1e-5 * best:
            break
    return _scale(d, now)


def _slopes(table: StepTable, d: _Design, v: F64, res: F64, log: F64) -> F64:
    size = len(res)
    factors = _factors(d, v, size)
    slope = np.zeros((size, len(v)))
    for part, entries in d.rows.items():
        moved = factors | {part: factors[part] * (1.0 + 1e-4)}
        change = (np.log(step_seconds(table, moved)) - log - res) / 1e-4
        for index, mask in entries:
            slope[:, index] = change * mask
    return slope


def _scale(d: _Design, v: F64) -> dict[str, dict[str, float]]:
    scale: dict[str, dict[str, float]] = {}
    for (part, key), raw in zip(d.names, v.tolist(), strict=True):
        value = float(np.exp(raw))
        if (part in ABSOLUTE and key == "*") or abs(value - 1.0) > 4e-3:
            table = scale.setdefault(part, {})
            table[key] = table.get(key, 1.0) * value
    return scale


def with_scale(cal: Calibration, scale: dict[str, dict[str, float]]) -> Calibration:
    """Return `cal` with these factors."""
    return msgspec.structs.replace(cal, scale=scale)
