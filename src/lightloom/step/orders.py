"""Schedules that keep the backward whole: GPipe, 1F1B, interleaved 1F1B.

Sources: Huang 2019 (GPipe, arXiv 1811.06965) fig. 2; Narayanan 2021 (arXiv 2104.04473) fig. 3 and
4, section 2.2; warm-up counts as in Megatron-Core ``schedules.py``.
"""

from __future__ import annotations

from lightloom.core.errors import InputError
from lightloom.core.schedule import Op, Schedule


def looped(ranks: int, chunks: int) -> tuple[tuple[int, ...], ...]:
    """Return stages of (rank, chunk) when the model winds round the ranks `chunks` times."""
    return tuple(tuple(chunk * ranks + rank for chunk in range(chunks)) for rank in range(ranks))


def gpipe(ranks: int, micro_batches: int, chunks: int = 1) -> Schedule:
    """Return all forwards, then all backwards in reverse order of chunks."""
    forward = tuple(Op("F", c, m) for c in range(chunks) for m in range(micro_batches))
    backward = tuple(Op("B", c, m) for c in reversed(range(chunks)) for m in range(micro_batches))
    return Schedule("gpipe", (forward + backward,) * ranks, looped(ranks, chunks))


def one_forward_one_backward(ranks: int, micro_batches: int) -> Schedule:
    """Return 1F1B: rank r warms up with ranks - r - 1 forwards, then alternates."""

    def row(rank: int) -> tuple[Op, ...]:
        warm = min(ranks - rank - 1, micro_batches)
        ops = [Op("F", 0, m) for m in range(warm)]
        for m in range(micro_batches - warm):
            ops += [Op("F", 0, warm + m), Op("B", 0, m)]
        return (*ops, *(Op("B", 0, m) for m in range(micro_batches - warm, micro_batches)))

    return Schedule("1f1b", tuple(row(rank) for rank in range(ranks)), looped(ranks, 1))


def virtual_order(ranks: int, micro_batches: int, chunks: int) -> list[tuple[int, int]]:
    """Return (chunk, micro-batch) in the order forwards run: groups of `ranks` per chunk."""
    order = []
    for first in range(0, micro_batches, ranks):
        group = range(first, first + ranks)
        order += [(chunk, m) for chunk in range(chunks) for m in group]
    return order


def interleaved(ranks: int, micro_batches: int, chunks: int) -> Schedule:
    """Return interleaved 1F1B: 2 (ranks - r - 1) + (chunks - 1) ranks warm-up forwards."""
    if ranks < 2 or chunks < 2:
        raise InputError(
            f"interleaved 1F1B needs at least 2 ranks and 2 chunks, not {ranks} and {chunks}",
            out="--pp 2 or more with --vpp 2 or more, or --schedule 1f1b",
        )
    if micro_batches % ranks or not micro_batches:
        more = ranks * max(1, round(micro_batches / ranks))
        raise InputError(
            f"interleaved 1F1B needs micro-batches in multiples of the {ranks} ranks, not "
            f"{micro_batches}",
            out=f"{more} micro-batches, or --schedule 1f1b",
        )
    forward = virtual_order(ranks, micro_batches, chunks)
    backward = [(chunks - 1 - chunk, m) for chunk, m in forward]
    total = len(forward)

    def row(rank: int) -> tuple[Op, ...]:
        warm = min(2 * (ranks - rank - 1) + (chunks - 1) * ranks, total)
        if micro_batches == ranks:
            warm = total
        ops = [Op("F", *forward[i]) for i in range(warm)]
        for i in range(total - warm):
            ops += [Op("F", *forward[warm + i]), Op("B", *backward[i])]
        return (*ops, *(Op("B", *backward[i]) for i in range(total - warm, total)))

    return Schedule("interleaved", tuple(row(r) for r in range(ranks)), looped(ranks, chunks))
