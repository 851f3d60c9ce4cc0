"""All schedules by name, their published bubbles, and what each keeps in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import numpy as np

from lightloom.core.errors import InputError, nearest
from lightloom.core.schedule import Schedule
from lightloom.core.strategy import ScheduleName

from .dual import dualpipe, dualpipe_v
from .graph import F64, build, longest
from .orders import gpipe, interleaved, one_forward_one_backward
from .zero import zero_bubble, zero_bubble_v

NAMES: tuple[str, ...] = (*get_args(ScheduleName), "zb-h2")
"""Every schedule; ``zero-bubble`` is ZB-H1, ``zb-h2`` its twin with twice the memory."""
TWO_CHUNKS = ("zb-v", "dualpipe", "dualpipe-v")


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one operation of one chunk of one rank."""

    forward: float
    inputs: float
    """Input-gradient half of the backward."""
    weights: float
    """Weight-gradient half."""
    pair: float | None = None
    """A forward and a backward that overlap; None: their sum."""

    @property
    def backward(self) -> float:
        """The whole backward."""
        return self.inputs + self.weights

    @property
    def both(self) -> float:
        """The overlapping pair."""
        return self.forward + self.backward if self.pair is None else self.pair


def chunks_of(name: str, vpp: int) -> int:
    """Return model chunks per pipeline rank: what the schedule fixes, else `vpp`."""
    if name in TWO_CHUNKS:
        return 2
    return vpp if name in ("interleaved", "gpipe") else 1


def make(name: str, ranks: int, micro_batches: int, chunks: int = 1) -> Schedule:
    """Return the schedule `name` for `ranks` pipeline ranks."""
    if name not in NAMES:
        raise InputError(
            f"unknown schedule {name!r}{nearest(name, NAMES)}", out=f"one of {', '.join(NAMES)}"
        )
    if micro_batches < 1:
        raise InputError(f"schedule {name}: {micro_batches} micro-batches", out="at least one")
    table: dict[str, Callable[[], Schedule]] = {
        "gpipe": lambda: gpipe(ranks, micro_batches, chunks),
        "1f1b": lambda: one_forward_one_backward(ranks, micro_batches),
        "interleaved": lambda: interleaved(ranks, micro_batches, chunks),
        "zero-bubble": lambda: zero_bubble(ranks, micro_batches),
        "zb-h2": lambda: zero_bubble(ranks, micro_batches, deep=True),
        "zb-v": lambda: zero_bubble_v(ranks, micro_batches),
        "dualpipe": lambda: dualpipe(ranks, micro_batches),
        "dualpipe-v": lambda: dualpipe_v(ranks, micro_batches),
    }
    return table[name]()


def published_bubble(name: str, ranks: int, chunks: int, t: Times) -> float:
    """Return idle seconds of the busiest window as the paper of each schedule states it.

    `t` are times of one chunk. GPipe and 1F1B: (p-1)(F+B), Narayanan 2021 section 2.1.
    Interleaved: (p-1)(F+B)/v with F, B of all chunks, ibid. 2.2. ZB-H1: (p-1)(F+B-2W) and ZB-H2:
    (p-1)(F+B-3W) with B whole, Qi 2023 table 1. ZB-V: none, ibid. section 6. DualPipe: (PP/2-1)
    (F&B + B - 3W) with PP stages, DeepSeek-V3 table 2; DualPipe-V the same with PP = 2 p.
    """
    f, b, w = t.forward, t.backward, t.weights
    formulas = {
        "gpipe": (ranks - 1) * (f + b), "1f1b": (ranks - 1) * (f + b),
        "interleaved": (ranks - 1) * (f + b),
        "zero-bubble": (ranks - 1) * (f + b - 2 * w), "zb-h2": (ranks - 1) * (f + b - 3 * w),
        "zb-v": 0.0,
        "dualpipe": (ranks / 2 - 1) * (t.both + b - 3 * w),
        "dualpipe-v": (ranks - 1) * (t.both + b - 3 * w),
    }  # fmt: skip
    return formulas[name]


def seconds_of(schedule: Schedule, t: Times) -> F64:
    """Return seconds of every node of the schedule's graph when all stages are equal."""
    table = {"F": t.forward, "B": t.backward, "I": t.inputs, "W": t.weights}
    nodes = build(schedule).ops_N
    return np.array([t.both if len(ops) > 1 else table[ops[0].kind] for ops in nodes])


def bubble_of(schedule: Schedule, t: Times) -> F64:
    """Return idle seconds of every rank between its first and last operation, free messages."""
    graph = build(schedule)
    start, end = longest(graph, seconds_of(schedule, t))
    busy, idle = seconds_of(schedule, t), []
    rank_N = np.array(graph.rank_N)
    for rank in range(schedule.ranks):
        mine = rank_N == rank
        idle.append(end[mine].max() - start[mine].min() - busy[mine].sum())
    return np.array(idle)


def in_flight(schedule: Schedule) -> tuple[int, ...]:
    """Return the most chunk activations each rank holds at once, in whole forwards.

    An activation is taken by F and given back by B, or by W where the backward is split.
    """
    peaks = []
    for row in schedule.ops:
        split = {(op.chunk, op.micro_batch) for op in row if op.kind == "I"}
        held = peak = 0
        for op in row:
            key = (op.chunk, op.micro_batch)
            held += (op.kind == "F") - (op.kind == "W" or (op.kind == "B" and key not in split))
            peak = max(peak, held)
        peaks.append(peak)
    return tuple(peaks)
