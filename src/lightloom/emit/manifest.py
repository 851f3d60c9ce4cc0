"""Pieces that every Kubernetes manifest shares, and YAML with a head of origins."""

from __future__ import annotations

from typing import Any

import yaml

from lightloom.core.plan import Plan

from .bundle import EmittedFile, head, lines_of
from .inner import entry_of, framework_bundle, image_of
from .topology import job_name, nodes_of, resource_of, vendor_of

ORIGINS = (
    "replicas, resources of the accelerator: plan (ranks) and cluster (cards of a host)",
    "script: plan, mounted from the ConfigMap job-files",
    "image, data volume, cpu and memory: site",
    "rendezvous: default, an init container waits until the first host answers",
)
MOUNT = "/lightloom"


def yaml_file(path: str, plan: Plan, what: str, *documents: dict[str, Any]) -> EmittedFile:
    """Return one YAML file of several documents."""
    body = yaml.safe_dump_all(documents, sort_keys=False, default_flow_style=False, width=100)
    return EmittedFile(path, lines_of(head(plan, what), [f"# {o}" for o in ORIGINS], body.rstrip()))


def files_map(plan: Plan) -> dict[str, Any]:
    """Return the ConfigMap that holds the framework's files."""
    files = framework_bundle(plan).files
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{job_name(plan)}-files"},
        "data": {file.path: file.text for file in files},
    }


def container(plan: Plan, env: list[dict[str, Any]], name: str = "node") -> dict[str, Any]:
    """Return the training container of one host."""
    count = nodes_of(plan).per_node
    resource = resource_of(plan)
    files = framework_bundle(plan).files
    return {
        "name": name,
        "image": image_of(plan),
        "command": ["bash", f"{MOUNT}/{entry_of(files)}"],
        "env": env,
        "resources": {"limits": {resource: count}, "requests": {resource: count}},
        "volumeMounts": [
            {"name": "job-files", "mountPath": MOUNT},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "data", "mountPath": "/data"},
        ],
    }


def volumes(plan: Plan) -> list[dict[str, Any]]:
    """Return the volumes of one host."""
    return [
        {"name": "job-files", "configMap": {"name": f"{job_name(plan)}-files",
                                            "defaultMode": 0o755}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "training-data"}},
    ]  # fmt: skip


def rendezvous(address: str) -> dict[str, Any]:
    """Return an init container that waits, at most ten minutes, until the first host has a name."""
    script = (
        f"for i in $(seq 300); do getent hosts {address} && exit 0; sleep 2; done; "
        f"echo '{address} has no address after 600 s' >&2; exit 1"
    )
    return {"name": "rendezvous", "image": "debian:12-slim", "command": ["sh", "-c", script]}


def site_env() -> list[dict[str, Any]]:
    """Return the paths that only the site knows."""
    return [
        {"name": "DATA_PATH", "value": "/data/train"},
        {"name": "SAVE_DIR", "value": "/data/snapshots"},
        {"name": "TOKENIZER", "value": "/data/tokenizer"},
        {"name": "SCRIPT", "value": "/data/train.py"},
    ]


def pod(plan: Plan, env: list[dict[str, Any]], address: str, name: str = "node") -> dict[str, Any]:
    """Return the pod of one host."""
    out: dict[str, Any] = {
        "restartPolicy": "Never",
        "initContainers": [rendezvous(address)],
        "containers": [container(plan, [*env, *site_env()], name)],
        "volumes": volumes(plan),
    }
    selector = node_selector(plan)
    if selector:
        out["nodeSelector"] = selector
    return out


def node_selector(plan: Plan) -> dict[str, str]:
    """Return the node labels of the device plug-in's documentation."""
    if vendor_of(plan) != "ascend":
        return {}
    kind = "module-a3-16-super-pod" if "910c" in plan.cluster.chip.name else "module-910b-8"
    return {"accelerator-type": kind} if "910" in plan.cluster.chip.name else {}
