"""nvidia-smi in its forms, and rocm-smi."""

from __future__ import annotations

import re

from .facts import Card, Facts, Nic

MIB = 2.0**20
_TABLE_NAME = re.compile(
    r"^\|\s+(\d{1,4})\s+((?:NVIDIA|Tesla|Quadro|GeForce|GRID)\S*.*?|[A-Z]\S*\d\S*.*?)"
    r"\s+(?:On|Off|N/A|Persi\S*)\s*\|\s*([0-9A-Fa-f]{4,8}:\S+)"
)
_TABLE_USE = re.compile(
    r"(?:(\d+)W\s*/\s*(\d+)W|N/A)\s*\|\s*(\d+)MiB\s*/\s*(\d+)MiB",
)
_DRIVER = re.compile(r"Driver Version\s*:\s*([\d.]+)")
_LIST = re.compile(r"^GPU (\d+): (.+?) \(UUID: GPU-", re.M)
_QUERY_GPU = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)\s*$", re.M)
_MIG_ON = re.compile(r"MIG Mode\s*\n\s*Current\s*:\s*Enabled|^\s+MIG \S+\s+Device", re.M)


def table(text: str) -> Facts:
    """Read plain ``nvidia-smi``: names, memory, power limits."""
    if "NVIDIA-SMI" not in text or "MiB /" not in text:
        return Facts()
    cards: list[Card] = []
    pending: tuple[int, str, str] | None = None
    for line in text.splitlines():
        name = _TABLE_NAME.match(line)
        if name:
            pending = (int(name[1]), name[2].strip(), name[3])
            continue
        use = _TABLE_USE.search(line)
        if use and pending:
            index, label, bus = pending
            cards.append(Card(index=index, name=label, bus=bus, power_limit_w=float(use[2] or 0),
                              memory_bytes=float(use[4]) * MIB))  # fmt: skip
            pending = None
    driver = _DRIVER.search(text)
    return Facts(seen=("nvidia-smi",) if cards else (), cards=tuple(cards),
                 driver=driver[1] if driver else "")  # fmt: skip


def query(text: str) -> Facts:
    """Read ``nvidia-smi -q``: one indented block per card."""
    if "NVSMI LOG" not in text:
        return Facts()
    starts = list(_QUERY_GPU.finditer(text))
    cards: list[Card] = []
    for i, start in enumerate(starts):
        end = starts[i + 1].start() if i + 1 < len(starts) else len(text)
        cards.append(_block(i, start[1], text[start.end() : end]))
    driver = _DRIVER.search(text)
    problems = ("MIG is on: a card is cut into slices",) if _MIG_ON.search(text) else ()
    return Facts(seen=("nvidia-smi -q",), cards=tuple(cards), problems=problems,
                 driver=driver[1] if driver else "")  # fmt: skip


def _block(index: int, bus: str, block: str) -> Card:
    def under(section: str, field: str) -> float:
        at = re.search(rf"^ *{section}\s*\n((?: +.*\n?)*)", block, re.M)
        value = re.search(rf"^ *{field}\s*:\s*([\d.]+)", at[1] if at else "", re.M)
        return float(value[1]) if value else 0.0

    name = re.search(r"Product Name\s*:\s*(.+)", block)
    limit = re.search(r"(?:Current|Enforced)? *Power Limit\s*:\s*([\d.]+) W", block)
    return Card(
        index=index, bus=bus, name=name[1].strip() if name else "",
        memory_bytes=under("FB Memory Usage", "Total") * MIB,
        power_limit_w=float(limit[1]) if limit else 0.0, clock_hz=under("Max Clocks", "SM") * 1e6,
        pcie_generation=int(under("PCIe Generation", "Max")),
        pcie_width=int(under("Link Width", "Max")),
    )  # fmt: skip


def listing(text: str) -> Facts:
    """Read ``nvidia-smi -L``."""
    cards = [Card(index=int(m[1]), name=m[2]) for m in _LIST.finditer(text)]
    problems = ("MIG is on: a card is cut into slices",) if cards and _MIG_ON.search(text) else ()
    return Facts(seen=("nvidia-smi -L",) if cards else (), cards=tuple(cards), problems=problems)


