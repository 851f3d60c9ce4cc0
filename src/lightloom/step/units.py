"""Which cards do the same: one played unit stands for all of them.

Cards are coloured by pipeline rank and by their fault, then each colour is refined by the colours
of the groups that meet (tensor, context, expert, data, pipeline) until nothing splits: an
equitable partition. Cards of one colour start and finish everything together, so one is played.

Axes: C cards of the job (``((pp * dp + d) * cp + c) * tp + t``), U units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.strategy import Strategy

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
AXES = ("tp", "cp", "ep", "dp", "edp", "pp", "world")
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Played units, and the groups in which they meet."""

    unit_C: Ints
    """Unit of every card."""
    rank_U: Ints
    """Pipeline rank."""
    cards_U: Ints
    """Cards that the unit stands for."""
    slow_U: Floats
    """Compute takes this many times longer."""
    wait_U: Floats
    """Transfers take this many times longer."""
    groups: dict[str, tuple[tuple[int, ...], ...]]
    """Axis -> for every unit, the units of its group (itself included)."""
    peer_U: tuple[dict[int, int], ...]
    """Pipeline rank -> unit in the same pipeline."""

    def __len__(self) -> int:
        return len(self.rank_U)


def groups_of(strategy: Strategy) -> dict[str, Ints]:
    """Return the group number of every card for each axis.

    ep counts through tp x cp x dp (Megatron's expert group); dp joins dp x cp; edp joins replicas
    of one expert.
    """
    tp, cp, dp, pp = strategy.tp, strategy.cp, strategy.dp, strategy.pp
    index = np.arange(pp * dp * cp * tp)
    t, c = index % tp, index // tp % cp
    d, p = index // (tp * cp) % dp, index // (tp * cp * dp)
    inner = index % (tp * cp * dp)
    span = max(strategy.ep * strategy.etp, 1)
    return {
        "tp": index // tp,
        "cp": (p * dp + d) * tp + t,
        "ep": (p * (tp * cp * dp) + inner) // span * max(strategy.etp, 1)
        + inner % max(strategy.etp, 1),
        "dp": p * tp + t,
        "edp": p * span + inner % span,
        "pp": (d * cp + c) * tp + t,
        "world": np.zeros_like(index),
    }


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return splitmix64 of every value: sums of mixed values tell multisets apart."""
    z = values + _MIX
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _refine(colour_C: Ints, groups: dict[str, Ints]) -> Ints:
    """Return the coarsest equitable colouring that refines `colour_C`."""
    count = len(np.unique(colour_C))
    while True:
        mixed = _mix(colour_C.astype(np.uint64))
        keys = [colour_C]
        for group_C in groups.values():
            total = np.zeros(int(group_C.max()) + 1, np.uint64)
            np.add.at(total, group_C, mixed)
            keys.append(np.unique(total, return_inverse=True)[1][group_C])
        table = np.stack(keys, axis=1)
        colour_C = np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)
        found = int(colour_C.max()) + 1
        if found == count:
            return colour_C
        count = found


def fold(
    strategy: Strategy,
    slow_C: Floats | None = None,
    wait_C: Floats | None = None,
    *,
    unfolded: bool = False,
) -> Units:
    """Return the units to play: one per class of equal cards, or per card when `unfolded`."""
    cards = strategy.world_size
    slow_C = np.ones(cards) if slow_C is None else slow_C
    wait_C = np.ones(cards) if wait_C is None else wait_C
    groups = groups_of(strategy)
    rank_C = np.arange(cards) // (cards // strategy.pp)
    if unfolded:
        colour_C = np.arange(cards)
    else:
        start = np.stack([rank_C, slow_C, wait_C], axis=1)
        colour_C = np.unique(start, axis=0, return_inverse=True)[1].reshape(-1)
        colour_C = _refine(colour_C, groups)
    first_U = np.unique(colour_C, return_index=True)[1]
    order = np.lexsort((first_U, rank_C[first_U]))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    unit_C, first_U = place[colour_C], first_U[order]
    return Units(
        unit_C=unit_C, rank_U=rank_C[first_U], cards_U=np.bincount(unit_C),
        slow_U=slow_C[first_U], wait_U=wait_C[first_U],
        groups={axis: _meetings(unit_C, first_U, group_C) for axis, group_C in groups.items()},
        peer_U=_peers(unit_C, first_U, groups["pp"], rank_C),
    )  # fmt: skip


def _meetings(unit_C: Ints, first_U: Ints, group_C: Ints) -> tuple[tuple[int, ...], ...]:
    """Return for every unit the units that its first card's group holds."""
    order = np.argsort(group_C, kind="stable")
    bounds = np.searchsorted(group_C[order], np.arange(int(group_C.max()) + 2))
    known: dict[int, tuple[int, ...]] = {}
    rows = []
    for card in first_U:
        group = int(group_C[card])
        if group not in known:
            members = unit_C[order[bounds[group] : bounds[group + 1]]]
            known[group] = tuple(int(u) for u in np.unique(members))
        rows.append(known[group])
    return tuple(rows)


def _peers(unit_C: Ints, first_U: Ints, pipe_C: Ints, rank_C: Ints) -> tuple[dict[int, int], ...]:
    """Return for every unit the unit of each pipeline rank in its first card's pipeline."""
    pipes = int(pipe_C.max()) + 1
    table = np.empty((pipes, int(rank_C.max()) + 1), np.int64)
    table[pipe_C, rank_C] = unit_C
    return tuple(
        {rank: int(unit) for rank, unit in enumerate(table[pipe_C[card]])} for card in first_U
    )
