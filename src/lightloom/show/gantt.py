"""A step as a picture: rows of letters in a terminal, boxes and memory curves in SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from lightloom.core.timeline import COMM, COMPUTE, Timeline
from lightloom.core.units import show_bytes, show_time

F64 = NDArray[np.float64]
Curve = tuple[int, F64, F64]
"""(pipeline rank, seconds, bytes)."""
COLOURS = {
    "F": "#0072b2", "B": "#e69f00", "I": "#e69f00", "W": "#009e73", "O": "#56b4e9",
    "expert": "#d55e00", "tensor": "#cc79a7", "pipeline": "#f0e442", "context": "#8b5a2b",
    "gradient": "#999999", "snapshot": "#bbbbbb", "telemetry": "#bbbbbb",
}  # fmt: skip
"""Okabe and Ito: safe for colour-blind eyes; every box also has a letter or a lane."""
STYLES = {"F": "blue", "B": "yellow", "I": "yellow", "W": "green", "O": "cyan", "-": "red"}
MOST_ROWS = 16


def kind_letter(name: str) -> str:
    """Return F, B, I, W, O (optimiser) or ``+`` (a pair) for the name of a compute span."""
    if "+" in name.split(" ")[0]:
        return "+"
    return name[0].upper() if name and name[0] in "FBIWo" else "F"


def _covered(start: F64, end: F64, edges: F64) -> F64:
    """Return how much of every column spans of one lane fill (they do not overlap)."""
    if not len(start):
        return np.zeros(len(edges) - 1)
    done = np.concatenate(([0.0], np.cumsum(end - start)))
    at = np.stack([start, end], axis=1).ravel()
    filled = np.stack([done[:-1], done[1:]], axis=1).ravel()
    return np.diff(np.interp(edges, at, filled))


def _cells(timeline: Timeline, rank: int, edges: F64) -> str:
    """Return one character per column: what fills most of it; ``-`` exposed communication."""
    mine = np.flatnonzero(timeline.rank_N == rank)
    mine = mine[np.argsort(timeline.start_N[mine], kind="stable")]
    letter_of = np.array([kind_letter(name) for name in timeline.names])
    best, row = np.zeros(len(edges) - 1), np.full(len(edges) - 1, " ")
    width = np.diff(edges)
    computes = mine[timeline.kind_N[mine] == COMPUTE]
    letters = letter_of[timeline.name_N[computes]]
    for letter in np.unique(letters):
        chosen = computes[letters == letter]
        seen = _covered(timeline.start_N[chosen], timeline.end_N[chosen], edges)
        wins = seen > np.maximum(best, 0.15 * width)
        row[wins], best[wins] = letter, seen[wins]
    talk = mine[timeline.kind_N[mine] == COMM]
    for lane in np.unique(timeline.lane_N[talk]):
        chosen = talk[timeline.lane_N[talk] == lane]
        seen = _covered(timeline.start_N[chosen], timeline.end_N[chosen], edges)
        wins = (seen > np.maximum(best, 0.15 * width)) & (best < 0.5 * width)
        row[wins], best[wins] = "-", seen[wins]
    return "".join(row)


def gantt_rows(timeline: Timeline, width: int = 80) -> list[Text]:
    """Return a line per rank (up to 16, evenly chosen) and an axis with the time below."""
    ranks = timeline.ranks
    if len(ranks) > MOST_ROWS:
        ranks = tuple(ranks[i] for i in np.linspace(0, len(ranks) - 1, MOST_ROWS).astype(int))
    end = int(timeline.end_N.max())
    label = max(len(str(rank)) for rank in ranks) + 6
    columns = max(width - label, 20)
    edges = np.linspace(0, end, columns + 1)
    rows = []
    for rank in ranks:
        line = Text(f"rank {rank}".ljust(label))
        for letter in _cells(timeline, rank, edges):
            line.append(letter, style=STYLES.get(letter, ""))
        rows.append(line)
    axis = "0".ljust(columns - 10) + show_time(end / 1e9).rjust(10)
    rows.append(Text(" " * label + axis, style="dim"))
    return rows


def _box(x: float, y: float, w: float, h: float, fill: str, title: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.1f}" width="{max(w, 0.3):.2f}" height="{h:.1f}" '
        f'fill="{fill}"><title>{escape(title)}</title></rect>'
    )


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _lane_boxes(
    timeline: Timeline, chosen: NDArray[np.intp], y: float, height: float, scale: float, left: float
) -> list[str]:
    """Return boxes of one lane; those that fall within the same half pixel are drawn once."""
    boxes, last = [], -1.0
    for i in chosen:
        start, end = int(timeline.start_N[i]), int(timeline.end_N[i])
        x, w = left + start * scale, (end - start) * scale
        if x + w < last + 0.5:
            continue
        name = timeline.names[timeline.name_N[i]]
        lane = timeline.lanes[timeline.lane_N[i]].split(" ")[0]
        letter = kind_letter(name)
        fill = COLOURS["F" if letter == "+" else letter] if lane == "compute" else COLOURS[lane]
        said = f"{name} {show_time(start / 1e9)} + {show_time((end - start) / 1e9)}"
        boxes.append(_box(x, y, w, height, fill, said))
        word = name.split(" ")[0]
        if lane == "compute" and w > 7.0 * len(word):
            boxes.append(_text(x + w / 2, y + height - 3, word, "middle"))
        last = x + w
    return boxes


def gantt_svg(
    timeline: Timeline, memory: Sequence[Curve], title: str, usable: float, width: int = 1200
) -> str:
    """Return a self-contained SVG: lanes of every rank shown, then memory over time."""
    end = max(int(timeline.end_N.max()), 1)
    left, top = 130.0, 34.0
    scale = (width - left - 12) / end
    body, y = [_text(8, 20, title)], top
    order = np.lexsort((timeline.start_N, timeline.lane_N))
    for rank in timeline.ranks[: 2 * MOST_ROWS]:
        mine = order[timeline.rank_N[order] == rank]
        body.append(_text(8, y + 11, f"rank {rank}"))
        for lane in _lanes_of(timeline, mine):
            height = 14.0 if timeline.lanes[lane] == "compute" else 7.0
            chosen = mine[timeline.lane_N[mine] == lane]
            body += _lane_boxes(timeline, chosen, y, height, scale, left)
            y += height + 1.0
        y += 4.0
    body += _axis(left, y, width, end)
    y += 24.0
    if memory:
        body += _memory(memory, left, y, width, end / 1e9, usable)
        y += 150.0
    body += _legend(left, y + 12)
    return _page(width, y + 24.0, body, title)


def _lanes_of(timeline: Timeline, mine: NDArray[np.intp]) -> list[int]:
    """Return the lanes of a rank, compute first."""
    lanes = [int(lane) for lane in np.unique(timeline.lane_N[mine])]
    return sorted(lanes, key=lambda k: (timeline.lanes[k] != "compute", timeline.lanes[k]))


def _axis(left: float, y: float, width: int, end: int) -> list[str]:
    marks = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = left + share * (width - left - 12)
        side = "end" if share == 1.0 else "middle"
        marks.append(_text(x, y + 12, show_time(share * end / 1e9) if share else "0", side))
    return marks


def _memory(
    memory: Sequence[Curve], left: float, y: float, width: int, end_s: float, usable: float
) -> list[str]:
    """Return staircases of bytes over time, one per pipeline rank, and the usable line."""
    most = max(max(float(held.max()) for _, _, held in memory), usable)
    high, span = 130.0, width - left - 12
    body = [_text(8, y + 11, "memory"), _text(left - 6, y + 9, show_bytes(most), "end")]
    limit = y + high * (1.0 - usable / most)
    body.append(f'<line x1="{left}" x2="{width - 12}" y1="{limit:.1f}" y2="{limit:.1f}" '
                f'stroke="#d55e00" stroke-dasharray="4 3"/>')  # fmt: skip
    body.append(_text(width - 14, limit - 3, f"usable {show_bytes(usable)}", "end"))
    for index, (rank, times, held) in enumerate(memory):
        shade = 20 + int(60 * index / max(len(memory) - 1, 1))
        x = left + np.append(times, end_s) / end_s * span
        level = y + high * (1.0 - np.append(held, held[-1]) / most)
        keep = np.append(True, np.diff(np.floor(x)) > 0) | (np.arange(len(x)) == len(x) - 1)
        path = "".join(f"H{a:.1f}V{b:.1f}" for a, b in zip(x[keep], level[keep], strict=True))
        said = f"<title>rank {rank}: peak {show_bytes(float(held.max()))}</title>"
        stroke = f"hsl(210 60% {shade}%)"
        body.append(
            f'<path d="M{x[0]:.1f} {level[0]:.1f}{path}" fill="none" '
            f'stroke="{stroke}">{said}</path>'
        )
    return body


def _legend(left: float, y: float) -> list[str]:
    names = {"F": "forward", "B": "backward", "W": "weight gradients", "O": "optimiser",
             "expert": "expert", "tensor": "tensor", "pipeline": "pipeline",
             "context": "context", "gradient": "gradient"}  # fmt: skip
    body, x = [], left
    for key, name in names.items():
        body += [_box(x, y - 9, 10, 10, COLOURS[key], name), _text(x + 13, y, name)]
        x += 30 + 7 * len(name)
    return body


def _page(width: int, height: float, body: list[str], title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" role="img" '
        f'aria-label="{escape(title, True)}" font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(body)}</svg>\n'
    )


def bars_svg(rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], title: str) -> str:
    """Return stacked horizontal bars in seconds on one scale: (label, (part, seconds) ...)."""
    width, left, y = 1000, 240.0, 40.0
    most = max((sum(v for _, v in parts) for _, parts in rows), default=1.0) or 1.0
    scale = (width - left - 90) / most
    body = [_text(8, 20, title)]
    tint = {"compute": "#0072b2", "slowed": "#56b4e9", "bubble": "#dddddd", "waiting": "#bbbbbb"}
    for label, parts in rows:
        x = left
        body.append(_text(left - 8, y + 12, label, "end"))
        for part, value in parts:
            fill = tint.get(part) or COLOURS.get(part, "#999999")
            body.append(_box(x, y, value * scale, 16, fill, f"{part} {show_time(value)}"))
            x += value * scale
        body.append(_text(x + 6, y + 12, show_time(sum(v for _, v in parts))))
        y += 24.0
    x = left
    for part in dict.fromkeys(part for _, parts in rows for part, value in parts if value > 0):
        fill = tint.get(part) or COLOURS.get(part, "#999999")
        body += [_box(x, y, 10, 10, fill, part), _text(x + 13, y + 9, part)]
        x += 34 + 7 * len(part)
    return _page(width, y + 20, body, title)
