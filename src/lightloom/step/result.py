"""From what the player recorded to what people read: timeline, memory, bandwidth.

Axes: N spans, T moments.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightloom.core.timeline import COMM, COMPUTE, Timeline
from lightloom.core.traffic import CLASSES

from .play import Record
from .program import Program
from .units import Ints, Units
from .work import SELF, StageWork

F64 = NDArray[np.float64]
NAMED_GROUP = 64
"""Groups up to this many ranks are written out in a timeline; larger ones by their ends."""


def shown_cards(units: Units) -> tuple[int, ...]:
    """Return the first card of every unit: one of each class of equal cards."""
    return tuple(int(rank) for rank in np.sort(np.unique(units.unit_C, return_index=True)[1]))


class _Names:
    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def of(self, text: str) -> int:
        return self.index.setdefault(text, len(self.index))


def _group_name(axis: str, group_C: Ints, card: int, rank_C: Ints) -> str:
    ranks = np.sort(rank_C[group_C == group_C[card]])
    if len(ranks) <= NAMED_GROUP:
        return f"{axis}:{','.join(map(str, ranks.tolist()))}"
    return f"{axis}:{ranks[0]}..{ranks[-1]}/{len(ranks)}"


def timeline_of(
    record: Record,
    units: Units,
    groups: dict[str, Ints],
    cards: tuple[int, ...],
    rank_C: Ints | None = None,
) -> Timeline:
    """Return the spans of `cards` in nanoseconds; equal cards share what their unit did.

    `rank_C` is the rank number of every card, where it differs from the card's place.
    """
    names, lanes, tables = _Names(), _Names(), _Names()
    by_unit: dict[int, list[tuple[float, float, int, int, int, int, str, int]]] = {}
    for unit, lane, start, end, name, size, axis, flow in record.spans:
        kind = COMPUTE if flow < 0 else COMM
        title = f"{name} {axis}" if flow < 0 and axis else name
        by_unit.setdefault(unit, []).append(
            (start, end, lanes.of(lane), kind, names.of(title), int(size), axis, flow)
        )
    rows: list[tuple[int, ...]] = []
    rank_C = np.arange(len(units.unit_C)) if rank_C is None else rank_C
    for card in cards:
        rank = int(rank_C[card])
        named = {axis: tables.of(_group_name(axis, g, card, rank_C)) for axis, g in groups.items()}
        for start, end, lane_i, kind, name_i, size_i, axis, flow in by_unit.get(
            int(units.unit_C[card]), []
        ):
            group = named.get(axis, -1) if flow >= 0 and axis != SELF else -1
            match = flow * 2**32 + int(groups[axis][card]) if group >= 0 else -1
            rows.append((round(start * 1e9), round(end * 1e9), rank, lane_i, kind, name_i, size_i,
                         group, match, 0))  # fmt: skip
    table = np.array(rows, np.int64).reshape(-1, 10)
    table = table[np.lexsort((table[:, 3], table[:, 2], table[:, 0]))]
    i32 = [table[:, k].astype(np.int32) for k in range(10)]
    return Timeline(
        start_N=table[:, 0], end_N=table[:, 1], rank_N=i32[2], lane_N=i32[3], kind_N=i32[4],
        name_N=i32[5], bytes_N=table[:, 6], group_N=i32[7], match_N=table[:, 8], step_N=i32[9],
        names=tuple(names.index), lanes=tuple(lanes.index), groups=tuple(tables.index),
        source="simulated",
    )  # fmt: skip


def memory_of(record: Record, program: Program, units: Units) -> list[tuple[F64, F64]]:
    """Return (seconds, bytes held) of every unit, a staircase that starts and ends at rest.

    A forward takes its activations when it starts; B gives them back when it ends; of a split
    backward, I gives back what W does not need and W the rest.
    """
    changes: list[list[tuple[float, float]]] = [[] for _ in range(len(units))]
    for unit, at, start, end in record.steps:
        step = program.rows[int(units.rank_U[unit])][at]
        for op, stage in zip(step.ops, step.stages, strict=True):
            taken, given = _held(program.work.stages[stage], op.kind)
            if taken:
                changes[unit].append((start, taken))
            if given:
                changes[unit].append((end, -given))
    result = []
    for unit, row in enumerate(changes):
        held = program.held[int(units.rank_U[unit])]
        base = sum(program.work.stages[s].static_bytes for s in held)
        row.sort()
        times = np.array([0.0] + [t for t, _ in row])
        result.append((times, base + np.cumsum([0.0] + [b for _, b in row])))
    return result


def _held(stage: StageWork, kind: str) -> tuple[float, float]:
    """Return (bytes taken at the start, bytes given back at the end) of one operation."""
    whole, later = stage.activation_bytes, stage.between_bytes
    table = {"F": (whole, 0.0), "B": (0.0, whole), "I": (max(later - whole, 0.0),
             max(whole - later, 0.0)), "W": (0.0, later)}  # fmt: skip
    return table[kind]


def bandwidth_of(record: Record, units: Units) -> dict[str, dict[str, float]]:
    """Return, per traffic class, what the mean card sent and how fast.

    ``bytes`` a card a step, ``busy_s`` seconds with a transfer of the class under way,
    ``rate`` bytes/s while busy.
    """
    cards = float(units.cards_U.sum())
    table: dict[str, dict[str, float]] = {}
    for unit, lane, start, end, _, size, _, flow in record.spans:
        if flow < 0:
            continue
        name = lane.split(" ")[0]
        row = table.setdefault(name, {"bytes": 0.0, "busy_s": 0.0})
        share = float(units.cards_U[unit]) / cards
        row["bytes"] += size * share
        row["busy_s"] += (end - start) * share
    for row in table.values():
        row["rate"] = row["bytes"] / row["busy_s"] if row["busy_s"] > 0 else 0.0
    return {name: table[name] for name in CLASSES if name in table}


def parts_of(record: Record, units: Units) -> dict[str, float]:
    """Return seconds of the mean card by part; they add up to the step.

    compute; slowed (stragglers and compute slowed by communication); exposed communication per
    class; waiting (for late partners of a collective); bubble (nothing to do).
    """
    weight = units.cards_U / units.cards_U.sum()
    total: dict[str, float] = {}
    for parts, share in zip(record.parts, weight, strict=True):
        for name, value in parts.items():
            total[name] = total.get(name, 0.0) + value * float(share)
    return total
