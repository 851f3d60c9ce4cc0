"""Effective bandwidth is an output: its parts, its bound, what helps and what does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightloom.core.errors import InputError
from lightloom.flow.channels import SCHEMES, Overheads, effective, exchange

NAMES = ("expert", "gradient")


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 12), st.floats(0.1, 10.0), st.integers(0, 99), st.sampled_from(list(SCHEMES)))
def test_parts_multiply_and_stay_below_the_bound(
    boards: int, ratio: float, seed: int, scheme: str
) -> None:
    sent = exchange(boards, 1e10 * ratio, 1e10, 0.3, seed)
    e = effective(sent, NAMES, 64, 1e10, scheme, seed=seed)  # type: ignore[arg-type]
    assert e.effective == pytest.approx(math.prod(e.parts.values()))
    assert all(0.0 < share <= 1.0 + 1e-9 for share in e.parts.values())
    assert e.effective == pytest.approx(e.bound_s / e.seconds, rel=1e-9)


def test_exchange_has_the_bytes_asked_for() -> None:
    sent = exchange(8, 7e9, 3e9, 0.5, 1)
    assert sent[0].sum() == pytest.approx(8 * 7e9)
    assert sent[1].sum(axis=1) == pytest.approx(np.full(8, 3e9))
    assert np.trace(sent[0]) == 0
    with pytest.raises(InputError, match="two boards"):
        exchange(1, 1.0, 1.0)


def test_channels_that_know_their_traffic_beat_hashing() -> None:
    sent = exchange(64, 80e9, 40e9)
    aware, hashed = (effective(sent, NAMES, 1024, 1e10, s) for s in ("aware", "hashed"))
    assert aware.effective >= 0.92
    assert hashed.effective < 0.65


def test_overheads_are_seen_one_by_one() -> None:
    sent = exchange(8, 8e9, 4e9)
    plain = effective(sent, NAMES, 64, 1e10, "aware")
    coded = effective(sent, NAMES, 64, 1e10, "aware", Overheads(fec=514 / 544))
    assert coded.parts["fec"] == 514 / 544
    assert coded.effective < plain.effective
    slow = Overheads(reconfigure_s=15e-3, reconfigurations=1)
    assert effective(sent, NAMES, 64, 1e10, "aware", slow).parts["reconfiguration"] < 0.6


def test_hot_experts_break_channels_laid_out_for_even_traffic() -> None:
    even, hot = exchange(16, 80e9, 40e9), exchange(16, 80e9, 40e9, 0.3, 2)
    stale = effective(hot, NAMES, 256, 1e10, "aware", planned_KIJ=even)
    fresh = effective(hot, NAMES, 256, 1e10, "aware")
    assert fresh.parts["contention"] > 0.9 > 0.75 > stale.parts["contention"]


def test_nothing_sent_is_an_input_error() -> None:
    with pytest.raises(InputError, match="nothing is sent"):
        effective(np.zeros((2, 4, 4)), NAMES, 64, 1e10, "aware")
