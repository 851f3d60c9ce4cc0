"""The screen of ``lightloom roi``: cost, how sure, what moves it, where the money comes from."""

from __future__ import annotations

from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lightloom.core.decision import Roi, RoiOption
from lightloom.core.lang import _
from lightloom.core.told import told
from lightloom.core.units import show_count, show_time, show_watts

WIDTH = 100
BAR = 24


def console() -> Console:
    """Return a console of at most 100 columns."""
    made = Console(highlight=False, soft_wrap=False, markup=False)
    return made if made.width <= WIDTH else Console(highlight=False, width=WIDTH, markup=False)


def plain(*columns: str, left: int = 1, fixed: bool = True) -> Table:
    """Return a table without borders, `left` columns to the left, the first unbroken if fixed."""
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black", pad_edge=False)
    for i, name in enumerate(columns):
        side: Literal["left", "right"] = "left" if i < left else "right"
        made.add_column(name, justify=side, overflow="fold", no_wrap=fixed and i == 0)
    return made


def money(value: float) -> str:
    """Return an amount with three figures: ``1.23 M``."""
    return f"-{show_count(-value)}" if value < 0 else show_count(value)


def show_roi(roi: Roi, note: str = "") -> None:
    """Print verdict, cost of each machine, its tornado, and the decomposition."""
    out = console()
    out.print(
        Text.assemble(
            (roi.model, "bold"), f" · {show_count(roi.tokens)} {_('tokens')} · {roi.currency}"
        )
    )
    out.print(Text(f"{_('verdict')}: {roi.text}", style="bold"))
    out.print()
    out.print(option_table(roi))
    for option in roi.options:
        if option.lines:
            out.print()
            out.print(Text(f"{option.cluster}: {_('lines of one run')}", style="bold"))
            out.print(line_table(option))
            out.print(
                Text(f"{_('what moves it')} ({roi.currency} {_('a million tokens')})", style="bold")
            )
            out.print(tornado(option))
        out.print(Text(f"{option.cluster}: {break_even(option)}"))
    for name, factors in roi.factors.items():
        out.print()
        out.print(
            Text(
                _("{a} over {b}: where the speed comes from, and what it saves").format(
                    a=name, b=roi.options[0].cluster
                ),
                style="bold",
            )
        )
        table = plain(_("factor"), _("speed"), _("saves"))
        table.add_column(_("why"), style="bright_black", overflow="fold")
        for f in factors:
            table.add_row(told(f.name), f"x{f.speed:.3f}", money(f.saves), told(f.why))
        out.print(table)
    if any(o.tornado for o in roi.options):
        out.print()
        out.print(Text(_("inputs; --set NAME=LOW..HIGH replaces one"), style="bold"))
        out.print(input_table(roi))
    out.print()
    for text in [note, *roi.notes]:
        if text:
            out.print(Text(f"{_('note')}: {told(text)}", style="bright_black"))


def break_even(option: RoiOption) -> str:
    """Return the break-even utilisation in words."""
    if option.break_even is None:
        return f"{_('break-even utilisation')}: {told(option.break_even_why)}"
    return (
        f"{_('owning pays above')} {option.break_even:.0%} {_('utilisation')} "
        f"({told(option.break_even_why)})"
    )


def option_table(roi: Roi) -> Table:
    """Return one row per machine."""
    table = plain(
        _("machine"),
        _("cards"),
        _("time"),
        _("goodput"),
        _("energy"),
        _("run"),
        _("per M tokens"),
        _("range"),
    )
    for o in roi.options:
        if o.missing:
            table.add_row(
                o.cluster,
                f"{o.cards:,}",
                show_time(o.seconds),
                f"{o.goodput:.1%}",
                f"{show_watts(o.energy_kwh * 1e3)}h",
                _("not enough data"),
                "",
                "",
            )
            continue
        table.add_row(
            o.cluster,
            f"{o.cards:,}",
            show_time(o.seconds),
            f"{o.goodput:.1%}",
            f"{show_watts(o.energy_kwh * 1e3)}h",
            money(o.cost),
            f"{o.per_million:.3g}",
            f"{o.per_million_low:.3g} .. {o.per_million_high:.3g}",
        )
    return table


def line_table(option: RoiOption) -> Table:
    """Return the lines of one run with range, arithmetic and sources."""
    table = plain(_("line"), _("money"), _("range"), _("share"))
    table.add_column(
        _("how (inputs and their sources below)"), style="bright_black", overflow="fold"
    )
    for line in option.lines:
        share = f"{line.value / option.cost:.0%}" if option.cost else "-"
        table.add_row(
            _(line.name),
            money(line.value),
            f"{money(line.low)} .. {money(line.high)}",
            share,
            told(line.how),
        )
    return table


def input_table(roi: Roi) -> Table:
    """Return every input that a cost stands on, by the name ``--set`` takes, with its source."""
    used = {s.name for o in roi.options for s in o.tornado} - {"step_s", "goodput"}
    table = plain(_("input"), _("value"), _("range"))
    table.add_column(_("unit"))
    table.add_column(_("source"), style="bright_black", overflow="fold")
    for name, f in roi.prices.items():
        if name in used or name.startswith(("step_s.", "goodput.")):
            source = f.source
            text = f"{_(source.origin)}: {told(source.ref or source.note)}"
            table.add_row(
                name, figure(f.value), f"{figure(f.low)} .. {figure(f.high)}", f.unit, text
            )
    return table


def figure(value: float) -> str:
    """Return three figures without an exponent: 60,000, 9.75, 0.997."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def tornado(option: RoiOption, most: int = 10) -> Table:
    """Return the widest swings as bars of text."""
    table = plain(_("input"), _("from"), _("to"), _("cost at low"), _("at high"))
    table.add_column("", no_wrap=True)
    widest = max((s.width for s in option.tornado), default=0.0)
    for s in option.tornado[:most]:
        bar = "#" * max(1, round(BAR * s.width / widest)) if widest else ""
        table.add_row(
            s.name, figure(s.low), figure(s.high), f"{s.at_low:.3g}", f"{s.at_high:.3g}", bar
        )
    return table
