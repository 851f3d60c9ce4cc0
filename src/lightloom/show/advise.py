"""Screens of ``lightloom advise``."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lightloom.core.advice import Advice, Comparison, RankSplit, Stop, percent
from lightloom.core.lang import _
from lightloom.core.told import told
from lightloom.core.units import show_time

WIDTH = 100
MOST_RANKS = 16


def _console() -> Console:
    console = Console(highlight=False, soft_wrap=False)
    return console if console.width <= WIDTH else Console(highlight=False, width=WIDTH)


def first_line(a: Advice) -> str:
    """Return ranks, steps kept and dropped, and what is known about the clocks."""
    many = len(a.ranks)
    ranks = _("1 rank") if many == 1 else _("{n} ranks").format(n=many)
    if a.world_size > many:
        ranks += _(" of {n}").format(n=a.world_size)
    if not a.steps_kept:
        steps = _("no step is marked: the whole file is one")
    else:
        total = len(a.steps_kept) + len(a.steps_dropped)
        steps = _("{kept} of {all} steps kept").format(kept=len(a.steps_kept), all=total)
        steps += f" ({_span(a.steps_kept)})"
        if a.steps_dropped:
            steps += _(", dropped {which}: {why}").format(
                which=_span(a.steps_dropped), why=told(a.dropped_why)
            )
    return " · ".join(part for part in (ranks, a.device, steps, clocks_line(a)) if part)


def _span(numbers: tuple[int, ...]) -> str:
    whole = numbers[-1] - numbers[0] + 1 == len(numbers) and len(numbers) > 2
    return f"{numbers[0]}-{numbers[-1]}" if whole else ", ".join(map(str, numbers[:8]))


def clocks_line(a: Advice) -> str:
    """Return whether arrivals could be compared."""
    c = a.clocks
    if c.state == "verified":
        return _("clocks agree within {t}").format(t=show_time(c.worst_end_skew_s))
    if c.state == "corrected":
        return _("clocks corrected: {why}").format(why=told(c.why))
    return _("clocks cannot be compared") if c.state == "refused" else ""


def step_line(a: Advice) -> str:
    """Return the step and its parts."""
    parts = (("compute", "compute_s"), ("exposed communication", "exposed_s"), ("idle", "idle_s"),
             ("copies", "copy_s"))  # fmt: skip
    said = "   ".join(f"{_(name)} {percent(a.share(field))}" for name, field in parts)
    return f"{_('step')} {show_time(a.step_s)}   {said}"


def sync_line(a: Advice) -> str:
    """Return transfer against waiting, and who was last."""
    s = a.sync
    if s.how == "none":
        return _("no communication in it")
    if s.transfer_share is None:
        return _("of the communication at most {high} is transfer; waiting cannot be told apart "
                 "here").format(high=percent(s.high))  # fmt: skip
    text = _("of the communication only {share} is transfer; {rest} is waiting").format(
        share=percent(s.transfer_share), rest=percent(1 - s.transfer_share)
    )
    if s.transfer_share > 0.5:
        text = _("of the communication {share} is transfer").format(share=percent(s.transfer_share))
    if s.late_rank >= 0:
        total = sum(s.last.values())
        text += _(", rank {rank} last in {n} of {all} collectives").format(
            rank=s.late_rank, n=s.last.get(s.late_rank, 0), all=total
        )
    elif sum(s.last.values()) > 1:
        text += _(", the last rank varies")
    if s.how == "library" and a.format != "simulated":
        text += _(" (the library's own account)")
    return text


def show_advice(a: Advice, html: str | None = None) -> None:
    """Print an advice: what, how sure, why, what next."""
    out = _console()
    out.print(first_line(a))
    out.print(step_line(a), style="bold")
    out.print(sync_line(a))
    if a.stop is not None:
        _stop_lines(out, a.stop)
    v = a.verdict
    line = Text(f"{_('verdict')}: ", style="bold")
    line.append(v.text, style="bold")
    line.append(f"  ({_('the rule on the share, {s}, alone would say')}: {{n}})".format(
        s=percent(v.naive_share), n=v.naive), style="bright_black")  # fmt: skip
    out.print(line)
    for cause in a.causes[:2]:
        out.print(
            Text.assemble((f"{_('next')}: ", "bold"), f"{told(cause.what)}: {told(cause.next)}")
        )
    out.print()
    _what_if_table(out, a)
    _rank_table(out, a)
    _group_table(out, a)
    if len(a.causes) > 2:
        out.print(Text(_("further causes, heaviest first"), style="bold"))
        for cause in a.causes[2:6]:
            out.print(f"  {percent(cause.weight):>7}  {told(cause.what)}: {told(cause.next)}")
    for note in a.notes[:12]:
        out.print(f"{_('note')}: {told(note)}", style="bright_black")
    if html:
        out.print(f"{_('report')}: {html}")


def _plain(*columns: str) -> Table:
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black")
    for i, name in enumerate(columns):
        made.add_column(name, justify="left" if i == 0 else "right", overflow="fold")
    return made


def _what_if_table(out: Console, a: Advice) -> None:
    if not a.what_ifs:
        return
    t = _plain(_("what if"), _("step"), _("saved"), _("range"))
    t.add_column(_("how"), justify="left", style="bright_black", overflow="fold")
    for w in a.what_ifs:
        t.add_row(
            w.change, "-" if w.step_s is None else show_time(w.step_s), percent(w.saved),
            "" if w.low == w.high else f"{100 * w.low:.1f} .. {percent(w.high)}", told(w.why),
        )  # fmt: skip
    out.print(t)
    out.print()


def shown_ranks(a: Advice) -> list[RankSplit]:
    """Return all ranks, or of many the latest, the busiest and the idlest."""
    if len(a.splits) <= MOST_RANKS:
        return list(a.splits)
    pick = {a.sync.late_rank, max(a.splits, key=lambda s: s.compute_s).rank,
            max(a.splits, key=lambda s: s.idle_s).rank,
            min(a.splits, key=lambda s: s.comm_s).rank}  # fmt: skip
    rest = [s for s in a.splits if s.rank not in pick][: MOST_RANKS - len(pick)]
    return sorted([s for s in a.splits if s.rank in pick] + rest, key=lambda s: s.rank)


def rank_row(a: Advice, s: RankSplit) -> list[str]:
    """Return the cells of one rank."""

    def share(value: float) -> str:
        return f"{100 * value / s.span_s:.1f}" if s.span_s > 0 else "-"

    moving = a.sync.by_rank.get(s.rank)
    return [
        str(s.rank), show_time(s.span_s), share(s.compute_s), share(s.comm_s), share(s.exposed_s),
        share(s.copy_s), share(s.idle_s), percent(moving), str(a.sync.last.get(s.rank, "")),
    ]  # fmt: skip


def _rank_table(out: Console, a: Advice) -> None:
    t = _plain(_("rank"), _("window"), _("compute %"), _("comm %"), _("exposed %"), _("copies %"),
               _("idle %"), _("transfer"), _("last"))  # fmt: skip
    shown = shown_ranks(a)
    for s in shown:
        t.add_row(*rank_row(a, s), style="bold" if s.rank == a.verdict.subject else "")
    out.print(t)
    if len(shown) < len(a.splits):
        out.print(_("{n} ranks more: --json").format(n=len(a.splits) - len(shown)))
    out.print()


def _group_table(out: Console, a: Advice) -> None:
    if len(a.groups) < 2:
        return
    t = _plain(_("group"), _("calls"), _("comm"), _("exposed"), _("transfer"), _("waiting"))
    for g in a.groups[:8]:
        name = g.group if len(g.group) <= 32 else g.group[:29] + "..."
        t.add_row(
            name or _("unnamed"), str(g.count), show_time(g.comm_s), show_time(g.exposed_s),
            "-" if g.transfer_s is None else show_time(g.transfer_s),
            "-" if g.waiting_s is None else show_time(g.waiting_s),
        )  # fmt: skip
    out.print(t)
    out.print()


def _stop_lines(out: Console, stop: Stop) -> None:
    who = ", ".join(map(str, stop.first)) or _("unknown")
    out.print(
        Text(f"{_('stopped first')}: {_('rank')} {who}" if stop.first else
             f"{_('stopped first')}: {who}", style="bold"),
        Text(f"  {told(stop.why)}  ({_('confidence')} {percent(stop.confidence)})"),
    )  # fmt: skip
    if stop.operation:
        out.print(f"{_('never finished')}: {stop.operation}")
    for cause in stop.causes[:4]:
        out.print(f"  {told(cause.what)}: {told(cause.next)}")


def show_stop(stop: Stop) -> None:
    """Print who stopped first."""
    out = _console()
    out.print(_("{n} logs, {r} ranks").format(n=len(stop.files), r=len(stop.ranks)))
    _stop_lines(out, stop)
    for line in stop.events[:8]:
        out.print(f"  {line}", style="bright_black", markup=False)


def show_comparison(c: Comparison) -> None:
    """Print two runs side by side."""
    out = _console()
    out.print(f"A {c.a}  {c.a_device}", markup=False)
    out.print(f"B {c.b}  {c.b_device}", markup=False)
    out.print(Text(told(c.text), style="bold"))
    t = _plain(_("part of the step"), "A", "B", _("change"))
    t.add_row(
        _("step"), show_time(c.a_step_s), show_time(c.b_step_s), _change(c.a_step_s, c.b_step_s)
    )
    for name, (a, b) in c.parts.items():
        if a is None or b is None:
            t.add_row(_(name), *("-" if x is None else show_time(x) for x in (a, b)), "-")
        else:
            t.add_row(_(name), show_time(a), show_time(b), _change(a, b))
    out.print(t)
    t = _plain(_("operator"), "A", "B", _("change"))
    t.add_column(_("why"), justify="left", style="bright_black", overflow="fold")
    for row in c.rows[:16]:
        t.add_row(
            told(row.name),
            show_time(row.a_s),
            show_time(row.b_s),
            _change(row.a_s, row.b_s),
            told(row.why),
        )
    out.print(t)
    for note in c.notes[:6]:
        out.print(f"{_('note')}: {told(note)}", style="bright_black", markup=False)


def _change(a: float, b: float) -> str:
    return f"{'+' if b >= a else '-'}{show_time(abs(b - a))}"
