"""Files that other programs read, and what is wrong with bad ones."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lightloom.core.errors import InputError
from lightloom.core.plan import Plan
from lightloom.show.gantt import bars_svg, gantt_rows, gantt_svg
from lightloom.simulate.scenario import Outcome, simulate, timeline
from lightloom.simulate.trace import check_trace, csv_of, write_trace


@pytest.fixture(scope="module")
def outcome(dense: Plan) -> Outcome:
    return simulate(dense)


def test_trace_is_read_back_and_keeps_every_span(outcome: Outcome, tmp_path: Path) -> None:
    spans = timeline(outcome, (0, 17))
    path = tmp_path / "step.json.gz"
    count = write_trace(path, spans)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert len(events) == count
    boxes = [e for e in events if e["ph"] == "X"]
    assert len(boxes) == len(spans)
    assert {e["pid"] for e in boxes} == {0, 17}
    assert max(e["ts"] + e["dur"] for e in boxes) == pytest.approx(spans.end_N.max() / 1e3)
    again = tmp_path / "again.json.gz"
    write_trace(again, spans)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "trace"),
        ('{"traceEvents": [{"name": "a", "ph": "Q", "pid": 0, "tid": 0}]}', "ph"),
        ('{"traceEvents": [{"name": "a", "ph": "X", "pid": 0, "tid": 0}]}', "no duration"),
        ('{"traceEvents": [{"name": "a", "ph": "X", "pid": 0, "tid": 0, "dur": 1}]}', "no name"),
        ('{"traceEvents": [{"name": "a", "ph": "X", "pid": 0, "tid": 0, "dur": -1}]}', "dur"),
    ],
)
def test_broken_traces_are_named(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        check_trace(path)


def test_csv_has_a_line_per_span(outcome: Outcome) -> None:
    spans = timeline(outcome)
    rows = list(csv.DictReader(io.StringIO(csv_of(spans))))
    assert len(rows) == len(spans)
    assert {row["kind"] for row in rows} == {"compute", "communication"}
    assert float(rows[-1]["end_s"]) <= outcome.result.step_s + 1e-9


def test_pictures_are_whole_documents(outcome: Outcome) -> None:
    spans = timeline(outcome)
    picture = gantt_svg(spans, outcome.memory, "70B & friends", outcome.result.usable_bytes)
    root = ElementTree.fromstring(picture)
    assert root.tag.endswith("svg")
    words = " ".join(root.itertext())
    assert "rank 16" in words
    assert "usable" in words
    ElementTree.fromstring(bars_svg([("a < b", [("compute", 1.0), ("expert", 0.5)])], "sweep"))


@pytest.mark.parametrize("width", [80, 100])
def test_terminal_gantt_keeps_its_width(outcome: Outcome, width: int) -> None:
    rows = gantt_rows(timeline(outcome), width)
    assert len(rows) == 4 + 1
    assert all(len(row.plain) <= width for row in rows)
    assert "F" in rows[0].plain
    assert "B" in rows[0].plain
