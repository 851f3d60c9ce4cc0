"""Rules of HCCL rank tables 1.0, 1.2 and 2.0, and of the topology file 2.0.

Written against the published rules alone and independent of the emitters, so that it can judge
both ours and other people's files.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from lightloom.core.finding import Finding

from .positions import Positions

KINDS_20 = {"EID", "IPV4", "IPV6"}


class Rules:
    """Collects findings about one file."""

    def __init__(self, name: str, doc: Positions) -> None:
        """Check `doc`, calling it `name`."""
        self.name, self.doc, self.findings = name, doc, []  # type: tuple[str, Positions, list[Finding]]

    def say(self, code: str, what: str, *path: str | int, remedy: str = "",
            severity: str = "error") -> None:  # fmt: skip
        """Add a finding that names the line."""
        self.findings.append(Finding(
            severity="error" if severity == "error" else "warning", code=code,
            subject=f"{self.name}:{self.doc.line(*path)}", what=what, remedy=remedy,
        ))  # fmt: skip

    def text(self, holder: Any, key: str, *path: str | int, need: bool = True) -> str | None:
        """Return a value that tables 1.x want as a string."""
        if key not in holder:
            if need:
                self.say("missing", f"{key} is missing", *path)
            return None
        value = holder[key]
        if not isinstance(value, str):
            self.say("not-a-string", f"{key} is {value!r}: tables 1.x want every value as a string",
                     *path, key, remedy=f'"{key}": "{value}"')  # fmt: skip
            return str(value)
        return value

    def number(self, holder: Any, key: str, low: int, high: int, *path: str | int) -> int | None:
        """Return an integer that table 2.0 wants, inside its range."""
        value = holder.get(key)
        if value is None:
            self.say("missing", f"{key} is missing", *path)
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.say("not-a-number", f"{key} is {value!r}: table 2.0 wants an integer", *path, key)
            return None
        if not low <= value <= high:
            self.say("range", f"{key} is {value}, outside {low}..{high}", *path, key)
            return None
        return value

    def items(self, holder: Any, key: str, *path: str | int) -> list[tuple[int, dict[str, Any]]]:
        """Return the objects of a list, complaining about anything else."""
        value = holder.get(key)
        if not isinstance(value, list) or not value:
            self.say("missing", f"{key} must be a list that is not empty", *path, key)
            return []
        wrong = [i for i, item in enumerate(value) if not isinstance(item, dict)]
        for i in wrong:
            self.say("not-an-object", f"{key}[{i}] is not an object", *path, key, i)
        return [(i, item) for i, item in enumerate(value) if isinstance(item, dict)]

    def port(self, text: str | None, *path: str | int) -> None:
        """Check a port given as text."""
        if text is None:
            return
        if not text.isdigit() or not 1 <= int(text) <= 65535:
            self.say("port", f"port {text!r} is not 1..65535", *path)
        elif int(text) < 1024:
            self.say("port-low", f"port {text} is reserved", *path, severity="warning")

    def address(self, text: str | None, *path: str | int) -> None:
        """Check an IP address."""
        if text is None:
            return
        try:
            ipaddress.ip_address(text)
        except ValueError:
            self.say("address", f"{text!r} is not an IP address", *path)


def check(name: str, doc: Positions) -> list[Finding]:
    """Return findings about a rank table of any version."""
    rules = Rules(name, doc)
    table = doc.value
    if not isinstance(table, dict):
        rules.say("not-a-table", "a rank table is a JSON object")
        return rules.findings
    if table.get("status") not in ("completed", "initializing"):
        rules.say("status", f"status is {table.get('status')!r}: completed or initializing",
                  "status")  # fmt: skip
    version = table.get("version")
    if version == "2.0":
        check_20(rules, table)
    elif version in ("1.0", "1.2"):
        check_1x(rules, table, str(version))
    else:
        rules.say("version", f'version is {version!r}: "1.0", "1.2" or "2.0"', "version")
    return rules.findings


def check_1x(rules: Rules, table: dict[str, Any], version: str) -> None:
    """Check servers, devices, ranks of tables 1.x."""
    servers = rules.items(table, "server_list")
    count = rules.text(table, "server_count", need=version == "1.0")
    if count is not None and count != str(len(servers)):
        rules.say("server-count", f"server_count is {count}, server_list has {len(servers)}",
                  "server_count")  # fmt: skip
    seen: dict[str, int] = {}
    ranks: list[tuple[int, int, tuple[str | int, ...]]] = []
    addresses: dict[str, tuple[str | int, ...]] = {}
    for i, server in servers:
        path = ("server_list", i)
        server_id = rules.text(server, "server_id", *path)
        if server_id is not None and (len(server_id) > 64 or not server_id):
            rules.say("server-id", f"server_id has {len(server_id)} characters, 1..64", *path)
        if server_id in seen:
            rules.say("server-twice", f"server_id {server_id!r} stands twice", *path, "server_id")
        seen[str(server_id)] = i
        if "host_ip" in server:
            rules.address(rules.text(server, "host_ip", *path), *path, "host_ip")
        elif version == "1.2":
            rules.say("host-ip", "host_ip is missing: HCCL cannot retry operations without it",
                      *path, severity="warning")  # fmt: skip
        ranks += devices_1x(rules, server, path, addresses, several=len(servers) > 1,
                            version=version)  # fmt: skip
    check_ranks(rules, ranks)
    if version == "1.2":
        check_pods(rules, table, set(seen))


def devices_1x(rules: Rules, server: dict[str, Any], path: tuple[str | int, ...],
               addresses: dict[str, tuple[str | int, ...]], *, several: bool,
               version: str) -> list[tuple[int, int, tuple[str | int, ...]]]:  # fmt: skip
    """Check the devices of one server; return (rank, server, path) of each."""
    out = []
    ids: set[str] = set()
    own = {str(d.get("device_ip")) for _, d in rules.items(server, "device", *path)}
    for k, device in enumerate(server.get("device") or []):
        if not isinstance(device, dict):
            continue
        at = (*path, "device", k)
        number = rules.text(device, "device_id", *at)
        if number is not None and (not number.isdigit() or int(number) > 63):
            rules.say("device-id", f"device_id {number!r} is not 0..63", *at, "device_id")
        if number in ids:
            rules.say("device-twice", f"device_id {number} stands twice in one server", *at)
        ids.add(str(number))
        ip = rules.text(device, "device_ip", *at, need=several)
        rules.address(ip, *at, "device_ip")
        if ip is not None and ip in addresses:
            rules.say("address-twice", f"device_ip {ip} stands twice", *at, "device_ip")
        addresses[str(ip)] = at
        if "device_port" in device:
            rules.port(rules.text(device, "device_port", *at), *at, "device_port")
        rank = rules.text(device, "rank_id", *at)
        if rank is not None and rank.isdigit():
            out.append((int(rank), int(path[1]), at))
        elif rank is not None:
            rules.say("rank-id", f"rank_id {rank!r} is not a number", *at, "rank_id")
        if version == "1.2":
            check_die(rules, device, own, at)
    return out


def check_die(rules: Rules, device: dict[str, Any], own: set[str],
              at: tuple[str | int, ...]) -> None:  # fmt: skip
    """Check superpod id and backup NIC of one die."""
    text = rules.text(device, "super_device_id", *at, need=False)
    if text is None:
        rules.say("sdid-missing", "super_device_id is missing: HCCL falls back to server mode",
                  *at, severity="warning")  # fmt: skip
    elif not text.isdigit() or int(text) >= 2**32 or int(text) == 2**32 - 1:
        rules.say("sdid", f"super_device_id {text!r} is not a 32-bit number", *at,
                  "super_device_id")  # fmt: skip
    elif str(device.get("device_id", "")).isdigit() and int(text) & 0xFFFF != int(
            device["device_id"]):  # fmt: skip
        rules.say("sdid-device", f"super_device_id {text} decodes to device {int(text) & 0xFFFF}, "
                  f"device_id is {device['device_id']}", *at, "super_device_id")  # fmt: skip
    backup = device.get("backup_device_ip")
    if backup is not None and str(backup) == str(device.get("device_ip")):
        rules.say("backup-self", "backup_device_ip is the device's own address", *at,
                  "backup_device_ip")  # fmt: skip
    elif backup is not None and str(backup) not in own:
        rules.say("backup", f"backup_device_ip {backup} is not another die of this server", *at,
                  "backup_device_ip")  # fmt: skip


def check_ranks(rules: Rules, ranks: list[tuple[int, int, tuple[str | int, ...]]]) -> None:
    """Check that ranks are dense from 0 and those of one server are together."""
    numbers = sorted(rank for rank, _, _ in ranks)
    if numbers != list(range(len(numbers))):
        twice = sorted({n for n in numbers if numbers.count(n) > 1}) if len(numbers) < 5000 else []
        missing = sorted(set(range(len(numbers))) - set(numbers))[:5]
        first = next((at for rank, _, at in ranks if rank in twice or rank >= len(numbers)), ())
        rules.say("ranks", f"rank_id must be 0..{len(numbers) - 1}, each once; "
                  f"missing {missing}, twice {twice[:5]}", *first)  # fmt: skip
        return
    owner = {rank: (server, at) for rank, server, at in ranks}
    closed: set[int] = set()
    last = None
    for rank in range(len(owner)):
        server, at = owner[rank]
        if server != last:
            if server in closed:
                rules.say("ranks-cross", f"rank {rank} returns to server {server}: ranks of one "
                          "server must be contiguous", *at)  # fmt: skip
                return
            closed.add(server)
            last = server


def check_pods(rules: Rules, table: dict[str, Any], servers: set[str]) -> None:
    """Check the superpods of table 1.2."""
    if "super_pod_list" not in table:
        rules.say("superpods", "super_pod_list is missing: HCCL falls back to server mode",
                  severity="warning")  # fmt: skip
        return
    order: list[str] = []
    names: set[str] = set()
    for i, pod in rules.items(table, "super_pod_list"):
        name = rules.text(pod, "super_pod_id", "super_pod_list", i)
        if name in names:
            rules.say("superpod-twice", f"super_pod_id {name!r} stands twice", "super_pod_list", i)
        names.add(str(name))
        for k, member in rules.items(pod, "server_list", "super_pod_list", i):
            at = ("super_pod_list", i, "server_list", k)
            server = rules.text(member, "server_id", *at)
            if server not in servers:
                rules.say("superpod-server", f"server {server!r} is not in server_list", *at)
            elif server in order:
                rules.say("superpod-server", f"server {server!r} is in two superpods", *at)
            order.append(str(server))
    lost = servers - set(order)
    if lost:
        rules.say("superpod-server", f"in no superpod: {', '.join(sorted(lost)[:5])}",
                  "super_pod_list")  # fmt: skip


def check_20(rules: Rules, table: dict[str, Any]) -> None:
    """Check table 2.0."""
    ranks = rules.items(table, "rank_list")
    count = rules.number(table, "rank_count", 1, 65536)
    if count is not None and count != len(ranks):
        rules.say("rank-count", f"rank_count is {count}, rank_list has {len(ranks)}", "rank_count")
    seen: set[int] = set()
    addresses: set[tuple[int, str]] = set()
    for i, rank in ranks:
        at = ("rank_list", i)
        number = rules.number(rank, "rank_id", 0, 65535, *at)
        if number in seen:
            rules.say("rank-twice", f"rank_id {number} stands twice", *at, "rank_id")
        elif number is not None and number >= len(ranks):
            rules.say("rank-gap", f"rank_id {number} in a table of {len(ranks)} ranks", *at)
        seen.add(-1 if number is None else number)
        rules.number(rank, "local_id", 0, 64, *at)
        rules.number(rank, "device_id", 0, 64, *at)
        for key in ("device_port", "host_port"):
            if key in rank:
                rules.number(rank, key, 1, 65535, *at)
        check_layers(rules, rank, at, addresses)


def check_layers(rules: Rules, rank: dict[str, Any], at: tuple[str | int, ...],
                 addresses: set[tuple[int, str]]) -> None:  # fmt: skip
    """Check the network layers of one rank."""
    last = -1
    layers = rules.items(rank, "level_list", *at)
    if len(layers) > 8:
        rules.say("levels", f"{len(layers)} levels, 8 at most", *at, "level_list")
    for k, layer in layers:
        path = (*at, "level_list", k)
        number = rules.number(layer, "net_layer", 0, 7, *path)
        if number is None:
            continue
        if number <= last:
            rules.say("level-order", f"net_layer {number} after {last}: ascending", *path)
        last = number
        kind = layer.get("net_type")
        if number == 0 and kind != "TOPO_FILE_DESC":
            rules.say("level-zero", f"net_layer 0 is {kind!r}: TOPO_FILE_DESC", *path, "net_type")
        elif kind not in ("TOPO_FILE_DESC", "CLOS"):
            rules.say("net-type", f"net_type {kind!r}: CLOS or TOPO_FILE_DESC", *path, "net_type")
        if not isinstance(layer.get("net_instance_id"), str):
            rules.say("missing", "net_instance_id is missing", *path)
        entries = rules.items(layer, "rank_addr_list", *path)
        if len(entries) > 24:
            rules.say("addresses", f"{len(entries)} addresses on one level, 24 at most", *path)
        ports: set[str] = set()
        for j, entry in entries:
            check_entry(rules, entry, number, (*path, "rank_addr_list", j), addresses, ports)


def check_entry(rules: Rules, entry: dict[str, Any], layer: int, path: tuple[str | int, ...],
                addresses: set[tuple[int, str]], ports: set[str]) -> None:  # fmt: skip
    """Check one address of one layer."""
    kind, text = str(entry.get("addr_type", "")).upper(), str(entry.get("addr", ""))
    if kind not in KINDS_20:
        rules.say("addr-type", f"addr_type {kind!r}: EID, IPV4 or IPV6", *path, "addr_type")
    elif kind == "EID":
        if len(text) != 32 or any(c not in "0123456789abcdefABCDEF" for c in text):
            rules.say("eid", f"EID {text!r} is not 32 hexadecimal digits", *path, "addr")
    else:
        rules.address(text, *path, "addr")
    if (layer, text) in addresses:
        rules.say("address-twice", f"address {text} stands twice on layer {layer}", *path, "addr")
    addresses.add((layer, text))
    given = entry.get("ports")
    if not isinstance(given, list) or not given or len(given) > 16:
        rules.say("ports", "ports must list 1..16 ports", *path, "ports")
        return
    for port in given:
        parts = str(port).split("/")
        good = str(port) == "d2h" or (len(parts) == 2 and all(p.isdigit() for p in parts))
        if not good:
            rules.say("port-form", f'port {port!r} is not "die/port"', *path, "ports")
        elif str(port) in ports:
            rules.say("port-twice", f"port {port} serves two addresses of one layer", *path)
        ports.add(str(port))


def check_topology(name: str, doc: Positions) -> list[Finding]:
    """Return findings about a topology file 2.0."""
    rules = Rules(name, doc)
    table = doc.value
    if table.get("version") != "2.0":
        rules.say("version", f'version is {table.get("version")!r}: "2.0"', "version")
    peers = rules.items(table, "peer_list")
    count = rules.number(table, "peer_count", 1, 65)
    if count is not None and count != len(peers):
        rules.say("peer-count", f"peer_count is {count}, peer_list has {len(peers)}", "peer_count")
    known = [peer.get("local_id") for _, peer in peers]
    for i, peer in peers:
        rules.number(peer, "local_id", 0, 64, "peer_list", i)
    if len(set(known)) != len(known):
        rules.say("peer-twice", "a local_id stands twice", "peer_list")
    edges = rules.items(table, "edge_list")
    total = rules.number(table, "edge_count", 0, 10**6)
    if total is not None and total != len(edges):
        rules.say("edge-count", f"edge_count is {total}, edge_list has {len(edges)}", "edge_count")
    used: set[tuple[int, str]] = set()
    for i, edge in edges:
        check_edge(rules, edge, ("edge_list", i), known, used)
    return rules.findings


def check_edge(rules: Rules, edge: dict[str, Any], at: tuple[str | int, ...], known: list[Any],
               used: set[tuple[int, str]]) -> None:  # fmt: skip
    """Check one edge of a topology file."""
    rules.number(edge, "net_layer", 0, 7, *at)
    kind = edge.get("link_type")
    if kind not in ("PEER2PEER", "PEER2NET"):
        rules.say("link-type", f"link_type {kind!r}: PEER2PEER or PEER2NET", *at, "link_type")
    if edge.get("topo_type") not in ("CLOS", "1DMESH"):
        rules.say("topo-type", f"topo_type {edge.get('topo_type')!r}: CLOS or 1DMESH", *at)
    if edge.get("position") not in ("DEVICE", "HOST"):
        rules.say("position", f"position {edge.get('position')!r}: DEVICE or HOST", *at)
    if not isinstance(edge.get("protocols"), list) or not edge.get("protocols"):
        rules.say("protocols", "protocols must list at least one", *at)
    ends = ["a", "b"] if kind == "PEER2PEER" else ["a"]
    for end in ends:
        local = edge.get(f"local_{end}")
        if local not in known:
            rules.say("edge-peer", f"local_{end} {local!r} is not in peer_list", *at)
        ports = edge.get(f"local_{end}_ports")
        if not isinstance(ports, list) or not ports:
            rules.say("ports", f"local_{end}_ports is missing", *at)
            continue
        for port in ports:
            if kind == "PEER2PEER" and (local, str(port)) in used:
                rules.say("port-twice", f"port {port} of peer {local} carries two links", *at)
            used.add((-1 if not isinstance(local, int) else local, str(port)))
    if kind == "PEER2PEER" and edge.get("local_a") == edge.get("local_b"):
        rules.say("edge-loop", f"peer {edge.get('local_a')} is linked to itself", *at)
