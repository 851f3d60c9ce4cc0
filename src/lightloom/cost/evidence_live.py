"""The live score: every figure on folds that calibration never saw, made while one waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from .calibration import Calibration
from .evidence import Report, report_of
from .evidence_kernels import curves_report, generations_out_of_fold, kernels_out_of_fold
from .evidence_pack import shipped_curves, shipped_kernels
from .evidence_rows import Row, shipped_rows, shipped_sweep
from .evidence_steps import (
    FOLDS,
    folds_of,
    memory_report,
    out_of_fold_steps,
    score_out_of_fold,
    score_step,
)
from .kernels_rows import KernelRows

F64 = NDArray[np.float64]
Tell = Callable[[str], None]
LIVE_ROWS = {"gemm": 40000, "attention": 29274, "expert": 40000}
"""Rows of each family used live (a seeded sample of whole shapes); benchmarks use all."""
LIMITS = (
    "no run above 16,384 cards, on an optical fabric or on a full supernode is published:",
    "predictions there are printed as extrapolated and cannot be checked",
)


def core_rows() -> list[Row]:
    """Return the rows that figures are reported on."""
    return [row for row in shipped_rows() if row.core]


def live_reports(cal: Calibration, by: str, steps_only: bool, tell: Tell) -> list[Report]:
    """Return all reports, quick ones first."""
    rows = core_rows()
    tell(f"step time: {len(rows)} rows, {FOLDS} folds of whole groups")
    reports = [score_out_of_fold(rows, cal, folds_of([r.fold for r in rows], FOLDS), by)]
    tell("step time: one source left out at a time")
    reports.append(left_out(rows, cal, by))
    reports.append(choices(rows, cal))
    tell("single-node sweep, peak memory")
    reports.append(sweep_report(cal))
    reports.append(memory_report("peak memory, by kind of figure", shipped_rows(), cal))
    if steps_only:
        return reports
    tables = {f: sample(rows, LIVE_ROWS[f]) for f, rows in shipped_kernels().items()}
    reports.append(kernels_out_of_fold(tables, tell))
    reports.append(generations_out_of_fold(tables, tell))
    tell("collectives")
    reports.append(curves_report(shipped_curves(), cal))
    return reports


def left_out(rows: Sequence[Row], cal: Calibration, by: str = "prefix") -> Report:
    """Return every source predicted by the others (leave one prefix out)."""
    report = score_out_of_fold(rows, cal, folds_of([r.prefix for r in rows], 0), by)
    return report_of("step time, one source left out", list(report.rows), LIMITS)


def sweep_report(cal: Calibration) -> Report:
    """Return the single-node sweep, each (layers, hidden) predicted by the others."""
    rows = [r for r in shipped_sweep() if r.job is not None]
    steps = out_of_fold_steps(rows, cal, folds_of([r.fold for r in rows], 0))
    scored = [
        score_step(r, cal, f"{r.cells['layers']} layers, hidden {r.cells['hidden']}", float(s))
        for r, s in zip(rows, steps, strict=True)
    ]
    return report_of("single-node A100 sweep, folds by (layers, hidden)", scored)


def sample(rows: KernelRows, most: int) -> KernelRows:
    """Return whole shapes of `rows`, about `most` rows, the same ones every time."""
    if len(rows) <= most:
        return rows
    first = 1 if rows.family == "expert" else 0
    _, inverse = np.unique(rows.shape_N[:, first:], axis=0, return_inverse=True)
    kept = np.random.default_rng(1).random(inverse.max() + 1) < most / len(rows)
    return rows.take(kept[inverse.ravel()])


def choices(rows: Sequence[Row], cal: Calibration) -> Report:
    """Return the regret of choosing within groups of equal model, cards, batch and sequence."""
    from .evidence import Scored

    steps = out_of_fold_steps(rows, cal, folds_of([r.fold for r in rows], FOLDS))
    scored = [
        Scored(id=name, measured=best, predicted=chosen, low=None, high=None, unit="s",
               extrapolated=False, assumptions=(f"{n} runs, rank correlation {rank:.2f}",),
               refused_why="", group="measured time of the choice over the best")
        for name, n, best, chosen, rank in choice_groups(rows, steps)
    ]  # fmt: skip
    return report_of("choosing: groups of equal model, cards, batch, sequence", scored)


def choice_groups(
    rows: Sequence[Row], steps: F64, least: int = 4
) -> list[tuple[str, int, float, float, float]]:
    """Return (group, runs, best measured, measured of the choice, Spearman) of each group.

    A group has `least` runs or more that differ in strategy: same source, model, chip, cards,
    batch, sequence and type.
    """
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    names = ("model", "layers", "hidden", "heads", "chip", "num_accel", "global_batch", "seq",
             "dtype", "framework")  # fmt: skip
    for i, row in enumerate(rows):
        groups[(row.prefix, *(row.cells.get(n, "") for n in names))].append(i)
    found = []
    for key, members in sorted(groups.items()):
        measured = np.array([rows[i].measured for i in members])
        told = steps[members]
        cuts = {(s.tp, s.pp, s.cp, s.dp, s.vpp, s.micro_batch, s.recompute, s.zero)
                for i in members if (s := rows[i].strategy)}  # fmt: skip
        if len(members) < least or len(cuts) < least:
            continue
        chosen = float(measured[int(np.argmin(told))])
        found.append((" ".join((key[0], key[1], key[6], key[7])), len(members),
                      float(measured.min()), chosen, spearman(measured, told)))  # fmt: skip
    return found


def spearman(a: F64, b: F64) -> float:
    """Return the rank correlation of two arrays."""
    x, y = (np.argsort(np.argsort(v)).astype(np.float64) for v in (a, b))
    if len(a) < 2 or x.std() == 0 or y.std() == 0:
        return 1.0
    return float(np.corrcoef(x, y)[0, 1])
