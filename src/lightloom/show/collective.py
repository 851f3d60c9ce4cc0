"""Screens of collectives: one answer, a sweep over sizes, pictures of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from lightloom.core.lang import _
from lightloom.core.units import show_bytes, show_rate, show_time

from .light import grid

Row = Mapping[str, Any]


def outcome_lines(r: Row) -> list[str]:
    """Return what was chosen and how good it is."""
    lines = [
        _("{kind} of {size} in groups of {group:,} ({groups:,} at once, {cards:,} cards)").format(
            kind=r["kind"], size=show_bytes(r["bytes"]), group=r["group"], groups=r["groups"],
            cards=r["cards"],
        ),
        _("{algorithm}: {time} · algbw {algbw} · busbw {busbw}").format(
            algorithm=r["algorithm"], time=show_time(r["seconds"]), algbw=show_rate(r["algbw"]),
            busbw=show_rate(r["busbw"]),
        ),
    ]  # fmt: skip
    if r["bound_s"] > 0:
        lines.append(
            _("no schedule is quicker than {bound} (narrowest border): {ratio:.3f} times that")
            .format(bound=show_time(r["bound_s"]), ratio=r["seconds"] / r["bound_s"])
        )  # fmt: skip
    if r["stages"]:
        lines.append(f"{_('stages')}: {' > '.join(r['stages'])} · {_('chunks')}: {r['chunks']}")
    hints = [h for h in (r["hccl"], r["nccl"]) if h]
    return [*lines, f"{_('tell the library')}: {' | '.join(hints)}"] if hints else lines


def candidates_table(r: Row) -> Table:
    """Return every candidate's estimate and, where it was played, its time."""
    order = sorted(r["estimates"], key=lambda name: r["estimates"][name])
    return grid(
        ("algorithm", "estimate", "played"),
        [
            (name, show_time(r["estimates"][name]),
             show_time(r["played"][name]) if name in r["played"] else "")
            for name in order
        ],
    )  # fmt: skip


def sweep_table(rows: Sequence[Row]) -> Table:
    """Return one line per size; a mark where the best algorithm changes."""
    lines, before = [], ""
    for r in rows:
        mark = "<" if before and r["algorithm"] != before else ""
        before = r["algorithm"]
        ratio = f"{r['seconds'] / r['bound_s']:.2f}" if r["bound_s"] > 0 else ""
        lines.append(
            (show_bytes(r["bytes"]), r["algorithm"], mark, show_time(r["seconds"]),
             show_rate(r["algbw"]), show_rate(r["busbw"]), ratio)
        )  # fmt: skip
    return grid(("bytes", "algorithm", "", "time", "algbw", "busbw", "times bound"), lines, left=2)


def draw_sweep(axes: Any, rows: Sequence[Row]) -> None:
    """Draw time against size for every candidate, the choice marked, the bound dashed."""
    sizes = [r["bytes"] for r in rows]
    for name in sorted({n for r in rows for n in r["estimates"]}):
        pairs = [(r["bytes"], r["estimates"][name]) for r in rows if name in r["estimates"]]
        axes.loglog([p[0] for p in pairs], [p[1] for p in pairs], label=name, linewidth=1)
    axes.loglog(sizes, [r["seconds"] for r in rows], "ko", markersize=4, label="chosen, played")
    bounds = [r["bound_s"] for r in rows]
    if all(bounds):
        axes.loglog(sizes, bounds, "--", color="grey", label="no schedule is quicker")
    axes.set_xlabel("bytes")
    axes.set_ylabel("seconds")
    axes.set_title(f"{rows[0]['kind']}, groups of {rows[0]['group']:,}")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()


def draw_candidates(axes: Any, r: Row) -> None:
    """Draw the estimates of one size as bars."""
    data = r["estimates"] or r["played"]
    order = sorted(data, key=lambda name: -data[name])
    axes.barh(order, [data[name] for name in order], color="#0072b2")
    axes.set_xscale("log")
    axes.set_xlabel("seconds")
    if r["bound_s"] > 0:
        axes.axvline(r["bound_s"], color="grey", linestyle="--")
    axes.set_title(f"{r['kind']} of {show_bytes(r['bytes'])}, groups of {r['group']:,}")
