"""Views of real runs: report, list, snapshots."""

from __future__ import annotations

import time

from rich.console import Console
from rich.table import Table

from lightloom.core.lang import _
from lightloom.core.runs import DrillReport, RunReport, SnapshotInfo
from lightloom.core.told import told
from lightloom.core.units import show_bytes, show_time


def show_report(report: RunReport, console: Console | None = None) -> None:
    """Print a run: where it stands, its loss, what it survived."""
    out = console or Console(width=100, highlight=False)
    head = f"{report.name}: {_(report.state)}"
    out.print(f"[bold]{head}[/bold]" + (f" - {report.why.splitlines()[0]}" if report.why else ""))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in _facts(report):
        table.add_row(name, value)
    out.print(table)
    if report.losses:
        out.print(loss_line(report.losses))
    if report.recoveries:
        out.print(_recoveries(report))
    for hang in report.hangs:
        out.print(f"{_('hang')}: rank {hang['rank']} {hang['how']}, {hang['phase']}, "
                  f"kernel {hang['kernel']}  {hang['at']}")  # fmt: skip
    for finding in report.findings[:12]:
        out.print(f"{told(finding.severity)}: {finding.code}, {told(finding.subject)}: "
                  f"{told(finding.what)}")  # fmt: skip
    out.print(f"[dim]{report.folder}[/dim]")


def _facts(report: RunReport) -> list[tuple[str, str]]:
    wanted = f" {_('of')} {report.wanted_steps}" if report.wanted_steps else ""
    rows = [
        (_("steps"), f"{report.steps}{wanted}, {report.lost_steps} {_('lost')}"),
        (_("ranks"), f"{report.world} {_('of')} {report.ranks}, {report.agents} {_('agents')}, "
                     f"{report.spares} {_('spares')}, {report.epochs} {_('epochs')}"),
    ]  # fmt: skip
    if report.step_s is not None:
        rate = f", {_('goodput')} {report.goodput:.1%}" if report.goodput is not None else ""
        rows.append((_("median step"), f"{show_time(report.step_s)}{rate} ({_('measured')})"))
    if report.recovery_s is not None and report.recovery_median_s is not None:
        rows.append(
            (_("recovery"), f"{show_time(report.recovery_median_s)} {_('median')}, "
             f"{show_time(report.recovery_s)} {_('worst')} ({_('measured')})")
        )  # fmt: skip
    if report.loss_last is not None and report.loss_first is not None:
        rows.append((_("loss"), f"{report.loss_first:.4f} -> {report.loss_last:.4f}"))
    if report.snapshots:
        last = report.snapshots[-1]
        rows.append((_("snapshots"), f"{len(report.snapshots)}, {_('newest')} {_('step')} "
                     f"{last.step} ({show_bytes(last.bytes)})"))  # fmt: skip
    return rows


def loss_line(losses: tuple[float | None, ...], width: int = 80) -> str:
    """Return the loss curve as one line of bars, high is high loss."""
    known = [x for x in losses if x is not None and x == x]
    if len(known) < 2:
        return ""
    size = max(-(-len(known) // width), 1)
    means = [
        sum(known[i : i + size]) / len(known[i : i + size]) for i in range(0, len(known), size)
    ]
    low, high = min(means), max(means)
    marks = "▁▂▃▄▅▆▇█"
    scale = (len(marks) - 1) / (high - low) if high > low else 0.0
    return "".join(marks[int((x - low) * scale)] for x in means)


def _recoveries(report: RunReport) -> Table:
    table = Table(title=_("losses survived"), title_justify="left", box=None, pad_edge=False)
    for name in ("what", "how", "decision", "step", "recovery", "lost"):
        table.add_column(
            _(name), justify="right" if name in ("step", "recovery", "lost") else "left"
        )
    for row in report.recoveries:
        table.add_row(
            told(row.what), _(row.how), _(row.decision), str(row.step),
            show_time(row.recovery_s) + ("" if row.from_failure else "*"), str(row.lost_steps),
        )  # fmt: skip
    if any(not row.from_failure for row in report.recoveries):
        table.caption = _("* from the detection; when the process really ended is not known")
    return table


def show_runs(reports: list[RunReport], console: Console | None = None) -> None:
    """Print one line a run."""
    out = console or Console(width=100, highlight=False)
    if not reports:
        out.print(_("no runs here; start one: lightloom run --example gpt"))
        return
    table = Table(box=None, pad_edge=False)
    for name in ("run", "state", "step", "ranks", "loss", "recoveries", "snapshot"):
        table.add_column(_(name))
    for r in reports:
        loss = "-" if r.loss_last is None else f"{r.loss_last:.4f}"
        last = str(r.snapshots[-1].step) if r.snapshots else "-"
        table.add_row(r.name, _(r.state), str(r.steps), f"{r.world}/{r.ranks}", loss,
                      str(len(r.recoveries)), last)  # fmt: skip
    out.print(table)


def show_snapshots(rows: list[SnapshotInfo], console: Console | None = None) -> None:
    """Print one line a snapshot."""
    out = console or Console(width=100, highlight=False)
    if not rows:
        out.print(_("no snapshots here"))
        return
    table = Table(box=None, pad_edge=False)
    for name in ("step", "shards", "size", "made", "state"):
        table.add_column(_(name), overflow="fold")
    for r in rows:
        good = _("every byte right") if r.checked else _("not checked")
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(r.made_s)) if r.made_s else "-"
        table.add_row(
            str(r.step), str(r.shards), show_bytes(r.bytes), made, told(r.problem) or good
        )
    out.print(table)


def show_drill(found: DrillReport, console: Console | None = None) -> None:
    """Print a drill: faults, what was survived, the answer to each question."""
    out = console or Console(width=100, highlight=False)
    out.print(f"{_('drill')}: {' '.join(found.faults) or _('no faults')}")
    show_report(found.report, out)
    for check in found.checks:
        mark = "[green]ok[/green]" if check.severity == "info" else "[red]no[/red]"
        out.print(f"{mark}  {told(check.subject)}: {told(check.what)}")
    out.print(f"[bold]{_('passed') if found.passed else _('failed')}[/bold]")
