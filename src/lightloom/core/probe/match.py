"""Which catalogue chip a card is, and how the cards of a host are joined."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from lightloom.core.catalog import load_chip, names
from lightloom.core.chip import Chip

from .facts import Card, Facts

GIB = 2.0**30
PCIE_LANE = {3: 0.79e9, 4: 1.56e9, 5: 3.15e9, 6: 6.0e9}
"""Usable bytes/s of one lane, one direction, by generation."""
PER_LINK = {"volta": 25e9, "ampere": 25e9, "hopper": 25e9, "blackwell": 50e9}

_RULES: tuple[tuple[str, str], ...] = (
    ("GB300", "gb300"), ("GB200", "gb200"), ("B300", "b300"), ("B200", "b200"), ("H200", "h200"),
    ("H800", "h800"), (r"H20\b", "h20"), ("H100.*NVL", "h100-nvl-94g"), ("H100.*PCI", "h100-pcie"),
    ("H100", "h100"), ("A800", "a800-80g"), ("A100.*PCI", "a100-pcie-80g"), ("A100", "a100-80g"),
    ("L40S", "l40s"), ("V100", "v100-32g"), ("MI300X", "mi300x"), ("MI355X", "mi355x"),
    ("910B1", "ascend-910b1"), ("910B2", "ascend-910b2"), ("910B3", "ascend-910b3"),
    ("910B4", "ascend-910b4"), ("910C", "ascend-910c"), ("910_93", "ascend-910c"),
    ("910B", "ascend-910b"), ("950PR", "ascend-950pr"), ("950", "ascend-950dt"),
    ("910A", "ascend-910a"),
)  # fmt: skip
"""Pattern in a card's name -> catalogue chip; first match wins."""


class Match(NamedTuple):
    """A catalogue chip for a card, and what had to be assumed."""

    chip: Chip
    exact: bool
    """False where another chip stands in for one that the catalogue does not know."""


def match_chip(facts: Facts) -> Match:
    """Return the catalogue chip of the host's cards: by name and memory, else the nearest one."""
    card = facts.cards[0]
    name = card.name.upper()
    for pattern, chip in _RULES:
        if re.search(pattern, name):
            return Match(load_chip(_by_memory(chip, card)), True)
    if "910" in name or "ASCEND" in name:
        small = 0 < card.memory_bytes < 40 * GIB
        chip = "ascend-910c" if facts.chips_per_package > 1 else "ascend-910b"
        return Match(load_chip("ascend-910a" if small else chip), True)
    return Match(_nearest(card), False)


def _by_memory(chip: str, card: Card) -> str:
    """Return the variant of `chip` that has the card's memory."""
    gib = card.memory_bytes / GIB
    if chip == "h100" and gib > 92:
        return "h100-96g" if gib > 94.5 else "h100-sxm-94g"
    if chip == "a100-80g" and (0 < gib < 50 or "40GB" in card.name):
        return "a100-40g"
    return chip


def _nearest(card: Card) -> Chip:
    """Return the chip of the same maker whose memory is nearest."""
    maker = "AMD" if "AMD" in card.name.upper() or "MI" in card.name[:6] else "NVIDIA"
    chips = [load_chip(n) for n in names("chips")]
    ours = [c for c in chips if c.vendor == maker]
    return min(ours, key=lambda c: (abs(c.hbm_bytes - card.memory_bytes), c.name))


def pcie_rate(facts: Facts) -> float:
    """Return bytes/s of a card's PCIe slot, one direction; 0 unknown."""
    for card in facts.cards:
        if card.pcie_generation in PCIE_LANE:
            return PCIE_LANE[card.pcie_generation] * (card.pcie_width or 16)
    return 0.0


