"""Volcano: a gang-scheduled Job with network topology, and MindCluster's keys on Ascend."""

from __future__ import annotations

from typing import Any

from lightloom.core.plan import Plan

from .bundle import Bundle
from .kubernetes import marks_of
from .manifest import files_map, pod, yaml_file
from .topology import job_name, nodes_of, vendor_of


def emit(plan: Plan) -> Bundle:
    """Return ``volcano.yaml``."""
    what = "Volcano: kubectl apply -f volcano.yaml (HyperNodes must describe the fabric)"
    return Bundle("volcano", (yaml_file("volcano.yaml", plan, what, files_map(plan), job(plan)),))


def tier_of(plan: Plan) -> int:
    """Return the lowest HyperNode tier (1 is innermost) that holds the whole job."""
    fabric, host = plan.cluster.fabric, plan.cluster.host.cards
    above = [i for i in range(len(fabric.levels)) if fabric.cards_below(i) > host]
    for tier, index in enumerate(above, start=1):
        if plan.strategy.world_size <= fabric.cards_below(index):
            return tier
    return max(1, len(above))


def job(plan: Plan) -> dict[str, Any]:
    """Return the Job."""
    hosts, name = nodes_of(plan).hosts, job_name(plan)
    first = f"{name}-node-0.{name}"
    env: list[dict[str, Any]] = [
        {"name": "MASTER_ADDR", "value": first},
        {"name": "NODE_RANK", "valueFrom": {
            "fieldRef": {"fieldPath": "metadata.labels['volcano.sh/task-index']"}}},
    ]  # fmt: skip
    name_of_container = "ascend" if vendor_of(plan) == "ascend" else "node"
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, **marks_of(plan)},
        "spec": {
            "schedulerName": "volcano",
            "queue": "default",
            "minAvailable": hosts,
            "maxRetry": 3,
            "networkTopology": {"mode": "hard", "highestTierAllowed": tier_of(plan)},
            "plugins": {"svc": ["--publish-not-ready-addresses=true"], "env": []},
            "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
            "tasks": [{
                "name": "node",
                "replicas": hosts,
                "template": {"spec": pod(plan, env, first, name_of_container)},
            }],
        },
    }  # fmt: skip
