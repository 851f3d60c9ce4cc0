"""DualPipe and DualPipe-V: two streams of micro-batches, each hiding the other's communication.

Source: DeepSeek-V3 report (arXiv 2412.19437) fig. 5 and section 3.2.1; the eight phases follow the
published reference implementation (github.com/deepseek-ai/DualPipe, MIT).
"""

from __future__ import annotations

from lightloom.core.errors import InputError
from lightloom.core.schedule import Op, Schedule

from .zero import vee


class _Row:
    """Operations of one rank being written down; `a` and `b` are its two streams."""

    def __init__(self, first: tuple[int, int]) -> None:
        self.ops: list[Op] = []
        self.next = {(kind, chunk): first[chunk] for kind in "FB" for chunk in (0, 1)}
        self.owed: list[tuple[int, int]] = []

    def add(self, kind: str, chunk: int, *, paired: bool = False) -> None:
        """Append F, B or I of a chunk with its next micro-batch; I owes a W."""
        counter = ("F" if kind == "F" else "B", chunk)
        m = self.next[counter]
        self.next[counter] = m + 1
        self.ops.append(Op(kind, chunk, m, paired))  # type: ignore[arg-type]
        if kind == "I":
            self.owed.append((chunk, m))

    def weight(self) -> None:
        """Append the oldest weight half still owed."""
        self.ops.append(Op("W", *self.owed.pop(0)))

    def pair(self, forward: int, backward: int) -> None:
        """Append a forward and a backward that overlap."""
        self.add("F", forward, paired=True)
        self.add("B", backward)


def _row(half: int, depth: int, per_stream: int, first: tuple[int, int], flip: bool) -> _Row:
    """Return one rank: `half` its distance from the end of the V, `depth` half the pipeline."""
    a, b = (1, 0) if flip else (0, 1)
    row, left = _Row(first), depth - half - 1
    for _ in range(2 * left):
        row.add("F", a)
    for _ in range(half + 1):
        row.add("F", a)
        row.add("F", b)
    for _ in range(left):
        row.add("I", b)
        row.weight()
        row.add("F", b)
    for i in range(per_stream - 2 * depth + half + 1):
        if i == 0 and left == 0:
            row.add("F", a)
            row.add("B", b)
        else:
            row.pair(a, b)
        row.pair(b, a)
    for _ in range(left):
        row.add("B", b)
        row.pair(b, a)
    _drain(row, a, b, half, left)
    return row


def _drain(row: _Row, a: int, b: int, half: int, left: int) -> None:
    """Write the last three phases: backwards, the second half of them split, then weights."""
    split = False
    for i in range(half + 1):
        split = split or (i == (half + 1) // 2 and half % 2 == 1)
        row.add("I" if split else "B", b)
        split = split or (i == (half + 1) // 2 and half % 2 == 0)
        row.add("I" if split else "B", a)
    for _ in range(left):
        row.weight()
        row.add("I", a)
    for _ in range(half + 1):
        row.weight()


def dualpipe(ranks: int, micro_batches: int) -> Schedule:
    """Return DualPipe: micro-batches enter at both ends, each rank holds two stages.

    Stream 0 (the first half of the micro-batches) runs down the ranks, stream 1 up.
    """
    if ranks % 2 or micro_batches % 2 or micro_batches < 2 * ranks:
        raise InputError(
            f"dualpipe needs an even number of ranks and an even number of micro-batches of at "
            f"least twice the ranks, not {ranks} and {micro_batches}",
            out=f"{2 * (ranks + ranks % 2)} micro-batches and more, or --schedule dualpipe-v",
        )
    each = micro_batches // 2
    rows = []
    for rank in range(ranks):
        half, flip = min(rank, ranks - 1 - rank), rank >= ranks // 2
        rows.append(tuple(_row(half, ranks // 2, each, (0, each), flip).ops))
    stages = tuple((rank, ranks - 1 - rank) for rank in range(ranks))
    return Schedule("dualpipe", tuple(rows), stages)


def dualpipe_v(ranks: int, micro_batches: int) -> Schedule:
    """Return DualPipe-V, DualPipe cut in half: the second stream returns along the same ranks."""
    if micro_batches < 2 * ranks:
        raise InputError(
            f"dualpipe-v needs at least twice as many micro-batches as ranks, not {micro_batches} "
            f"for {ranks}",
            out=f"{2 * ranks} micro-batches and more, or --schedule zb-v",
        )
    rows = tuple(
        tuple(_row(rank, ranks, micro_batches, (0, 0), flip=False).ops) for rank in range(ranks)
    )
    return Schedule("dualpipe-v", rows, vee(ranks))
