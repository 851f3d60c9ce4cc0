"""Channels of one machine as a file: who holds which light now. Schema: docs/light.md."""

from __future__ import annotations

import msgspec


class Lit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One lightpath that is lit."""

    name: str
    owner: str
    """Job."""
    cls: str
    """Traffic class."""
    links: tuple[int, ...]
    """Link numbers it passes."""
    channels: tuple[int, ...]
    """Ascending; the same on every link."""


class ChannelFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Links, channels and lightpaths of one cross-connected level.

    Links are fibres: board b sends on links b x fibres .. and receives on
    (boards + b) x fibres ..
    """

    version: int = 1
    kind: str = "channels"
    title: str = ""
    boards: int
    fibres: int
    channels: int
    """Wavelengths on one fibre."""
    pools: dict[str, tuple[int, int]] = {}
    """Traffic class -> (first channel, count); empty: any class anywhere."""
    lit: tuple[Lit, ...] = ()

    @property
    def links(self) -> int:
        """Fibre ends, both directions."""
        return 2 * self.boards * self.fibres

    def routes(self, src: int, dst: int) -> list[tuple[int, int]]:
        """Return the one-hop routes from board to board, one for each plane."""
        return [
            (src * self.fibres + f, (self.boards + dst) * self.fibres + f)
            for f in range(self.fibres)
        ]

    def planes_of(self, links: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the routes of the pair of boards that `links` joins."""
        src, dst = links[0] // self.fibres, links[1] // self.fibres - self.boards
        return list(self.routes(src, dst))
