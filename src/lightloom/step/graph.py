"""The step as a graph: nodes of work on pipeline ranks, and what each must wait for.

Axes: N nodes (an operation, or a forward and a backward that overlap), S samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError
from lightloom.core.schedule import Op, Schedule

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Nodes in an order in which every node comes after all that it waits for."""

    schedule: Schedule
    rank_N: tuple[int, ...]
    ops_N: tuple[tuple[Op, ...], ...]
    """One operation, or (forward, backward) that overlap."""
    stage_N: tuple[tuple[int, ...], ...]
    """Model stage of each operation of the node."""
    before_N: tuple[int, ...]
    """Node before it on the same rank; -1 for the first."""
    needs_N: tuple[tuple[int, ...], ...]
    """Nodes of other ranks whose message it waits for (one message each)."""

    def __len__(self) -> int:
        return len(self.rank_N)

    def name(self, node: int) -> str:
        """The node as people write it: ``F3``, ``B2.1`` (micro-batch 2, chunk 1), ``F7+B4``."""
        many = len(self.schedule.stage_of[0]) > 1
        return "+".join(
            f"{op.kind}{op.micro_batch}" + (f".{op.chunk}" if many else "")
            for op in self.ops_N[node]
        )


def _nodes_of(row: tuple[Op, ...]) -> list[tuple[Op, ...]]:
    """Return the operations of one rank with overlapping pairs joined."""
    nodes: list[tuple[Op, ...]] = []
    i = 0
    while i < len(row):
        size = 2 if row[i].paired else 1
        nodes.append(row[i : i + size])
        i += size
    return nodes


def build(schedule: Schedule) -> Graph:
    """Return the graph of a schedule, or say which operation waits for ever."""
    rows = [_nodes_of(row) for row in schedule.ops]
    stages, last = schedule.stage_of, schedule.stages - 1
    done: dict[tuple[str, int, int], int] = {}
    rank_N: list[int] = []
    ops_N: list[tuple[Op, ...]] = []
    stage_N: list[tuple[int, ...]] = []
    before_N: list[int] = []
    needs_N: list[tuple[int, ...]] = []
    at, tail = [0] * len(rows), [-1] * len(rows)
    wanted: dict[tuple[str, int, int], list[int]] = {}
    ready = list(range(len(rows)))
    while ready:
        rank = ready.pop()
        while at[rank] < len(rows[rank]):
            ops = rows[rank][at[rank]]
            keys = [k for op in ops if (k := _wants(op, stages[rank][op.chunk], last)) is not None]
            missing = next((k for k in keys if k not in done), None)
            if missing is not None:
                wanted.setdefault(missing, []).append(rank)
                break
            node = len(rank_N)
            rank_N.append(rank)
            ops_N.append(ops)
            stage_N.append(tuple(stages[rank][op.chunk] for op in ops))
            before_N.append(tail[rank])
            needs_N.append(tuple(done[k] for k in keys if rank_N[done[k]] != rank))
            tail[rank] = node
            at[rank] += 1
            for op in ops:
                key = ("F" if op.kind == "F" else "B", stages[rank][op.chunk], op.micro_batch)
                if op.kind != "W":
                    done[key] = node
                    ready += wanted.pop(key, [])
    _check_all_ran(schedule, rows, at)
    return Graph(schedule, tuple(rank_N), tuple(ops_N), tuple(stage_N), tuple(before_N),
                 tuple(needs_N))  # fmt: skip


def _wants(op: Op, stage: int, last: int) -> tuple[str, int, int] | None:
    """Return what an operation waits for: (F or B, stage, micro-batch), None for nothing."""
    if op.kind == "F":
        return ("F", stage - 1, op.micro_batch) if stage else None
    if op.kind == "W":
        return ("B", stage, op.micro_batch)
    return ("B", stage + 1, op.micro_batch) if stage < last else ("F", stage, op.micro_batch)


def _check_all_ran(schedule: Schedule, rows: list[list[tuple[Op, ...]]], at: list[int]) -> None:
    for rank, row in enumerate(rows):
        if at[rank] < len(row):
            op = row[at[rank]][0]
            raise InputError(
                f"schedule {schedule.name}: rank {rank} waits for ever at {op.kind}"
                f"{op.micro_batch} of chunk {op.chunk}",
                out="each rank must run its operations in an order the others can serve",
            )


def longest(graph: Graph, seconds_N: F64, message_s: float = 0.0) -> tuple[F64, F64]:
    """Return (start, end) of every node when each runs as soon as it can, in seconds.

    `seconds_N` may carry a second axis of samples, (N, S); messages take `message_s` and share
    nothing. This is the critical-path bound of the player, and its oracle where nothing contends.
    """
    start, end = np.zeros_like(seconds_N), np.zeros_like(seconds_N)
    zero = np.zeros(seconds_N.shape[1:])
    for node in range(len(graph)):
        before = graph.before_N[node]
        at = end[before] if before >= 0 else zero
        for need in graph.needs_N[node]:
            at = np.maximum(at, end[need] + message_s)
        start[node] = at
        end[node] = at + seconds_N[node]
    return start, end
