"""How a plan sits on hosts: nodes, ranks of a node, names that launchers share."""

from __future__ import annotations

from typing import NamedTuple

from lightloom.core.errors import InfeasibleError
from lightloom.core.plan import Plan


class Nodes(NamedTuple):
    """Hosts of one job."""

    hosts: int
    per_node: int
    """Ranks of a host."""
    world: int


def nodes_of(plan: Plan) -> Nodes:
    """Return hosts and ranks per host; a job that does not fill its hosts evenly is refused."""
    world, host = plan.strategy.world_size, max(1, plan.cluster.host.cards)
    if world <= host:
        return Nodes(1, world, world)
    if world % host:
        per = max(d for d in range(1, host + 1) if world % d == 0)
        raise InfeasibleError(
            f"{world} ranks do not fill hosts of {host} cards: each host starts the same number",
            out=f"plan {world // host * host} or {-(-world // host) * host} ranks"
            f" (or {world // per} hosts with {per} ranks each, {host - per} cards idle)",
        )
    return Nodes(world // host, host, world)


def vendor_of(plan: Plan) -> str:
    """Return ``nvidia``, ``ascend``, ``amd`` or ``google``: who wrote the collective library."""
    vendor = plan.cluster.chip.vendor.lower()
    known = {
        "nvidia": "nvidia",
        "huawei": "ascend",
        "ascend": "ascend",
        "amd": "amd",
        "google": "google",
    }
    return known.get(vendor, vendor)


def resource_of(plan: Plan) -> str:
    """Return the Kubernetes resource of the device plug-in."""
    vendor, name = vendor_of(plan), plan.cluster.chip.name
    if vendor == "ascend":
        return "huawei.com/Ascend910" if "910" in name else "huawei.com/npu"
    return {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "google": "google.com/tpu"}.get(
        vendor, f"{vendor}.com/accelerator"
    )


def job_name(plan: Plan) -> str:
    """Return a DNS-1123 name of at most 40 characters."""
    text = "".join(c if c.isalnum() else "-" for c in plan.model.name.lower()).strip("-")
    while "--" in text:
        text = text.replace("--", "-")
    return f"ll-{text}"[:40].strip("-")
