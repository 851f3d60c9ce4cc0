"""Measured kernels and collectives as they ship: columns of small integers in one file each."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError
from lightloom.core.files import CATALOG, read_bytes

from .comm_fit import CurveRows
from .kernels_rows import FILES, KernelRows, chip_of

KERNELS = CATALOG / "evidence" / "kernels.npz"
CURVES = CATALOG / "evidence" / "curves.npz"
STEP = 1 / 2048
"""Resolution of stored log seconds (0.05 %)."""


def _words(values: NDArray[np.str_]) -> tuple[NDArray[np.str_], NDArray[np.uint8]]:
    names, codes = np.unique(values, return_inverse=True)
    return names, codes.ravel().astype(np.uint8)


def _seconds(values: NDArray[np.float64]) -> NDArray[np.int16]:
    rounded: NDArray[np.int16] = np.round(np.log(values * 1e3) / STEP).astype(np.int16)
    return rounded


def _bytes(arrays: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def pack_kernels(tables: dict[str, KernelRows]) -> bytes:
    """Return all families as one compressed file."""
    arrays: dict[str, Any] = {}
    for family, rows in tables.items():
        arrays[f"{family}|systems"], arrays[f"{family}|system"] = _words(rows.system_N)
        arrays[f"{family}|dtypes"], arrays[f"{family}|dtype"] = _words(rows.dtype_N)
        arrays[f"{family}|shape"] = rows.shape_N.astype(np.int32).T.copy()
        arrays[f"{family}|skew"] = np.round(rows.skew_N * 100).astype(np.uint8)
        arrays[f"{family}|seconds"] = _seconds(rows.seconds_N)
    return _bytes(arrays)


def _chips(names: NDArray[np.str_]) -> tuple[dict[str, Any], dict[str, str]]:
    chips, lost = {}, {}
    for name in names.tolist():
        try:
            chips[name] = chip_of(name)
        except InputError as error:
            lost[name] = error.what
    return chips, lost


@lru_cache(maxsize=1)
def shipped_kernels() -> dict[str, KernelRows]:
    """Return the measured kernels that ship with the product, by family."""
    found = {}
    with np.load(io.BytesIO(read_bytes(KERNELS, "kernels")), allow_pickle=False) as a:
        for family in FILES:
            systems = a[f"{family}|systems"]
            chips, lost = _chips(systems)
            found[family] = KernelRows(
                family, systems[a[f"{family}|system"]],
                a[f"{family}|dtypes"][a[f"{family}|dtype"]],
                a[f"{family}|shape"].T.astype(np.float64),
                a[f"{family}|skew"].astype(np.float64) / 100.0,
                np.exp(a[f"{family}|seconds"].astype(np.float64) * STEP) / 1e3, chips, lost,
            )  # fmt: skip
    return found


def pack_curves(rows: CurveRows) -> bytes:
    """Return measured collectives as one compressed file."""
    arrays: dict[str, Any] = {}
    arrays["systems"], arrays["system"] = _words(rows.system_N)
    arrays["kinds"], arrays["kind"] = _words(rows.kind_N)
    arrays["ranks"] = rows.ranks_N.astype(np.uint16)
    arrays["bytes"] = rows.bytes_N.astype(np.int64)
    arrays["seconds"] = _seconds(rows.seconds_N)
    return _bytes(arrays)


@lru_cache(maxsize=1)
def shipped_curves() -> CurveRows:
    """Return the measured collectives of one node that ship with the product."""
    with np.load(io.BytesIO(read_bytes(CURVES, "curves")), allow_pickle=False) as a:
        chips, lost = _chips(a["systems"])
        return CurveRows(
            a["systems"][a["system"]], a["kinds"][a["kind"]], a["ranks"].astype(np.float64),
            a["bytes"].astype(np.float64),
            np.exp(a["seconds"].astype(np.float64) * STEP) / 1e3, chips, lost,
        )  # fmt: skip
