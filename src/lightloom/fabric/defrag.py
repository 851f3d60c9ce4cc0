"""Defragmentation that no job notices: every state on the way is valid, nothing is paused.

A step moves some channels of one lightpath on its own links. *Push-pull*: all channels between
the old and the new are free, so the laser and its receiver slide over (Cugini, JLT 2013), no spare
needed. *Make-before-break*: the new channel is lit beside the old one, traffic is switched, the old
one goes dark; needs one spare laser a board. A cycle of lightpaths that want each other's channels
is broken by parking one on a spare channel; only where no spare channel is left is one *paused*.

On a fixed grid neighbouring channels have no value in themselves: each is switched by itself. What
has value is *continuity*, the same channel free on all links of a route, and whole blocks where
channels are switched in bands. The articles' ">= 80 % contiguous" is kept as a policy figure.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from lightloom.core.channels import ChannelFile, Lit
from lightloom.core.errors import InputError

from .wavelength_pool import ChannelPool, Lightpath, contiguity, pick, runs

Routes = Callable[[Lightpath], list[tuple[int, ...]]]
How = Literal["push-pull", "make-before-break", "pause"]


@dataclass(frozen=True, slots=True)
class Step:
    """One change of one lightpath; the rest of the machine is untouched."""

    name: str
    old: tuple[int, ...]
    """Channels that go dark."""
    new: tuple[int, ...]
    """Channels that are lit instead."""
    how: How
    parked: bool = False
    """A stop on the way, to break a cycle."""
    links: tuple[int, ...] = ()
    """Links of the new channels, where the lightpath changes its plane; empty: the same."""


@dataclass(frozen=True, slots=True)
class Report:
    """A night's work."""

    steps: tuple[Step, ...]
    moves: int
    """Channels moved, stops on the way included."""
    bound: int
    """Channels that were lit inside the final blocks: each must move for these blocks to be."""
    floor: int
    """Channels that any plan, to any blocks, must move to reach the goal (relaxed, often loose)."""
    before: float
    """Share of free channels that lie in the largest block of their fibre."""
    after: float
    paused: int
    """Lightpaths that had to go dark for a moment."""

    @property
    def ratio(self) -> float:
        """Moves over the bound."""
        return self.moves / self.bound if self.bound else 1.0


def pool_of(file: ChannelFile) -> ChannelPool:
    """Return the live pool of a channel file; a channel held twice names both owners."""
    masks = {cls: ((1 << count) - 1) << first for cls, (first, count) in file.pools.items()}
    pool = ChannelPool(file.links, file.channels, masks)
    for lit in file.lit:
        if not lit.channels or not all(0 <= c < file.channels for c in lit.channels):
            raise InputError(f"lightpath {lit.name}: channels {lit.channels} of {file.channels}")
        if not lit.links or not all(0 <= x < file.links for x in lit.links):
            raise InputError(f"lightpath {lit.name}: links {lit.links} of {file.links}")
        pool.light(Lightpath(lit.name, lit.owner, lit.cls, lit.links, lit.channels))
    return pool


def lit_of(pool: ChannelPool) -> tuple[Lit, ...]:
    """Return the lightpaths of a pool, by name."""
    return tuple(
        Lit(name=p.name, owner=p.owner, cls=p.cls, links=p.links, channels=p.channels)
        for _, p in sorted(pool.paths.items())
    )


def copy_of(pool: ChannelPool) -> ChannelPool:
    """Return an independent pool with the same light."""
    twin = ChannelPool(len(pool.free), pool.channels, pool.pools)
    twin.free = list(pool.free)
    twin.paths = dict(pool.paths)
    return twin


