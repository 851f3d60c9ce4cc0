"""Against SimGrid 3.32: every flow's end, on fabrics of every kind, to a millionth."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightloom.flow.play import finish
from lightloom.flow.share import paths_of

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "simgrid"


@cache
def load(name: str) -> Any:
    return json.loads(gzip.decompress((GOLDEN / f"{name}.json.gz").read_bytes()))


@pytest.mark.parametrize("number", range(len(load("cases"))))
def test_ends(number: int) -> None:
    case = load("cases")[number]
    expected = np.array(load("times")["times"][case["name"]])
    paths, delay = paths_of(case["paths"]), np.array(case["latency"])
    latency = np.array([delay[path].sum() for path in case["paths"]])
    ends = finish(
        paths, np.array(case["capacity"]), np.array(case["bytes"]), latency,
        np.array(case["start"]), weight_F=1.0 / latency,
    )  # fmt: skip
    np.testing.assert_allclose(ends, expected, rtol=1e-6)


def test_there_are_enough_cases() -> None:
    assert len(load("cases")) >= 20
    assert max(case["cards"] for case in load("cases")) == 256
