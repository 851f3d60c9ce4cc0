"""Mesh: the ranks of a run along the axes of its layout, and the texts that name a layout.

A *layout* is how one replica is cut, for example ``pp=2,tp=2``, slowest axis first: rank
``replica * 4 + pp * 2 + tp``. The *mesh* adds ``dp``, the replicas, and puts every axis where the
plan's placement has it on the fabric: from neighbours to strangers, usually tp, cp, dp, pp.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from lightloom.core.errors import InputError, RunError, nearest
from lightloom.core.placement import Placement
from lightloom.core.strategy import Strategy

INSIDE = ("pp", "cp", "tp")
"""Axes of a plan that lie inside a replica."""
KNOWN = (*INSIDE, "ep", "fsdp")
MOST = 64
"""Shards of one replica."""


class Mesh(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks by their coordinates."""

    axes: tuple[str, ...]
    """From neighbours to strangers on the fabric."""
    shape: tuple[int, ...]
    """Degree of each axis."""
    counted: tuple[str, ...]
    """The axes as ranks count through them, slowest first."""
    present: tuple[int, ...] = ()
    """Ranks in that order, where a dropped replica left a gap; empty: 0 to size - 1."""

    @property
    def degrees(self) -> dict[str, int]:
        """Ranks along each axis."""
        return dict(zip(self.axes, self.shape, strict=True))

    @property
    def size(self) -> int:
        """Ranks of the mesh."""
        return math.prod(self.shape)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Every rank, ascending."""
        return self.present or tuple(range(self.size))

    @property
    def order(self) -> tuple[int, ...]:
        """Ranks in the order of the fabric: those that lie next to one another come together."""
        return tuple(sorted(self.numbers, key=self._seat))

    def _seat(self, rank: int) -> tuple[int, ...]:
        at = self.place(rank)
        return tuple(at[axis] for axis in reversed(self.axes))

    def place(self, rank: int) -> dict[str, int]:
        """Return a rank's coordinates."""
        if rank not in self.numbers:
            raise InputError(f"rank {rank} is not in the mesh of {self.size} ranks")
        left, at = self.numbers.index(rank), {}
        for axis in reversed(self.counted):
            left, at[axis] = divmod(left, self.degrees[axis])
        return {axis: at[axis] for axis in self.axes}

    def ranks(self, axis: str, rank: int) -> tuple[int, ...]:
        """Return the group of `rank` along `axis`, by place; itself alone where it is not cut."""
        here = self.place(rank)
        if not self._has(axis):
            return (rank,)
        fixed = {**here, axis: 0}
        return tuple(r for r in self.order if {**self.place(r), axis: 0} == fixed)

    def groups(self, axis: str) -> tuple[tuple[int, ...], ...]:
        """Return all groups along `axis`, in the order of the fabric."""
        if not self._has(axis):
            return tuple((rank,) for rank in self.order)
        found: dict[tuple[int, ...], list[int]] = {}
        for rank in self.order:
            at = {**self.place(rank), axis: 0}
            found.setdefault(tuple(at.values()), []).append(rank)
        return tuple(map(tuple, found.values()))

    def _has(self, axis: str) -> bool:
        if axis not in self.axes and axis not in (*KNOWN, "dp"):
            raise InputError(f"no axis {axis!r}{nearest(axis, self.axes)}",
                             out=f"one of {', '.join(self.axes)}")  # fmt: skip
        return axis in self.axes


class OwnMesh(Mesh, frozen=True, kw_only=True):
    """The mesh as one rank sees it."""

    own: int
    wrap: Any = None

    def ranks(self, axis: str, rank: int | None = None) -> tuple[int, ...]:
        """Return the group along `axis` of a rank, by place; without `rank` of this one."""
        return super().ranks(axis, self.own if rank is None else rank)

    def group(self, axis: str) -> Any:
        """Return torch's process group of this rank's replica along `axis`."""
        if self.wrap is None or axis == "dp":
            raise RunError(
                f"no process group along {axis}: the run sums whole replicas itself",
                out="s.reduce_gradients; s.all_reduce for small tensors",
            )
        return self.wrap.group(axis)


