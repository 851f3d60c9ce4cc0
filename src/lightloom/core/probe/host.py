"""lscpu, numactl, free, /proc/meminfo and lspci."""

from __future__ import annotations

import json
import re
from typing import Any

from .facts import Card, Facts, Nic

_BUS = r"^((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) "
_ASCEND = {"d801": "Ascend 910A", "d802": "Ascend 910B", "d803": "Ascend 910C"}


def _number(text: str, pattern: str) -> int:
    found = re.search(pattern, text, re.M)
    return int(found[1]) if found else 0


def lscpu(text: str) -> Facts:
    """Read ``lscpu``, plain or ``-J``."""
    plain = text
    if '"lscpu"' in text:
        pairs = re.findall(r'"field":\s*"([^"]+)",\s*"data":\s*"([^"]*)"', text)
        plain = "\n".join(f"{field} {data}" for field, data in pairs)
    sockets = _number(plain, r"^\s*Socket\(s\):\s*(\d{1,4})\s*$")
    per = _number(plain, r"^\s*Core\(s\) per (?:socket|cluster):\s*(\d{1,5})\s*$")
    model = re.search(r"^\s*(?:BIOS )?Model name:\s*(\S.*?)\s*$", plain, re.M)
    if not sockets and not per and not model:
        return Facts()
    return Facts(seen=("lscpu",), sockets=sockets, cores=sockets * per,
                 cpu=model[1][:80] if model else "",
                 numa=_number(plain, r"^\s*NUMA node\(s\):\s*(\d{1,4})\s*$"))  # fmt: skip


def numactl(text: str) -> Facts:
    """Read ``numactl -H``: nodes and memory."""
    nodes = _number(text, r"^available: (\d{1,4}) nodes")
    sizes = re.findall(r"^node \d+ size: (\d{1,12}) MB", text, re.M)
    if not nodes:
        return Facts()
    return Facts(seen=("numactl -H",), numa=nodes, dram_bytes=sum(map(int, sizes)) * 2.0**20)


def memory(text: str) -> Facts:
    """Read ``/proc/meminfo`` or ``free -b``."""
    kib = _number(text, r"^MemTotal:\s+(\d{1,15}) kB")
    if kib:
        return Facts(seen=("/proc/meminfo",), dram_bytes=kib * 1024.0)
    if re.search(r"^\s+total\s+used\s+free", text, re.M):
        total = _number(text, r"^Mem:\s+(\d{1,18})\s")
        scale = 1.0 if total > 2**36 else 1024.0
        return Facts(seen=("free",) if total else (), dram_bytes=total * scale)
    return Facts()


def lspci(text: str) -> Facts:
    """Read ``lspci`` (with or without -v): cards and network ports by device name."""
    cards: list[Card] = []
    nics: list[Nic] = []
    seen = False
    lines = text.splitlines()
    for i, line in enumerate(lines):
        start = re.match(_BUS + r"(?:([^:]+?)(?: \[[0-9a-f]{4}\])?: )(.+)$", line)
        if not start:
            continue
        seen = True
        bus, kind, device = start[1], start[2], start[3]
        name = _card_name(kind, device)
        if name:
            generation, width = _link(lines[i + 1 : i + 60])
            cards.append(Card(index=len(cards), name=name, bus=bus, pcie_generation=generation,
                              pcie_width=width))  # fmt: skip
        elif kind in ("Infiniband controller", "Ethernet controller") and "Virtual" not in device:
            nic = _nic(bus, kind, device)
            nics += [nic] if nic else []
    return Facts(seen=("lspci",) if seen else (), cards=tuple(cards), nics=tuple(nics))


def _card_name(kind: str, device: str) -> str:
    if kind not in ("3D controller", "Processing accelerators", "VGA compatible controller",
                    "Display controller"):  # fmt: skip
        return ""
    inside = re.search(r"\[((?:Tesla |Instinct )?[A-Z]{1,5}\d+\w*[^\]]*)\]", device)
    if "NVIDIA" in device and inside:
        return f"NVIDIA {inside[1]}"
    if "Huawei" in device:
        code = re.search(r"[Dd]evice (?:\[19e5:)?(d80\d)", device) or re.search(
            r"19e5:(d80\d)", device
        )
        return _ASCEND.get(code[1], "Ascend") if code else ""
    if "Advanced Micro Devices" in device and inside and "Instinct" in device:
        return f"AMD {inside[1]}"
    return ""


def _link(lines: list[str]) -> tuple[int, int]:
    """Return PCIe generation and width from the LnkCap line that follows a device."""
    for line in lines:
        if line and not line[0].isspace():
            break
        found = re.search(r"LnkCap:.*Speed ([\d.]+)GT/s.*Width x(\d+)", line)
        if found:
            speeds = {"8": 3, "16": 4, "32": 5, "64": 6}
            return speeds.get(found[1].removesuffix(".0"), 0), int(found[2][:3])
    return 0, 0


_MADE: dict[str, float] = {
    "ConnectX-8": 800e9, "ConnectX-7": 400e9, "ConnectX-6 Dx": 100e9, "ConnectX-6": 200e9,
    "ConnectX-5": 100e9, "BlueField-3": 400e9, "BlueField-2": 100e9, "Thor": 400e9,
    "BCM57608": 400e9, "Elastic Fabric": 100e9, "E810": 100e9, "BCM57508": 100e9,
}  # fmt: skip
"""Network chip -> bits/s of its fastest port."""


def _nic(bus: str, kind: str, device: str) -> Nic | None:
    """Return a fast network port; its rate is known only by the card's generation."""
    for name, bits in _MADE.items():
        if name in device:
            return Nic(name=f"pci {bus}", rate=bits / 8,
                       kind="infiniband" if kind.startswith("Inf") else "ethernet")  # fmt: skip
    return None


def json_parts(text: str) -> list[Any]:
    """Return JSON values that start at the beginning of a line of `text`."""
    decoder, at = json.JSONDecoder(), 0
    found: list[Any] = []
    for match in re.finditer(r"^\s*[\[{]", text, re.M):
        start = match.end() - 1
        if start < at or len(found) > 1000:
            continue
        try:
            value, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        found.append(value)
    return found


READERS = (lscpu, numactl, memory, lspci)
