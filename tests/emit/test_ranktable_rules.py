"""Rank tables and topology files broken in known ways: each is named, with its line."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import plans
import pytest

from lightloom.emit.check import check_text
from lightloom.emit.targets import emit

Break = Callable[[dict[str, Any]], Any]


def table(cluster: str, target: str = "ranktable") -> dict[str, Any]:
    """A small good table: 32 ranks."""
    plan = plans.plan("gpt-oss-20b", cluster, "mindspeed", dp=32, ep=8)
    data: dict[str, Any] = json.loads(emit(plan, target).files[0].text)
    return data


GOOD = {
    "1.0": table("atlas-800t-a2"), "1.2": table("atlas-900-a3"), "2.0": table("atlas-950"),
    "topology": table("supernode-8192", "hccl-topology"),
}  # fmt: skip


def put(*path: Any) -> Break:
    """Return a change that sets the last element of `path` at the place before it."""
    *where, key, value = path

    def change(data: dict[str, Any]) -> None:
        holder: Any = data
        for step in where:
            holder = holder[step]
        holder[key] = value

    return change


def drop(*path: Any) -> Break:
    """Return a change that deletes a place."""
    *where, key = path

    def change(data: dict[str, Any]) -> None:
        holder: Any = data
        for step in where:
            holder = holder[step]
        del holder[key]

    return change


def swap_ranks(a: int, b: int) -> Break:
    """Return a change that exchanges the ranks of two servers' first devices."""

    def change(data: dict[str, Any]) -> None:
        one, two = (data["server_list"][i]["device"][0] for i in (a, b))
        one["rank_id"], two["rank_id"] = two["rank_id"], one["rank_id"]

    return change


