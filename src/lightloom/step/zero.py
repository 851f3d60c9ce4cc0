"""Zero-bubble schedules: the weight half of a backward waits until there is nothing better.

Source: Qi 2023 (arXiv 2401.10241): section 2.3 for H1 and H2, section 6 for the V shape.
"""

from __future__ import annotations

from lightloom.core.errors import InputError
from lightloom.core.schedule import Op, Schedule

from .orders import looped


def vee(ranks: int) -> tuple[tuple[int, ...], ...]:
    """Return stages of (rank, chunk) in a V: rank r holds stages r and 2 ranks - 1 - r."""
    return tuple((rank, 2 * ranks - 1 - rank) for rank in range(ranks))


def _split_row(rank: int, ranks: int, micro_batches: int, deep: bool) -> tuple[Op, ...]:
    """Return F, I and W of one rank: `deep` doubles the warm-up (H2) and the delay of W."""
    hops = ranks - rank - 1
    warm = min((2 if deep else 1) * hops, micro_batches)
    late = (2 if deep else 1) * rank
    ops = [Op("F", 0, m) for m in range(warm)]
    written = 0
    for m in range(micro_batches):
        if warm + m < micro_batches:
            ops.append(Op("F", 0, warm + m))
        ops.append(Op("I", 0, m))
        if m >= late:
            ops.append(Op("W", 0, written))
            written += 1
    return (*ops, *(Op("W", 0, m) for m in range(written, micro_batches)))


def zero_bubble(ranks: int, micro_batches: int, deep: bool = False) -> Schedule:
    """Return ZB-H1, or with `deep` ZB-H2 (about twice the activations, a smaller bubble).

    H1 keeps the memory of 1F1B: rank r delays its weight halves by r micro-batches, so that they
    fill the gaps of the drain.
    """
    rows = tuple(_split_row(rank, ranks, micro_batches, deep) for rank in range(ranks))
    return Schedule("zb-h2" if deep else "zero-bubble", rows, looped(ranks, 1))


def _vee_warm(rank: int, ranks: int) -> list[tuple[str, int]]:
    """Return (kind, chunk) of the warm-up of a V schedule."""
    ops = [("F", 0)] * (2 * (ranks - rank) - 1)
    ops += [("F", 1), ("F", 0)] * rank
    return ops + [("F", 1), ("I", 1), ("W", 1)] * (ranks - rank)


def _vee_steady(rank: int, ranks: int, count: int) -> list[tuple[str, int]]:
    """Return (kind, chunk) of a whole rank for `count` micro-batches."""
    ops = _vee_warm(rank, ranks)
    seen = {("F", 0): 2 * (ranks - rank) - 1 + rank, ("F", 1): ranks}
    while seen["F", 1] < seen["F", 0] or seen["F", 0] < count:
        if seen["F", 0] < count:
            ops.append(("F", 0))
            seen["F", 0] += 1
        ops += [("I", 0), ("W", 0), ("F", 1), ("I", 1), ("W", 1)]
        seen["F", 1] += 1
    ops += [("I", 0), ("I", 1)] * rank
    ops += [("I", 0), ("W", 0)] * (ranks - rank)
    return ops + [("W", 1)] * rank + [("W", 0)] * rank


def _numbered(kinds: list[tuple[str, int]], micro_batches: int) -> tuple[Op, ...]:
    """Return operations numbered in order of each (kind, chunk), those beyond the last dropped."""
    count: dict[tuple[str, int], int] = {}
    ops = []
    for kind, chunk in kinds:
        m = count.get((kind, chunk), 0)
        count[kind, chunk] = m + 1
        if m < micro_batches:
            ops.append(Op(kind, chunk, m))  # type: ignore[arg-type]
    return tuple(ops)


def zero_bubble_v(ranks: int, micro_batches: int) -> Schedule:
    """Return ZB-V: two chunks a rank in a V, no bubble when F, I and W take equal time."""
    if ranks < 2:
        raise InputError(f"zb-v needs at least 2 pipeline ranks, not {ranks}", out="--pp 2")
    rows = tuple(
        _numbered(_vee_steady(rank, ranks, max(2 * ranks - 1, micro_batches)), micro_batches)
        for rank in range(ranks)
    )
    return Schedule("zb-v", rows, vee(ranks))
