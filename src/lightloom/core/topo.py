"""`.topo`: which light joins whom, for one job on one machine. Schema: docs/light.md.

Placement stays in the plan; a `.topo` refers to it. One circuit row is at once an entry of the
cross-connect's port map, the channels of a pair of children, and the owner of those channels.
"""

from __future__ import annotations

import msgspec

from .traffic import TrafficClass


class LightLevel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One level of the fabric as light sees it."""

    name: str
    kind: str
    units: int
    """Units of this level in the machine."""
    shape: tuple[int, ...]
    """Children of one unit."""
    cards: int
    """Cards below one child."""
    star: bool
    """True: children meet in a cross-connect of `fibres` planes; False: guides join neighbours."""
    fibres: int
    """Star: fibres of one child in each direction. Otherwise 1 guide for each neighbour."""
    channels: int
    """Wavelengths on one fibre or guide."""
    spare: int
    """Highest channels kept dark for hitless moves."""
    channel_rate: float
    """Bytes/s of one channel, one direction."""
    spacing_hz: float
    bands: tuple[str, ...]
    """Bands that hold the channels: C, L, S."""
    assumed: bool = False
    """True where the machine states no channel plan for this level."""

    @property
    def children(self) -> int:
        """Children of one unit."""
        out = 1
        for n in self.shape:
            out *= n
        return out


class Circuit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Adjacent channels from one child to another, in every unit listed."""

    level: str
    units: tuple[tuple[int, int], ...]
    """Ranges (first, count)."""
    src: int
    dst: int
    via: tuple[int, ...]
    """Star: (input port, output port) of the cross-connect, port = child x fibres + fibre.
    Otherwise the guides in order; guides are the ordered pairs of neighbours, counted from 0."""
    first: int
    """First channel on that fibre."""
    count: int
    axis: str
    cls: TrafficClass


class LightRoute(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one axis crosses one level: the children that its groups join, in order."""

    level: str
    units: tuple[tuple[int, int], ...]
    axis: str
    pattern: str
    """ring, chain or all-to-all."""
    members: tuple[int, ...]
    groups: int
    """Groups of this axis that share this route in one unit."""
    bytes: float
    """Bytes that one group sends along one edge in one step; relative without a plan."""


class Topo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All light of one job."""

    version: int = 1
    kind: str = "topo"
    plan: str = ""
    """Name of the plan file; empty where axes were given by hand."""
    plan_sha256: str = ""
    cluster: str
    cards: int
    axes: dict[str, int]
    order: tuple[str, ...]
    ring_path: bool
    levels: tuple[LightLevel, ...]
    circuits: tuple[Circuit, ...]
    routes: tuple[LightRoute, ...]
    notes: tuple[str, ...] = ()
    made_by: str = ""

    def level(self, name: str) -> LightLevel:
        """Return the level called `name`."""
        return next(level for level in self.levels if level.name == name)


def expand(ranges: tuple[tuple[int, int], ...]) -> list[int]:
    """Return the numbers of (first, count) ranges."""
    return [first + k for first, count in ranges for k in range(count)]


def fold(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    """Return ascending numbers as (first, count) ranges."""
    out: list[tuple[int, int]] = []
    for n in sorted(numbers):
        if out and out[-1][0] + out[-1][1] == n:
            out[-1] = (out[-1][0], out[-1][1] + 1)
        else:
            out.append((n, 1))
    return tuple(out)