def apply(pool: ChannelPool, step: Step) -> None:
    """Do one step on a pool; raises FabricError where it would light a channel that is held.

    Make-before-break holds both: the new light must be free while the old still burns.
    """
    path = pool.paths.get(step.name)
    if path is None or not set(step.old) <= set(path.channels):
        raise InputError(f"step moves channels {step.old} that {step.name} does not hold")
    kept = [c for c in path.channels if c not in step.old]
    if step.links and kept:
        raise InputError(f"step takes only a part of {step.name} to other links")
    links = step.links or path.links
    if step.new:
        pool.light(Lightpath(f"{step.name}+", path.owner, path.cls, links, step.new))
        pool.release(f"{step.name}+")
    pool.release(step.name)
    pool.light(path.at(sorted([*kept, *step.new]), links))


def compact(
    pool: ChannelPool, goal: float = 0.8, spare_lasers: int = 1, routes: Routes | None = None
) -> Report:
    """Return the steps that bring contiguity to `goal`; `pool` itself is left alone.

    Greedy: grow the largest free block of some fibre by moving the light at its edge into a hole
    outside the blocks of all its fibres, best gain first. `routes` gives other link sets that a
    lightpath may use (another plane of the cross-connect); without it only channels change.
    Tried with and without a second move of the same light; the plan with fewer moves is taken
    if it is within 1.2 of its bound.
    """
    plans = [_grow(pool, goal, spare_lasers, routes, fresh) for fresh in (False, True)]
    reached = [r for r in plans if r.after >= goal] or plans
    return min(reached, key=lambda r: (r.ratio > 1.2, -round(r.after, 2), r.moves))


def _grow(
    pool: ChannelPool, goal: float, spare_lasers: int, routes: Routes | None, fresh: bool
) -> Report:
    twin = copy_of(pool)
    before = contiguity(pool)
    free = sum(mask.bit_count() for mask in pool.free)
    state = _Blocks(twin, _holders(twin), [largest(mask) for mask in twin.free], routes, fresh)
    total = sum(n for _, n in state.block_L)
    for link in range(len(state.block_L)):
        state.push(link)
    steps: list[Step] = []
    while state.queue and total < goal * free:
        again, promised, link, channel = heapq.heappop(state.queue)
        found = state.best(link, channel)
        if found is None:
            continue
        gain, path, links, new = found
        if -gain > promised:
            heapq.heappush(state.queue, (again, -gain, link, channel))
            continue
        moved = () if links == path.links else links
        how = "make-before-break" if moved else _how(twin, path, (channel,), (new,), spare_lasers)
        steps.append(Step(path.name, (channel,), (new,), how, links=moved))
        apply(twin, steps[-1])
        total += gain
        state.moved(path, channel, links, new)
    return _report(pool, twin, steps, before, goal)


def _report(
    pool: ChannelPool, twin: ChannelPool, steps: list[Step], before: float, goal: float
) -> Report:
    cleared_L = []
    for mask in twin.free:
        first, count = largest(mask)
        cleared_L.append(((1 << count) - 1) << first)
    must = 0
    for path in pool.paths.values():
        zone = 0
        for link in path.links:
            zone |= cleared_L[link]
        must += (path.mask & zone).bit_count()
    return Report(
        tuple(steps), sum(len(s.new) for s in steps), must,
        floor_of(pool, min(goal, contiguity(twin))), before, contiguity(twin),
        sum(s.how == "pause" for s in steps),
    )  # fmt: skip


def floor_of(pool: ChannelPool, goal: float) -> int:
    """Return a number of moves that no plan to contiguity `goal` can undercut.

    A block of x channels on a link clears at least f(x) lit ones, the least in any window of x;
    one move clears at most one channel on each link of its lightpath. The sum of f is minimised
    over all splits of the goal by Lagrange's dual, which never exceeds the true minimum.
    """
    wide = max((len(p.links) for p in pool.paths.values()), default=0)
    if not wide:
        return 0
    channels = pool.channels
    bits = np.array([[1 - (m >> c & 1) for c in range(channels)] for m in pool.free])
    sums = np.concatenate([np.zeros((len(bits), 1), np.int64), bits.cumsum(axis=1)], axis=1)
    least_LX = np.stack(
        [(sums[:, x:] - sums[:, : channels + 1 - x]).min(axis=1) for x in range(channels + 1)],
        axis=1,
    )  # fmt: skip
    want = goal * sum(mask.bit_count() for mask in pool.free)
    size_X = np.arange(channels + 1)
    most = np.array([mask.bit_count() for mask in pool.free])
    least_LX = np.where(size_X[None, :] <= most[:, None], least_LX.astype(np.float64), np.inf)
    best = max(
        price * want + float((least_LX - price * size_X).min(axis=1).sum())
        for price in np.linspace(0.0, 2.0, 81)
    )
    return math.ceil(max(float(best), 0.0) / wide - 1e-9)


