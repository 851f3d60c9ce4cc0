"""HCCL rank tables 1.0 (A2), 1.2 (A3 superpod) and 2.0 (950, 960); placement decides rank order.

Addresses come from the site's inventory. Without one, addresses of the benchmark range
198.18.0.0/15 (RFC 2544) stand in, and a finding says so.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from lightloom.core.errors import InfeasibleError
from lightloom.core.finding import Finding
from lightloom.core.plan import Plan

from .bundle import Bundle, EmittedFile, head, lines_of
from .topology import nodes_of, vendor_of

PORT_DEVICE, PORT_HOST = 16666, 60000


class Card(NamedTuple):
    """Where one rank sits."""

    rank: int
    card: int
    host: int
    local: int


def emit(plan: Plan) -> Bundle:
    """Return ``ranktable.json`` in the generation that the chip reads."""
    if vendor_of(plan) != "ascend":
        raise InfeasibleError(
            f"rank tables are for Ascend; {plan.cluster.name} has {plan.cluster.chip.title}",
            out="NCCL needs none: --for torchrun",
        )
    version = version_of(plan)
    table = {"1.0": table_10, "1.2": table_12, "2.0": table_20}[version](plan)
    notes = lines_of(
        head(plan, f"rank table {version}", "-"),
        "- server_id, device, order of ranks: plan (placement)",
        "- addresses (device_ip, host_ip, EID): site; the file holds stand-ins until replaced",
        "- ports: default",
    )
    finding = Finding(
        severity="warning", code="ranktable-addresses", subject="ranktable.json",
        what="addresses are stand-ins from 198.18.0.0/15",
        remedy="replace them from /etc/hccn.conf of every host (address_<id>=)",
    )  # fmt: skip
    files = (
        EmittedFile("ranktable.json", json.dumps(table, indent=1) + "\n"),
        EmittedFile("ORIGIN.md", notes),
    )
    return Bundle("ranktable", files, (finding,))


def version_of(plan: Plan) -> str:
    """Return the generation: 2.0 from 950 on, 1.2 for dies of an A3 superpod, else 1.0."""
    name = plan.cluster.chip.name
    if any(mark in name for mark in ("950", "960", "970")):
        return "2.0"
    return "1.2" if "910c" in name else "1.0"


def cards_of(plan: Plan) -> list[Card]:
    """Return every rank's card, in rank order; ranks of one host must be contiguous."""
    per_host = plan.cluster.host.cards
    nodes_of(plan)
    order = plan.placement.cards or tuple(range(plan.strategy.world_size))
    cards = [Card(r, c, c // per_host, c % per_host) for r, c in enumerate(order)]
    seen: set[int] = set()
    last = -1
    for card in cards:
        if card.host != last and card.host in seen:
            raise InfeasibleError(
                f"rank table: host {card.host} holds ranks that are not contiguous (rank"
                f" {card.rank} returns to it)",
                out="HCCL wants the ranks of a server together: place whole hosts",
            )
        seen.add(card.host)
        last = card.host
    return cards


def address(index: int, net: int) -> str:
    """Return a stand-in address of 198.18.0.0/15: net 0 hosts, net 1 devices."""
    return f"198.{18 + net}.{index // 250 % 250}.{index % 250 + 1}"


def device_address(card: int) -> str:
    """Return a stand-in device address; unique up to 62,500 cards."""
    return address(card, 1)


def by_host(cards: list[Card]) -> dict[int, list[Card]]:
    """Return cards grouped by host, hosts in rank order."""
    out: dict[int, list[Card]] = {}
    for card in cards:
        out.setdefault(card.host, []).append(card)
    return out


def device_10(card: Card) -> dict[str, str]:
    """Return one device of tables 1.x; every value is a string."""
    return {
        "device_id": str(card.local),
        "device_ip": device_address(card.card),
        "device_port": str(PORT_DEVICE),
        "rank_id": str(card.rank),
    }


def table_10(plan: Plan) -> dict[str, Any]:
    """Return a table of version 1.0."""
    hosts = by_host(cards_of(plan))
    return {
        "status": "completed",
        "version": "1.0",
        "server_count": str(len(hosts)),
        "server_list": [
            {"server_id": f"host-{host}", "host_ip": address(host, 0),
             "device": [device_10(card) for card in cards]}
            for host, cards in hosts.items()
        ],
    }  # fmt: skip


def sdid(server: int, npu: int, die: int, device: int) -> int:
    """Return the superpod device id: server 10 bits, NPU 4, die 2, device 16."""
    return server << 22 | npu << 18 | die << 16 | device


def table_12(plan: Plan) -> dict[str, Any]:
    """Return a table of version 1.2: dies as ranks, superpods, the other die as backup NIC."""
    per_host = plan.cluster.host.cards
    per_pod = max(1, plan.cluster.fabric.domain_cards // per_host)
    hosts = by_host(cards_of(plan))
    servers: list[dict[str, Any]] = []
    pods: dict[int, list[dict[str, str]]] = {}
    for host, cards in hosts.items():
        devices = []
        for card in cards:
            twin = card.card ^ 1
            devices.append({
                **device_10(card),
                "super_device_id": str(
                    sdid(host % per_pod, card.local // 2, card.local % 2, card.local)
                ),
                "backup_device_ip": device_address(twin),
                "backup_device_port": str(PORT_DEVICE),
            })  # fmt: skip
        servers.append(
            {"server_id": f"host-{host}", "host_ip": address(host, 0), "device": devices}
        )
        pods.setdefault(host // per_pod, []).append({"server_id": f"host-{host}"})
    return {
        "status": "completed",
        "version": "1.2",
        "server_count": str(len(hosts)),
        "server_list": servers,
        "super_pod_list": [
            {"super_pod_id": str(pod), "server_list": members} for pod, members in pods.items()
        ],
    }


def eid(layer: int, card: int) -> str:
    """Return a stand-in 128-bit endpoint id, 32 hexadecimal digits."""
    return f"{0x20010DB8:08x}{layer:08x}{0:08x}{card:08x}"


def table_20(plan: Plan) -> dict[str, Any]:
    """Return a table of version 2.0: numbers are integers, one entry per network layer."""
    cards = cards_of(plan)
    if len(cards) > 65536:
        raise InfeasibleError(f"rank table 2.0 holds 65,536 ranks, the plan has {len(cards)}")
    peers = peers_of(plan)
    return {
        "status": "completed",
        "version": "2.0",
        "rank_count": len(cards),
        "rank_list": [
            {
                "rank_id": card.rank,
                "local_id": card.card % peers,
                "device_id": card.local,
                "device_port": PORT_DEVICE,
                "host_port": PORT_HOST,
                "level_list": layers_of(plan, card, peers),
            }
            for card in cards
        ],
    }


def peers_of(plan: Plan) -> int:
    """Return cards that the topology file describes as peers: the widest level of at most 64."""
    fabric = plan.cluster.fabric
    sizes = [fabric.cards_below(i) for i in range(len(fabric.levels))]
    return max([size for size in sizes if size <= 64], default=1)


def layers_of(plan: Plan, card: Card, peers: int) -> list[dict[str, Any]]:
    """Return the network layers of one rank: 0 by topology file, then one Clos per level."""
    levels = plan.cluster.fabric.levels
    inner = [i for i in range(len(levels)) if plan.cluster.fabric.cards_below(i) <= peers]
    outer = [i for i in range(len(levels)) if i not in inner]
    layers = [layer(0, f"group{card.card // peers}", "TOPO_FILE_DESC", card, ["0/0"])]
    for number, index in enumerate(outer[:7], start=1):
        span = plan.cluster.fabric.cards_below(index)
        name = f"{levels[index].name}{card.card // span}"
        layers.append(layer(number, name, "CLOS", card, [f"0/{number}"]))
    return layers


def layer(number: int, instance: str, kind: str, card: Card, ports: list[str]) -> dict[str, Any]:
    """Return one entry of ``level_list``."""
    return {
        "net_layer": number,
        "net_instance_id": instance,
        "net_type": kind,
        "net_attr": "",
        "rank_addr_list": [
            {"addr_type": "EID", "addr": eid(number, card.card), "ports": ports,
             "plane_id": f"p{number}"}
        ],
    }  # fmt: skip
