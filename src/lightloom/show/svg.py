"""Small pictures as inline SVG: stacked bars and ranges. No script, no outside reference.

Colours are safe for colour-blind eyes (Okabe and Ito) and every part is also labelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

COLOURS = {
    "compute": "#0072b2", "transfer": "#d55e00", "waiting": "#e69f00", "exposed": "#cc6e3c",
    "communication": "#d55e00", "copy": "#009e73", "host": "#56b4e9", "idle": "#dddddd",
    "hidden": "#999999", "bubble": "#f0e442",
    "gemm": "#0072b2", "attention": "#4a9bd1", "experts": "#8cc3e6", "elementwise": "#56b4e9",
    "recompute": "#004b75", "launch": "#b5c7d3", "tp": "#d55e00", "cp": "#e69f00",
    "ep": "#cc79a7", "pp": "#b8860b", "dp": "#cc6e3c", "optimizer": "#009e73",
    "data": "#bbbbbb", "straggler": "#dddddd", "weights": "#0072b2", "gradients": "#56b4e9",
    "activations": "#e69f00", "gathered": "#cc79a7", "logits": "#d55e00",
    "communicators": "#b8860b", "context": "#bbbbbb", "fragmentation": "#dddddd",
}  # fmt: skip
"""Part -> fill; other parts take grey."""
OTHER = "#999999"


class Bar(NamedTuple):
    """One stacked bar."""

    label: str
    parts: tuple[tuple[str, float], ...]
    """(part, size), drawn from the left."""
    note: str = ""


class Range(NamedTuple):
    """One estimate with its interval."""

    label: str
    point: float | None
    low: float
    high: float
    note: str = ""


def _svg(width: int, height: int, body: list[str], title: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title, True)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(body)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{name}>{escape(text)}</text>'


def _box(x: float, y: float, w: float, h: float, part: str, title: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.1f}" width="{max(w, 0.3):.2f}" height="{h:.1f}" '
        f'fill="{COLOURS.get(part, OTHER)}"><title>{escape(title)}</title></rect>'
    )


def legend(parts: Sequence[str], names: dict[str, str] | None = None) -> str:
    """Return a line of coloured names as HTML."""
    said = names or {}
    items = (
        f'<span><i style="background:{COLOURS.get(p, OTHER)}"></i>{escape(said.get(p, p))}</span>'
        for p in parts
    )
    return f'<p class="legend">{"".join(items)}</p>'


def stacked_bars(bars: Sequence[Bar], title: str, unit: str = "", width: int = 900) -> str:
    """Return horizontal stacked bars on a common scale; long sets are drawn thinner."""
    if not bars:
        return ""
    longest = max(sum(size for _, size in bar.parts) for bar in bars) or 1.0
    row = 22 if len(bars) <= 40 else 10
    left, right = 130, 120
    scale = (width - left - right) / longest
    body: list[str] = []
    for i, bar in enumerate(bars):
        x, y = float(left), 6.0 + i * row
        if row >= 16 or i % 4 == 0:
            body.append(_text(left - 6, y + row * 0.62, bar.label, "end"))
        for part, size in bar.parts:
            if size > 0:
                body.append(_box(x, y, size * scale, row - 4, part,
                                 f"{bar.label}: {part} {size:.4g} {unit}"))  # fmt: skip
                x += size * scale
        if bar.note:
            body.append(_text(x + 6, y + row * 0.62, bar.note, kind="grey"))
    return _svg(width, len(bars) * row + 12, body, title)


def ranges(rows: Sequence[Range], title: str, width: int = 900) -> str:
    """Return one line per estimate: a grey interval and a dot at its point, as shares of one."""
    if not rows:
        return ""
    low = min([0.0, *(r.low for r in rows)])
    high = max([0.05, *(r.high for r in rows)])
    left, right, row = 130, 170, 24
    scale = (width - left - right) / (high - low)
    zero = left - low * scale
    body = [f'<line x1="{zero:.1f}" y1="2" x2="{zero:.1f}" y2="{len(rows) * row + 6}" '
            'stroke="#888" stroke-width="1"/>']  # fmt: skip
    for i, r in enumerate(rows):
        y = 6.0 + i * row
        body.append(_text(left - 6, y + 13, r.label, "end"))
        x, w = left + (r.low - low) * scale, (r.high - r.low) * scale
        body.append(f'<rect x="{x:.1f}" y="{y + 4:.1f}" width="{max(w, 1):.1f}" height="10" '
                    'fill="#cfd8dc"/>')  # fmt: skip
        if r.point is not None:
            body.append(f'<circle cx="{left + (r.point - low) * scale:.1f}" cy="{y + 9:.1f}" '
                        'r="5" fill="#0072b2"/>')  # fmt: skip
        body.append(_text(left + (r.high - low) * scale + 10, y + 13, r.note, kind="grey"))
    return _svg(width, len(rows) * row + 12, body, title)