def own_mesh(exchange: Any, wrap: Any, order: Iterable[str]) -> OwnMesh:
    """Return the mesh of the epoch in force; before the first one, of a replica alone."""
    inside = wrap.degrees if wrap is not None else {}
    epoch = exchange.epoch if exchange is not None else None
    slots = tuple(m.slot for m in epoch.members) if epoch else tuple(range(size_of(inside)))
    made = mesh_of(inside, len(slots) // size_of(inside), order)
    return OwnMesh(axes=made.axes, shape=made.shape, counted=made.counted, present=slots,
                   own=exchange.slot if epoch else 0, wrap=wrap)  # fmt: skip


def mesh_of(inside: Mapping[str, int], replicas: int,
            order: Iterable[str] = Placement().order) -> Mesh:  # fmt: skip
    """Return the mesh of a layout and a number of replicas; axes outside `order` lie nearest."""
    degrees = {"dp": replicas, **{axis: n for axis, n in inside.items() if n > 1}}
    counted = tuple(degrees)
    known = [axis for axis in order if axis in degrees]
    axes = (*(axis for axis in reversed(counted) if axis not in known), *known)
    return Mesh(axes=axes, shape=tuple(degrees[axis] for axis in axes), counted=counted)


def layout_of(strategy: Strategy, order: Iterable[str] = Placement().order) -> dict[str, int]:
    """Return how a plan cuts one replica, slowest axis first; ``tp=1`` where it does not."""
    slowest = [axis for axis in reversed(tuple(order)) if axis in INSIDE]
    found = {axis: getattr(strategy, axis) for axis in slowest}
    return {axis: n for axis, n in found.items() if n > 1} or {slowest[-1]: 1}


def size_of(layout: Mapping[str, int]) -> int:
    """Return the ranks of one replica."""
    return math.prod(layout.values())


def layout_text(layout: Mapping[str, int]) -> str:
    """Return a layout as it is typed."""
    return ",".join(f"{axis}={n}" for axis, n in layout.items())


def parse_layout(text: str) -> dict[str, int]:
    """Return a layout from ``pp=2,tp=2``, slowest axis first."""
    found: dict[str, int] = {}
    for piece in text.split(","):
        axis, mark, number = (part.strip() for part in piece.partition("="))
        where = f"layout {text!r}: {piece.strip()!r}"
        if not mark or not number.isdecimal() or not 1 <= int(number) <= MOST:
            raise InputError(f"{where} is not AXIS=1..{MOST}", out="for example pp=2,tp=2")
        if axis == "dp":
            raise InputError(f"{where}: the replicas are what is left over", out="leave dp out")
        if axis not in KNOWN:
            raise InputError(f"{where}: unknown axis{nearest(axis, KNOWN)}",
                             out=f"one of {', '.join(KNOWN)}")  # fmt: skip
        if axis in found:
            raise InputError(f"{where}: {axis} is there twice")
        found[axis] = int(number)
    if size_of(found) > MOST:
        raise InputError(f"layout {text!r}: {size_of(found)} ranks, at most {MOST}")
    return found


def first_of(layouts: tuple[str, ...]) -> dict[str, int]:
    """Return the layout a run starts with."""
    if not layouts:
        raise RunError(
            "axes: neither the script nor the run says how a replica is cut",
            out="axes(..., pp=2, tp=2), or lightloom run plan.json --shards plan",
        )
    return parse_layout(layouts[0])


def parse_layouts(text: str) -> list[dict[str, int]]:
    """Return layouts from ``pp=2,tp=2/tp=2/tp=1``, each of fewer ranks than the one before."""
    found = [parse_layout(piece) for piece in text.split("/")]
    for before, after in itertools.pairwise(found):
        if size_of(after) >= size_of(before):
            raise InputError(
                f"layouts {text!r}: {layout_text(after)!r} needs no fewer ranks than "
                f"{layout_text(before)!r} before it and would never be used",
                out="the layout of most ranks first",
            )
    return found


def fallbacks_of(layouts: tuple[str, ...]) -> tuple[int, ...]:
    """Return the shards of the layouts to re-plan to, in order."""
    return tuple(size_of(parse_layout(text)) for text in layouts[1:])
