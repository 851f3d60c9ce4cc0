"""The HTML report of a plan: verdict, three pictures, the table, assumptions, how to re-make it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from lightloom.core.lang import _
from lightloom.core.plan import Plan
from lightloom.core.told import told
from lightloom.core.units import show_bytes, show_time, show_watts

from .estimate import MEMORY, NAMES
from .page import Section, page, paragraph, table
from .plan import interval, short_recompute
from .svg import Bar, legend, stacked_bars

SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


def time_picture(plans: Sequence[Plan]) -> str:
    """Return where time goes: one bar per plan."""
    names = [n for n in NAMES if any(p.prediction.parts.get(n, 0.0) > 0 for p in plans)]
    bars = [
        Bar(label_of(p), tuple((n, p.prediction.parts.get(n, 0.0)) for n in names),
            show_time(p.prediction.step_s))
        for p in plans
    ]  # fmt: skip
    words = {name: _(NAMES[name]) for name in names}
    return legend(names, words) + stacked_bars(bars, _("where time goes"), "s")


def memory_picture(plan: Plan) -> str:
    """Return where memory goes: one bar per pipeline stage, runs of equal stages joined."""
    names = [n for n in MEMORY if any(s.parts.get(n, 0.0) > 0 for s in plan.prediction.memory)]
    bars: list[Bar] = []
    seen: list[tuple[int, int, dict[str, float]]] = []
    for stage in plan.prediction.memory:
        if seen and seen[-1][2] == stage.parts:
            seen[-1] = (seen[-1][0], stage.stage, stage.parts)
        else:
            seen.append((stage.stage, stage.stage, stage.parts))
    for first, last, parts in seen:
        label = _("stage {n}").format(n=first)
        if first != last:
            label = _("stages {a}..{b}").format(a=first, b=last)
        bars.append(Bar(label, tuple((n, parts.get(n, 0.0) / 2**30) for n in names),
                        show_bytes(sum(parts.values()))))  # fmt: skip
    room = _("usable: {b} a rank").format(b=show_bytes(plan.prediction.usable_bytes))
    words = {name: _(MEMORY[name]) for name in names}
    picture = stacked_bars(bars, _("where memory goes"), "GiB")
    return legend(names, words) + picture + paragraph(room, "grey")


def label_of(plan: Plan) -> str:
    """Return a strategy in few letters."""
    s = plan.strategy
    words = [f"{a}{getattr(s, a)}" for a in ("tp", "pp", "ep", "cp", "dp") if getattr(s, a) > 1]
    return " ".join(words) or "one rank"


def curve_picture(curves: Sequence[tuple[str, Sequence[tuple[int, float]]]], title: str) -> str:
    """Return tokens/s against cards, both logarithmic, with the line of perfect scaling."""
    import math

    points = [(c, v) for _name, rows in curves for c, v in rows if v > 0]
    if len(points) < 2:
        return ""
    low_c, high_c = min(c for c, _ in points), max(c for c, _ in points)
    low_v, high_v = min(v for _, v in points), max(v for _, v in points)
    width, height, left, bottom = 900, 320, 90, 40

    def x(cards: float) -> float:
        span = math.log(high_c / low_c) or 1.0
        return left + (width - left - 160) * math.log(cards / low_c) / span

    def y(value: float) -> float:
        span = math.log(high_v / low_v) or 1.0
        return height - bottom - (height - bottom - 20) * math.log(value / low_v) / span

    body = [f'<rect x="{left}" y="20" width="{width - left - 160}" '
            f'height="{height - bottom - 20}" fill="none" stroke="#ccc"/>']  # fmt: skip
    for k, (name, rows) in enumerate(curves):
        good = [(c, v) for c, v in rows if v > 0]
        path = " ".join(f"{x(c):.1f},{y(v):.1f}" for c, v in good)
        colour = SERIES[k % len(SERIES)]
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for c, v in good:
            body.append(f'<circle cx="{x(c):.1f}" cy="{y(v):.1f}" r="3" fill="{colour}">'
                        f"<title>{c:,} cards: {v:,.0f} tokens/s</title></circle>")  # fmt: skip
        last = good[-1]
        body.append(f'<text x="{x(last[0]) + 8:.1f}" y="{y(last[1]) + 4:.1f}" fill="{colour}">'
                    f"{escape(name)}</text>")  # fmt: skip
    body += [f'<text x="{x(cards):.1f}" y="{height - 18}" text-anchor="middle">'
             f"{cards:,} {_('cards')}</text>" for cards in sorted({low_c, high_c})]  # fmt: skip
    body += [f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">'
             f"{value / 1e6:.3g} M tok/s</text>" for value in (low_v, high_v)]  # fmt: skip
    return (f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title, True)}" '
            f'xmlns="http://www.w3.org/2000/svg">{"".join(body)}</svg>')  # fmt: skip


def plan_rows(plans: Sequence[Plan]) -> str:
    """Return the tuning table as HTML."""
    head = ("#", "tp", "pp", "ep", "cp", "dp", "vpp", "mb", "recomp", _("step"),
            "tok/s/card", "MFU", _("memory"), _("comm"), _("bubble"))  # fmt: skip
    rows = []
    for i, plan in enumerate(plans, start=1):
        s, p = plan.strategy, plan.prediction
        rows.append((
            str(i), str(s.tp), str(s.pp), str(s.ep), str(s.cp), str(s.dp), str(s.vpp),
            str(s.micro_batch), short_recompute(s),
            f"{show_time(p.step_s)} {interval(plan)}".replace(" ", "\u00a0"),
            f"{p.tokens_per_s_per_card:,.0f}",
            f"{p.mfu:.1%}", show_bytes(p.peak_bytes), f"{p.exposed_comm:.0%}", f"{p.bubble:.0%}",
        ))  # fmt: skip
    why = "".join(f"<li>{escape(told(plan.why))}</li>" for plan in plans)
    return table(head, rows) + f"<ol class='grey'>{why}</ol>"


def assumptions(plan: Plan, notes: Sequence[str]) -> str:
    """Return every assumption with its source."""
    chip, cluster = plan.cluster.chip, plan.cluster
    lines = [*plan.prediction.assumptions, *notes, *cluster.notes]
    lines += [f"{chip.title}: {field}: {source.origin}, {source.ref or source.note}"
              for field, source in list(chip.sources.items())[:8]]  # fmt: skip
    lines += [f"{plan.model.name}: approximated: {text}" for text in plan.model.approximated]
    lines += [f"{plan.model.name}: not understood: {text}" for text in plan.model.ignored]
    return "<ul>" + "".join(f"<li>{escape(told(line))}</li>" for line in lines) + "</ul>"


def report(
    groups: Sequence[tuple[str, Sequence[Plan]]],
    curves: Sequence[tuple[str, Sequence[tuple[int, float]]]],
    factors: Sequence[tuple[str, float, str]],
    speedup: float,
    notes: Sequence[str],
    made: str,
) -> str:
    """Return one self-contained page for one or several jobs."""
    best = groups[0][1][0]
    p = best.prediction
    said = _("{p}: {t} a step ({lo} to {hi}), {v:,.0f} tokens/s/card, MFU {m:.1%}; {w} binds.")
    verdict = said.format(p=label_of(best), t=show_time(p.step_s), lo=show_time(p.low_s),
                          hi=show_time(p.high_s), v=p.tokens_per_s_per_card, m=p.mfu,
                          w=told(p.wall))  # fmt: skip
    if factors:
        words = " x ".join(f"{value:.2f} {told(name)}" for name, value, _why in factors)
        verdict += _(" {s:.2f} times {c} = {w}.").format(
            s=speedup, c=groups[-1][1][0].cluster.name, w=words
        )
    sections = []
    for title, plans in groups:
        first = plans[0]
        watts = show_watts(first.prediction.power_w)
        sections += [
            Section(f"{title}: {_('where time goes')}", time_picture(plans[:6])),
            Section(f"{title}: {_('where memory goes')}", memory_picture(first)),
            Section(f"{title}: {_('the best few')}", plan_rows(plans)
                    + paragraph(f"{watts} · {_('goodput')} {first.prediction.goodput:.1%} · "
                                f"{told(first.prediction.trust)}", "grey")),
        ]  # fmt: skip
    if factors:
        rows = [(told(name), told(why), f"{value:.3f}") for name, value, why in factors]
        head = (_("factor"), _("why"), "x")
        sections.append(Section(_("Where the speed-up comes from"), table(head, rows)))
    title = _("Throughput against cards")
    sections.append(Section(title, curve_picture(curves, title)))
    sections.append(Section(_("Assumptions and sources"), assumptions(best, notes)))
    title = _("{m} on {c}").format(m=best.model.name, c=best.cluster.title)
    under = _("{n:,} cards · {t:,} tokens a step").format(n=best.cards, t=best.strategy.tokens)
    return page(title, under, verdict, sections, made)
