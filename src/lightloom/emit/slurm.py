"""Slurm: one agent per host, whole segments of a block, no kill of the job for one bad task."""

from __future__ import annotations

from lightloom.core.plan import Plan

from .bundle import Bundle, EmittedFile, head, lines_of
from .inner import entry_of, framework_bundle
from .topology import job_name, nodes_of, vendor_of


def emit(plan: Plan) -> Bundle:
    """Return ``job.sbatch`` beside the framework's files."""
    inner = framework_bundle(plan)
    files = (EmittedFile("job.sbatch", script_of(plan), executable=True), *inner.files)
    return Bundle("slurm", files, inner.findings)


def segment_of(plan: Plan) -> int:
    """Return hosts of one segment: the span of tp x cp x ep in hosts, a divisor of the job.

    A segment stays inside one block (``topology/block``), so fast groups never straddle blocks.
    """
    s, host, hosts = plan.strategy, plan.cluster.host.cards, nodes_of(plan).hosts
    need = -(-max(s.tp * s.cp, s.ep * s.etp) // host)
    block = max(1, plan.cluster.fabric.domain_cards // host)
    fits = [d for d in range(1, hosts + 1) if hosts % d == 0 and need <= d <= block]
    return fits[0] if fits else 1


def script_of(plan: Plan) -> str:
    """Return the batch script."""
    nodes, segment = nodes_of(plan), segment_of(plan)
    entry = entry_of(framework_bundle(plan).files)
    gres = "npu" if vendor_of(plan) == "ascend" else "gpu"
    options = [
        (f"--job-name={job_name(plan)}", "plan"),
        (f"--nodes={nodes.hosts}", "plan: ranks over cards of a host"),
        ("--ntasks-per-node=1", "default: one agent per host starts its ranks"),
        (f"--gres={gres}:{nodes.per_node}", "cluster: cards of a host"),
        ("--exclusive", "default: no neighbour on a host"),
        *([(f"--segment={segment}", "plan: hosts of tp x cp x ep stay in one block")]
          if segment > 1 else []),
        ("--time=7-00:00:00", "site"),
        ("--output=%x-%j.log", "default"),
        ("--requeue", "default: a lost host puts the job back"),
        ("--signal=B:USR1@300", "default: five minutes to save"),
    ]  # fmt: skip
    lines = [line for option, origin in options for line in (f"# {origin}", f"#SBATCH {option}")]
    return lines_of(
        "#!/usr/bin/env bash",
        lines,
        head(plan, "sbatch job.sbatch, from the folder of the framework's checkout"),
        "set -euo pipefail",
        'here="${LIGHTLOOM_FILES:-${SLURM_SUBMIT_DIR:-$PWD}}"  # site: folder of these files',
        'MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"',
        "export MASTER_ADDR",
        f'export MASTER_PORT="${{MASTER_PORT:-{29500}}}"  # default',
        "# kill-on-bad-exit off: a failed rank is the agent's to recover",
        "# shellcheck disable=SC2016",
        f"srun --kill-on-bad-exit=0 bash -c 'NODE_RANK=$SLURM_NODEID exec bash \"$0/{entry}\"'"
        ' "$here"',
    )
