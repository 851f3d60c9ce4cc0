"""Step times and peak memory of published runs: predicted, with intervals, and out of fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .calibration import Calibration
from .calibration_scale import scale_of
from .calibration_step import KINDS, fit_scale, step_seconds, step_table, with_scale
from .columns import columns_of
from .evaluate import evaluate
from .evidence import Report, Scored, number_or_none, refused, report_of
from .evidence_rows import Row, read_rows, row_of
from .explain import trust_of
from .interval import interval_of, width_keys, with_interval
from .precision import parse_precision
from .predict import stage_memories

F64 = NDArray[np.float64]
FOLDS = 8
BY = ("prefix", "chip", "axis", "size")
NOT_HELD = ("context", "communicators", "fragmentation")
"""Parts that an allocator's own count does not see."""
KINDS_OF_MEMORY = ("allocated", "reserved", "unstated")


def group_of(row: Row, by: str) -> str:
    """Return what a row is reported under."""
    if by == "chip":
        return row.cells.get("chip") or "unknown"
    if row.strategy is None or row.job is None:
        return "refused"
    s = row.strategy
    if by == "axis":
        names = [n for n in ("tp", "pp", "cp", "ep") if getattr(s, n) > 1]
        names += ["fsdp"] if s.zero in ("3", "fsdp", "hsdp") else []
        names += ["recompute"] if s.recompute != "none" else []
        return "+".join(names) or "dp only"
    if by == "size":
        edges = (8, 64, 512, 2048, 1 << 40)
        names = ["to 8", "9 to 64", "65 to 512", "513 to 2048", "above 2048"]
        return names[next(i for i, e in enumerate(edges) if row.job.cards <= e)] + " cards"
    return row.prefix


def _matrix(row: Row) -> str:
    assert row.strategy is not None
    return parse_precision(row.strategy.precision).mlp


def score_step(row: Row, cal: Calibration, group: str, predicted: float | None = None) -> Scored:
    """Return one run's step time beside what was measured."""
    if row.job is None or row.strategy is None:
        return refused(row.id, row.refused_why, "s", row.measured, group)
    step = predicted
    if step is None:
        step = float(evaluate(row.job, columns_of([row.strategy]), cal).step_s[0]) * row.scale
    if not np.isfinite(step) or step <= 0.0:
        return refused(row.id, "the model gives no finite time", "s", row.measured, group)
    outside, _ = trust_of(row.job, row.strategy, cal)
    low, high = interval_of(cal, row.job, _matrix(row), outside)
    return Scored(
        id=row.id, measured=number_or_none(row.measured), predicted=step,
        low=step * float(np.exp(low)), high=step * float(np.exp(high)), unit="s",
        extrapolated=outside, assumptions=row.assumptions, refused_why="", group=group,
    )  # fmt: skip


def score_rows(path: Path, cal: Calibration, by: str = "prefix") -> Report:
    """Return every row of a CSV file predicted by `cal`; nothing is fitted to it."""
    rows = [row_of(cells) for cells in read_rows(path)]
    scored = [score_step(row, cal, group_of(row, by)) for row in rows]
    return report_of(f"step time, {path.name}", scored, ERRATA)


ERRATA: tuple[str, ...] = ()


def memory_kind(row: Row) -> str:
    """Return what a memory figure counts, by the words beside it."""
    notes = row.cells.get("notes", "").lower()
    if "allocated" in notes:
        return "allocated"
    return "reserved" if "max across ranks" in notes else "unstated"


def peak_of(row: Row, cal: Calibration) -> float:
    """Return the predicted peak of a run in bytes, counted as the row's figure is."""
    assert row.job is not None and row.strategy is not None
    worst = 0.0
    allocated = memory_kind(row) == "allocated"
    for stage in stage_memories(row.job, row.strategy, cal):
        parts = stage.parts
        worst = max(worst, sum(v for k, v in parts.items() if not (allocated and k in NOT_HELD)))
    return worst


def score_memory(path: Path, cal: Calibration) -> Report:
    """Return the peak memory of every row that states one, by kind of figure."""
    rows = [row_of(cells) for cells in read_rows(path)]
    return memory_report(f"peak memory, {path.name}", rows, cal)


def memory_report(what: str, rows: Sequence[Row], cal: Calibration) -> Report:
    """Return the peak memory of rows beside what was measured, in bytes."""
    scored = []
    for row in rows:
        if not np.isfinite(row.memory):
            continue
        kind = memory_kind(row)
        if row.job is None or row.strategy is None:
            scored.append(refused(row.id, row.refused_why, "B", row.memory, kind))
            continue
        peak = peak_of(row, cal)
        low, high = cal.interval.get(f"memory {kind}", (-0.25, 0.25))
        scored.append(Scored(
            id=row.id, measured=number_or_none(row.memory), predicted=peak,
            low=peak * float(np.exp(low)), high=peak * float(np.exp(high)), unit="B",
            extrapolated=False, assumptions=row.assumptions, refused_why="", group=kind,
        ))  # fmt: skip
    return report_of(what, scored)


def folds_of(keys: Sequence[str], folds: int, seed: int = 0) -> NDArray[np.int64]:
    """Return a fold per row, whole groups together; `folds` 0 makes every group its own."""
    names = sorted(set(keys))
    order = np.random.default_rng(seed).permutation(np.arange(len(names)) % max(folds, 1))
    number = {n: (int(order[i]) if folds else i) for i, n in enumerate(names)}
    return np.array([number[k] for k in keys])


def out_of_fold_steps(
    rows: Sequence[Row], cal: Calibration, fold_R: NDArray[np.int64],
    tell: Callable[[str], None] | None = None,
) -> F64:  # fmt: skip
    """Return step seconds of every row by factors that never saw its fold."""
    table = step_table(rows, cal)
    got = np.zeros(len(rows))
    for fold in np.unique(fold_R).tolist():
        if tell is not None:
            tell(f"step: fold {fold + 1} of {int(fold_R.max()) + 1}")
        scale = fit_scale(table.take(np.flatnonzero(fold_R != fold)))
        kept = np.flatnonzero(fold_R == fold)
        part, fitted = table.take(kept), with_scale(cal, scale)
        factors = {
            name: np.array([scale_of(fitted, name, keys) for keys in part.keys_R]) for name in KINDS
        }
        got[kept] = step_seconds(part, factors)
    return got


def score_out_of_fold(
    rows: Sequence[Row], cal: Calibration, fold_R: NDArray[np.int64], by: str,
    tell: Callable[[str], None] | None = None,
) -> Report:  # fmt: skip
    """Return every row predicted, and its interval made, without its own fold."""
    usable = [row for row in rows if row.job is not None]
    kept = np.array([row.job is not None for row in rows])
    folds = fold_R[kept]
    steps = out_of_fold_steps(usable, cal, folds, tell)
    residual = np.log(np.array([r.measured for r in usable]) / steps)
    keys = [width_keys(r.job, _matrix(r)) for r in usable if r.job]
    scored = [refused(r.id, r.refused_why, "s", r.measured, group_of(r, by))
              for r in rows if r.job is None]  # fmt: skip
    for fold in np.unique(folds).tolist():
        seen = np.flatnonzero(folds != fold)
        mine = with_interval(cal, [keys[i] for i in seen], residual[seen], folds[seen])
        for i in np.flatnonzero(folds == fold).tolist():
            row = usable[i]
            scored.append(score_step(row, mine, group_of(row, by), float(steps[i])))
    return report_of("step time, folds that calibration never saw", scored)


__all__ = ["BY", "score_memory", "score_out_of_fold", "score_rows"]
