"""Surfaces: what measured kernels do beside the laws, as additive tables in log shape space.

A surface is a sum of terms; a term is a table over a few axes, read by linear interpolation
between its nodes and held constant beyond them. Values are log(measured / law).
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lightloom.core.chip import Chip
from lightloom.core.files import CATALOG, read_bytes

F64 = NDArray[np.float64]
FILE = CATALOG / "evidence" / "surfaces.npz"
STEP = 1 / 256
"""Resolution of stored values in log units (0.4 %)."""


@dataclass(frozen=True, slots=True, eq=False)
class Surface:
    """Additive tables over named axes."""

    axes: dict[str, F64]
    """Nodes of each axis, ascending."""
    terms: dict[tuple[str, ...], F64]
    """Axes of a term -> its table."""

    def __call__(self, coords: Mapping[str, F64]) -> F64:
        """Return the log correction at `coords` (arrays that broadcast together)."""
        shape = np.broadcast_shapes(*(np.shape(coords[name]) for name in self.axes))
        total = np.zeros(shape)
        low: dict[str, NDArray[np.int64]] = {}
        part: dict[str, F64] = {}
        for name, nodes in self.axes.items():
            place = np.interp(coords[name], nodes, np.arange(len(nodes), dtype=np.float64))
            low[name] = np.minimum(place.astype(np.int64), max(len(nodes) - 2, 0))
            part[name] = place - low[name]
        for names, table in self.terms.items():
            total += _read(table, [low[n] for n in names], [part[n] for n in names])
        return total


def _read(table: F64, low: list[NDArray[np.int64]], part: list[F64]) -> F64:
    """Return multilinear interpolation in `table`."""
    total: F64 | float = 0.0
    last = [size - 1 for size in table.shape]
    for corner in range(2 ** len(low)):
        weight: F64 | float = 1.0
        index = []
        for axis, (lo, frac) in enumerate(zip(low, part, strict=True)):
            up = corner >> axis & 1
            weight = weight * (frac if up else 1.0 - frac)
            index.append(np.minimum(lo + up, last[axis]))
        total = total + weight * table[tuple(index)]
    return np.asarray(total, np.float64)


def pack(surfaces: Mapping[str, Surface]) -> bytes:
    """Return all surfaces as one compressed file of small integers."""
    arrays: dict[str, NDArray[np.generic]] = {}
    for key, surface in surfaces.items():
        for name, nodes in surface.axes.items():
            arrays[f"{key}|axis|{name}"] = nodes.astype(np.float32)
        for names, table in surface.terms.items():
            steps = np.clip(np.round(table / STEP), -32000, 32000)
            small = np.abs(steps).max(initial=0) < 127
            arrays[f"{key}|term|{','.join(names)}"] = steps.astype(np.int8 if small else np.int16)
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def unpack(data: bytes) -> dict[str, Surface]:
    """Return the surfaces in a file made by `pack`."""
    found: dict[str, tuple[dict[str, F64], dict[tuple[str, ...], F64]]] = {}
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        for label in arrays.files:
            key, kind, name = label.split("|")
            axes, terms = found.setdefault(key, ({}, {}))
            if kind == "axis":
                axes[name] = arrays[label].astype(np.float64)
            else:
                terms[tuple(name.split(","))] = arrays[label].astype(np.float64) * STEP
    return {key: Surface(axes, terms) for key, (axes, terms) in found.items()}


@lru_cache(maxsize=1)
def shipped() -> dict[str, Surface]:
    """Return the surfaces that ship with the product: ``family/generation/type``."""
    return unpack(read_bytes(FILE, "kernel surfaces")) if FILE.exists() else {}


def pick(surfaces: Mapping[str, Surface], family: str, chip: Chip, dtype: str) -> Surface | None:
    """Return the surface of a chip, else of its generation, if there is one."""
    own = surfaces.get(f"{family}/{chip.name}/{dtype}")
    return own or surfaces.get(f"{family}/{chip.arch}/{dtype}")


def surface_of(family: str, chip: Chip, dtype: str) -> Surface | None:
    """Return the measured surface of a family of kernels that ships for `chip`, if any."""
    return pick(shipped(), family, chip, dtype)