def largest(mask: int) -> tuple[int, int]:
    """Return (first, length) of the largest run of free channels; (0, 0) where none is free."""
    return max(runs(mask), key=lambda run: run[1], default=(0, 0))


def _holders(pool: ChannelPool) -> list[dict[int, str]]:
    out: list[dict[int, str]] = [{} for _ in pool.free]
    for path in pool.paths.values():
        for link in path.links:
            for channel in path.channels:
                out[link][channel] = path.name
    return out


@dataclass(slots=True)
class _Blocks:
    """The largest free block of every link while it grows."""

    pool: ChannelPool
    holder: list[dict[int, str]]
    block_L: list[tuple[int, int]]
    routes: Routes | None
    fresh: bool
    """Prefer light that has not moved yet."""
    queue: list[tuple[bool, int, int, int]] = field(default_factory=list)
    settled: set[tuple[int, int]] = field(default_factory=set)
    """(link, channel) that a step has lit: moved again only when nothing else is left."""

    def push(self, link: int) -> None:
        """Queue the two channels at the edges of a link's block, with the gain of moving them."""
        first, count = self.block_L[link]
        for channel in (first - 1, first + count):
            if channel in self.holder[link]:
                found = self.best(link, channel)
                if found is not None:
                    again = self.fresh and (link, channel) in self.settled
                    heapq.heappush(self.queue, (again, -found[0], link, channel))

    def best(self, link: int, channel: int) -> tuple[int, Lightpath, tuple[int, ...], int] | None:
        """Return (gain in block channels, lightpath, links, new channel), or None: nothing won."""
        name = self.holder[link].get(channel)
        if name is None:
            return None
        path = self.pool.paths[name]
        ways = [path.links]
        if self.routes and len(path.channels) == 1:
            ways += [way for way in self.routes(path) if way != path.links]
        allowed = self.pool.pools.get(path.cls, self.pool.full)
        found = None
        for links in ways:
            room = self.pool.common(links) & allowed
            for touched in links:
                first, count = self.block_L[touched]
                room &= ~(((1 << count) - 1) << first)
            if room:
                new = min(runs(room), key=lambda run: (run[1], run[0]))[0]
                gain = self._gain(path.links, channel, links, new)
                if gain > (found[0] if found else 0):
                    found = (gain, path, links, new)
            if found:
                break
        return found

    def _gain(self, old: tuple[int, ...], channel: int, links: tuple[int, ...], new: int) -> int:
        gain = 0
        for touched in {*old, *links}:
            mask = self.pool.free[touched]
            if touched in old:
                mask |= 1 << channel
            if touched in links:
                mask &= ~(1 << new)
            gain += largest(mask)[1] - self.block_L[touched][1]
        return gain

    def moved(self, path: Lightpath, channel: int, links: tuple[int, ...], new: int) -> None:
        """Take note of a step that was done."""
        for touched in path.links:
            del self.holder[touched][channel]
        for touched in links:
            self.holder[touched][new] = path.name
            self.settled.add((touched, new))
        both = {*path.links, *links}
        for touched in both:
            self.block_L[touched] = largest(self.pool.free[touched])
        for touched in sorted(both):
            self.push(touched)


