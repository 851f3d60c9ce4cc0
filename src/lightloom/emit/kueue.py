"""Kueue: topology, flavor, queues, and the JobSet that asks for whole units of the fabric."""

from __future__ import annotations

from typing import Any

from lightloom.core.plan import Plan

from .bundle import Bundle
from .kubernetes import jobset
from .manifest import files_map, yaml_file
from .topology import nodes_of, resource_of

GROUP = "kueue.x-k8s.io/v1beta1"


def emit(plan: Plan) -> Bundle:
    """Return ``kueue.yaml`` (for the administrator, once) and ``jobset.yaml`` (the job)."""
    setup = yaml_file("kueue.yaml", plan, "Kueue objects, applied once by the administrator",
                      *queues(plan))  # fmt: skip
    job = yaml_file("jobset.yaml", plan, "the job; Kueue admits it as a whole",
                    files_map(plan), request(plan))  # fmt: skip
    return Bundle("kueue", (setup, job))


def labels_of(plan: Plan) -> list[str]:
    """Return node labels of the fabric's levels above a host, outermost first."""
    fabric, host = plan.cluster.fabric, plan.cluster.host.cards
    above = [level.name for i, level in enumerate(fabric.levels) if fabric.cards_below(i) > host]
    names = [f"fabric.lightloom.io/{name}" for name in reversed(above[:-1])]
    return [*names, "kubernetes.io/hostname"]


def queues(plan: Plan) -> list[dict[str, Any]]:
    """Return Topology, ResourceFlavor, ClusterQueue and LocalQueue."""
    name, resource = plan.cluster.name, resource_of(plan)
    return [
        {"apiVersion": GROUP, "kind": "Topology", "metadata": {"name": name},
         "spec": {"levels": [{"nodeLabel": label} for label in labels_of(plan)]}},
        {"apiVersion": GROUP, "kind": "ResourceFlavor", "metadata": {"name": name},
         "spec": {"nodeLabels": {"lightloom.io/cluster": name}, "topologyName": name}},
        {"apiVersion": GROUP, "kind": "ClusterQueue", "metadata": {"name": name},
         "spec": {"namespaceSelector": {}, "resourceGroups": [{
             "coveredResources": [resource],
             "flavors": [{"name": name, "resources": [
                 {"name": resource, "nominalQuota": plan.cluster.cards}]}]}]}},
        {"apiVersion": GROUP, "kind": "LocalQueue",
         "metadata": {"name": "training", "namespace": "default"},
         "spec": {"clusterQueue": name}},
    ]  # fmt: skip


def request(plan: Plan) -> dict[str, Any]:
    """Return the JobSet with its topology request: required where the job fits a unit."""
    job = jobset(plan)
    job["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "training"
    job["spec"]["suspend"] = True
    template = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"] = {"annotations": topology_request(plan)}
    return job


def topology_request(plan: Plan) -> dict[str, str]:
    """Return the annotations: innermost unit that holds the job, or slices of whole units."""
    fabric, host = plan.cluster.fabric, plan.cluster.host.cards
    hosts = nodes_of(plan).hosts
    labels = labels_of(plan)[:-1]
    if not labels:
        return {"kueue.x-k8s.io/podset-preferred-topology": "kubernetes.io/hostname"}
    above = [i for i in range(len(fabric.levels)) if fabric.cards_below(i) > host][:-1]
    inner = [(fabric.cards_below(i) // host, label)
             for i, label in zip(reversed(above), labels, strict=True)]  # fmt: skip
    holding = [label for size, label in inner if hosts <= size]
    if holding:
        return {"kueue.x-k8s.io/podset-required-topology": holding[-1]}
    size, label = inner[-1]
    if hosts % size == 0:
        return {
            "kueue.x-k8s.io/podset-preferred-topology": labels[0],
            "kueue.x-k8s.io/podset-slice-required-topology": label,
            "kueue.x-k8s.io/podset-slice-size": str(size),
        }
    return {"kueue.x-k8s.io/podset-preferred-topology": labels[0]}
