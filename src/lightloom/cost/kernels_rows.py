"""Measured kernels as columns: GEMM, attention and expert tables read from CSV."""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lightloom.core.catalog import load_chip
from lightloom.core.chip import Chip
from lightloom.core.errors import InputError
from lightloom.core.files import read_bytes

F64 = NDArray[np.float64]
FILES = {"gemm": "gemm", "attention": "attention_forward_causal", "expert": "moe_forward"}
COLUMNS = {
    "gemm": ("m", "n", "k"),
    "attention": ("batch_size", "seq", "heads", "kv_heads", "head_dim"),
    "expert": ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size",
               "moe_ep_size"),
}  # fmt: skip
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8",
          "fp8_block": "fp8-block", "fp8-block": "fp8-block"}  # fmt: skip
CHIPS = {"a100": "a100-80g", "h100": "h100", "h200": "h200", "b200": "b200", "b300": "b300"}


@dataclass(frozen=True, slots=True, eq=False)
class KernelRows:
    """N measured kernels of one family."""

    family: str
    system_N: NDArray[np.str_]
    dtype_N: NDArray[np.str_]
    shape_N: F64
    """Columns of COLUMNS[family]; shape (N, columns)."""
    skew_N: F64
    seconds_N: F64
    chips: dict[str, Chip]
    """Catalogue chip of each system that has one."""
    refused: dict[str, str]
    """System or type -> why its rows cannot be predicted."""

    def __len__(self) -> int:
        return len(self.seconds_N)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> KernelRows:
        """Return the rows chosen by a mask or an index."""
        return KernelRows(
            self.family, self.system_N[rows], self.dtype_N[rows], self.shape_N[rows],
            self.skew_N[rows], self.seconds_N[rows], self.chips, self.refused,
        )  # fmt: skip

    @property
    def known(self) -> NDArray[np.bool_]:
        """True for rows whose chip and type are known."""
        bad = ~np.isin(self.system_N, list(self.chips)) | np.isin(self.dtype_N, [""])
        return ~bad & np.isfinite(self.shape_N).all(axis=1) & (self.seconds_N > 0)

    @property
    def arch(self) -> NDArray[np.str_]:
        """Generation of each row's chip."""
        names = {s: c.arch for s, c in self.chips.items()}
        return np.array([names.get(s, "") for s in self.system_N.tolist()])


def chip_of(system: str) -> Chip:
    """Return the catalogue chip of a system's name in the tables (``h100_sxm``)."""
    name = system.lower().strip().replace("_", "-")
    for end in ("-sxm", "-hgx", "-nvl72"):
        name = name.removesuffix(end)
    return load_chip(CHIPS.get(name, name))


def skew_of(distribution: str) -> float:
    """Return the exponent of a routing law: 0 balanced; half where experts were re-balanced."""
    if distribution in ("balanced", "uniform", ""):
        return 0.0
    words = distribution.split("_")
    try:
        value = float(words[2]) if distribution.startswith("power_law") else 1.0
    except (IndexError, ValueError):
        return 1.0
    return value * (0.5 if words[-1] == "eplb" else 1.0)


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file, compressed or not."""
    data = read_bytes(path, "table")
    try:
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
        return list(csv.DictReader(io.StringIO(text)))
    except (OSError, UnicodeDecodeError, EOFError, csv.Error) as error:
        raise InputError(f"table {path} cannot be read: {error}") from error


def _float(text: str | None) -> float:
    try:
        return float(text) if text not in (None, "") else float("nan")
    except ValueError:
        return float("nan")


def find_table(folder: Path, family: str) -> Path | None:
    """Return the table of a family in `folder`, compressed or not."""
    for end in (".csv.gz", ".csv"):
        path = folder / f"{FILES[family]}{end}"
        if path.exists():
            return path
    return None


def read_kernels(path: Path, family: str) -> KernelRows:
    """Return the measured kernels of one family."""
    rows = read_table(path)
    names = COLUMNS[family]
    missing = [n for n in (*names, "system", "best_ms") if rows and n not in rows[0]]
    if missing:
        raise InputError(f"table {path}: no column {', '.join(missing)}")
    kind = {"gemm": "dtype", "expert": "moe_dtype"}.get(family)
    system = np.array([r["system"] for r in rows], dtype=np.str_)
    chips, refused = {}, {}
    for name in np.unique(system).tolist():
        try:
            chips[name] = chip_of(name)
        except InputError as error:
            refused[name] = error.what
    dtype = np.array([DTYPES.get(r[kind], "") if kind else "bf16" for r in rows], dtype=np.str_)
    return KernelRows(
        family, system, dtype,
        np.array([[_float(r[n]) for n in names] for r in rows]).reshape(len(rows), len(names)),
        np.array([skew_of(r.get("distribution") or "") for r in rows]),
        np.array([_float(r["best_ms"]) for r in rows]) / 1e3, chips, refused,
    )  # fmt: skip
