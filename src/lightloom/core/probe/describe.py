"""From facts to a cluster file that loads, with what is missing named in it."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple

from lightloom.core.chip import Chip
from lightloom.core.errors import InputError
from lightloom.core.units import show_bytes, show_rate

from .facts import Facts, Nic
from .match import GIB, Match, levels_of, match_chip, pcie_rate

FORMATS = (
    "nvidia-smi (also -q, -L, topo -m, nvlink -s, --query-gpu --format=csv), rocm-smi, "
    "npu-smi info (also -t topo, -t board), hccn_tool, lspci, lscpu, numactl -H, /proc/meminfo, "
    "free, ip addr, ip -j addr, ethtool, ibstat, lldpctl"
)


class Description(NamedTuple):
    """A cluster file, and what could not be known."""

    toml: str
    missing: tuple[str, ...]
    """Each names a field, what was assumed and the command that would tell."""
    chip: str
    problems: tuple[str, ...]


def describe(facts: Facts, *, name: str = "my-cluster", hosts: int = 1) -> Description:
    """Return the cluster file of `hosts` hosts like the one that `facts` are about."""
    if not facts.cards:
        heard = ", ".join(facts.seen) or "no known format"
        raise InputError(
            f"probe: no accelerator in what was read ({heard})",
            out=f"give the output of nvidia-smi or npu-smi info; known: {FORMATS}",
        )
    match = match_chip(facts)
    levels, missing = levels_of(facts, match.chip)
    missing = _chip_missing(facts, match) + missing
    host, host_missing = _host(facts, match.chip)
    nic_count, nic_rate, nic_missing = network(facts.nics, match.chip)
    host |= {"nics": nic_count, "nic_bandwidth": nic_rate}
    missing += host_missing + nic_missing
    if hosts > 1:
        levels.append(_network(hosts, nic_count, nic_rate))
        missing.append("fabric.network: switches between hosts; a non-blocking tree is assumed")
    missing += [
        "storage: speed of local and shared storage (0 is unknown)",
        "failures: this machine's own history; 40,000 card-hours between interruptions assumed",
    ]
    top = {"version": 1, "name": name, "title": f"{hosts} x {len(facts.cards)} {match.chip.title}"}
    return Description(
        toml=_toml(facts, match, top, levels, host, missing),
        missing=tuple(missing), chip=match.chip.name, problems=facts.problems + _uneven(facts),
    )  # fmt: skip


def _uneven(facts: Facts) -> tuple[str, ...]:
    names = {c.name for c in facts.cards if c.name}
    return (f"cards differ: {', '.join(sorted(names))}; the first stands for all",) * (
        len(names) > 1
    )


def _chip_missing(facts: Facts, match: Match) -> list[str]:
    name = facts.cards[0].name or "unnamed card"
    if not match.exact:
        return [
            f"chip: {name!r} is not in the catalogue; peak, bandwidth and links are those of "
            f"{match.chip.name} until you write its own"
        ]
    if match.chip.name == "ascend-910b":
        return ["chip: bin of 910B (B1 to B4); 354 TFLOP/s assumed (npu-smi info -t board -i 0)"]
    return []


def _host(facts: Facts, chip: Chip) -> tuple[dict[str, Any], list[str]]:
    """Return the host's fields and what is missing among them."""
    rate = pcie_rate(facts)
    host = {
        "cards": len(facts.cards), "cpu": facts.cpu, "sockets": facts.sockets or 2,
        "cores": facts.cores, "numa": facts.numa or facts.sockets or 2,
        "dram_bytes": facts.dram_bytes, "pcie_bandwidth": rate or 25e9,
    }  # fmt: skip
    asked = (
        (not facts.cores, "host.cpu, host.cores, host.sockets (lscpu)"),
        (not facts.numa, "host.numa (lscpu or numactl -H)"),
        (not facts.dram_bytes, "host.dram_bytes (numactl -H or /proc/meminfo)"),
        (not rate, "host.pcie_bandwidth; 25 GB/s assumed (nvidia-smi -q or lspci -vv)"),
        (True, "host.dram_bandwidth and host.power_w (no tool prints them; 0 is unknown)"),
    )
    return host, [text for absent, text in asked if absent]


def network(nics: tuple[Nic, ...], chip: Chip) -> tuple[int, float, list[str]]:
    """Return ports for the cluster network, bytes/s of one, and what is missing.

    Ports of one kind and the highest rate are taken: verbs ports first, then Ethernet, then PCIe
    devices whose rate follows from their generation.
    """
    live = [n for n in nics if n.up is not False]
    verbs = [n for n in live if n.kind in ("infiniband", "roce") and not n.name.startswith("pci ")]
    others = [n for n in live if n.kind == "ethernet" and not n.name.startswith("pci ")]
    devices = [n for n in live if n.name.startswith("pci ")]
    for group in (verbs, others, devices):
        fast = max((n.rate for n in group), default=0.0)
        if fast >= 25e9 / 8:
            count = sum(n.rate == fast for n in group)
            said = ["host.nic_bandwidth: from the card's generation (ibstat or ethtool tells)"]
            return count, fast, said if group is devices else []
    if verbs:
        rate = chip.scaleout_bandwidth or 25e9
        return (
            len(verbs),
            rate,
            [
                f"host.nic_bandwidth: {len(verbs)} ports without a rate (ibstat); "
                f"{show_rate(rate)} assumed"
            ],
        )
    return 0, 0.0, ["host.nics and host.nic_bandwidth (ibstat, ethtool or hccn_tool -speed -g)"]


