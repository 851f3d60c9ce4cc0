"""Who takes part: groups of cards as axes of the fabric.

An *axis* is one dimension along which a group's members lie: a level's children, or one dimension
of a mesh, torus or n-D full mesh. A group of 64 at stride 1 on 8 x 16 x 64 is two axes, 8 and 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError
from lightloom.core.fabric import Fabric, Level

Ints = NDArray[np.int64]
GRIDS = ("full-mesh", "mesh", "torus", "ring")


@dataclass(frozen=True, slots=True)
class Axis:
    """Members along one dimension: ``card = base + member * stride`` cards."""

    level: int
    name: str
    kind: str
    members: int
    stride: int
    whole: int
    """Children along this dimension, members or not."""
    reduces: bool = False

    @property
    def wraps(self) -> bool:
        """Whether the dimension closes into a ring and the members fill it."""
        return self.kind in ("torus", "ring") and self.members == self.whole

    def member(self, card_N: Ints) -> Ints:
        """Return each card's place along the axis."""
        return card_N // self.stride % self.members


@dataclass(frozen=True, slots=True)
class Group:
    """Equal groups side by side: `size` cards each, members `stride` apart, on the first `cards`
    cards of the machine."""

    cards: int
    size: int
    stride: int
    axes: tuple[Axis, ...]
    """Innermost first; axes with one member are left out."""

    @property
    def groups(self) -> int:
        """How many groups run at the same time."""
        return self.cards // self.size

    def cards_of(self, number: int) -> Ints:
        """Return the cards of one group, in rank order."""
        first = number // self.stride * self.stride * self.size + number % self.stride
        return first + np.arange(self.size) * self.stride


def dimensions(fabric: Fabric) -> list[tuple[int, Level, int, int]]:
    """Return (level, noun, size, cards below) of every dimension, innermost first."""
    found, below = [], 1
    for number, level in enumerate(fabric.levels):
        split = level.kind in GRIDS and not level.twist
        for size in reversed(level.shape) if split else (level.units,):
            found.append((number, level, size, below))
            below *= size
    return found


def make_group(
    fabric: Fabric, cards: int | None = None, size: int | None = None, stride: int = 1
) -> Group:
    """Return the groups, or say which counts would fit.

    `cards` alone is one group on the first `cards` cards; `size` and `stride` make as many groups
    as the cards hold.
    """
    total = fabric.cards if cards is None else cards
    size = total if size is None else size
    if total < 1 or total > fabric.cards:
        raise InputError(f"cards = {total}: the machine has 1..{fabric.cards}")
    _check_prefix(fabric, total)
    if size < 1 or stride < 1 or total % (size * stride):
        near = [n for n in range(max(1, size - 64), size + 65) if total % (n * stride) == 0]
        near.sort(key=lambda n: abs(n - size))
        raise InputError(
            f"groups of {size} at stride {stride} do not fill {total} cards",
            out=f"nearest: {', '.join(map(str, near[:3]))}" if near else "use stride 1",
        )
    axes: list[Axis] = []
    left, skip = size, stride
    for number, level, extent, below in dimensions(fabric):
        jump = math.gcd(skip, extent)
        if skip > 1 and jump not in (skip, extent):
            raise _uneven(size, stride, level, extent)
        skip //= jump
        room = extent // jump
        if skip > 1 or room == 1 or left == 1:
            continue
        members = min(left, room)
        if left % members or (room % members and left == members and total > size * stride):
            raise _uneven(size, stride, level, extent)
        left //= members
        axes.append(
            Axis(number, level.name, level.kind, members, below * jump, extent, level.reduces)
        )
    return Group(total, size, stride, tuple(axes))


def _uneven(size: int, stride: int, level: Level, extent: int) -> InputError:
    good = sorted({d * m for d in range(1, extent + 1) if extent % d == 0 for m in (1, extent)})
    good.sort(key=lambda n: abs(n - size))
    return InputError(
        f"a group of {size} at stride {stride} does not fill level {level.name} ({extent} a unit)",
        out=f"nearest sizes: {', '.join(str(n) for n in sorted(good[:3]))}",
    )


def _check_prefix(fabric: Fabric, cards: int) -> None:
    """The cards taken must be whole units of some level."""
    best: list[int] = []
    below = 1
    for _number, _level, extent, under in dimensions(fabric):
        below = under
        if cards <= under * extent:
            break
    if cards % below == 0:
        return
    best = [cards // below * below, -(-cards // below) * below]
    raise InputError(
        f"{cards} cards do not fill a level (units of {below})",
        out=f"nearest: {', '.join(str(n) for n in best if n > 0)}",
    )
