"""Channels of a one-hop spine: provably as few as possible, and stable under change.

Boards send into a passive star or cross-connect and receive from it, so demand is a bipartite
multigraph (sender i, receiver j, D_ij channels) and an assignment is an edge colouring: no sender
and no receiver uses a channel twice. A bipartite multigraph of largest degree D needs D colours
and never more (Konig 1916), so the number found here equals its own lower bound.

Axes: I senders, J receivers, K classes, C channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InfeasibleError, InputError

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
NOBODY = -1


@dataclass(slots=True)
class Spine:
    """Who uses which channel. `to_IC[i][c]` is the receiver that sender i lights on channel c."""

    to_IC: list[list[int]]
    from_JC: list[list[int]]
    class_IC: list[list[int]]
    channels: int
    free_I: list[int] = field(default_factory=list)
    free_J: list[int] = field(default_factory=list)

    def demand(self, classes: int) -> I64:
        """Return the channels lit, (K, I, J)."""
        out = np.zeros((classes, len(self.to_IC), len(self.from_JC)), np.int64)
        for i, row in enumerate(self.to_IC):
            for c, j in enumerate(row):
                if j != NOBODY:
                    out[self.class_IC[i][c], i, j] += 1
        return out

    def pairs(self) -> dict[tuple[int, int, int], list[int]]:
        """Return channels by (sender, receiver, class), ascending."""
        out: dict[tuple[int, int, int], list[int]] = {}
        for i, row in enumerate(self.to_IC):
            for c, j in enumerate(row):
                if j != NOBODY:
                    out.setdefault((i, j, self.class_IC[i][c]), []).append(c)
        return out

    @property
    def used(self) -> int:
        """Channels that anybody uses."""
        dark = (1 << self.channels) - 1
        for mask in self.free_I:
            dark &= mask
        return self.channels - dark.bit_count()


def degree(demand_IJ: I64) -> int:
    """Return the lower bound: channels at the busiest sender or receiver."""
    return int(max(demand_IJ.sum(axis=1).max(initial=0), demand_IJ.sum(axis=0).max(initial=0)))


def bound(demand_KIJ: I64, separate: bool) -> int:
    """Return the fewest channels any assignment needs.

    `separate`: a channel belongs to one class on the whole spine, not only on a fibre; then
    each class needs its own degree.
    """
    if separate:
        return sum(degree(demand_IJ) for demand_IJ in demand_KIJ)
    return degree(demand_KIJ.sum(axis=0))


def share_out(bytes_KIJ: F64, channels: int) -> I64:
    """Return channels (K, I, J) in proportion to bytes, at least one where there are bytes.

    The finish time of the slowest pair is minimised: the smallest time t at which
    ceil(bytes / t) channels a pair fit every board (bisection; exact for integer channels).
    """
    busy = bytes_KIJ > 0

    def need(time: float) -> I64:
        return np.ceil(bytes_KIJ / time - 1e-9).astype(np.int64)

    if degree(busy.sum(axis=0)) > channels:
        raise InfeasibleError(
            f"{degree(busy.sum(axis=0))} circuits meet at one board, it has {channels} channels",
            out="fewer peers a board (hierarchical groups), or more channels",
        )
    low, high = 0.0, float(bytes_KIJ.max())
    while degree(need(high).sum(axis=0)) > channels:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2
        if middle > 0 and degree(need(middle).sum(axis=0)) <= channels:
            high = middle
        else:
            low = middle
    return need(high)


def colour(demand_KIJ: I64, channels: int, separate: bool = False) -> Spine:
    """Return an assignment of the demand with exactly `bound` channels.

    Raises InfeasibleError, naming the board, where the bound is above `channels`.
    """
    demand_KIJ = np.asarray(demand_KIJ, np.int64)
    if demand_KIJ.ndim != 3 or (demand_KIJ < 0).any():
        raise InputError("demand must be (class, sender, receiver) with counts >= 0")
    need = bound(demand_KIJ, separate)
    if need > channels:
        total_IJ = demand_KIJ.sum(axis=0)
        board = int(np.argmax(total_IJ.sum(axis=1) + total_IJ.sum(axis=0)))
        raise InfeasibleError(
            f"{need} channels needed at the busiest board ({board}), the spine has {channels}",
            out=f"scale the demand by {channels / need:.2f}, or add fibres",
        )
    spine = _dark(demand_KIJ, channels)
    first = 0
    for pool, classes in _pools(demand_KIJ, separate):
        window = ((1 << pool) - 1) << first
        _fill(spine, demand_KIJ, classes, window)
        first += pool
    return spine


def recolour(
    lit: Mapping[tuple[int, int, int], Sequence[int]], demand_KIJ: I64, channels: int
) -> Spine:
    """Return an assignment of a new demand that keeps the channels `lit` where it can.

    A pair and class keeps its lowest channels up to the new count; only what is missing is added,
    and others swap only where no common free channel is left.
    """
    need = bound(demand_KIJ, False)
    if need > channels:
        raise InfeasibleError(f"{need} channels needed at one board, the spine has {channels}")
    spine = _dark(demand_KIJ, channels)
    missing = []
    for k, i, j in np.argwhere(demand_KIJ).tolist():
        count = int(demand_KIJ[k, i, j])
        kept = [c for c in sorted(lit.get((i, j, k), ())) if c < channels][:count]
        for channel in kept:
            _set(spine, i, j, channel, k)
        missing.append((i, j, k, count - len(kept)))
    for i, j, k, count in missing:
        for _ in range(count):
            _add(spine, i, j, k, (1 << channels) - 1)
    return spine


def _dark(demand_KIJ: I64, channels: int) -> Spine:
    senders, receivers = demand_KIJ.shape[1:]
    return Spine(
        [[NOBODY] * channels for _ in range(senders)],
        [[NOBODY] * channels for _ in range(receivers)],
        [[NOBODY] * channels for _ in range(senders)], channels,
        [(1 << channels) - 1] * senders, [(1 << channels) - 1] * receivers,
    )  # fmt: skip


def _pools(demand_KIJ: I64, separate: bool) -> list[tuple[int, list[int]]]:
    kinds = list(range(len(demand_KIJ)))
    if not separate:
        return [(bound(demand_KIJ, False), kinds)]
    return [(degree(demand_KIJ[k]), [k]) for k in kinds]


def _fill(spine: Spine, demand_KIJ: I64, classes: Sequence[int], window: int) -> None:
    """Light the demand of `classes` inside `window`: common free channels first, then swaps."""
    senders, receivers = demand_KIJ.shape[1:]
    span = max(senders, receivers)
    left: list[tuple[int, int, int, int]] = []
    for shift in range(span):
        for i in range(senders):
            j = (i + shift) % span
            for k in classes:
                count = int(demand_KIJ[k, i, j]) if j < receivers else 0
                if count:
                    both = spine.free_I[i] & spine.free_J[j] & window
                    while count and both:
                        low = both & -both
                        both ^= low
                        _set(spine, i, j, low.bit_length() - 1, k)
                        count -= 1
                    if count:
                        left.append((i, j, k, count))
    for i, j, k, count in left:
        for _ in range(count):
            _add(spine, i, j, k, window)


def _set(spine: Spine, i: int, j: int, channel: int, kind: int) -> None:
    spine.to_IC[i][channel] = j
    spine.from_JC[j][channel] = i
    spine.class_IC[i][channel] = kind
    spine.free_I[i] ^= 1 << channel
    spine.free_J[j] ^= 1 << channel


def _clear(spine: Spine, i: int, channel: int) -> int:
    kind, j = spine.class_IC[i][channel], spine.to_IC[i][channel]
    spine.to_IC[i][channel] = spine.class_IC[i][channel] = NOBODY
    spine.from_JC[j][channel] = NOBODY
    spine.free_I[i] ^= 1 << channel
    spine.free_J[j] ^= 1 << channel
    return kind


def _add(spine: Spine, i: int, j: int, kind: int, window: int) -> int:
    """Light one more channel i -> j; return how many others had to swap channels.

    Where no channel is free at both ends, a free one of the sender and b free one of the receiver
    exist; swapping a and b along the path of alternate a and b that starts at the receiver frees
    a there (Konig's argument: the path cannot come back to the sender).
    """
    both = spine.free_I[i] & spine.free_J[j] & window
    if both:
        _set(spine, i, j, (both & -both).bit_length() - 1, kind)
        return 0
    ours, theirs = spine.free_I[i] & window, spine.free_J[j] & window
    if not ours or not theirs:
        raise InfeasibleError(
            f"board {i if not ours else j} has no channel left for one more lightpath"
        )
    a, b = (ours & -ours).bit_length() - 1, (theirs & -theirs).bit_length() - 1
    path, at, receiving, want = [], j, True, a
    while True:
        other = spine.from_JC[at][want] if receiving else spine.to_IC[at][want]
        if other == NOBODY:
            break
        sender, receiver = (other, at) if receiving else (at, other)
        path.append((sender, receiver, want))
        at, receiving, want = other, not receiving, b if want == a else a
    kinds = [_clear(spine, sender, channel) for sender, _, channel in path]
    for (sender, receiver, channel), old in zip(path, kinds, strict=True):
        _set(spine, sender, receiver, b if channel == a else a, old)
    _set(spine, i, j, a, kind)
    return len(path)


@dataclass(frozen=True, slots=True)
class Change:
    """What a change of demand did."""

    darkened: int
    lit: int
    swapped: int
    """Lightpaths of others that had to change channel; 0 while a common free channel exists."""


def change(
    spine: Spine, delta: Mapping[tuple[int, int, int], int], limit: int | None = None
) -> Change:
    """Add or remove channels by (sender, receiver, class); nothing else is touched if it can be.

    Removals come first. `limit` keeps to the first channels. Highest channels go dark first.
    """
    window = (1 << (spine.channels if limit is None else limit)) - 1
    darkened = lit = swapped = 0
    lit_now = spine.pairs()
    for (i, j, k), count in sorted(delta.items()):
        have = lit_now.get((i, j, k), [])
        if -count > len(have):
            raise InputError(f"{-count} channels of {i} -> {j} to remove, {len(have)} are lit")
        for channel in have[len(have) + min(count, 0) :]:
            _clear(spine, i, channel)
            darkened += 1
    for (i, j, k), count in sorted(delta.items()):
        for _ in range(max(count, 0)):
            swapped += _add(spine, i, j, k, window)
            lit += 1
    return Change(darkened, lit, swapped)


def verify(spine: Spine, demand_KIJ: I64) -> list[str]:
    """Return what is wrong with an assignment (nothing, for a good one); shares no code with it."""
    wrong = []
    for j, row in enumerate(spine.from_JC):
        for c, i in enumerate(row):
            if i != NOBODY and spine.to_IC[i][c] != j:
                wrong.append(f"receiver {j} channel {c} hears {i}, which does not send")
    seen: dict[tuple[int, int], int] = {}
    for i, row in enumerate(spine.to_IC):
        for c, j in enumerate(row):
            if j == NOBODY:
                continue
            if (j, c) in seen:
                wrong.append(f"receiver {j} channel {c} is lit by {seen[j, c]} and {i}")
            seen[j, c] = i
    if not np.array_equal(spine.demand(len(demand_KIJ)), demand_KIJ):
        wrong.append("channels lit differ from the demand")
    return wrong