S, D, L = "server_list", "device", "level_list"
FIRST = (S, 0, D, 0)
RANK = ("rank_list", 3)
ADDR = (*RANK, L, 1, "rank_addr_list", 0)
EDGE = ("edge_list", 0)
BROKEN: list[tuple[str, str, Break, str]] = [
    ("1.0", "status", put("status", "done"), "status"),
    ("1.0", "version", put("version", "1.1"), "version"),
    ("1.0", "version number", put("version", 1.0), "version"),
    ("1.0", "count", put("server_count", "9"), "server-count"),
    ("1.0", "count as number", put("server_count", 4), "not-a-string"),
    ("1.0", "no servers", put(S, []), "missing"),
    ("1.0", "server id missing", drop(S, 0, "server_id"), "missing"),
    ("1.0", "server id long", put(S, 0, "server_id", "x" * 65), "server-id"),
    ("1.0", "server twice", put(S, 1, "server_id", "host-0"), "server-twice"),
    ("1.0", "host ip", put(S, 0, "host_ip", "10.0.0.256"), "address"),
    ("1.0", "device id missing", drop(*FIRST, "device_id"), "missing"),
    ("1.0", "device id word", put(*FIRST, "device_id", "npu0"), "device-id"),
    ("1.0", "device id number", put(*FIRST, "device_id", 0), "not-a-string"),
    ("1.0", "device twice", put(*FIRST, "device_id", "1"), "device-twice"),
    ("1.0", "device ip missing", drop(*FIRST, "device_ip"), "missing"),
    ("1.0", "device ip", put(*FIRST, "device_ip", "198.19.0"), "address"),
    ("1.0", "device ip twice", put(S, 1, D, 0, "device_ip", "198.19.0.1"), "address-twice"),
    ("1.0", "port zero", put(*FIRST, "device_port", "0"), "port"),
    ("1.0", "port high", put(*FIRST, "device_port", "70000"), "port"),
    ("1.0", "port word", put(*FIRST, "device_port", "auto"), "port"),
    ("1.0", "rank missing", drop(*FIRST, "rank_id"), "missing"),
    ("1.0", "rank word", put(*FIRST, "rank_id", "first"), "rank-id"),
    ("1.0", "rank twice", put(*FIRST, "rank_id", "1"), "ranks"),
    ("1.0", "rank gap", put(*FIRST, "rank_id", "99"), "ranks"),
    ("1.0", "ranks cross", swap_ranks(0, 2), "ranks-cross"),
    ("1.0", "not an object", put(S, 0, "host-0"), "not-an-object"),
    ("1.2", "sdid word", put(*FIRST, "super_device_id", "die0"), "sdid"),
    ("1.2", "sdid none", put(*FIRST, "super_device_id", str(2**32 - 1)), "sdid"),
    ("1.2", "sdid of another device", put(*FIRST, "super_device_id", "5"), "sdid-device"),
    ("1.2", "sdid as number", put(*FIRST, "super_device_id", 0), "not-a-string"),
    ("1.2", "backup self", put(*FIRST, "backup_device_ip", "198.19.0.1"), "backup-self"),
    ("1.2", "backup elsewhere", put(*FIRST, "backup_device_ip", "198.19.0.40"), "backup"),
    ("1.2", "server in no superpod", drop("super_pod_list", 0, S, 0), "superpod-server"),
    ("1.2", "unknown server", put("super_pod_list", 0, S, 0, "server_id", "h"), "superpod-server"),
    ("2.0", "count", put("rank_count", 31), "rank-count"),
    ("2.0", "count as text", put("rank_count", "32"), "not-a-number"),
    ("2.0", "rank twice", put(*RANK, "rank_id", 2), "rank-twice"),
    ("2.0", "rank gap", put(*RANK, "rank_id", 77), "rank-gap"),
    ("2.0", "local id", put(*RANK, "local_id", 65), "range"),
    ("2.0", "device id text", put(*RANK, "device_id", "3"), "not-a-number"),
    ("2.0", "port", put(*RANK, "device_port", 0), "range"),
    ("2.0", "no levels", put(*RANK, L, []), "missing"),
    ("2.0", "level zero by switch", put(*RANK, L, 0, "net_type", "CLOS"), "level-zero"),
    ("2.0", "level kind", put(*RANK, L, 1, "net_type", "MESH"), "net-type"),
    ("2.0", "level order", put(*RANK, L, 1, "net_layer", 0), "level-order"),
    ("2.0", "level high", put(*RANK, L, 1, "net_layer", 8), "range"),
    ("2.0", "instance", drop(*RANK, L, 0, "net_instance_id"), "missing"),
    ("2.0", "address kind", put(*ADDR, "addr_type", "MAC"), "addr-type"),
    ("2.0", "eid short", put(*ADDR, "addr", "20ab"), "eid"),
    ("2.0", "eid letters", put(*ADDR, "addr", "z" * 32), "eid"),
    ("2.0", "ipv4", put(*ADDR, "addr_type", "IPV4"), "address"),
    ("2.0", "no ports", put(*ADDR, "ports", []), "ports"),
    ("2.0", "port form", put(*ADDR, "ports", ["eth0"]), "port-form"),
    ("topology", "version", put("version", "1.0"), "version"),
    ("topology", "peers", put("peer_count", 3), "peer-count"),
    ("topology", "edges", put("edge_count", 1), "edge-count"),
    ("topology", "peer id", put("peer_list", 0, "local_id", 99), "range"),
    ("topology", "unknown peer", put(*EDGE, "local_a", 64), "edge-peer"),
    ("topology", "link", put(*EDGE, "link_type", "PEER"), "link-type"),
    ("topology", "kind", put(*EDGE, "topo_type", "2DMESH"), "topo-type"),
    ("topology", "position", put(*EDGE, "position", "CARD"), "position"),
    ("topology", "no ports", put(*EDGE, "local_a_ports", []), "ports"),
]


@pytest.mark.parametrize("version", list(GOOD))
def test_good_tables_pass(version: str) -> None:
    _, findings = check_text("table.json", json.dumps(GOOD[version], indent=1))
    assert not findings


@pytest.mark.parametrize(("version", "what", "change", "code"), BROKEN,
                         ids=[f"{v} {w}" for v, w, _, _ in BROKEN])  # fmt: skip
def test_broken_tables_are_named_by_line(version: str, what: str, change: Break, code: str) -> None:
    data = copy.deepcopy(GOOD[version])
    change(data)
    text = json.dumps(data, indent=1)
    _, findings = check_text("table.json", text)
    codes = {f.code for f in findings}
    assert code in codes, (what, codes)
    line = int(next(f for f in findings if f.code == code).subject.rpartition(":")[2])
    assert 1 <= line <= text.count("\n") + 1
    if line == 1:
        assert code in ("missing", "ranks")


def test_line_of_a_wrong_port_is_exact() -> None:
    data = copy.deepcopy(GOOD["1.0"])
    data[S][1][D][2]["device_port"] = "70001"
    text = json.dumps(data, indent=1)
    _, findings = check_text("table.json", text)
    line = int(findings[0].subject.rpartition(":")[2])
    assert "70001" in text.splitlines()[line - 1]


def test_at_least_forty_broken_examples() -> None:
    assert len(BROKEN) >= 40
