"""ip, ethtool, ibstat and lldpctl."""

from __future__ import annotations

import re
from typing import Any

from .facts import Facts, Neighbour, Nic
from .host import json_parts

_IGNORED = re.compile(r"^(lo|docker|veth|br-|virbr|cni|flannel|cali|tunl|dummy|kube|vnet)")
_IP = re.compile(r"^\d+: ([^:@\s]+)[@\w]*: <([^>]*)>.*?mtu (\d+)", re.M)


def ip_text(text: str) -> Facts:
    """Read ``ip addr`` or ``ip link``: ports and whether they are up (no speed is printed)."""
    nics = tuple(
        Nic(name=m[1], up="LOWER_UP" in m[2], kind="infiniband" if m[1].startswith("ib") else "")
        for m in _IP.finditer(text)
        if not _IGNORED.match(m[1])
    )
    return Facts(seen=("ip addr",) if nics else (), nics=nics)


def ip_json(text: str) -> Facts:
    """Read ``ip -j addr``."""
    nics: list[Nic] = []
    for part in json_parts(text):
        for row in part if isinstance(part, list) else []:
            name = row.get("ifname") if isinstance(row, dict) else None
            if not isinstance(name, str) or _IGNORED.match(name):
                continue
            flags = row.get("flags")
            up = "LOWER_UP" in flags if isinstance(flags, list) else row.get("operstate") == "UP"
            kind = "infiniband" if row.get("link_type") == "infiniband" else ""
            nics.append(Nic(name=name[:32], up=up, kind=kind))
    return Facts(seen=("ip -j addr",) if nics else (), nics=tuple(nics))


def ethtool(text: str) -> Facts:
    """Read ``ethtool PORT``."""
    nics = []
    for block in re.split(r"^Settings for ", text, flags=re.M)[1:]:
        name = block.partition(":")[0].strip()[:32]
        speed = re.search(r"^\s*Speed:\s*(\d{1,9})Mb/s", block, re.M)
        state = re.search(r"^\s*Link detected:\s*(yes|no)", block, re.M)
        rate = float(speed[1]) * 1e6 / 8 if speed else 0.0
        nics.append(Nic(name=name, rate=rate, up=state[1] == "yes" if state else None,
                        kind="ethernet"))  # fmt: skip
    return Facts(seen=("ethtool",) if nics else (), nics=tuple(nics))


def ibstat(text: str) -> Facts:
    """Read ``ibstat``."""
    nics, bad = [], []
    for block in re.split(r"^CA '", text, flags=re.M)[1:]:
        name = block.partition("'")[0][:32]
        rate = re.search(r"^\s*Rate:\s*(\d{1,5})", block, re.M)
        state = re.search(r"^\s*State:\s*(\w+)", block, re.M)
        layer = re.search(r"^\s*Link layer:\s*(\w+)", block, re.M)
        up = state[1] == "Active" if state else None
        if up is False:
            bad.append(f"port {name}: state is {state[1] if state else 'unknown'}")
        kind = "roce" if layer and layer[1] == "Ethernet" else "infiniband"
        speed = float(rate[1]) * 1e9 / 8 if rate else 0.0
        nics.append(Nic(name=name, rate=speed, up=up, kind=kind))
    return Facts(seen=("ibstat",) if nics else (), nics=tuple(nics), problems=tuple(bad))


def lldp_text(text: str) -> Facts:
    """Read ``lldpctl``: who is at the other end of each cable."""
    found = []
    for block in re.split(r"^Interface:\s+", text, flags=re.M)[1:]:
        port = re.match(r"([^,\s]+), via: ", block)
        system = re.search(r"^\s*SysName:\s+(\S+)", block, re.M)
        remote = re.search(r"^\s*PortID:\s+(?:\w+ )?(\S+)", block, re.M)
        if port and system:
            found.append(Neighbour(port=port[1], system=system[1][:80],
                                   remote_port=remote[1][:80] if remote else ""))  # fmt: skip
    keys = re.findall(r"^lldp\.([^.]+)\.chassis\.name=(\S+)", text, re.M)
    found += [Neighbour(port=p, system=s[:80]) for p, s in keys]
    return Facts(seen=("lldpctl",) if found else (), neighbours=tuple(found))


def lldp_json(text: str) -> Facts:
    """Read ``lldpctl -f json``."""
    found: list[Neighbour] = []
    for part in json_parts(text):
        top = part.get("lldp") if isinstance(part, dict) else None
        listed = top.get("interface") if isinstance(top, dict) else None
        for row in listed if isinstance(listed, list) else [listed]:
            if isinstance(row, dict):
                found += [_neighbour(p, v) for p, v in row.items() if isinstance(v, dict)]
    return Facts(seen=("lldpctl -f json",) if found else (), neighbours=tuple(found))


def _neighbour(port: str, row: dict[str, Any]) -> Neighbour:
    chassis = row.get("chassis")
    system = next(iter(chassis), "?") if isinstance(chassis, dict) else "?"
    there = row.get("port")
    ident = there.get("id") if isinstance(there, dict) else None
    value = ident.get("value") if isinstance(ident, dict) else None
    return Neighbour(
        port=str(port)[:32], system=str(system)[:80], remote_port=str(value or "")[:80]
    )


READERS = (ip_text, ip_json, ethtool, ibstat, lldp_text, lldp_json)
