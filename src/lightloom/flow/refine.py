"""Folding a list of flows: colour refinement, and the certificate that what it found is true.

Axes: F flows, L links, E crossings. Two flows end in one class when no number of looks at "which
links do you cross, who else crosses them" tells them apart. Colours are hashes; hashes collide, so
the result is checked exactly before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .share import Floats, Ints, Paths

Words = NDArray[np.uint64]
MIX_A, MIX_B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
MOST_PASSES = 64


@dataclass(frozen=True, slots=True)
class Classes:
    """An equitable partition of flows and links."""

    flow_F: Ints
    """Class of every flow."""
    link_L: Ints
    """Class of every link; links that nobody crosses share one."""

    @property
    def flows(self) -> int:
        """Classes of flows."""
        return int(self.flow_F.max(initial=-1)) + 1

    @property
    def links(self) -> int:
        """Classes of links."""
        return int(self.link_L.max(initial=-1)) + 1


def _mix(word: Words) -> Words:
    with np.errstate(over="ignore"):
        word = (word ^ (word >> np.uint64(30))) * MIX_A
        word = (word ^ (word >> np.uint64(27))) * MIX_B
        return word ^ (word >> np.uint64(31))


def _number(*columns: NDArray[np.generic]) -> Ints:
    """Return small numbers for equal rows of columns."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, inverse = np.unique(column, return_inverse=True)
        number = number * (int(inverse.max(initial=0)) + 1) + inverse
        _, number = np.unique(number, return_inverse=True)
    return number


def _sum_by(owner_E: Ints, word_E: Words, owners: int) -> Words:
    """Return the sum of words by owner, modulo 2^64: the hash of a multiset."""
    total = np.zeros(owners, np.uint64)
    with np.errstate(over="ignore"):
        np.add.at(total, owner_E, word_E)
    return total


def refine(paths: Paths, capacity_L: Floats, *start_F: Floats) -> Classes:
    """Return the coarsest classes that colour refinement finds, starting from capacities and from
    what tells flows apart (`start_F`: bytes, start, latency, weight); trivial ones if the
    certificate fails."""
    flow_E, link_E = paths.flow_of_entry, paths.link_E
    count_E = np.ones(len(link_E)) if paths.count_E is None else paths.count_E
    weight_E = _mix(count_E.view(np.uint64) + MIX_B)
    flow_F = _number(*start_F) if start_F else np.zeros(paths.flows, np.int64)
    link_L = _number(capacity_L)
    found = (-1, -1)
    for _ in range(MOST_PASSES):
        with np.errstate(over="ignore"):
            word = _mix(link_L[link_E].astype(np.uint64) * MIX_A + weight_E)
            flow_F = _number(flow_F, _sum_by(flow_E, word, paths.flows))
            word = _mix(flow_F[flow_E].astype(np.uint64) * MIX_B + weight_E)
            link_L = _number(link_L, _sum_by(link_E, word, len(capacity_L)))
        now = (int(flow_F.max(initial=0)), int(link_L.max(initial=0)))
        if now == found:
            break
        found = now
    classes = Classes(flow_F, link_L)
    if equitable(paths, capacity_L, classes):
        return classes
    return Classes(np.arange(paths.flows), np.arange(len(capacity_L)))


def equitable(paths: Paths, capacity_L: Floats, classes: Classes) -> bool:
    """Return whether classes prove that rates are equal inside them (design: conditions i and ii;
    equal starts are part of the first colours): links of a class have one capacity and carry
    every class of flows equally often; flows of a class cross the same multiset of links."""
    flow_E, link_E = paths.flow_of_entry, paths.link_E
    count_E = np.ones(len(link_E)) if paths.count_E is None else paths.count_E
    first = np.zeros(classes.links, np.int64)
    first[classes.link_L[::-1]] = np.arange(len(capacity_L))[::-1]
    if np.any(capacity_L != capacity_L[first[classes.link_L]]):
        return False
    return _same(link_E, classes.flow_F[flow_E], count_E, classes.link_L, classes.flows) and _same(
        flow_E, classes.link_L[link_E], count_E, classes.flow_F, classes.links
    )


def _same(owner_E: Ints, seen_E: Ints, count_E: Floats, class_O: Ints, range_: int) -> bool:
    """Return whether owners of one class see every class equally often (to rounding)."""
    key, inverse = np.unique(owner_E * range_ + seen_E, return_inverse=True)
    total = np.bincount(inverse, count_E)
    owner, seen = np.divmod(key, range_)
    kind = _number(class_O[owner], seen)
    low = np.full(int(kind.max(initial=-1)) + 1, np.inf)
    high = np.zeros(len(low))
    np.minimum.at(low, kind, total)
    np.maximum.at(high, kind, total)
    if np.any(high > low * (1 + 1e-12)):
        return False
    present = np.bincount(kind)
    members = np.bincount(class_O)
    first = np.zeros(len(low), np.int64)
    first[kind] = class_O[owner]
    return bool(np.all(present == members[first]))


def quotient(paths: Paths, capacity_L: Floats, classes: Classes) -> tuple[Paths, Floats, Ints]:
    """Return the folded problem: one flow and one link a class, and a flow of every class."""
    first = np.zeros(classes.flows, np.int64)
    first[classes.flow_F[::-1]] = np.arange(paths.flows)[::-1]
    some = np.zeros(classes.links, np.int64)
    some[classes.link_L[::-1]] = np.arange(len(capacity_L))[::-1]
    length = np.diff(paths.start_F)[first]
    start = np.zeros(classes.flows + 1, np.int64)
    np.cumsum(length, out=start[1:])
    take = np.repeat(paths.start_F[first] - start[:-1], length) + np.arange(start[-1])
    link = classes.link_L[paths.link_E[take]]
    many_F, many_L = np.bincount(classes.flow_F), np.bincount(classes.link_L)
    count = np.repeat(many_F, length) / many_L[link]
    if paths.count_E is not None:
        count = count * paths.count_E[take]
    return Paths(start, link, count), capacity_L[some], first