def _how(
    pool: ChannelPool, path: Lightpath, old: tuple[int, ...], new: tuple[int, ...], spare: int
) -> How:
    """Return the gentlest way from old to new channels."""
    free = pool.common(path.links)
    slide = len(old) == len(new) == 1
    if slide:
        low, high = sorted((old[0], new[0]))
        between = ((1 << (high - low + 1)) - 1) << low
        slide = (between & ~free).bit_count() == 1
    if slide:
        return "push-pull"
    return "make-before-break" if spare > 0 else "pause"


def steps_to(
    pool: ChannelPool, target: Mapping[str, tuple[int, ...]], spare_lasers: int = 1
) -> list[Step]:
    """Return steps from the light of `pool` to `target` channels by lightpath name.

    Whatever can go straight to its place goes; what is left waits in cycles, and one of each is
    parked on free channels (a spare), or paused where there are none. Lightpaths not named stay.
    """
    twin = copy_of(pool)
    steps: list[Step] = []
    waiting = {n for n, c in target.items() if tuple(sorted(c)) != twin.paths[n].channels}
    parked: set[str] = set()
    while waiting:
        ready = [n for n in sorted(waiting) if _place(twin, n, target[n], spare_lasers, steps)]
        waiting.difference_update(ready)
        if ready or not waiting:
            continue
        name = _park(twin, sorted(waiting), parked, target, spare_lasers, steps)
        if name:
            parked.add(name)
        else:
            _pause(twin, sorted(waiting), target, steps)
            break
    return steps


def _place(
    twin: ChannelPool, name: str, want: tuple[int, ...], spare: int, steps: list[Step]
) -> bool:
    path = twin.paths[name]
    old = tuple(c for c in path.channels if c not in want)
    new = tuple(c for c in sorted(want) if c not in path.channels)
    need = sum(1 << c for c in new)
    if need & ~twin.common(path.links):
        return False
    step = Step(name, old, new, _how(twin, path, old, new, spare))
    apply(twin, step)
    steps.append(step)
    return True


def _park(
    twin: ChannelPool, waiting: list[str], parked: set[str],
    target: Mapping[str, tuple[int, ...]], spare: int, steps: list[Step],
) -> str:  # fmt: skip
    """Park one waiting lightpath on channels that nobody waits for; empty where none can be."""
    for name in waiting:
        if name in parked:
            continue
        path = twin.paths[name]
        old = tuple(c for c in path.channels if c not in target[name])
        wanted = 0
        for other in waiting:
            if set(twin.paths[other].links) & set(path.links):
                wanted |= sum(1 << c for c in target[other])
        new = pick(twin.common(path.links) & ~wanted, len(old), False)
        if new:
            step = Step(name, old, new, _how(twin, path, old, new, spare), parked=True)
            apply(twin, step)
            steps.append(step)
            return name
    return ""


def _pause(
    twin: ChannelPool, waiting: list[str], target: Mapping[str, tuple[int, ...]], steps: list[Step]
) -> None:
    """Darken as few as it takes, let the others pass, light the dark ones at their targets."""
    dark: dict[str, tuple[int, ...]] = {}
    left = list(waiting)
    while left:
        name = left.pop(0)
        path = twin.paths[name]
        old = tuple(c for c in path.channels if c not in target[name])
        dark[name] = tuple(c for c in sorted(target[name]) if c not in path.channels)
        steps.append(Step(name, old, (), "pause"))
        apply(twin, steps[-1])
        moved = True
        while moved:
            ready = [n for n in left if _place(twin, n, target[n], 1, steps)]
            left = [n for n in left if n not in ready]
            moved = bool(ready)
            for back in [n for n in dark if _relight(twin, n, dark[n], steps)]:
                del dark[back]
                moved = True
    if dark:
        raise InputError(f"target channels of {min(dark)} are held by light that does not move")


def _relight(twin: ChannelPool, name: str, new: tuple[int, ...], steps: list[Step]) -> bool:
    if sum(1 << c for c in new) & ~twin.common(twin.paths[name].links):
        return False
    steps.append(Step(name, (), new, "pause"))
    apply(twin, steps[-1])
    return True
