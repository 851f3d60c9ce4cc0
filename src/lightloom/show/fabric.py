"""Screens of fabrics: levels, distances, cables, borders, audited claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from lightloom.core.lang import _
from lightloom.core.told import told
from lightloom.core.units import show_rate, show_time

from .light import grid

Row = Mapping[str, Any]
COLOUR = {"holds": "green", "impossible": "red", "not enough data": "yellow"}


def levels_table(rows: Sequence[Row]) -> Table:
    """Return one line per level."""
    return grid(
        ("level", "kind", "shape", "links", "per link", "per card", "bisection", "hop"),
        [
            (r["name"], r["kind"], " x ".join(map(str, r["shape"])), f"{r['links']:,}",
             show_rate(r["link"]), show_rate(r["card_bandwidth"]), show_rate(r["bisection"]),
             show_time(r["latency"]))
            for r in rows
        ],
        left=3,
    )  # fmt: skip


def fibre_lines(rows: Sequence[Row]) -> list[str]:
    """Return a line for each level with light: fibres and the cables they stand for."""
    return [
        _("{level}: the {fibres:,} fibres of each child carry what {cables:,} active 200G cables "
          "would ({all_fibres:,} fibres in the machine)").format(
            level=r["name"], fibres=r["fibres"], cables=r["cables_200g"], all_fibres=r["all_fibres"]
        )
        for r in rows
        if r["fibres"]
    ]  # fmt: skip


def hops_table(rows: Sequence[Row]) -> Table:
    """Return the histogram of distances, with bars."""
    longest = max(r["share"] for r in rows)
    return grid(
        ("links crossed", "latency", "pairs", "share", "", "for example"),
        [
            (str(r["hops"]), show_time(r["latency"]), f"{r['pairs']:,.0f}", f"{r['share']:.2%}",
             "#" * max(1, round(12 * r["share"] / longest)), f"c{r['source']} - c{r['target']}")
            for r in rows
        ],
        left=0,
    )  # fmt: skip


def cables_table(rows: Sequence[Row]) -> Table:
    """Return cables with both ends."""
    return grid(
        ("level", "end A : ports", "end B : ports", "links", "each", "cable"),
        [
            (r["level"], f"{r['end_a']}:{r['port_a']}", f"{r['end_b']}:{r['port_b']}",
             f"{r['links']}", show_rate(r["rate"]), _(r["medium"]))
            for r in rows
        ],
        left=3,
    )  # fmt: skip


def cut_table(rows: Sequence[Row]) -> Table:
    """Return the borders of units."""
    return grid(
        ("border of", "units", "narrowest", "mean", "per card", "all-to-all of 1 GiB"),
        [
            (r["unit"], f"{r['count']:,}", show_rate(r["least"]), show_rate(r["mean"]),
             show_rate(r["per_card"]), show_time(r["all_to_all_s"]))
            for r in rows
        ],
    )  # fmt: skip


def audit_table(rows: Sequence[Row]) -> Table:
    """Return claims with verdict and arithmetic."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(_("verdict"), no_wrap=True)
    table.add_column(_("claim and arithmetic"), overflow="fold")
    for r in rows:
        text = Text(f"{told(r['text'])} ({told(r['source'])})\n", style="bold")
        text.append(told(r["arithmetic"]), style="not bold")
        if r["assumed"]:
            text.append(f"\n{_('assumed')}: {told(r['assumed'])}", style="not bold dim")
        table.add_row(Text(_(r["verdict"]), style=COLOUR[r["verdict"]]), text)
    return table
