"""The lines that start ranks: torchrun, environment file, NUMA wrapper."""

from __future__ import annotations

from collections.abc import Iterable

from lightloom.core.plan import Plan

from .bundle import EmittedFile, Setting, head, lines_of
from .topology import nodes_of

PORT = 29500


def host_script(plan: Plan, what: str, *lines: str | list[str]) -> str:
    """Return a bash script of one host that reads ``environment.sh`` beside it, then `lines`."""
    return lines_of(
        "#!/usr/bin/env bash",
        head(plan, what),
        "set -euo pipefail",
        'here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"',
        'source "$here/environment.sh"',
        *lines,
    )


def launch_lines(plan: Plan, command: str) -> list[str]:
    """Return the torchrun line of one host; rank and address come from the launcher or the site."""
    nodes = nodes_of(plan)
    where = (
        ["--standalone"]
        if nodes.hosts == 1
        else [
            '--node-rank "${NODE_RANK:?0 on the first host, 1 on the next}"',
            '--master-addr "${MASTER_ADDR:?address of the first host}"',
            f'--master-port "${{MASTER_PORT:-{PORT}}}"',
        ]
    )
    words = [
        f"exec torchrun --nnodes {nodes.hosts} --nproc-per-node {nodes.per_node}",
        *where,
        "--max-restarts 0",
        '--no-python "$here/numa.sh"',
    ]
    return [" \\\n  ".join([*words, f"python -u {command}"])]


def environment_file(plan: Plan, settings: Iterable[Setting]) -> EmittedFile:
    """Return ``environment.sh``; a variable already set by the site wins."""
    lines = []
    for item in settings:
        value = item.value or ""
        lines.append(f'export {item.name}="${{{item.name}:-{value}}}"  # {item.note}')
    return EmittedFile(
        "environment.sh",
        lines_of(
            head(plan, "environment of every rank; what the site has set already wins"), lines
        ),
    )


def numa_file(plan: Plan) -> EmittedFile:
    """Return ``numa.sh``: binds a rank to the memory next to its card where numactl is present."""
    host = plan.cluster.host
    per = max(1, nodes_of(plan).per_node)
    lines = [
        "set -euo pipefail",
        f"nodes={max(1, host.numa)}  # cluster: NUMA nodes of a host",
        f"ranks={per}  # cluster: ranks of a host",
        "node=$(( ${LOCAL_RANK:-0} * nodes / ranks ))",
        'if command -v numactl > /dev/null && [ -d "/sys/devices/system/node/node$node" ]; then',
        '  exec numactl --cpunodebind="$node" --membind="$node" "$@"',
        "fi",
        'exec "$@"',
    ]
    text = lines_of("#!/usr/bin/env bash", head(plan, "memory next to the card"), lines)
    return EmittedFile("numa.sh", text, executable=True)
