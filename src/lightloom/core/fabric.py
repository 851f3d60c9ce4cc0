"""Fabric: what connects the cards, as a list of nested levels (innermost first).

A *level* joins `units` children (cards, or units of the level below) into one unit. Builders in
``fabric/`` turn levels into links and routes; ``cost/`` reads them in closed form.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

LevelKind = Literal[
    "switch", "full-mesh", "mesh", "torus", "ring", "fat-tree", "rail", "dragonfly", "spine"
]


class Optics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Light of one level: fibres from each child, channels on a fibre, the cross-connect."""

    fibres: int
    """Single-mode fibres from one child into this level, each direction."""
    channels: int
    """Wavelengths on a fibre."""
    channel_rate: float
    """Bytes/s of one channel, one direction."""
    spacing_hz: float = 75e9
    reconfigure_s: float = 1e-3
    oxc_ports: int = 0


class Level(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One level of a fabric. Link figures are one direction."""

    name: str
    kind: LevelKind
    shape: tuple[int, ...]
    """Children of one unit; several numbers for a mesh, a torus or an n-D full mesh."""
    link: float
    """Bytes/s of one link, one direction."""
    links: int = 1
    """Links per child: to the switches of this level (switch, fat-tree, rail, dragonfly, spine),
    or to each neighbour (mesh, torus, ring), or to each peer (full-mesh)."""
    latency: float
    """Seconds for one hop of this level, port to port, without serialisation."""
    planes: int = 1
    """Independent switch planes over which a child's links are spread."""
    oversubscription: float = 1.0
    """Child bandwidth over bandwidth available above it inside this level (>= 1)."""
    medium: Literal["board", "copper", "optical"] = "copper"
    optics: Optics | None = None
    spare: int = 0
    """Spare children per unit (64 + 1)."""
    reduces: bool = False
    """Switches of this level add in the network (NVLS, SHARP)."""
    twist: int = 0
    """Twisted torus: shift of the wrap-around link."""
    shared: bool | None = None
    """Whether traffic of this level leaves through the ports of the level below (a leaf's uplinks)
    and not through ports of its own (a NIC beside NVLink). Unset: yes where both are switched and
    of one technology."""
    tier: str = ""
    """Technology: nvlink, xgmi, hccs, ub, roce, infiniband, pcie, ici, ethernet, optical."""

    @property
    def switched(self) -> bool:
        """Whether children meet in switches, not over links between neighbours."""
        return self.kind in ("switch", "fat-tree", "rail", "spine")

    def through(self, below: Level | None) -> bool:
        """Whether this level's traffic uses the ports of `below`."""
        if below is None or not (self.switched and below.switched):
            return False
        return (
            self.shared
            if self.shared is not None
            else (bool(self.tier) and self.tier == below.tier)
        )

    @property
    def units(self) -> int:
        """Children joined by one unit of this level."""
        return math.prod(self.shape)

    @property
    def ports(self) -> int:
        """Links that leave one child into this level."""
        per_dim = {"full-mesh": lambda n: n - 1, "mesh": lambda n: min(2, n - 1),
                   "torus": lambda n: min(2, n - 1), "ring": lambda n: min(2, n - 1)}  # fmt: skip
        count = per_dim.get(self.kind)
        return self.links if count is None else self.links * sum(count(n) for n in self.shape)

    @property
    def child_bandwidth(self) -> float:
        """Bytes/s that one child can send into this level, one direction."""
        return self.link * self.ports


class Fabric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nested levels, innermost first."""

    levels: tuple[Level, ...]
    domain: str = ""
    """Name of the level that closes the supernode domain (cards inside talk at full speed)."""

    @property
    def cards(self) -> int:
        """Cards of the whole fabric."""
        return math.prod(level.units for level in self.levels)

    def cards_below(self, index: int) -> int:
        """Cards in one unit of level `index` (0 is the innermost level)."""
        return math.prod(level.units for level in self.levels[: index + 1])

    @property
    def domain_cards(self) -> int:
        """Cards of one domain."""
        for index, level in enumerate(self.levels):
            if level.name == self.domain:
                return self.cards_below(index)
        return self.cards_below(0) if self.levels else 1
