"""Cluster: chip, fabric, hosts, storage, power, failures of one machine."""

from __future__ import annotations

import msgspec

from .chip import Chip
from .fabric import Fabric
from .source import Source


class Host(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server: what sits beside the cards."""

    cards: int
    """Ranks per host."""
    cpu: str = ""
    sockets: int = 2
    cores: int = 0
    numa: int = 2
    dram_bytes: float = 0.0
    dram_bandwidth: float = 0.0
    pcie_bandwidth: float = 0.0
    """Bytes/s per card, one direction, host to card."""
    nics: int = 0
    nic_bandwidth: float = 0.0
    power_w: float = 0.0
    """Watts of the host without its cards."""


class Storage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Storage bandwidth per level; 0 is unknown."""

    local_write: float = 0.0
    """Bytes/s per host to its own disk."""
    local_read: float = 0.0
    shared_write: float = 0.0
    """Bytes/s of the whole cluster to shared storage."""
    shared_read: float = 0.0


class Failures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """First-order failure law: job MTBF = card_hours / cards."""

    card_hours: float
    """Accelerator-hours between interruptions of a job."""
    low: float
    high: float
    restart_s: float = 600.0
    """Seconds from failure to training again, without the lost steps."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine. Figures per rank where a card carries several."""

    version: int = 1
    name: str
    title: str
    chip: Chip
    fabric: Fabric
    host: Host
    storage: Storage = Storage()
    failures: Failures
    cabinet_cards: int = 0
    """Cards of one cabinet, for power and cooling; 0 unknown."""
    pue: float = 1.3
    site_power_w: float = 0.0
    """Power that a source states for the whole machine; 0 not stated."""
    notes: tuple[str, ...] = ()
    """Ambiguities and their sensitivity, printed with every answer."""
    sources: dict[str, Source] = {}
    """Origin per dotted field (``fabric.node.link``, ``host.dram_bytes``); ``*`` for the rest."""

    @property
    def cards(self) -> int:
        """Ranks of the whole machine."""
        return self.fabric.cards

    def source_of(self, field: str) -> Source | None:
        """Return where a dotted `field` comes from: its own entry, its nearest parent's, or ``*``.

        A level is addressed by its name: ``fabric.node.link`` falls to ``fabric.node``.
        """
        while field:
            if field in self.sources:
                return self.sources[field]
            field = field.rpartition(".")[0]
        return self.sources.get("*")
