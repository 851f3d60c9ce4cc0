"""Live channels of one fabric: lightpaths admitted, released, refused with a reason.

The pool is the one place of this part with state: real light is in it. Channels are bits of one
integer per link (set: free). A channel of a link carries one lightpath, hence one traffic class;
with `pools` a class moreover keeps to its own channels everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lightloom.core.errors import FabricError, InputError

from .wavelength_replay import shifts


@dataclass(frozen=True, slots=True)
class Lightpath:
    """Light from one end to another."""

    name: str
    owner: str
    """Job that uses it."""
    cls: str
    """Traffic class."""
    links: tuple[int, ...]
    channels: tuple[int, ...]
    """Channel numbers, ascending; the same on every link."""

    @property
    def mask(self) -> int:
        """Channels as bits."""
        return sum(1 << c for c in self.channels)

    def at(self, channels: Iterable[int], links: tuple[int, ...] | None = None) -> Lightpath:
        """Return the lightpath on other channels (and other links)."""
        return replace(self, channels=tuple(channels), links=self.links if links is None else links)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there was no light."""

    code: str
    """unknown-class, capacity, continuity, contiguity."""
    what: str


class ChannelPool:
    """Free channels of every link, and the lightpaths that hold the others."""

    def __init__(self, links: int, channels: int, pools: Mapping[str, int] | None = None) -> None:
        if links < 1 or channels < 1:
            raise InputError(f"a pool of {links} links x {channels} channels holds no light")
        self.channels = channels
        self.full = (1 << channels) - 1
        self.free = [self.full] * links
        self.pools = dict(pools or {})
        self.paths: dict[str, Lightpath] = {}

    def admit(
        self, name: str, owner: str, cls: str, routes: Sequence[tuple[int, ...]], count: int,
        contiguous: bool = False,
    ) -> Lightpath | Refusal:  # fmt: skip
        """Light `count` channels on the first route that has them, lowest first.

        `contiguous` asks for neighbours. On a fixed grid that has no physical value (each channel
        is switched by itself); it has where channels are switched in bands.
        """
        if name in self.paths:
            raise InputError(f"lightpath {name!r} is lit already")
        allowed = self.pools.get(cls, 0 if self.pools else self.full)
        if not allowed:
            return Refusal("unknown-class", f"class {cls!r} owns no channels here")
        for links in routes:
            mask = self.common(links) & allowed
            channels = pick(mask, count, contiguous)
            if channels:
                path = Lightpath(name, owner, cls, links, channels)
                self.light(path)
                return path
        return self._refusal(cls, routes, count, allowed)

    def common(self, links: Iterable[int]) -> int:
        """Return the channels that are free on all `links`."""
        mask = self.full
        for link in links:
            mask &= self.free[link]
        return mask

    def light(self, path: Lightpath) -> None:
        """Take the channels of `path`; a channel that is taken names both owners."""
        mask = path.mask
        for link in path.links:
            clash = mask & ~self.free[link]
            if clash:
                channel = (clash & -clash).bit_length() - 1
                other = self.holder(link, channel)
                raise FabricError(
                    f"link {link} channel {channel}: {path.name} of {path.owner} wants it, "
                    f"{other.name if other else 'nobody known'} of "
                    f"{other.owner if other else 'no job'} holds it"
                )
        for link in path.links:
            self.free[link] ^= mask
        self.paths[path.name] = path

    def holder(self, link: int, channel: int) -> Lightpath | None:
        """Return the lightpath on a channel of a link."""
        return next(
            (p for p in self.paths.values() if link in p.links and channel in p.channels), None
        )

    def release(self, name: str) -> Lightpath:
        """Darken a lightpath and return what it was."""
        if name not in self.paths:
            raise InputError(f"no lightpath {name!r} is lit")
        path = self.paths.pop(name)
        for link in path.links:
            self.free[link] |= path.mask
        return path

    def release_owner(self, owner: str) -> int:
        """Darken everything that a job holds; return how many lightpaths that was."""
        names = [p.name for p in self.paths.values() if p.owner == owner]
        for name in names:
            self.release(name)
        return len(names)

    def _refusal(
        self, cls: str, routes: Sequence[tuple[int, ...]], count: int, allowed: int
    ) -> Refusal:
        if not routes:
            return Refusal("capacity", "there is no route")
        most = max(min((self.free[x] & allowed).bit_count() for x in r) for r in routes)
        same = max((self.common(r) & allowed).bit_count() for r in routes)
        if most < count:
            return Refusal(
                "capacity", f"{count} channels wanted, at best {most} free for {cls} on a route"
            )
        if same < count:
            return Refusal(
                "continuity",
                f"{count} channels wanted, at best {same} of {most} free ones are the same on all "
                "links of a route; defragmentation may help",
            )
        return Refusal(
            "contiguity", f"{count} neighbouring channels wanted; {same} are free but scattered"
        )


def pick(mask: int, count: int, contiguous: bool) -> tuple[int, ...]:
    """Return the lowest `count` set bits of `mask` (neighbours if asked), or nothing."""
    if contiguous:
        starts = mask
        for step in shifts(count):
            starts &= starts >> step
        if not starts:
            return ()
        first = (starts & -starts).bit_length() - 1
        return tuple(range(first, first + count))
    if mask.bit_count() < count:
        return ()
    out = []
    for _ in range(count):
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return tuple(out)


def runs(mask: int) -> list[tuple[int, int]]:
    """Return (first, length) of every run of set bits."""
    out, base = [], 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        length = (~mask & (mask + 1)).bit_length() - 1
        out.append((base + skip, length))
        mask >>= length
        base += skip + length
    return out


def fragmentation(free: Sequence[int]) -> float:
    """Return 1 - largest free block / free channels, averaged over links (external index).

    0: every link's free channels are one block; near 1: scattered. Full links count 0.
    """
    parts = []
    for mask in free:
        total = mask.bit_count()
        parts.append(1.0 - max(n for _, n in runs(mask)) / total if total else 0.0)
    return sum(parts) / len(parts)


def contiguity(pool: ChannelPool) -> float:
    """Return the share of free channels that lie in the largest block of their link."""
    total = sum(mask.bit_count() for mask in pool.free)
    largest = sum(max((n for _, n in runs(mask)), default=0) for mask in pool.free)
    return largest / total if total else 1.0
