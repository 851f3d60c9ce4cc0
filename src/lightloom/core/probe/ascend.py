"""npu-smi and hccn_tool."""

from __future__ import annotations

import re

from .facts import Card, Facts, Nic

MIB = 2.0**20
_FIRST = re.compile(
    r"^\|\s*(\d+)\s+((?:Ascend\s*)?\d{3}\w*|Ascend\w*)\s*\|\s*(\w+)\s*\|\s*([\d.]+|-|NA)"
)
_SECOND = re.compile(
    r"^\|\s*(\d+)(?:\s+(\d+))?\s*\|\s*([0-9A-Fa-f]{4}:[0-9A-Fa-f:.]+)\s*\|.*?(\d+)\s*/\s*(\d+)\s*\|"
)


def table(text: str) -> Facts:
    """Read ``npu-smi info``: two lines a device; a package with two dies has two devices."""
    if "npu-smi" not in text or "HBM-Usage" not in text:
        return Facts()
    cards: list[Card] = []
    bad: list[str] = []
    package, name, packages = "", "", set()
    for line in text.splitlines():
        first, second = _FIRST.match(line), _SECOND.match(line)
        if first:
            package, name = first[1], first[2].strip()
            packages.add(package)
            if first[3] not in ("OK", "UNKNOWN"):
                bad.append(f"NPU {package}: health is {first[3]}")
        elif second and name:
            total = float(second[5]) * MIB
            cards.append(Card(index=len(cards), name=name, bus=second[3], memory_bytes=total))
    dies = len(cards) // len(packages) if packages else 1
    version = re.search(r"npu-smi\s+\S+\s+Version:\s*(\S+)", text)
    return Facts(
        seen=("npu-smi info",) if cards else (), cards=tuple(cards), problems=tuple(bad),
        chips_per_package=max(1, dies), driver=version[1] if version else "",
    )  # fmt: skip


def board(text: str) -> Facts:
    """Read ``npu-smi info -t board``: names that the table leaves out."""
    ids = re.findall(r"^\s*NPU ID\s*:\s*(\d{1,4})\s*$", text, re.M)
    names = re.findall(r"^\s*(?:Chip Name|Model)\s*:\s*(\S.*?)\s*$", text, re.M)
    if not ids or len(ids) != len(names):
        return Facts()
    cards = tuple(Card(index=int(i), name=n) for i, n in zip(ids, names, strict=True) if n != "NA")
    return Facts(seen=("npu-smi info -t board",), cards=cards)


def hccn(text: str) -> Facts:
    """Read ``hccn_tool``: addresses, link state, speed and health of the chips' own ports."""
    addresses = re.findall(r"^\s*ipaddr\s*:\s*([0-9A-Fa-f.:]+)", text, re.M)
    addresses += re.findall(r"^\s*address_\d+\s*=\s*([0-9A-Fa-f.:]+)", text, re.M)
    states = re.findall(r"^\s*link status\s*:\s*(\w+)", text, re.M | re.I)
    own = "" if "Settings for" in text else text  # ethtool prints speeds in the same words
    speeds = re.findall(r"^\s*[Ss]peed\s*:\s*(\d{1,9})\s*Mb/s", own, re.M)
    health = re.findall(r"^\s*net health status\s*:\s*(.+?)\s*$", text, re.M)
    ours = bool(addresses or states or health)
    if not ours:
        return Facts()
    ports = max(len(addresses), len(states))
    nics = tuple(
        Nic(
            name=f"npu{i}", kind="roce",
            rate=float(speeds[i]) * 1e6 / 8 if i < len(speeds) else 0.0,
            up=states[i].upper() == "UP" if i < len(states) else None,
        )
        for i in range(ports)
    )  # fmt: skip
    bad = [f"port {n.name}: link is down" for n in nics if n.up is False]
    bad += [f"net health of port npu{i}: {h}" for i, h in enumerate(health) if h != "Success"]
    return Facts(seen=("hccn_tool",), nics=nics, problems=tuple(bad))


READERS = (table, board, hccn)
