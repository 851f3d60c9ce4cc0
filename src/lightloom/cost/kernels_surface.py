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
BLOCK = 2048
"""Places read at a time, so that all terms' cells stay in cache."""
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
        low = np.empty((len(self.axes), *shape), np.int64)
        part = np.empty((len(self.axes), *shape))
        for row, (name, nodes) in enumerate(self.axes.items()):
            place = np.interp(coords[name], nodes, np.arange(len(nodes), dtype=np.float64))
            whole = np.minimum(place.astype(np.int64), max(len(nodes) - 2, 0))
            low[row], part[row] = whole, place - whole
        low, part = low.reshape(len(self.axes), -1), part.reshape(len(self.axes), -1)
        size = low.shape[1]
        total = np.zeros(size)
        for start in range(0, size, BLOCK):
            at = slice(start, start + BLOCK)
            for group in _groups(self):
                total[at] += group.read(low[:, at], part[:, at])
        return total.reshape(shape)


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """All terms with equally many axes, read together. T terms, P axes of each, C corners."""

    flat: F64
    """The tables one after another."""
    axis_TP: NDArray[np.int64]
    stride_PT1: NDArray[np.int64]
    corner_CT1: NDArray[np.int64]
    """Place of each corner of a cell from the start of all tables."""

    def read(self, low_XS: NDArray[np.int64], part_XS: F64) -> F64:
        """Return the sum of multilinear interpolations: one axis after the other."""
        base = low_XS[self.axis_TP[:, 0]] * self.stride_PT1[0]
        for place in range(1, self.axis_TP.shape[1]):
            base += low_XS[self.axis_TP[:, place]] * self.stride_PT1[place]
        values = self.flat.take(base + self.corner_CT1)
        for place in range(self.axis_TP.shape[1] - 1, -1, -1):
            half = len(values) // 2
            near = values[:half]
            values = near + part_XS[self.axis_TP[:, place]] * (values[half:] - near)
        total: F64 = values[0].sum(axis=0)
        return total


@lru_cache(maxsize=512)
def _groups(surface: Surface) -> tuple[_Group, ...]:
    """Return the terms of `surface` by number of axes, laid out for reading."""
    order = {name: row for row, name in enumerate(surface.axes)}
    found = []
    for count in sorted({len(names) for names in surface.terms}):
        terms = [(n, t) for n, t in surface.terms.items() if len(n) == count]
        starts = np.cumsum([0, *(t.size for _, t in terms)])[:-1]
        strides = np.array([[int(np.prod(t.shape[p + 1 :])) for _, t in terms]
                            for p in range(count)])  # fmt: skip
        steps = np.array([[s if t.shape[p] > 1 else 0
                           for s, (_, t) in zip(strides[p], terms, strict=True)]
                          for p in range(count)])  # fmt: skip
        corners = [starts]
        for step in steps:
            corners = [*corners, *(c + step for c in corners)]
        found.append(_Group(
            np.concatenate([t.ravel() for _, t in terms]),
            np.array([[order[name] for name in n] for n, _ in terms]),
            strides[:, :, None], np.array(corners)[:, :, None],
        ))  # fmt: skip
    return tuple(found)


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
