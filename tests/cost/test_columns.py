"""Columns: strategies in and out unchanged; distinct rows found without sorting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightloom.core.errors import InputError
from lightloom.cost.columns import columns_of, make_columns, strategy_of, unique_rows
from tests.cost.helpers import job_of, random_columns, rows_of


def test_strategies_survive_the_trip_through_columns() -> None:
    job = job_of("deepseek-v2-lite", "dgx-h100", 512)
    wanted = rows_of(random_columns(job, 60, 1))
    back = columns_of(wanted)
    assert [strategy_of(back, i) for i in range(len(wanted))] == wanted


def test_words_become_codes_and_unknown_words_are_named() -> None:
    columns = make_columns(3, tp=np.array([1, 2, 4]), recompute="full", global_batch=8, seq=128)
    assert strategy_of(columns, 2).recompute == "full"
    assert strategy_of(columns, 2).tp == 4
    with pytest.raises(InputError, match="nearest: full"):
        make_columns(1, recompute="ful", global_batch=8, seq=128)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 70000), st.integers(-3, 3)),
                min_size=1, max_size=80))  # fmt: skip
def test_distinct_rows_are_those_that_numpy_finds(rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows, np.int64)
    first, inverse = unique_rows(*(table[:, i] for i in range(3)))
    assert (table[first][inverse] == table).all()
    assert len(first) == len(np.unique(table, axis=0))
