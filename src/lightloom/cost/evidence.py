"""Scoring predictions against what was measured: one noun for all kinds of evidence."""

from __future__ import annotations

import msgspec
import numpy as np


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """One measured thing and what was predicted for it."""

    id: str
    measured: float | None
    predicted: float | None
    low: float | None
    high: float | None
    """90 % interval."""
    unit: str
    extrapolated: bool
    assumptions: tuple[str, ...]
    refused_why: str
    """Why nothing was predicted; empty where something was."""
    group: str = ""
    """What the row is reported under."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Figures over scored rows. Errors are |predicted / measured - 1|; a refusal counts 1."""

    rows: int
    refused: int
    unmeasured: int
    """Rows without a measured figure: predicted, in no figure below."""
    median_abs_error: float | None
    p90_abs_error: float | None
    mape: float | None
    coverage: float | None
    """Share of measured figures inside the 90 % interval."""
    median_half_width: float | None
    """Half the interval over the prediction."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Rows, the summary of all, and of each group."""

    version: int = 1
    kind: str = "evidence"
    what: str
    rows: tuple[Scored, ...]
    summary: Summary
    groups: dict[str, Summary]
    notes: tuple[str, ...] = ()


def _finite(value: float | None) -> bool:
    return value is not None and bool(np.isfinite(value))


def number_or_none(value: float) -> float | None:
    """Return `value`, or None where it is not finite (JSON has no NaN)."""
    return float(value) if np.isfinite(value) else None


def summary_of(rows: tuple[Scored, ...]) -> Summary:
    """Return the figures over `rows`."""
    scored = [r for r in rows if _finite(r.measured) and r.measured]
    errors, inside, halves = [], [], []
    for r in scored:
        assert r.measured is not None
        if r.predicted is None:
            errors.append(1.0)
            continue
        errors.append(abs(r.predicted / r.measured - 1.0))
        if r.low is not None and r.high is not None:
            inside.append(r.low <= r.measured <= r.high)
            halves.append((r.high - r.low) / 2.0 / r.predicted)
    return Summary(
        rows=len(rows),
        refused=sum(bool(r.refused_why) for r in rows),
        unmeasured=len(rows) - len(scored),
        median_abs_error=float(np.median(errors)) if errors else None,
        p90_abs_error=float(np.quantile(errors, 0.9)) if errors else None,
        mape=float(np.mean(errors)) if errors else None,
        coverage=float(np.mean(inside)) if inside else None,
        median_half_width=float(np.median(halves)) if halves else None,
    )


def report_of(what: str, rows: list[Scored], notes: tuple[str, ...] = ()) -> Report:
    """Return the report of `rows`, grouped by their own group."""
    groups: dict[str, list[Scored]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return Report(
        what=what, rows=tuple(rows), summary=summary_of(tuple(rows)),
        groups={g: summary_of(tuple(r)) for g, r in sorted(groups.items())}, notes=notes,
    )  # fmt: skip


def refused(id_: str, why: str, unit: str, measured: float, group: str = "") -> Scored:
    """Return a row for which nothing could be predicted."""
    return Scored(
        id=id_, measured=number_or_none(measured), predicted=None, low=None, high=None, unit=unit,
        extrapolated=True, assumptions=(), refused_why=why, group=group,
    )  # fmt: skip