def _network(hosts: int, nics: int, rate: float) -> dict[str, Any]:
    return {
        "name": "network", "kind": "fat-tree", "shape": [hosts], "link": rate or 12.5e9,
        "links": max(1, nics), "latency": 2e-6, "tier": "roce", "medium": "optical",
    }  # fmt: skip


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(_value(v) for v in value)}]"
    return repr(value)


def _comment(text: str) -> str:
    return "# " + " ".join(text.split())


_UNITS = {"link": show_rate, "dram_bytes": show_bytes, "pcie_bandwidth": show_rate,
          "nic_bandwidth": show_rate}  # fmt: skip


def _table(head: str, fields: dict[str, Any]) -> list[str]:
    lines = ["", head]
    for key, value in fields.items():
        shown = f"  # {_UNITS[key](value)}" if key in _UNITS and value else ""
        lines.append(f"{key} = {_value(value)}{shown}")
    return lines


def _toml(
    facts: Facts, match: Match, top: dict[str, Any], levels: list[dict[str, Any]],
    host: dict[str, Any], missing: list[str],
) -> str:  # fmt: skip
    """Return the text of the file."""
    heard = ", ".join(facts.seen)
    lines = [_comment(f"written by lightloom catalog probe from: {heard}")]
    lines += [_comment(f"missing: {text}") for text in missing]
    lines += [_comment(f"problem: {text}") for text in facts.problems]
    chip, exact = _chip_fields(facts, match)
    lines += [f"{k} = {_value(v)}" for k, v in top.items()]
    if exact:
        lines.append(f"chip = {_value(match.chip.name)}")
    notes = [f"port {n.port} is wired to {n.system} {n.remote_port}".strip()
             for n in facts.neighbours]  # fmt: skip
    lines.append(f"notes = {_value(notes)}")
    if not exact:
        lines += _table("[chip]", chip)
        ref = _value(f"stands in for {facts.cards[0].name or 'an unnamed card'}")
        lines += ["", "[chip.sources]", f'"*" = {{ origin = "assumed", ref = {ref}, '
                  'confidence = "low" }']  # fmt: skip
    lines += _table(
        "[fabric]", {"domain": levels[0]["name"] if len(levels) == 1 else _domain(levels)}
    )
    for level in levels:
        lines += _table("[[fabric.levels]]", level)
    lines += _table("[host]", host)
    lines += _table("[failures]", {"card_hours": 40_000.0, "low": 3_000.0, "high": 85_000.0})
    lines += ["", "[sources]", *_sources(levels, missing, heard)]
    return "\n".join(lines) + "\n"


_FIELDS = re.compile(r"\b(host\.\w+|fabric(?:\.\w+)?|storage|failures)\b")


def _sources(levels: list[dict[str, Any]], missing: list[str], heard: str) -> list[str]:
    """Return the origin of every field: what tools printed, what follows from it, what is assumed.

    A field that `missing` names is assumed; rates of links follow from the chip's sheet.
    """
    measured = f'{{ origin = "measured", ref = {_value("probe: " + heard)}, confidence = "high" }}'
    assumed = '{ origin = "assumed", ref = "not told by any tool", confidence = "low" }'
    derived = (
        '{ origin = "derived", ref = "links that the tools print x rate of the chip\'s sheet", '
        'confidence = "medium" }'
    )
    named = [f for text in missing for f in _FIELDS.findall(re.split(r"[;:(]", text)[0])]
    named += [f"fabric.{level['name']}.latency" for level in levels] + ["pue"]
    found = {"*": measured, "fabric": derived, **dict.fromkeys(named, assumed)}
    return [f"{_value(field)} = {origin}" for field, origin in found.items()]


def _domain(levels: list[dict[str, Any]]) -> str:
    inside = [v for v in levels if v["name"] != "network" and v["tier"] != "pcie"]
    return str((inside or levels)[-1]["name"])


def _chip_fields(facts: Facts, match: Match) -> tuple[dict[str, Any], bool]:
    """Return what the card says differently from the catalogue, and whether that is nothing."""
    card, chip = facts.cards[0], match.chip
    fields: dict[str, Any] = {}
    memory = card.memory_bytes if GIB <= card.memory_bytes <= 2**14 * GIB else 0.0
    if memory and (not match.exact or abs(memory / chip.hbm_bytes - 1) > 0.06):
        fields |= {"hbm_bytes": math.ceil(memory / GIB) * GIB, "hbm_usable": memory}
    watts = card.power_limit_w
    if 20.0 < watts < 5e3 and abs(watts / (chip.tdp_w or 1) - 1) > 0.05:
        fields["tdp_w"] = watts
    if not fields and match.exact:
        return {}, True
    title = card.name or chip.title
    name = f"{chip.name}-here" if match.exact else "my-chip"
    return {"base": chip.name, "name": name, "title": title, **fields}, False
