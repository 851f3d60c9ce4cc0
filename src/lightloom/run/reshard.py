"""State from n ranks to m ranks while they live: which bytes of whom, then straight copies.

A tensor lies on a set of ranks whole (``dim`` None: each has all of it) or cut along one dimension
into as many parts as there are ranks, the way ``torch.chunk`` and DTensor cut: the first parts have
ceil(size / parts) rows, the last what remains. `moves` needs only layouts; `pull` copies from other
processes' shared memory, without a checkpoint in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from lightloom.core.errors import InputError, RunError

from . import handover, system
from . import state as st

Rule = Callable[[str, tuple[int, ...]], int | None]
"""Name and whole shape of a tensor -> dimension it is cut along, or None for whole copies."""


class Whole(NamedTuple):
    """A tensor as if one rank had all of it."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Move(NamedTuple):
    """Rows of a tensor from one rank's part to another's."""

    name: str
    dim: int
    source: int
    """Rank that has them."""
    take: int
    """First row in the source's part."""
    put: int
    """First row in the target's part."""
    rows: int


def bounds(size: int, parts: int, index: int) -> tuple[int, int]:
    """Return the rows [from, to) of part `index` of `parts`; empty parts come last."""
    chunk = -(-size // parts)
    return min(index * chunk, size), min((index + 1) * chunk, size)


def part_shape(whole: Whole, dim: int | None, parts: int, index: int) -> tuple[int, ...]:
    """Return the shape of one rank's part."""
    if dim is None:
        return whole.shape
    lo, hi = bounds(whole.shape[dim], parts, index)
    return (*whole.shape[:dim], hi - lo, *whole.shape[dim + 1 :])


def moves(whole: Whole, old: tuple[int | None, int], new: tuple[int | None, int], rank: int,
          alive: Iterable[int] | None = None) -> list[Move]:  # fmt: skip
    """Return what rank `rank` of the new layout copies; a layout is (dimension, ranks).

    `alive` names the old ranks that can still give; a whole copy comes from any of them, spread
    over them by `rank`. Raises where a part is only on a lost rank.
    """
    (old_dim, n), (new_dim, m) = old, new
    givers = sorted(range(n) if alive is None else alive)
    for dim in (old_dim, new_dim):
        if dim is not None and not 0 <= dim < len(whole.shape):
            raise InputError(f"{whole.name}: no dimension {dim} in {list(whole.shape)}")
    if not givers:
        raise RunError(f"{whole.name}: no rank is left that has it", out="resume from a snapshot")
    along = new_dim if old_dim is None else old_dim
    if along is None:
        return [Move(whole.name, -1, givers[rank % len(givers)], 0, 0, 0)]
    size = whole.shape[along]
    lo, hi = bounds(size, m, rank) if new_dim == along else (0, size)
    if old_dim is None:
        return [Move(whole.name, along, givers[rank % len(givers)], lo, 0, hi - lo)]
    out = []
    for source in range(n):
        first, last = bounds(size, n, source)
        start, stop = max(lo, first), min(hi, last)
        if start < stop:
            if source not in givers:
                raise RunError(
                    f"{whole.name}: rows {start} to {stop} were only on rank {source}, lost",
                    out="resume from a snapshot",
                )
            out.append(Move(whole.name, along, source, start - first, start - lo, stop - start))
    return out


def apply(whole: Whole, new: tuple[int | None, int], rank: int, found: Sequence[Move],
          parts: Mapping[int, torch.Tensor], into: torch.Tensor | None = None
          ) -> torch.Tensor:  # fmt: skip
    """Return the new part of `rank`, copied from the sources' parts, bit for bit.

    Where the old and the new cut run along different dimensions only the wanted columns are read.
    """
    new_dim, m = new
    shape = part_shape(whole, new_dim, m, rank)
    out = torch.empty(shape, dtype=getattr(torch, whole.dtype)) if into is None else into
    if tuple(out.shape) != shape:
        raise RunError(f"{whole.name}: {list(out.shape)} here, the part is {list(shape)}")
    with torch.no_grad():
        for move in found:
            given = parts[move.source]
            if move.dim < 0:
                out.copy_(given)
                continue
            given = given.narrow(move.dim, move.take, move.rows)
            if new_dim is not None and new_dim != move.dim:
                lo, hi = bounds(whole.shape[new_dim], m, rank)
                given = given.narrow(new_dim, lo, hi - lo)
            out.narrow(move.dim, move.put, move.rows).copy_(given)
    return out


def offer(buffer: handover.Buffer, tensors: Mapping[str, torch.Tensor], pid: int) -> str:
    """Lay a rank's parts out in shared memory; returns where other processes map it."""
    named = list(tensors.items())
    pieces, total = st.plan(named)
    layout = st.Layout(pieces=pieces, total=total)
    memory, start = handover.begin(buffer, layout)
    st.copy_in(layout, [t.detach() for _, t in named], memory, start)
    return buffer.path(pid)


def pull(paths: Mapping[int, str], wholes: Sequence[Whole], old: tuple[Rule, int],
         new: tuple[Rule, int], rank: int, into: Mapping[str, torch.Tensor] | None = None
         ) -> dict[str, torch.Tensor]:  # fmt: skip
    """Return all new parts of `rank`, read from the old ranks' shared memory (`offer`).

    `paths` names the old ranks that are left; one that has died meanwhile is as if not named.
    """
    given: dict[int, dict[str, torch.Tensor]] = {}
    for source, path in paths.items():
        memory: Any = system.attach(path)
        if memory is not None:
            layout, start = handover.read_head(memory)
            given[source] = {p.name: st.view(memory, p, start) for p in layout.pieces}
    out = {}
    for whole in wholes:
        before = (old[0](whole.name, whole.shape), old[1])
        after = (new[0](whole.name, whole.shape), new[1])
        found = moves(whole, before, after, rank, given)
        parts = {move.source: given[move.source][whole.name] for move in found}
        target = None if into is None else into[whole.name]
        out[whole.name] = apply(whole, after, rank, found, parts, target)
    return out
