import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightloom.advise.split import both, gaps, length, split_of, union
from lightloom.core.timeline import COMM, COMPUTE, COPY
from lightloom.core.timeline_file import Span, timeline_of

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


def arrays(pairs):
    start = np.array([a for a, _ in pairs], dtype=np.int64)
    return start, start + np.array([n for _, n in pairs], dtype=np.int64)


def cells(pairs):
    return {t for a, n in pairs for t in range(a, a + n)}


@given(spans, spans)
def test_unions_count_every_nanosecond_once(a, b):
    ua, ub = union(*arrays(a)), union(*arrays(b))
    assert length(ua) == len(cells(a))
    assert both(ua, ub) == len(cells(a) & cells(b))
    assert bool(np.all(ua[0][1:] > ua[1][:-1])) if len(ua[0]) > 1 else True
    assert length(gaps(ua)) + length(ua) == (ua[1][-1] - ua[0][0] if len(ua[0]) else 0)


@given(spans, spans, spans)
def test_the_parts_of_a_rank_add_up(compute, comm, copies):
    rows = [Span(a, a + n, 3, "s", kind, "x")
            for kind, part in ((COMPUTE, compute), (COMM, comm), (COPY, copies))
            for a, n in part]  # fmt: skip
    s = split_of(timeline_of(rows, source="x"), 3)
    everything = cells(compute) | cells(comm) | cells(copies)
    assert s.compute_s * 1e9 == pytest.approx(len(cells(compute)))
    assert s.exposed_s * 1e9 == pytest.approx(len(cells(comm) - cells(compute)))
    assert s.hidden_s + s.exposed_s == pytest.approx(s.comm_s)
    assert s.idle_s * 1e9 == pytest.approx(s.span_s * 1e9 - len(everything))