def table_csv(text: str) -> Facts:
    """Read ``nvidia-smi --query-gpu=... --format=csv`` with its header."""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        heads = [h.strip() for h in line.split(",")]
        if "name" not in heads or not any(h.startswith("memory.total") for h in heads):
            continue
        cards: list[Card] = []
        for row in lines[i + 1 :]:
            cells = [c.strip() for c in row.split(",")]
            if len(cells) != len(heads):
                break
            cards.append(_csv_card(len(cards), dict(zip(heads, cells, strict=True))))
        return Facts(seen=("nvidia-smi --query-gpu",) if cards else (), cards=tuple(cards))
    return Facts()


def _csv_card(position: int, row: dict[str, str]) -> Card:
    def number(start: str) -> float:
        text = next((v for k, v in row.items() if k.startswith(start)), "")
        found = re.match(r"[\d.]+", text)
        return float(found[0]) if found and found[0].count(".") < 2 and found[0] != "." else 0.0

    index = row.get("index", "")
    return Card(
        index=int(index) if index.isdigit() and len(index) < 5 else position,
        name=row.get("name", ""),
        memory_bytes=number("memory.total") * MIB,
        power_limit_w=number("power.limit") or number("power.max_limit"),
        clock_hz=number("clocks.max.sm") * 1e6,
    )


def topology(text: str) -> Facts:
    """Read ``nvidia-smi topo -m`` (and AMD's and Huawei's matrices of the same shape)."""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        heads = line.split()
        cards = [h for h in heads if re.fullmatch(r"(?:GPU|NPU|PHY|Phy-ID)\d+", h)]
        if len(cards) < 2 or heads[0] != cards[0]:
            continue
        rows = {}
        for row in lines[i + 1 : i + 200]:
            cells = row.split()
            if cells and cells[0] in cards and len(cells) > len(cards):
                rows[cells[0]] = tuple(cells[1 : 1 + len(cards)])
        if len(rows) == len(cards):
            names = re.findall(r"^\s*NIC\d+: (\S+)", text, re.M)
            nics = tuple(Nic(name=n, kind="infiniband") for n in names)
            tool = "npu-smi info -t topo" if cards[0].startswith(("NPU", "Phy")) else (
                "nvidia-smi topo -m")  # fmt: skip
            found = tuple(Card(index=k) for k in range(len(cards)))
            return Facts(seen=(tool,), matrix=tuple(rows[c] for c in cards), nics=nics,
                         cards=found)  # fmt: skip
    return Facts()


def nvlink(text: str) -> Facts:
    """Read ``nvidia-smi nvlink -s``: rate of one link, links that are down."""
    rates = re.findall(r"^\s+Link \d+: ([\d.]+) GB/s", text, re.M)
    down = len(re.findall(r"^\s+Link \d+: <?inactive>?", text, re.M))
    if not rates:
        return Facts()
    problems = (f"{down} NVLinks are inactive",) if down else ()
    rate = max(float(r) for r in rates if r.count(".") < 2 and r != ".") * 1e9
    likely = rate if 1e9 <= rate <= 1e12 else 0.0
    return Facts(seen=("nvidia-smi nvlink -s",), link_rate=likely, problems=problems)


def rocm(text: str) -> Facts:
    """Read ``rocm-smi --showproductname --showmeminfo vram``."""
    names = dict(re.findall(r"^GPU\[(\d{1,4})\]\s*:\s*Card [Ss]eries:\s*(.+?)\s*$", text, re.M))
    memory = dict(
        re.findall(r"^GPU\[(\d{1,4})\]\s*:\s*VRAM Total Memory \(B\):\s*(\d{1,15})", text, re.M)
    )
    cards = tuple(
        Card(index=int(i), name=names.get(i, ""), memory_bytes=float(memory.get(i, 0)))
        for i in sorted({*names, *memory}, key=int)
    )
    return Facts(seen=("rocm-smi",) if cards else (), cards=cards)


READERS = (query, table, table_csv, listing, topology, nvlink, rocm)
