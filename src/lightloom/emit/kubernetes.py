"""Kubernetes: a Kubeflow TrainJob, and the same job as a JobSet; AscendJob rules on Ascend."""

from __future__ import annotations

from typing import Any

from lightloom.core.plan import Plan

from .bundle import Bundle
from .manifest import files_map, pod, site_env, yaml_file
from .topology import job_name, nodes_of, resource_of, vendor_of


def emit(plan: Plan) -> Bundle:
    """Return ``trainjob.yaml`` and ``jobset.yaml`` (apply one of them)."""
    files = (
        yaml_file("trainjob.yaml", plan, "Kubeflow Trainer v2: kubectl apply -f trainjob.yaml",
                  files_map(plan), trainjob(plan)),
        yaml_file("jobset.yaml", plan, "JobSet: kubectl apply -f jobset.yaml",
                  files_map(plan), jobset(plan)),
    )  # fmt: skip
    return Bundle("kubernetes", files)


def trainjob(plan: Plan) -> dict[str, Any]:
    """Return a TrainJob on the ``torch-distributed`` runtime."""
    nodes = nodes_of(plan)
    resource = resource_of(plan)
    env = [
        {"name": "NODE_RANK", "value": "$(PET_NODE_RANK)"},
        {"name": "MASTER_ADDR", "value": "$(PET_MASTER_ADDR)"},
        {"name": "MASTER_PORT", "value": "$(PET_MASTER_PORT)"},
    ]
    count = {resource: nodes.per_node}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": job_name(plan), **marks_of(plan)},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {
                "image": f"REGISTRY/lightloom-{plan.strategy.framework}:site",
                "command": ["bash", "/lightloom/train.sh"],
                "numNodes": nodes.hosts,
                "numProcPerNode": nodes.per_node,
                "resourcesPerNode": {"limits": count, "requests": count},
                "env": [*env, *site_env()],
            },
        },
    }


def marks_of(plan: Plan) -> dict[str, Any]:
    """Return MindCluster's labels and annotations on Ascend, nothing elsewhere."""
    if vendor_of(plan) != "ascend":
        return {}
    return {
        "labels": {"ring-controller.atlas": ring_label(plan), "fault-scheduling": "force"},
        "annotations": superpod_annotations(plan),
    }


def ring_label(plan: Plan) -> str:
    """Return MindCluster's device label."""
    return "ascend-910b" if "910" in plan.cluster.chip.name else "ascend-npu"


def superpod_annotations(plan: Plan) -> dict[str, str]:
    """Return ``sp-block`` (cards of one logical superpod) and the scheduling policy.

    sp-block is the span of the axes that must not leave a superpod (tp x cp x ep), rounded up to
    whole hosts and to a divisor of the job (MindCluster: a multiple of the host's cards that
    divides the job).
    """
    s, host = plan.strategy, plan.cluster.host.cards
    world = s.world_size
    name = plan.cluster.chip.name
    if "910b" in name or world < host:
        return {"huawei.com/schedule_policy": "chip8-node8"} if "910b" in name else {}
    need = max(s.tp * s.cp, s.ep * s.etp, host)
    blocks = [b for b in range(host, world + 1, host) if world % b == 0 and b >= need]
    inside = [b for b in blocks if b <= plan.cluster.fabric.domain_cards]
    block = (inside or blocks or [world])[0]
    policy = "chip8-node8-ra64-sp" if "950" in name or "960" in name else "chip2-node16-sp"
    return {"sp-block": str(block), "huawei.com/schedule_policy": policy}


def jobset(plan: Plan) -> dict[str, Any]:
    """Return a JobSet: one indexed Job, one pod per host."""
    name = job_name(plan)
    first = f"{name}-node-0-0.{name}"
    env: list[dict[str, Any]] = [
        {"name": "MASTER_ADDR", "value": first},
        {"name": "NODE_RANK", "valueFrom": {"fieldRef": {
            "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}},
    ]  # fmt: skip
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, **marks_of(plan)},
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": name,
                        "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": 3},
            "replicatedJobs": [{"name": "node", "replicas": 1, "template": job_template(plan, env,
                                                                                         first)}],
        },
    }  # fmt: skip


def job_template(plan: Plan, env: list[dict[str, Any]], address: str) -> dict[str, Any]:
    """Return the Job of a JobSet."""
    hosts = nodes_of(plan).hosts
    return {
        "spec": {
            "parallelism": hosts,
            "completions": hosts,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {"spec": pod(plan, env, address)},
        }
    }
