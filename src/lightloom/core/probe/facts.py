"""Facts about one host, as its tools print them, and the door that reads any mix of them."""

from __future__ import annotations

import re

import msgspec

from lightloom.core.errors import InputError

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LARGEST = 64 * 2**20


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One device of the host; 0 and empty are unknown."""

    index: int
    name: str = ""
    memory_bytes: float = 0.0
    power_limit_w: float = 0.0
    clock_hz: float = 0.0
    bus: str = ""
    pcie_generation: int = 0
    pcie_width: int = 0


class Nic(msgspec.Struct, frozen=True, kw_only=True):
    """One network port."""

    name: str
    rate: float = 0.0
    """Bytes/s, one direction; 0 unknown."""
    up: bool | None = None
    kind: str = ""
    """infiniband, ethernet, roce, or the chip's own port."""


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """Who is at the other end of a cable (LLDP)."""

    port: str
    system: str
    remote_port: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; formats that were recognised are in `seen`."""

    seen: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()
    chips_per_package: int = 1
    matrix: tuple[tuple[str, ...], ...] = ()
    """Connection words between cards (NV18, HCCS, SYS, X), row per card."""
    link_rate: float = 0.0
    """Bytes/s of one NVLink, one direction."""
    nics: tuple[Nic, ...] = ()
    cpu: str = ""
    sockets: int = 0
    cores: int = 0
    numa: int = 0
    dram_bytes: float = 0.0
    neighbours: tuple[Neighbour, ...] = ()
    driver: str = ""
    problems: tuple[str, ...] = ()
    """What is wrong on the host: link down, MIG on, net health bad."""


def clean(text: str) -> str:
    """Return `text` without colours and carriage returns."""
    return _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def read_facts(text: str) -> Facts:
    """Return all that the tools' outputs in `text` say; formats are recognised by content."""
    from . import ascend, host, network, nvidia

    if len(text) > LARGEST:
        raise InputError(f"probe: {len(text):,} characters are more than 64 MiB of tool output")
    text = clean(text)
    found = [reader(text) for module in (nvidia, ascend, host, network)
             for reader in module.READERS]  # fmt: skip
    return merge([part for part in found if part.seen])


def merge(parts: list[Facts]) -> Facts:
    """Return all facts together; cards are joined by index, ports by name, the first word wins."""
    cards: dict[int, Card] = {}
    nics: dict[str, Nic] = {}
    for part in parts:
        for card in part.cards:
            cards[card.index] = _join(cards.get(card.index), card)
        for nic in part.nics:
            nics[nic.name] = _join_nic(nics.get(nic.name), nic)

    def first(field: str) -> object:
        return next((getattr(p, field) for p in parts if getattr(p, field)), None)

    every = {
        field: tuple(dict.fromkeys(v for p in parts for v in getattr(p, field)))
        for field in ("seen", "neighbours", "problems")
    }
    single = {
        field: value
        for field in ("matrix", "link_rate", "cpu", "sockets", "cores", "numa", "dram_bytes",
                      "driver")
        if (value := first(field))
    }  # fmt: skip
    packages = max([p.chips_per_package for p in parts], default=1)
    return Facts(
        cards=tuple(cards[i] for i in sorted(cards)), nics=tuple(nics.values()),
        chips_per_package=packages, **every, **single,  # type: ignore[arg-type]
    )  # fmt: skip


def _join(old: Card | None, new: Card) -> Card:
    if old is None:
        return new
    known = {f: getattr(new, f) for f in Card.__struct_fields__ if getattr(new, f)}
    cut = old.name.endswith("...")
    keep = {f: v for f, v in known.items() if not getattr(old, f) or (f == "name" and cut)}
    return msgspec.structs.replace(old, **keep)


def _join_nic(old: Nic | None, new: Nic) -> Nic:
    if old is None:
        return new
    up = new.up if old.up is None else old.up
    return Nic(name=old.name, rate=old.rate or new.rate, up=up, kind=old.kind or new.kind)
