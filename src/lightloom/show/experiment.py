"""Screens of ``lightloom experiment``: the tuning table, and what one variable did."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from lightloom.core.lang import _
from lightloom.core.trial import Attribution, Figure, Trial
from lightloom.core.units import show_bytes, show_time

from .roi import console, plain

AXES = ("tp", "pp", "dp", "ep", "micro_batch", "recompute")
FIGURES = ("step_s", "tokens_per_s_per_card", "mfu", "memory_bytes", "exposed_comm")
HEADS = {
    "step_s": "step",
    "tokens_per_s_per_card": "tok/s/card",
    "mfu": "MFU",
    "memory_bytes": "memory",
    "exposed_comm": "comm",
}
SHARES = {"mfu", "hfu", "exposed_comm", "bubble", "goodput"}


def cell(name: str, f: Figure | None) -> str:
    """Return a figure with its noise and where it comes from."""
    if f is None:
        return "-"
    noise = "" if f.std is None else f" ±{shown(name, f.std)}"
    mark = "" if f.source == "measured" else f" {f.source[:4]}"
    return f"{shown(name, f.mean)}{noise}{mark}"


def shown(name: str, value: float) -> str:
    """Return a value in the unit of its figure."""
    if name in SHARES:
        return f"{value:.1%}"
    if name.endswith("_bytes"):
        return show_bytes(value)
    return show_time(value) if name.endswith("_s") else f"{value:,.4g}"


def show_table(
    study: str, trials: Sequence[Trial], changes: Sequence[dict[str, tuple[str, str]]]
) -> None:
    """Print every run and what changed from the one before.

    Axes that never vary are left out, and predicted figures that no run measured.
    """
    out = console()
    out.print(Text(f"{study}: {len(trials)} {_('runs')}", style="bold"))
    axes = [a for a in AXES if any(a in t.config for t in trials)]
    if len(trials) > 1:
        axes = [a for a in axes if len({t.config.get(a) for t in trials}) > 1]
    seen = dict.fromkeys(n for t in trials for n, f in t.figures.items() if f.source != "predicted")
    seen = seen or dict.fromkeys(n for t in trials for n in t.figures)
    names = [f for f in FIGURES if f in seen]
    names += [f for f in seen if f not in names][:3]
    t = plain("#", _("run"), *axes, *(HEADS.get(n, n) for n in names))
    t.add_column(_("changed"), overflow="fold")
    for trial, change in zip(trials, changes, strict=True):
        words = ", ".join(f"{k} {a} -> {b}" for k, (a, b) in list(change.items())[:3])
        more = f" +{len(change) - 3}" if len(change) > 3 else ""
        mark = "" if len(change) < 2 else f"{_('several')}: "
        t.add_row(
            str(trial.id),
            trial.name,
            *(trial.config.get(a, "-") for a in axes),
            *(cell(n, trial.figures.get(n)) for n in names),
            mark + words + more,
        )
    out.print(t)
    out.print(
        Text(
            _("± one standard deviation of the samples; pred: predicted; prof: of a profile"),
            style="bright_black",
        )
    )


def show_attribution(a: Attribution) -> None:
    """Print what one variable did."""
    out = console()
    out.print(Text(a.text, style="bold"))
    t = plain(_("figure"), a.a, a.b, _("change"), _("95 % interval"), _("real"))
    for d in a.differences:
        span = "-" if d.low is None or d.high is None else f"{d.low:+.1%} .. {d.high:+.1%}"
        real = {True: _("yes"), False: _("within noise"), None: _("noise not known")}[d.real]
        t.add_row(
            d.figure, shown(d.figure, d.a), shown(d.figure, d.b), f"{d.change:+.1%}", span, real
        )
    out.print(t)
