"""The screen of ``lightloom fit``: verdict, what would flip it, reasons, the articles' rules."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from lightloom.core.decision import Fit
from lightloom.core.lang import _
from lightloom.core.told import told
from lightloom.core.units import show_bytes, show_count, show_time

from .roi import console, plain

ONLY = 1e9


def times(value: float) -> str:
    """Return a ratio; words where one machine alone can do it."""
    if value >= ONLY:
        return _("only it")
    return f"x{value:.2f}" if value else _("no fit")


def show_fit(f: Fit, note: str = "") -> None:
    """Print one fit."""
    out = console()
    out.print(
        Text.assemble(
            (f.workload, "bold"), f" · {f.task} · {f.cards:,} {_('cards')} · {_('now')} {f.now}"
        )
    )
    out.print(Text(f"{_('verdict')}: {f.text}", style="bold"))
    for flip in f.flips:
        out.print(f"{_('would flip it')}: {told(flip.figure)}: {flip.text}", markup=False)
    out.print()
    out.print(option_table(f))
    out.print()
    table = plain(_("reason"), _("favours"), left=2, fixed=False)
    table.add_column(_("source"), style="bright_black", overflow="fold")
    for r in f.reasons:
        table.add_row(told(r.what), _(r.favours), told(r.source))
    out.print(table)
    if f.growth:
        out.print()
        out.print(growth_table(f))
    if f.table:
        out.print()
        out.print(serve_table(f))
    if f.rules:
        out.print()
        out.print(Text(_("the articles' rules beside ours"), style="bold"))
        for rule in f.rules:
            agrees = {True: _("agrees"), False: _("disagrees"), None: _("says nothing")}
            out.print(f"  {rule.source}: {rule.rule}", markup=False)
            out.print(
                f"     {_('here')}: {rule.says}; {_('ours')}: {rule.ours} -> {agrees[rule.agrees]}",
                markup=False,
            )
            out.print(f"     {_('fails where')}: {rule.fails}", style="bright_black", markup=False)
    out.print()
    for text in [note, *f.notes]:
        if text:
            out.print(Text(f"{_('note')}: {told(text)}", style="bright_black"))


def option_table(f: Fit) -> Table:
    """Return one row per candidate."""
    table = plain(
        _("candidate"),
        _("speed"),
        _("range"),
        _("price"),
        _("range"),
        _("work for money"),
        _("range"),
        _("step"),
        _("comm"),
    )
    for o in f.options:
        table.add_row(
            o.cluster,
            times(o.speed),
            span(o.speed_low, o.speed_high),
            f"x{o.price:.2f}",
            span(o.price_low, o.price_high),
            times(o.value),
            span(o.value_low, o.value_high),
            show_time(o.step_s) if o.step_s else "-",
            f"{o.exposed_comm:.0%}" if o.step_s else "-",
        )
    return table


def span(low: float, high: float) -> str:
    """Return a range of ratios."""
    return "-" if high >= ONLY or not high else f"{low:.2f} .. {high:.2f}"


def growth_table(f: Fit) -> Table:
    """Return the speeds by year."""
    names = list(f.growth[0].speed)
    table = plain(_("year"), _("parameters"), *names)
    for y in f.growth:
        table.add_row(
            f"{y.year:.0f}", show_count(y.parameters), *(times(y.speed[n]) for n in names)
        )
    return table


def serve_table(f: Fit) -> Table:
    """Return the speed over context and concurrency: one row per context."""
    loads = sorted({row["concurrency"] for row in f.table})
    table = plain(_("context \\ concurrency"), *(f"{n:.0f}" for n in loads))
    for context in sorted({row["context"] for row in f.table}):
        cells = []
        for load in loads:
            row = next(r for r in f.table if r["context"] == context and r["concurrency"] == load)
            cells.append(f"{times(row['speed'])} ({show_bytes(row['kv_bytes'])})")
        table.add_row(f"{context:,.0f}", *cells)
    return table