def levels_of(facts: Facts, chip: Chip) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the levels inside the host, and what had to be assumed for them."""
    count = len(facts.cards)
    if chip.ranks > 1 and count % 2 == 0 and count > 1:
        return _packages(chip, count), []
    groups = _groups(facts)
    if count == 1:
        return [_switch("node", 1, chip.scaleup_bandwidth or 25e9, 1, "pcie", 1e-6)], []
    if not groups:
        return _without_matrix(facts, chip, count)
    sizes = {len(g) for g in groups}
    size = len(groups[0])
    if len(sizes) > 1:
        return [_pcie(facts, count)], [
            "fabric: groups of joined cards differ in size, all cards taken as joined by PCIe"
        ]
    if size == 1:
        return [_pcie(facts, count)], []
    inner, said = _joined(facts, chip, groups[0], "node" if size == count else "group")
    return ([inner] if size == count else [inner, _pcie(facts, count // size)]), said


def _switch(
    name: str, size: int, link: float, links: int, tier: str, wait: float
) -> dict[str, Any]:
    return {"name": name, "kind": "switch", "shape": [size], "link": link, "links": links,
            "latency": wait, "tier": tier, "medium": "board"}  # fmt: skip


def _pcie(facts: Facts, size: int) -> dict[str, Any]:
    return _switch("node", size, pcie_rate(facts) or 25e9, 1, "pcie", 1.5e-6)


def _packages(chip: Chip, count: int) -> list[dict[str, Any]]:
    """Return two dies a package, packages behind the node's switches (Atlas A3)."""
    pair = {"name": "package", "kind": "full-mesh", "shape": [2], "link": 224e9, "latency": 0.2e-6,
            "tier": "hccs", "medium": "board"}  # fmt: skip
    node = _switch("node", count // 2, chip.scaleup_bandwidth / 7, 14, "ub", 0.3e-6)
    return [pair, {**node, "planes": 7}]


def _groups(facts: Facts) -> list[list[int]]:
    """Return sets of cards that fast links join, from the matrix; empty without a matrix."""
    if len(facts.matrix) != len(facts.cards):
        return []
    left, groups = set(range(len(facts.matrix))), []
    while left:
        todo, group = [min(left)], set()
        while todo:
            at = todo.pop()
            if at in group:
                continue
            group.add(at)
            todo += [j for j, word in enumerate(facts.matrix[at]) if _fast(word)]
        left -= group
        groups.append(sorted(group))
    return groups


def _fast(word: str) -> bool:
    return word.startswith(("NV", "HCCS", "SIO", "XGMI"))


def _joined(
    facts: Facts, chip: Chip, group: list[int], name: str
) -> tuple[dict[str, Any], list[str]]:
    """Return one level for cards that fast links join."""
    size, said = len(group), []
    words = [facts.matrix[i][j] for i in group for j in group if i != j]
    missing = sum(not _fast(w) for w in words)
    if missing:
        said.append(
            f"fabric.{name}: {missing} of {len(words)} pairs have no direct link (partial mesh), "
            "taken as a switch with the chip's whole bandwidth"
        )
    ascend = any(w.startswith(("HCCS", "XGMI")) for w in words)
    if ascend:
        tier = "hccs" if words[0].startswith("HCCS") else "xgmi"
        link = chip.scaleup_bandwidth / max(1, size - 1)
        return {"name": name, "kind": "full-mesh", "shape": [size], "link": link, "latency": 1e-6,
                "tier": tier, "medium": "board"}, said  # fmt: skip
    counts = [int(m[1]) for w in words if (m := re.fullmatch(r"NV(\d{1,3})", w))]
    link = facts.link_rate or PER_LINK.get(chip.arch, 25e9)
    each = max(counts, default=1)
    total = round(chip.scaleup_bandwidth / link)
    if not missing and each * (size - 1) <= total and min(counts, default=0) == each:
        return {"name": name, "kind": "full-mesh", "shape": [size], "link": link, "links": each,
                "latency": 0.5e-6, "tier": "nvlink", "medium": "board"}, said  # fmt: skip
    level = _switch(name, size, link, total if missing else each, "nvlink", 0.5e-6)
    return {**level, "reduces": chip.arch in ("hopper", "blackwell") and not missing}, said


def _without_matrix(facts: Facts, chip: Chip, count: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the usual way in which such cards are joined, and say that it is assumed."""
    tool = "npu-smi info -t topo" if chip.vendor == "Huawei" else "nvidia-smi topo -m"
    if chip.scaleup_bandwidth < 100e9:
        return [_pcie(facts, count)], [f"fabric: how cards are joined ({tool}); PCIe assumed"]
    if chip.vendor in ("Huawei", "AMD"):
        link = chip.scaleup_bandwidth / max(1, min(count, 8) - 1)
        mesh = {"name": "node", "kind": "full-mesh", "shape": [count], "link": link,
                "latency": 1e-6, "tier": "hccs" if chip.vendor == "Huawei" else "xgmi",
                "medium": "board"}  # fmt: skip
        return [mesh], [f"fabric: how cards are joined ({tool}); a full mesh assumed"]
    link = facts.link_rate or PER_LINK.get(chip.arch, 25e9)
    links = max(1, round(chip.scaleup_bandwidth / link))
    level = _switch("node", count, link, links, "nvlink", 0.5e-6)
    level["reduces"] = chip.arch in ("hopper", "blackwell")
    return [level], [f"fabric: how cards are joined ({tool}); one NVLink switch assumed"]
