"""The screen of evidence: errors by group, coverage, what was refused."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lightloom.core.lang import _
from lightloom.core.told import told

INDICATIVE = 20
"""Below so many rows a figure is called indicative."""


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100.0 * value:.1f} %"


def _row(table: Table, name: str, s: Any, style: str = "") -> None:
    few = s.rows - s.unmeasured < INDICATIVE
    table.add_row(
        name + (" *" if few else ""), f"{s.rows:,}", str(s.refused or ""),
        _percent(s.median_abs_error), _percent(s.p90_abs_error), _percent(s.mape),
        _percent(s.coverage), _percent(s.median_half_width), style=style,
    )  # fmt: skip


def evidence_view(report: Any) -> RenderableType:
    """Return one report as a table: a line per group, all rows last."""
    table = Table(title=told(report.what), title_justify="left", title_style="bold", expand=False)
    table.add_column(_("rows of"), overflow="fold")
    for name in ("n", "refused", "median", "p90", "MAPE", "in 90 %", "half-width"):
        table.add_column(_(name), justify="right")
    for name, summary in report.groups.items():
        _row(table, told(name) or "-", summary)
    if len(report.groups) != 1:
        table.add_section()
        _row(table, _("all"), report.summary, "bold")
    lines: list[RenderableType] = [table]
    if any(s.rows - s.unmeasured < INDICATIVE for s in report.groups.values()):
        lines.append(Text(_("* fewer than 20 measured rows: indicative"), style="dim"))
    lines += [Text(told(note), style="dim") for note in report.notes]
    reasons: dict[str, int] = {}
    for row in report.rows:
        if row.refused_why:
            reasons[row.refused_why] = reasons.get(row.refused_why, 0) + 1
    for why, count in sorted(reasons.items(), key=lambda x: -x[1])[:6]:
        lines.append(Text(f"{_('refused')} {count}: {told(why)}"))
    return Group(*lines, Text(""))
