import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightloom.core.errors import InputError
from lightloom.core.timeline import COMM, COMPUTE
from lightloom.core.timeline_file import (
    COLUMNS,
    Span,
    decode_timeline,
    encode_timeline,
    merge,
    read_timeline,
    timeline_of,
    write_timeline,
)  # fmt: skip

spans = st.lists(
    st.builds(
        lambda start, length, rank, kind, name, group, match: Span(
            start, start + length, rank, f"stream {kind}", kind, name, 0, group, match, 0
        ),
        st.integers(0, 2**60), st.integers(0, 2**40), st.integers(0, 7), st.integers(0, 5),
        st.text(max_size=4), st.sampled_from(["", "dp:0,1", "tp:0,2"]), st.integers(-1, 9),
    ),
    max_size=20,
)  # fmt: skip


def same(a, b) -> bool:
    equal = all(np.array_equal(getattr(a, f"{c}_N"), getattr(b, f"{c}_N")) for c in COLUMNS)
    return equal and (a.names, a.lanes, a.groups, a.origin_ns, a.source, a.meta) == (
        b.names, b.lanes, b.groups, b.origin_ns, b.source, b.meta)  # fmt: skip


@given(spans)
def test_written_and_read_is_equal(rows):
    timeline = timeline_of(rows, source="run", origin_ns=5, meta={"a": "b"})
    assert same(timeline, decode_timeline(encode_timeline(timeline), "x"))


def test_gzip_and_plain_hold_the_same(tmp_path):
    timeline = timeline_of([Span(1, 5, 0, "s", COMPUTE, "gemm")], source="run")
    for name in ("t.json", "t.json.gz"):
        write_timeline(tmp_path / name, timeline)
        assert same(timeline, read_timeline(tmp_path / name))
    assert (tmp_path / "t.json.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_merge_puts_ranks_on_one_clock():
    a = timeline_of([Span(0, 5, 0, "s", COMPUTE, "x", group="dp:0,1")], source="run", origin_ns=100)
    b = timeline_of([Span(0, 5, 1, "t", COMM, "y")], source="run", origin_ns=90)
    both = merge([a, b])
    assert both.origin_ns == 90
    assert both.start_N.tolist() == [0, 10]
    assert both.rank_N.tolist() == [1, 0]
    assert [both.names[i] for i in both.name_N] == ["y", "x"]
    assert both.group_N.tolist() == [-1, 0]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b'"version":1', b'"version":9', "version 9"),
        (b'"name":[0]', b'"name":[7]', "outside its table"),
        (b'"end":[5]', b'"end":[0]', "ends before"),
        (b'"end":[5]', b'"end":[5,6]', "differ in length"),
        (b'"rank":[0]', b'"rank":[99999999999]', "does not fit"),
        (b'"rank":[0],', b"", "columns must be"),
        (b'"kind":"timeline"', b'"kind":"plan"', "kind"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(old, new, says):
    good = encode_timeline(timeline_of([Span(1, 5, 0, "s", COMPUTE, "g")], source="run"))
    assert old in good
    with pytest.raises(InputError, match=says):
        decode_timeline(good.replace(old, new), "t.json")


def test_broken_gzip_is_an_answer(tmp_path):
    (tmp_path / "t.json.gz").write_bytes(b"\x1f\x8b\x08\x00broken")
    with pytest.raises(InputError, match="gzip"):
        read_timeline(tmp_path / "t.json.gz")
