"""The tuning table: the best few plans, what binds, how far to trust it, what next."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lightloom.core.lang import _
from lightloom.core.plan import Plan
from lightloom.core.strategy import Strategy
from lightloom.core.told import told
from lightloom.core.units import show_bytes, show_count, show_time, show_watts

from .estimate import NAMES, plan_active


def short_recompute(s: Strategy) -> str:
    """Return recompute in at most six letters."""
    if s.recompute == "full" and s.recompute_layers:
        return f"{s.recompute_layers} lay"
    return {"selective": "select"}.get(s.recompute, s.recompute)


def interval(plan: Plan) -> str:
    """Return the 90 % interval in the unit of the step: half its width, or both ends if wide."""
    p = plan.prediction
    value = show_time(p.step_s).split()[0].replace(",", "")
    unit = p.step_s / float(value)
    low, high, half = (seconds / unit for seconds in (p.low_s, p.high_s, (p.high_s - p.low_s) / 2))
    if p.low_s < 0.6 * p.step_s or p.high_s > 1.6 * p.step_s:
        return f"{_short(low)}..{_short(high)}"
    return f"±{_short(half)}"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 else f"{value:.2g}"


def headline(plan: Plan) -> Text:
    """Return the first line: model, machine, batch, precision."""
    s = plan.strategy
    return Text.assemble(
        (plan.model.name, "bold"), f" · {plan_active(plan)} · {plan.cards:,} x "
        f"{plan.cluster.chip.title} · {s.global_batch:,} x {s.seq:,} {_('tokens')} · "
        f"{s.precision} · {s.framework}",
    )  # fmt: skip


def tuning_table(plans: Sequence[Plan]) -> Table:
    """Return the table of the best few, each with why it won or lost beneath."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for name in ("#", "tp", "pp", "ep", "cp", "dp", "vpp", "mb"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("recomp", no_wrap=True)
    for name in ("step", "tok/s/card", "MFU", "memory", "comm", "bubble"):
        wraps = name == "step"  # on 80 columns the interval goes beneath
        table.add_column(_(name), justify="right", no_wrap=not wraps)
    for i, plan in enumerate(plans, start=1):
        s, p = plan.strategy, plan.prediction
        step = Text.assemble(show_time(p.step_s), (f" {interval(plan)}", "bright_black"))
        table.add_row(
            str(i), str(s.tp), str(s.pp), str(s.ep), str(s.cp), str(s.dp), str(s.vpp),
            str(s.micro_batch), short_recompute(s), step, f"{p.tokens_per_s_per_card:,.0f}",
            f"{p.mfu:.1%}", show_bytes(p.peak_bytes), f"{p.exposed_comm:.0%}",
            f"{p.bubble:.0%}",
            style="bold" if i == 1 else "",
        )  # fmt: skip
    return table


def reasons(plans: Sequence[Plan]) -> Text:
    """Return why each won or lost, one line each."""
    lines = []
    for i, plan in enumerate(plans, start=1):
        lines.append(f"{i:2}  {_('best') + ': ' if i == 1 else ''}{told(plan.why)}")
    return Text("\n".join(lines), style="bright_black")


def closing(best: Plan, six_n_d: float, notes: Sequence[str]) -> Table:
    """Return what binds, the cross-check, trust, power and what to type next."""
    p = best.prediction
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    comm = {axis: p.parts.get(axis, 0.0) for axis in ("tp", "cp", "ep", "pp", "dp")}
    heavy = max(comm, key=lambda a: comm[a])
    total = sum(comm.values())
    share = ""
    if total > 0.005 * p.step_s:
        share = _("; {a:.0%} of the exposed communication is {b}").format(
            a=comm[heavy] / total, b=_(NAMES[heavy])
        )
    grid.add_row(_("wall"), f"{told(p.wall)}{share}")
    ratio = p.model_flops / six_n_d - 1.0
    seconds = six_n_d / (p.model_flops / p.step_s)
    said = _("6ND says {t} at this MFU; the per-layer count is {r:.1%} {w}")
    word = _("higher") if ratio > 0 else _("lower")
    grid.add_row(_("check"), said.format(t=show_time(seconds), r=abs(ratio), w=word))
    grid.add_row(_("trust"), told(p.trust))
    if p.power_w:
        joules = p.energy_j / best.strategy.tokens
        grid.add_row(_("power"), f"{show_watts(p.power_w)} · {joules:.3g} J/token · "
                     f"{_('goodput')} {p.goodput:.1%}")  # fmt: skip
    if best.idle_cards:
        grid.add_row(_("idle"), _("{a:,} of {b:,} cards").format(a=best.idle_cards, b=best.cards))
    for note in notes:
        grid.add_row(_("note"), told(note))
    return grid


def plan_view(
    plans: Sequence[Plan], counted: int, priced: int, seconds: float, six_n_d: float,
    notes: Sequence[str],
) -> RenderableType:  # fmt: skip
    """Return the whole screen."""
    searched = _("searched {n:,} strategies in {s:.1f} s of CPU ({p:,} priced, the rest proved no "
                 "better)")  # fmt: skip
    how = Text(searched.format(n=counted, s=seconds, p=priced), style="bright_black")
    return Group(headline(plans[0]), how, "", tuning_table(plans), reasons(plans), "",
                 closing(plans[0], six_n_d, notes))  # fmt: skip


def factor_table(rows: Sequence[tuple[str, float, str]], total: float, other: str) -> Table:
    """Return a speed-up as factors that multiply to it."""
    title = _("against {c}: {x:.3g} x").format(c=other, x=total)
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold")
    table.add_column(_("factor"))
    table.add_column("x", justify="right")
    table.add_column(_("why"), overflow="fold")
    for name, value, why in rows:
        table.add_row(told(name), f"{value:.3f}", told(why))
    return table


def sweep_table(rows: Sequence[tuple[int, float, float, float, str, str]]) -> Table:
    """Return cards, step, tokens/s, efficiency, strategy, what grew."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("cards", "step", "tokens/s", "efficiency"):
        table.add_column(_(name), justify="right")
    table.add_column(_("strategy"))
    table.add_column(_("what grew"), overflow="fold")
    for cards, step, speed, efficiency, strategy, why in rows:
        shown = show_time(step) if step else "-"
        table.add_row(f"{cards:,}", shown, show_count(speed) if speed else "-",
                      f"{efficiency:.0%}" if speed else "-", strategy, told(why))  # fmt: skip
    return table


def amount(value: float, unit: str) -> str:
    """Return a value in the words of its unit."""
    if unit == "s":
        return show_time(value)
    if unit == "B":
        return show_bytes(value)
    return f"{value:.0%}" if unit == "share" else f"{value:,.6g} {unit}".strip()


def bound_table(rows: Sequence[tuple[str, float, str, str]]) -> Table:
    """Return bounds of a workload."""
    table = Table(box=None, pad_edge=False)
    for name in ("bound", "value"):
        table.add_column(_(name), justify="left" if name == "bound" else "right")
    table.add_column(_("why"), style="bright_black", overflow="fold")
    for name, value, unit, why in rows:
        table.add_row(told(name), amount(value, unit), told(why))
    return table


def print_all(*views: RenderableType) -> None:
    """Print views at the terminal's width, at most 120 columns, at least 80."""
    console = Console(highlight=False)
    wide = console.width if console.is_terminal else 100
    console.width = max(80, min(wide, 120))
    for view in views:
        console.print(view)
