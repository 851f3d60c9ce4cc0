"""Screens of ``lightloom simulate`` and ``lightloom replan``: what, how sure, why, what next."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lightloom.core.lang import _
from lightloom.core.plan import Plan
from lightloom.core.played import Replan, StepResult, Sweep
from lightloom.core.strategy import Strategy
from lightloom.core.timeline import Timeline
from lightloom.core.told import told
from lightloom.core.units import show_bytes, show_rate, show_time

from .gantt import gantt_rows

WIDTH = 100
POLICIES = {
    "fair": "fair shares", "fifo": "first in, first out", "strict": "strict priorities",
    "weighted": "weighted priorities 8:4:2:1",
}  # fmt: skip
PARTS = {
    "compute": "compute", "slowed": "slowed: stragglers, transfers",
    "waiting": "waiting for late partners", "bubble": "bubble: nothing to do",
}  # fmt: skip


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.width <= WIDTH else Console(highlight=False, width=WIDTH)


def print_view(view: RenderableType) -> None:
    """Print a view, at most 100 columns wide."""
    _console().print(view)


def split_words(s: Strategy) -> str:
    """Return the degrees of a strategy on one line."""
    words = [f"{axis} {getattr(s, axis)}" for axis in ("tp", "pp", "cp", "ep", "dp", "vpp")
             if getattr(s, axis) > 1]  # fmt: skip
    return " ".join(words) or _("1 card")


def head_lines(plan: Plan, strategy: Strategy, r: StepResult) -> list[Text]:
    """Return what was played, and the answer beside the closed form's."""
    first = Text(
        f"{plan.model.name} · {r.cards:,} x {plan.cluster.chip.title} · {split_words(strategy)} · "
        f"{strategy.micro_batches} {_('micro-batches')} · {r.schedule} · {_(POLICIES[r.policy])}"
    )
    answer = Text.assemble(
        (f"{_('step')} {show_time(r.step_s)}", "bold"),
        f"   {_('estimate')} {show_time(r.estimate_s)} ({_('played')} {100 * r.gap:+.1f} %)"
        f"   MFU {100 * r.mfu:.1f} %   {r.tokens_per_s_per_card:,.0f} tok/s/card",
    )
    lines = [first, answer]
    if r.spread is not None:
        s = r.spread
        lines.append(Text(
            f"{_('over')} {s.samples} {_('steps')}: p50 {show_time(s.p50_s)}   "
            f"p95 {show_time(s.p95_s)}   p99 {show_time(s.p99_s)}   "
            f"p95/p50 {s.p95_over_median:.4f}"
        ))  # fmt: skip
    return lines


