"""What to tell the library: ``HCCL_ALGO`` and NCCL variables for a schedule."""

from __future__ import annotations

from lightloom.core.fabric import Fabric

from .schedule import Schedule

HCCL = {
    "ring": "ring", "bucket": "ring", "halving-doubling": "H-D_R", "swing": "H-D_R",
    "tree": "NB", "direct": "NHR", "chain": "ring", "pairwise": "pairwise", "in-network": "NHR",
}  # fmt: skip
"""Our algorithm -> HCCL's word (CANN 8.0 to 9.0 documentation)."""


def hccl_algo(fabric: Fabric, plan: Schedule) -> str:
    """Return a valid ``HCCL_ALGO``: level0 (inside a server) is automatic, the rest is named.

    level1 joins servers of a supernode or cluster, level2 supernodes (CANN documentation).
    """
    chain = max((chain for _, chain in plan.chains), key=len, default=())
    outer: dict[int, str] = {}
    for stage in chain:
        if stage.axis.level != 0:
            outer[stage.axis.level] = HCCL.get(stage.algorithm, "NHR")
    if plan.kind == "all-to-all":
        outer = dict.fromkeys(outer or {1: ""}, "pairwise")
    words = [outer[level] for level in sorted(outer)]
    text = "level0:NA" + "".join(f";level{i + 1}:{w}" for i, w in enumerate(words[-2:]))
    return f"HCCL_ALGO={text}"


def nccl_hints(plan: Schedule) -> str:
    """Return NCCL variables that lead to the same kind of schedule (NCCL 2.27 names)."""
    used = {stage.algorithm for stage in plan.stages}
    if plan.kind in ("all-to-all", "send-recv"):
        return "NCCL_PXN_DISABLE=0"
    if "in-network" in used:
        return "NCCL_NVLS_ENABLE=1 NCCL_ALGO=" + ("NVLSTree,NVLS" if len(used) > 1 else "NVLS")
    if plan.kind == "broadcast":
        return "NCCL_ALGO=Ring"
    if plan.kind != "all-reduce":
        return "NCCL_ALGO=" + ("Ring" if used == {"ring"} else "PAT,Ring")
    return "NCCL_ALGO=" + ("Ring" if used <= {"ring", "bucket"} else "Tree,Ring")
