"""``ll.session`` stays a function however often it is called."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the run extra is not installed")

import lightloom.run as ll

pytestmark = pytest.mark.torch


def test_session_is_still_a_function_after_its_module_is_loaded() -> None:
    import lightloom.run.member  # noqa: F401

    assert callable(ll.session)
