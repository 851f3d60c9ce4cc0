"""A calibration from a user's own runs: the shipped evidence, theirs added, the same fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from lightloom.core.errors import InputError
from lightloom.core.files import read_bytes

from .calibration import Calibration, default_calibration
from .calibration_file import write_calibration
from .calibration_step import fit_scale, step_table, with_scale
from .evidence_rows import Row, read_rows, row_of, shipped_rows
from .evidence_steps import FOLDS, folds_of, out_of_fold_steps
from .interval import width_keys, with_interval
from .precision import parse_precision

WEIGHT = 4
"""How often a user's row counts: their machine matters more than other people's."""
LEAST = 3


class Own(msgspec.Struct, frozen=True, kw_only=True):
    """What a calibration of one's own runs brought."""

    rows: int
    refused: int
    before: float
    """Median error on these rows by the shipped constants."""
    after: float
    """The same by the new ones, rows of a fold never fitted."""
    output: str
    words: str


def rows_from(source: str) -> list[Row]:
    """Return the rows of a CSV file, or the one row of a run's folder (``run.json``)."""
    path = Path(source)
    if path.is_dir():
        cells = _run_cells(path)
        return [row_of(cells)]
    return [row_of(cells) for cells in read_rows(path)]


def _run_cells(folder: Path) -> dict[str, str]:
    """Return a run's folder as the cells of one row: its ``evidence.json``."""
    data = read_bytes(folder / "evidence.json", "run")
    try:
        cells = json.loads(data)
    except ValueError as error:
        raise InputError(f"run {folder}: evidence.json cannot be read: {error}") from error
    if not isinstance(cells, dict) or "step_time_s" not in cells:
        raise InputError(
            f"run {folder}: evidence.json has no step_time_s",
            out="columns as in training rows: id, layers, hidden, ... step_time_s",
        )
    return {"id": folder.name} | {str(k): str(v) for k, v in cells.items()}


def calibrate_from(
    sources: Sequence[str], output: str, alone: bool, tell: Callable[[str], None]
) -> Own:
    """Fit the step's factors and intervals, write them to `output`, return what it brought."""
    rows = [row for source in sources for row in rows_from(source)]
    mine = [r for r in rows if r.job is not None and np.isfinite(r.measured)]
    if len(mine) < LEAST:
        why = next((r.refused_why for r in rows if r.refused_why), "no step time stated")
        raise InputError(
            f"{len(mine)} usable rows of {len(rows)}: {why}", out=f"at least {LEAST} runs"
        )
    usual = default_calibration()
    tell(f"{len(mine)} rows of yours, {len(rows) - len(mine)} refused")
    shipped = [] if alone else [r for r in shipped_rows() if r.core and r.job is not None]
    every = [*shipped, *(mine * (1 if alone else WEIGHT))]
    folds = folds_of([r.fold for r in every], min(FOLDS, len({r.fold for r in every})))
    tell(f"fitting to {len(every)} rows, {int(folds.max()) + 1} folds for the intervals")
    steps = out_of_fold_steps(every, usual, folds)
    residual = np.log(np.array([r.measured for r in every]) / steps)
    keys = [width_keys(r.job, parse_precision(r.strategy.precision).mlp)
            for r in every if r.job and r.strategy]  # fmt: skip
    fitted = with_scale(usual, fit_scale(step_table(every, usual)))
    fitted = with_interval(fitted, keys, residual, folds)
    fitted = msgspec.structs.replace(
        fitted, made_from=f"{usual.made_from}; {len(mine)} rows of {', '.join(sources)}"
    )
    write_calibration(output, fitted)
    return _brought(mine, rows, usual, residual[len(shipped) :], output)


def _brought(
    mine: list[Row], rows: list[Row], usual: Calibration, residual: np.ndarray, output: str
) -> Own:
    from .evidence_steps import score_step

    before = [score_step(r, usual, "") for r in mine]
    errors = [abs(s.predicted / s.measured - 1.0) for s in before if s.predicted and s.measured]
    after = float(np.median(np.abs(np.expm1(-residual))))
    first = float(np.median(errors))
    words = (
        f"{len(mine)} rows: median error {100 * first:.1f} % by the shipped constants, "
        f"{100 * after:.1f} % by yours (each row predicted by constants that never saw its fold)\n"
        f"wrote {output}; use it: lightloom estimate ... --calibration {output}"
    )
    return Own(rows=len(mine), refused=len(rows) - len(mine), before=first, after=after,
               output=output, words=words)  # fmt: skip
