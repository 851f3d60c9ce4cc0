"""Ray: a job whose actors, one per host, start the framework's script."""

from __future__ import annotations

import json

from lightloom.core.plan import Plan

from .bundle import Bundle, EmittedFile, head, lines_of
from .inner import entry_of, framework_bundle
from .topology import job_name, nodes_of, vendor_of


def emit(plan: Plan) -> Bundle:
    """Return ``ray_job.py`` and ``submit.sh`` beside the framework's files."""
    inner = framework_bundle(plan)
    submit = lines_of(
        "#!/usr/bin/env bash",
        head(plan, "ray job submit with this folder as working directory"),
        "set -euo pipefail",
        'cd "$(dirname "${BASH_SOURCE[0]}")"',
        f"exec ray job submit --submission-id {job_name(plan)} --working-dir . "
        "-- python ray_job.py",
    )
    files = (
        EmittedFile("ray_job.py", script_of(plan)),
        EmittedFile("submit.sh", submit, executable=True),
        *inner.files,
    )
    return Bundle("ray", files, inner.findings)


def script_of(plan: Plan) -> str:
    """Return the driver: a placement group of whole hosts, then one agent on each."""
    nodes = nodes_of(plan)
    entry = entry_of(framework_bundle(plan).files)
    resource = {"nvidia": "GPU", "amd": "GPU", "ascend": "NPU", "google": "TPU"}
    name = resource.get(vendor_of(plan), "GPU")
    constants = [
        f"HOSTS = {nodes.hosts}  # plan",
        f"PER_HOST = {nodes.per_node}  # cluster: cards of a host",
        f"RESOURCE = {json.dumps(name)}  # cluster: what ray calls a card",
        f"ENTRY = {json.dumps(entry)}  # plan: framework's script",
        "PORT = 29500  # default",
    ]
    return lines_of('"""Start one agent per host and wait for all."""', "",
                    head(plan, "Ray driver"), "", BODY[0].splitlines(), "", constants,
                    BODY[1].rstrip().splitlines())  # fmt: skip


BODY = (
    """import os
import subprocess

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy""",
    '''

@ray.remote(max_restarts=0)
class Agent:
    """One host: knows its address, runs the script."""

    def address(self) -> str:
        return ray.util.get_node_ip_address()

    def start(self, rank: int, master: str) -> int:
        env = {**os.environ, "NODE_RANK": str(rank), "MASTER_ADDR": master,
               "MASTER_PORT": str(PORT)}
        return subprocess.run(["bash", ENTRY], env=env, check=False).returncode


def main() -> None:
    ray.init()
    bundle = {"CPU": PER_HOST, RESOURCE: PER_HOST}
    group = placement_group([bundle] * HOSTS, strategy="STRICT_SPREAD")
    ray.get(group.ready())
    agents = []
    for index in range(HOSTS):
        where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        options = {"num_cpus": PER_HOST, "scheduling_strategy": where}
        if RESOURCE == "GPU":
            options["num_gpus"] = PER_HOST
        else:
            options["resources"] = {RESOURCE: PER_HOST}
        agents.append(Agent.options(**options).remote())
    master = ray.get(agents[0].address.remote())
    codes = ray.get([agent.start.remote(i, master) for i, agent in enumerate(agents)])
    raise SystemExit(max(codes))


if __name__ == "__main__":
    main()
''',
)
