"""The screen of ``quantize-check``: statistics per layer, error per layer, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lightloom.core.lang import _
from lightloom.core.told import told


def stats_table(stats: Sequence[Any], results: Sequence[Any]) -> Table:
    """Return activation statistics, and each format's output error, per layer."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(_("matrix product"), no_wrap=True)
    errors_of = (_("{s} error").format(s=r.scheme) for r in results)
    for name in ("absmax", "99.9 %", _("outlier"), *errors_of):
        table.add_column(name, justify="right", no_wrap=True)
    errors = [{e.name: e for e in r.layers} for r in results]
    for s in stats:
        cells = [f"{e[s.name].output_error:.2%}" if s.name in e else "-" for e in errors]
        table.add_row(s.name, f"{s.absmax:.3g}", f"{s.p999:.3g}", f"{s.channel_ratio:.3g}x", *cells)
    return table


def quality_table(results: Sequence[Any]) -> Table:
    """Return end-to-end quality, good and bad calibration side by side."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(_("format"))
    for name in (_("held-out loss"), _("change"), _("same answers"), _("change, bad set"),
                 _("same, bad set")):  # fmt: skip
        table.add_column(name, justify="right")
    for r in results:
        if r.loss is None:
            table.add_row(r.scheme, _("not measured"), "-", "-", "-", "-")
            continue
        worse = "-" if r.bad_loss_change is None else f"{r.bad_loss_change:+.4f}"
        agreed = "-" if r.bad_agreement is None else f"{r.bad_agreement:.1%}"
        table.add_row(r.scheme, f"{r.loss:.4f}", f"{r.loss_change:+.4f}", f"{r.agreement:.1%}",
                      worse, agreed)  # fmt: skip
    return table


def quantize_view(name: str, stats: Sequence[Any], results: Sequence[Any], notes: Sequence[str]
                  ) -> RenderableType:  # fmt: skip
    """Return the whole screen."""
    said = Text("\n".join(f"- {told(n)}" for n in [
        *notes, "error: relative L2 of each product on inputs the calibration did not see",
        "int4: weights only, groups of 64; activations stay wide, so a bad set cannot hurt it",
        "arithmetic is emulated with fp32 accumulation; speed is not measured here",
    ]), style="bright_black")  # fmt: skip
    worst = Text("\n".join(line for r in results for line in bad_lines(r)))
    title = Text(f"{name}: {_('low precision, measured')}", style="bold")
    tables = (stats_table(stats, results), "", quality_table(results))
    return Group(title, "", *tables, worst, "", said)


def bad_lines(result: Any) -> list[str]:
    """Return what the bad calibration set does to the layer it hurts most."""
    layer = result.bad_layer
    if layer is None:
        return []
    good = {e.name: e for e in result.layers}[layer.name]
    said = _("{s} with the bad set: {n} errs by {e:.2%} instead of {g:.2%}, {c:.2%} of its inputs "
             "clipped")  # fmt: skip
    return [said.format(s=result.scheme, n=layer.name, e=layer.output_error,
                        g=good.output_error, c=layer.clipped)]  # fmt: skip
