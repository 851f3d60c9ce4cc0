"""Screens of ``lightloom migrate``: what has no counterpart first."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.text import Text

from lightloom.core.lang import _
from lightloom.core.migration import Migration, Precision
from lightloom.core.told import told

from .roi import console, plain


def show_migration(m: Migration) -> None:
    """Print a migration: losses, operators, changes, settings, versions, baseline."""
    out = console()
    acts = Counter(c.action for c in m.changes)
    states: Counter[str] = Counter(o.state for o in m.operators)
    out.print(Text.assemble((", ".join(m.inputs), "bold"), f" -> {m.target}"))
    out.print(
        Text(
            _("{r} replaced, {a} added, {x} removed, {k} kept · {n} without a counterpart").format(
                r=acts["replaced"],
                a=acts["added"],
                x=acts["removed"],
                k=acts["kept"],
                n=len(m.lacking),
            ),
            style="bold",
        )
    )
    if m.operators:
        words = {
            "supported": _("supported"),
            "slow": _("slow"),
            "absent": _("absent"),
            "unknown": _("unknown"),
        }
        out.print(f"{_('operators')}: " + ", ".join(f"{states[s]} {w}" for s, w in words.items()))
    _lacking(out, m)
    _operators(out, m)
    _changes(out, m)
    _settings(out, m)
    out.print()
    for v in m.versions[:3]:
        out.print(
            f"{_('versions')}: torch {v.torch} · torch_npu {v.torch_npu} · CANN {v.cann} "
            f"({told(v.why)}; {told(v.source)})",
            markup=False,
        )
    out.print(Text(f"{_('baseline')}: " + " -> ".join(told(s.name) for s in m.steps)))
    for note in m.notes:
        out.print(Text(f"{_('note')}: {told(note)}", style="bright_black"))
    if m.files:
        out.print(f"{_('wrote')} {', '.join(m.files)}")


def _lacking(out: Console, m: Migration) -> None:
    if m.lacking:
        out.print()
        out.print(Text(_("no counterpart: decide"), style="bold"))
        t = plain(_("where"), _("what"), _("why"), _("nearest"), left=4, fixed=False)
        for x in m.lacking[:30]:
            t.add_row(x.where, short(x.what), told(x.why), told(x.nearest))
        out.print(t)


def _operators(out: Console, m: Migration) -> None:
    bad = [o for o in m.operators if o.state != "supported"]
    if bad:
        out.print()
        t = plain(_("operator"), _("state"), _("where"), _("why"), left=4, fixed=False)
        for o in bad[:24]:
            t.add_row(o.name, _(o.state), ", ".join(o.where[:2]), told(o.why))
        out.print(t)
        if len(bad) > 24:
            out.print(_("{n} more: --json or MIGRATION.md").format(n=len(bad) - 24))
    if m.operators:
        out.print(Text(f"{_('source')}: {m.operators[-1].source}", style="bright_black"))


def _changes(out: Console, m: Migration) -> None:
    changed = [c for c in m.changes if c.action != "kept"]
    if changed:
        out.print()
        t = plain(_("where"), _("before"), _("after"), _("why"), left=4, fixed=False)
        for c in changed[:40]:
            t.add_row(c.where, short(c.before), short(c.after) or "-", short(told(c.why), 80))
        out.print(t)
        if len(changed) > 40:
            out.print(_("{n} more: --json or MIGRATION.md").format(n=len(changed) - 40))


def _settings(out: Console, m: Migration) -> None:
    """Print time-outs, ports, TLS, memory and what the checkers say."""
    out.print()
    for f in m.settings:
        out.print(
            f"{told(f.severity)}: {told(f.subject)}: {told(f.what)}"
            + (f" -> {told(f.remedy)}" if f.remedy else "")
            + (f" [{f.source}]" if f.source else ""),
            markup=False,
        )


def show_precision(p: Precision) -> None:
    """Print two runs layer by layer."""
    out = console()
    out.print(f"A {p.a}\nB {p.b}", markup=False)
    out.print(Text(told(p.text), style="bold"))
    if p.worst:
        t = plain(_("layer"), _("step"), _("phase"), _("type"), _("error"), _("tolerance"), "")
        for g in p.worst:
            t.add_row(
                g.layer,
                str(g.step),
                g.phase,
                g.dtype,
                f"{g.error:.3g}",
                f"{g.tolerance:.3g}",
                _("ok") if g.passes else f"{_('outside')} {told(g.why)}",
            )
        out.print(t)
    for name, only in (("A", p.only_a), ("B", p.only_b)):
        if only:
            out.print(f"{_('only in')} {name}: {', '.join(only)}", markup=False)
    out.print(
        Text(
            _("tolerance: k x eps x sqrt(depth), k assumed 8; eps of the type (derived)"),
            style="bright_black",
        )
    )


def short(text: str, most: int = 60) -> str:
    """Return a text on one line, cut."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 3]}..."
