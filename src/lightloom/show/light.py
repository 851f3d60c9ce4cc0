"""Screens of light: circuits, findings, heat, channels, budgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from lightloom.core.channels import ChannelFile
from lightloom.core.finding import Finding
from lightloom.core.lang import _
from lightloom.core.told import told
from lightloom.core.units import show_bytes, show_time

SHADES = " .:-=+*#%@"
MOST = 12
"""Rows and columns of a heat map on the screen; larger ones are folded by maximum."""


def print_lines(*parts: RenderableType) -> None:
    """Print parts on a screen of at most 100 columns."""
    console = Console(highlight=False)
    console.width = min(console.width, 100)
    for part in parts:
        console.print(told(part) if isinstance(part, str) else part)


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> Table:
    """Return a plain table: the first `left` columns are words, the rest figures."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        table.add_column(told(name), justify="left" if index < left else "right")
    for row in rows:
        table.add_row(*row)
    return table


def topo_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return one line per level of a `.topo`."""
    return grid(
        ("level", "bands", "plan", "units", "children", "circuits", "channels lit", "per card"),
        [
            (r["level"], "+".join(r["bands"]), _("assumed") if r["assumed"] else _("stated"),
             f"{r['units']:,}", f"{r['children']}", f"{r['circuits']:,}",
             f"{r['channels_lit']:,}", f"{r['channels_per_card']:.3g}")
            for r in rows
        ],
        left=3,
    )  # fmt: skip


def findings_table(findings: Sequence[Finding]) -> RenderableType:
    """Return what a check found, or one line that it found nothing."""
    if not findings:
        return Text(_("no conflict: every channel of every fibre has one owner"), style="green")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "where", "what"):
        table.add_column(_(name) if name else "", overflow="fold")
    for f in findings:
        said = "; ".join(told(text) for text in (f.what, f.remedy) if text)
        table.add_row(f.code, f.subject, said)
    return table


def _folded(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    n = len(matrix)
    step = -(-n // MOST)
    return [
        [
            max(
                matrix[i][j] for i in range(a, min(a + step, n)) for j in range(b, min(b + step, n))
            )
            for b in range(0, n, step)
        ]
        for a in range(0, n, step)
    ]


def heat_text(
    title: str, matrix: Sequence[Sequence[float]], say: Callable[[float], str] = show_bytes
) -> Text:
    """Return a heat map in characters: darker is more; rows send, columns receive."""
    small = _folded(matrix)
    top = max((max(row) for row in small), default=0.0) or 1.0
    step = -(-len(matrix) // MOST)
    lines = [title]
    for index, row in enumerate(small):
        cells = "".join(2 * SHADES[min(int(v / top * 9.999), 9)] for v in row)
        lines.append(f"{index * step:>5} |{cells}|")
    shown = say(top)
    each = f", {step} x {step} {_('a cell')}" if step > 1 else ""
    lines.append(f"      @@ = {shown}{each}")
    return Text("\n".join(lines))


def heat_svg(
    panels: Sequence[tuple[str, Sequence[Sequence[float]], Callable[[float], str]]], title: str
) -> str:
    """Return heat maps as one SVG picture; each panel is (title, matrix, how to say a value)."""
    body, y = [f'<text x="10" y="20">{escape(title)}</text>'], 40.0
    for name, matrix, say in panels:
        n = len(matrix)
        top = max((max(row) for row in matrix), default=0.0) or 1.0
        size = max(4.0, min(24.0, 520.0 / n))
        shown = say(top)
        body.append(f'<text x="10" y="{y:.0f}">{escape(name)} · {_("darkest")} {shown}</text>')
        y += 8
        for i, row in enumerate(matrix):
            for j, value in enumerate(row):
                if value > 0:
                    shade = 235 - int(215 * value / top)
                    said = say(value)
                    body.append(
                        f'<rect x="{40 + j * size:.1f}" y="{y + i * size:.1f}" '
                        f'width="{size:.1f}" height="{size:.1f}" '
                        f'fill="rgb({shade},{shade},{min(255, shade + 20)})">'
                        f"<title>{i} -&gt; {j}: {said}</title></rect>"
                    )
        edge = n * size
        body.append(
            f'<rect x="40" y="{y:.1f}" width="{edge:.1f}" height="{edge:.1f}" fill="none" '
            'stroke="#888"/>'
        )
        y += edge + 30
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {y:.0f}" '
        f'font-family="sans-serif" font-size="13">{"".join(body)}</svg>\n'
    )


def channel_map(file: ChannelFile, boards: Sequence[int], width: int = 64) -> Text:
    """Return sending fibres as lines: one letter a channel, dot for free, letters for classes."""
    letters = {cls: cls[0].upper() for cls in sorted({p.cls for p in file.lit})}
    out = [_("sending fibres; . free, ") + ", ".join(f"{v} {k}" for k, v in letters.items())]
    owner: dict[int, list[str]] = {}
    for path in file.lit:
        for link in path.links:
            row = owner.setdefault(link, ["."] * file.channels)
            for channel in path.channels:
                row[channel] = letters[path.cls]
    for board in boards:
        for fibre in range(file.fibres):
            row = owner.get(board * file.fibres + fibre, ["."] * file.channels)
            step = -(-file.channels // width)
            cells = [max(row[c : c + step]) for c in range(0, file.channels, step)]
            out.append(f"b{board:<3} f{fibre} {''.join(cells)}")
    return Text("\n".join(out))


def parts_table(title: str, parts: Mapping[str, float], unit: str) -> Table:
    """Return named figures, one a line."""
    show: dict[str, Callable[[float], str]] = {
        "dB": lambda v: f"{v:.2f} dB",
        "s": show_time,
        "share": lambda v: f"{100 * v:.2f} %",
    }
    return grid((title, ""), [(told(k), show[unit](v)) for k, v in parts.items()])
