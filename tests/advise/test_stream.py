import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lightloom.advise.stream as stream
from lightloom.advise.stream import Trace, nanoseconds
from lightloom.core.errors import InputError

EVENTS = [{"ph": "X", "cat": "kernel", "name": f"k{i}", "pid": 0, "tid": 7, "ts": 10 * i,
           "dur": 2.5, "args": {"a": [{"b": 1}, {"c": "},{"}]}} for i in range(200)]  # fmt: skip


def read(path):
    t = Trace(path)
    return [e for part in t.events() for e in part], t


@given(st.integers(-(10**18), 10**18), st.integers(0, 999))
def test_times_are_exact_integers(whole, part):
    sign = -1 if whole < 0 else 1
    expect = whole * 1000 + sign * part
    assert nanoseconds(f"{whole}.{part:03}".encode()) == expect
    assert nanoseconds(f'"{whole}.{part:03}"'.encode()) == expect
    assert nanoseconds(str(whole).encode()) == whole * 1000


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("piece", [97, 1000, 1 << 20])
def test_any_layout_and_any_cut_gives_every_event(tmp_path, monkeypatch, indent, piece):
    monkeypatch.setattr(stream, "PIECE", piece)
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"a": 1, "traceEvents": EVENTS, "z": [{"q": 1}]}, indent=indent))
    events, t = read(path)
    assert [e.name for e in events] == [e["name"] for e in EVENTS]
    assert t.head == {"a": 1, "z": [{"q": 1}]}
    assert not t.notes


def test_a_list_and_gzip_read_the_same(tmp_path):
    text = json.dumps(EVENTS).encode()
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(text[:5000]) + gzip.compress(text[5000:]))
    events, t = read(tmp_path / "t.json.gz")
    assert len(events) == len(EVENTS)
    assert not t.notes


@pytest.mark.parametrize("keep", [0.3, 0.77, 0.99])
def test_cut_files_keep_what_they_hold(tmp_path, keep):
    text = json.dumps({"traceEvents": EVENTS}).encode()
    (tmp_path / "t.json").write_bytes(text[: int(len(text) * keep)])
    events, t = read(tmp_path / "t.json")
    assert len(events) == pytest.approx(len(EVENTS) * keep, abs=2)
    assert any("cut off" in note for note in t.notes)
    packed = gzip.compress(text)
    (tmp_path / "t.json.gz").write_bytes(packed[:-30])
    events, t = read(tmp_path / "t.json.gz")
    assert events
    assert any("gzip is cut off" in note for note in t.notes)


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        (b'"k7"', b'"k\xff\xfe7"', 0),
        (b'"k7"', b'"k\x01\x02"', 0),
        (b'"dur": 2.5', b'"dur": 99999999999999999999999999999999999', 0),
        (b'"ts": 70', b'"ts": 123456789012345678901234567890', 0),
        (b'"name": "k7"', b'"name": 7', 0),
        (b'"ts": 70,', b'"ts": NaN,', 0),
        (b'"ts": 70,', b'"ts": ,', 1),
    ],
)
def test_damage_costs_at_most_the_damaged_event(tmp_path, old, new, lost):
    text = json.dumps({"traceEvents": EVENTS}).encode()
    assert old in text
    (tmp_path / "t.json").write_bytes(text.replace(old, new, 1))
    events, t = read(tmp_path / "t.json")
    assert len(EVENTS) - len(events) in (lost, lost + 1) if lost else len(events) == len(EVENTS)
    if lost:
        assert sum(t.notes.values()) >= 1


@pytest.mark.parametrize("text", [b"", b"{}", b"hello", b'{"traceEvents": 3}', b"\x00\x01", b"{"])
def test_what_is_no_trace_says_so(tmp_path, text):
    (tmp_path / "t.json").write_bytes(text)
    with pytest.raises(InputError, match="not a trace"):
        read(tmp_path / "t.json")
