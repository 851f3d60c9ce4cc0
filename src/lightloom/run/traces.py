"""Every run leaves a Timeline and Telemetry: made from the agents' step lines when it ends."""

from __future__ import annotations

import gzip
import importlib.util
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from lightloom.core.files import write_bytes
from lightloom.core.timeline import COMM, COMPUTE, IDLE
from lightloom.core.timeline_file import Span, timeline_of, write_timeline

from .launch import events
from .log import read_lines

_PHASES = (
    ("forward and backward", "compute", COMPUTE), ("wait for the others", "compute", IDLE),
    ("reduce", "gradient", COMM),
)  # fmt: skip


def write(folder: Path) -> None:
    """Write ``timeline.json.gz``, ``telemetry.json.gz`` and TensorBoard scalars if installed."""
    lines = [x for x in read_lines(folder, "steps") if len(x["marks"]) >= 4]
    if not lines:
        return
    spans = _spans(lines)
    origin = min(s.start_ns for s in spans)
    spans = [s._replace(start_ns=s.start_ns - origin, end_ns=s.end_ns - origin) for s in spans]
    write_timeline(folder / "timeline.json.gz", timeline_of(spans, source="run"))
    series = _series(lines, folder)
    body = msgspec.json.encode({"version": 1, "kind": "telemetry", "series": series})
    write_bytes(folder / "telemetry.json.gz", gzip.compress(body, 6, mtime=0))
    _tensorboard(folder, series)


def _spans(lines: list[dict[str, Any]]) -> list[Span]:
    spans = []
    for line in lines:
        rank, step, marks = max(int(line["slot"]), 0), int(line["step"]), line["marks"]
        for (name, lane, kind), start, end in zip(_PHASES, marks, marks[1:], strict=False):
            group = "dp" if kind == COMM else ""
            match = step if kind == COMM else -1
            spans.append(
                Span(start, max(end, start), rank, lane, kind, name, 0, group, match, step)
            )
        if len(marks) >= 6 and marks[4] and marks[5] > marks[4]:
            spans.append(
                Span(marks[4], marks[5], rank, "compute", COMPUTE, "optimizer", step=step - 1)
            )
    return spans


def _series(lines: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Return Telemetry series; times are wall clock, derived from the monotonic marks."""
    offset = time.time() - time.monotonic()
    loss: dict[int, tuple[float, float]] = {}
    computing: dict[int, list[tuple[float, float]]] = {}
    for line in lines:
        marks = line["marks"]
        at = marks[3] / 1e9 + offset
        if line["loss"] is not None:
            loss[int(line["step"])] = (at, float(line["loss"]))
        computing.setdefault(int(line["slot"]), []).append((at, (marks[1] - marks[0]) / 1e9))
    ends = sorted((at, step) for step, (at, _) in loss.items())
    rows = [_row("loss", "job", [loss[s] for s in sorted(loss)])]
    gaps = [(b[0], b[0] - a[0]) for a, b in pairwise(ends)]
    rows.append(_row("step_seconds", "job", gaps))
    rows += [_row("compute_seconds", f"rank:{r}", v) for r, v in sorted(computing.items())]
    world = [
        (int(e["at_ns"]) / 1e9 + offset, float(len(e["members"])))
        for e in events(folder)
        if e["kind"] == "epoch"
    ]
    rows.append(_row("ranks", "job", world))
    return rows


def _row(metric: str, subject: str, pairs: list[tuple[float, float]]) -> dict[str, Any]:
    return {"metric": metric, "subject": subject, "time": [t for t, _ in pairs],
            "value": [v for _, v in pairs]}  # fmt: skip


def _tensorboard(folder: Path, series: list[dict[str, Any]]) -> None:
    if importlib.util.find_spec("tensorboard") is None:
        return
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"))
    for row in series:
        for index, (at, value) in enumerate(zip(row["time"], row["value"], strict=True)):
            name = f"{row['metric']}/{row['subject']}"
            writer.add_scalar(name, value, index, walltime=at)
    writer.close()