def time_table(r: StepResult) -> Table:
    """Return the mean card's step by part; what ran hidden; bandwidth of each class."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(_("mean card"))
    for name in (_("time"), _("share"), _("hidden"), _("sent"), _("while busy")):
        table.add_column(name, justify="right")
    for part, title in PARTS.items():
        value = r.parts.get(part, 0.0)
        if value > 1e-6 * r.step_s:
            table.add_row(_(title), show_time(value), f"{100 * value / r.step_s:.1f} %")
    for name, row in r.bandwidth.items():
        value, hidden = r.parts.get(name, 0.0), r.hidden.get(name, 0.0)
        table.add_row(
            _("exposed") + f" {name}", show_time(value), f"{100 * value / r.step_s:.1f} %",
            show_time(hidden) if hidden > 1e-9 else "", show_bytes(row["bytes"]),
            show_rate(row["rate"]),
        )  # fmt: skip
    return table


def memory_line(r: StepResult) -> Text:
    """Return the fullest and emptiest rank, and whether all fit."""
    worst = max(r.stages, key=lambda s: s.peak_bytes)
    least = min(r.stages, key=lambda s: s.peak_bytes)
    state = _("fits") if r.fits else _("does not fit")
    return Text(
        f"{_('memory')}  {_('peak')} {show_bytes(worst.peak_bytes)} {_('on pipeline rank')} "
        f"{worst.rank}, {show_bytes(least.peak_bytes)} {_('on')} {least.rank}; "
        f"{show_bytes(r.usable_bytes)} {_('usable')}: {state}",
        style="" if r.fits else "red",
    )


def step_view(
    plan: Plan, strategy: Strategy, r: StepResult, timeline: Timeline, notes: Sequence[str] = ()
) -> RenderableType:
    """Return the whole screen of one played step."""
    lines: list[RenderableType] = [*head_lines(plan, strategy, r), Text("")]
    lines += [time_table(r), Text(""), *gantt_rows(timeline, _console().width - 1)]
    lines.append(Text(_("F forward  B I backward  W weights  + overlapped pair  O optimiser  "
                        "- exposed communication"), style="dim"))  # fmt: skip
    lines += [Text(""), memory_line(r)]
    lines += [Text(f"{_('fault')}   {told(said)}") for said in r.faults]
    folded = _("{units} units played for {cards} cards, {events} events").format(
        units=r.units, cards=f"{r.cards:,}", events=f"{r.events:,}"
    )
    lines.append(Text(f"{_('folded')}  {folded}", style="dim"))
    lines += [Text(f"{_('assumed')} {told(said)}", style="dim") for said in r.assumptions]
    lines += [Text(f"{_('next')}    {note}") for note in notes]
    return Group(*lines)


def sweep_view(s: Sweep) -> RenderableType:
    """Return a sweep as a table; the best that fits is marked, the others' tokens/s against it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(_(s.over))
    for name in (_("step"), _("tokens/s"), "MFU", _("exposed"), _("bubble"), _("memory"),
                 "p95/p50"):  # fmt: skip
        table.add_column(name, justify="right")
    best = s.best
    for row in s.rows:
        if row.refused:
            table.add_row(told(row.setting), Text(row.refused.split("\n")[0], style="dim"))
            continue
        slower = ""
        if best and best.tokens_per_s_per_card:
            share = row.tokens_per_s_per_card / best.tokens_per_s_per_card
            slower = f"{100 * (share - 1):+.1f} %"
        title = Text(told(row.setting), style="bold" if row is best else "")
        table.add_row(
            title, show_time(row.step_s), _("best") if row is best else slower,
            f"{100 * row.mfu:.1f} %", f"{100 * row.exposed_comm:.1f} %",
            f"{100 * row.bubble:.1f} %",
            show_bytes(row.peak_bytes) + ("" if row.fits else f" ({_('does not fit')})"),
            f"{row.p95_over_median:.4f}" if row.p95_over_median else "",
        )  # fmt: skip
    return table


def replan_view(r: Replan) -> RenderableType:
    """Return what the measured load says about the split in use."""
    lines: list[RenderableType] = [
        Text(f"{_('measured step')} {show_time(r.step_s)}   {_('planned')} "
             f"{show_time(r.planned_s)}", style="bold"),
        Text(f"{_('measured over planned')}  "
             + "   ".join(f"{name} {value:.2f}" for name, value in r.load.items())),
    ]  # fmt: skip
    if len(r.stages) > 1:
        lines.append(Text(f"{_('compute per pipeline rank over the mean')}  "
                          + " ".join(f"{x:.2f}" for x in r.stages)))  # fmt: skip
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(_("change"))
    for name in (_("step"), _("saves"), _("memory"), _("moves"), _("takes"), _("pays after")):
        table.add_column(name, justify="right")
    for c in r.choices:
        pays = f"{c.pays_after:,.0f} {_('steps')}" if c.saved_s > 0 else _("never")
        table.add_row(c.change, show_time(c.step_s), f"{100 * c.saved_s / r.step_s:+.1f} %",
                      show_bytes(c.peak_bytes), show_bytes(c.moved_bytes),
                      show_time(c.reshard_s), pays)  # fmt: skip
    verdict = Text(told(r.why), style="bold")
    return Group(*lines, Text(""), table, Text(""), verdict)
