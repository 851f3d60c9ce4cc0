"""Kernels and collectives: predicted beside what was measured, given files or out of fold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError

from .calibration import Calibration
from .comm_fit import SMALLEST, CurveRows, curve_seconds, curves_out_of_fold, read_curves
from .evidence import Report, Scored, number_or_none, refused, report_of
from .kernels_fit import folds_by_shape, out_of_fold, predict_rows
from .kernels_rows import FILES, KernelRows, find_table, read_kernels
from .kernels_surface import pick, shipped

F64 = NDArray[np.float64]
TABLES = ", ".join(f"{name}.csv[.gz]" for name in FILES.values())
KNOWN_SPREAD = {"gemm": 0.10, "attention": 0.10, "expert": 0.40, "curve": 0.25}
"""Log half-width of a 90 % interval, measured generations: p90 of unseen shapes (accuracy.md)."""
NEW_SPREAD = {"gemm": 0.28, "attention": 0.35, "expert": 0.60, "curve": 0.45}
"""The same where the generation was never measured."""


def _scored(
    ids: list[str], measured: F64, predicted: F64, spread: F64, new: NDArray[np.bool_],
    said: tuple[str, ...], groups: list[str],
) -> list[Scored]:  # fmt: skip
    low, high = predicted * np.exp(-spread), predicted * np.exp(spread)
    return [
        Scored(
            id=ids[i], measured=number_or_none(measured[i]), predicted=float(predicted[i]),
            low=float(low[i]), high=float(high[i]), unit="s", extrapolated=bool(new[i]),
            assumptions=said, refused_why="", group=groups[i],
        )
        for i in range(len(ids))
    ]  # fmt: skip


def _kernel_ids(rows: KernelRows) -> list[str]:
    shapes = rows.shape_N.tolist()
    return [
        f"{rows.family}:{s}:{d}:" + "x".join(f"{x:g}" for x in shape)
        for s, d, shape in zip(rows.system_N.tolist(), rows.dtype_N.tolist(), shapes, strict=True)
    ]


def score_kernels(folder: Path, cal: Calibration) -> Report:
    """Return every measured kernel in a folder of tables, predicted by `cal`."""
    if not folder.is_dir():
        raise InputError(f"kernels: {folder} is not a folder", out=f"a folder with {TABLES}")
    scored: list[Scored] = []
    for family in FILES:
        path = find_table(folder, family)
        if path is None:
            continue
        scored += kernel_rows_scored(read_kernels(path, family), cal)
    if not scored:
        raise InputError(f"kernels: no table in {folder}", out=f"expected {TABLES}")
    return report_of(f"kernels, {folder.name}", scored)


def kernel_rows_scored(rows: KernelRows, cal: Calibration) -> list[Scored]:
    """Return rows of one family predicted by the shipped surfaces and the laws of `cal`."""
    known = rows.known
    fine = rows.take(known)
    law = getattr(cal.kernels, rows.family)
    seconds = predict_rows(fine, law, shipped() if cal.kernels.surfaces else {})
    new = np.array([
        pick(shipped(), rows.family, fine.chips[s], d) is None
        for s, d in zip(fine.system_N.tolist(), fine.dtype_N.tolist(), strict=True)
    ], dtype=np.bool_) if len(fine) else np.zeros(0, np.bool_)  # fmt: skip
    spread = np.where(new, NEW_SPREAD[rows.family], KNOWN_SPREAD[rows.family])
    said = ("experts of 22 of 512 or 2688 x 1856 have two matrices",) \
        if rows.family == "expert" else ()  # fmt: skip
    scored = _scored(_kernel_ids(fine), fine.seconds_N, seconds, spread, new, said,
                     [rows.family] * len(fine))  # fmt: skip
    lost = rows.take(~known)
    for i, name in enumerate(_kernel_ids(lost)):
        why = rows.refused.get(str(lost.system_N[i]), "type or shape not understood")
        scored.append(refused(name, why, "s", float(lost.seconds_N[i]), rows.family))
    return scored


def score_curves(path: Path, cal: Calibration) -> Report:
    """Return every measured collective of a file (nccl_intra_node columns) predicted by `cal`."""
    rows = read_curves(path)
    fine = rows.take(rows.known)
    seconds = curve_seconds(fine, cal.comm)
    new = ~np.isin(fine.arch, list(cal.comm.by_arch))
    spread = np.where(new, NEW_SPREAD["curve"], KNOWN_SPREAD["curve"])
    small = ["" if b >= SMALLEST else ", below 64 KiB" for b in fine.bytes_N.tolist()]
    groups = [f"{k}{s}" for k, s in zip(fine.kind_N.tolist(), small, strict=True)]
    scored = _scored(_curve_ids(fine), fine.seconds_N, seconds, spread, new, (), groups)
    lost = rows.take(~rows.known)
    for i, name in enumerate(_curve_ids(lost)):
        why = rows.refused.get(str(lost.system_N[i]), "collective not understood")
        scored.append(refused(name, why, "s", float(lost.seconds_N[i]), "refused"))
    return report_of(f"collectives, {path.name}", scored)


def _curve_ids(rows: CurveRows) -> list[str]:
    return [
        f"{k}:{s}:{n:g}:{b:g}"
        for k, s, n, b in zip(rows.kind_N.tolist(), rows.system_N.tolist(),
                              rows.ranks_N.tolist(), rows.bytes_N.tolist(), strict=True)
    ]  # fmt: skip


def kernels_out_of_fold(
    tables: dict[str, KernelRows], tell: Callable[[str], None] | None = None
) -> Report:
    """Return unseen shapes of every family, predicted by constants and surfaces without them."""
    scored: list[Scored] = []
    for family, rows in tables.items():
        seconds = out_of_fold(rows, folds_by_shape(rows), tell)
        scored += _fold_rows(rows, seconds, f"{family}, unseen shapes", KNOWN_SPREAD[family])
    return report_of("kernels, folds by shape", scored)


def generations_out_of_fold(
    tables: dict[str, KernelRows], tell: Callable[[str], None] | None = None
) -> Report:
    """Return whole generations of chips predicted from the others and the data sheet."""
    scored: list[Scored] = []
    for family, rows in tables.items():
        arch = rows.arch
        seconds = out_of_fold(rows, arch, tell)
        for name in np.unique(arch).tolist():
            z = arch == name
            scored += _fold_rows(rows.take(z), seconds[z], f"{family}, {name} left out",
                                 NEW_SPREAD[family])  # fmt: skip
    return report_of("kernels, folds by generation", scored)


def _fold_rows(rows: KernelRows, seconds: F64, group: str, spread: float) -> list[Scored]:
    size = len(rows)
    return _scored(_kernel_ids(rows), rows.seconds_N, seconds, np.full(size, spread),
                   np.zeros(size, np.bool_), (), [group] * size)  # fmt: skip


def curves_report(rows: CurveRows, cal: Calibration) -> Report:
    """Return curves of at least 64 KiB out of fold, by system and by number of ranks."""
    large = rows.take(rows.large)
    scored: list[Scored] = []
    size = len(large)
    for name, fold in (("system", large.system_N), ("ranks", large.ranks_N)):
        seconds = curves_out_of_fold(large, fold, cal.comm)
        scored += _scored(_curve_ids(large), large.seconds_N, seconds,
                          np.full(size, NEW_SPREAD["curve"]), np.zeros(size, np.bool_), (),
                          [f"collectives, a {name} left out"] * size)  # fmt: skip
    return report_of("collectives, folds by system and by ranks", scored)
