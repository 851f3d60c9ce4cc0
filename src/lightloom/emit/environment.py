"""Environment of every rank: collective library, allocator, time-outs in the right order.

Time-outs must be ordered connect < exec < event < process group, or the outer one fires first and
hides who stopped (HCCL manual; facts of 47 variables in catalog/emit/hccl_env.csv).
"""

from __future__ import annotations

import math

from lightloom.core.plan import Plan
from lightloom.core.traffic import DEFAULT_PRIORITY

from .bundle import Setting, setting
from .topology import nodes_of, vendor_of

CONNECT_S, EXEC_S, EVENT_S, GROUP_MIN = 600, 1836, 1868, 40
"""Seconds (minutes for the process group): socket set-up, one collective, event, group."""
SERVICE_LEVEL = {"highest": 5, "high": 4, "medium": 3, "low": 1}
"""RoCE service level per priority; the switch's PFC queues must match (site)."""


def environment_of(plan: Plan) -> list[Setting]:
    """Return the variables of every rank for the machine's collective library."""
    vendor = vendor_of(plan)
    common = [setting("OMP_NUM_THREADS", cpu_threads(plan), "default", "host cores per rank")]
    if vendor == "ascend":
        return common + hccl(plan)
    if vendor in ("nvidia", "amd"):
        return common + nccl(plan, amd=vendor == "amd")
    return common


def cpu_threads(plan: Plan) -> int:
    """Return host threads per rank: a quarter of its share of the cores, at least one."""
    host = plan.cluster.host
    return max(1, host.cores // max(1, host.cards) // 4) if host.cores else 4


def group_minutes() -> int:
    """Return the process-group time-out: longer than every wait inside the library."""
    return GROUP_MIN


def buffer_mb(plan: Plan) -> int:
    """Return HCCL_BUFFSIZE in MB: one micro-batch of activations, 64 to 1,024.

    ceil(mbs * seq * hidden * 2 bytes / 2^20), the HCCL manual's rule for language models.
    """
    s = plan.strategy
    need = s.micro_batch * s.seq / s.cp * plan.model.hidden * 2 / 2**20
    return min(1024, max(64, math.ceil(need)))


def communicators_of(plan: Plan) -> int:
    """Return process groups per rank: one per axis used, plus the world."""
    s = plan.strategy
    axes = (s.tp, s.pp, s.dp, s.cp, s.ep, s.etp)
    return 1 + sum(degree > 1 for degree in axes) + (s.dp > 1 and s.cp > 1)


def hccl_algorithm(plan: Plan) -> str:
    """Return HCCL_ALGO: level0 is automatic, level1 by host count, level2 between superpods."""
    chip = plan.cluster.chip.name
    hosts = nodes_of(plan).hosts
    if "950" in chip or "960" in chip or "970" in chip:
        return "level0:NA;level1:NHR"
    power = hosts & (hosts - 1) == 0
    first = "H-D_R" if power else "ring" if hosts < 8 else "NHR"
    if "910c" in chip and plan.strategy.world_size > plan.cluster.fabric.domain_cards:
        domains = -(-plan.strategy.world_size // plan.cluster.fabric.domain_cards)
        outer = "ring" if domains < 8 and domains & (domains - 1) else "H-D_R"
        return f"level0:NA;level1:{first};level2:{outer}"
    return f"level0:NA;level1:{first}"


def hccl(plan: Plan) -> list[Setting]:
    """Return HCCL and torch_npu variables."""
    level = SERVICE_LEVEL[DEFAULT_PRIORITY["gradient"]]
    return [
        setting("HCCL_CONNECT_TIMEOUT", CONNECT_S, "default", "120 s is short above 512 ranks"),
        setting("HCCL_EXEC_TIMEOUT", EXEC_S, "default", "the library's own; below the event's"),
        setting("HCCL_EVENT_TIMEOUT", EVENT_S, "default", "must exceed HCCL_EXEC_TIMEOUT"),
        setting(
            "HCCL_BUFFSIZE",
            buffer_mb(plan),
            "plan",
            f"MB, x2 per communicator, {communicators_of(plan)} communicators",
        ),
        setting("HCCL_ALGO", hccl_algorithm(plan), "cluster", "per level; level0 is automatic"),
        setting(
            "HCCL_IF_BASE_PORT",
            60000,
            "default",
            "32 ports; reserve them with net.ipv4.ip_local_reserved_ports",
        ),
        setting("HCCL_RDMA_SL", level, "default", "medium: gradients; must match the PFC queue"),
        setting("HCCL_RDMA_TC", (8 * level) * 4, "default", "4 x DSCP"),
        setting("TASK_QUEUE_ENABLE", 2, "default", "host dispatch off the critical path"),
        setting("CPU_AFFINITY_CONF", 1, "default", "coarse core binding"),
        setting(
            "PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True", "default", "less fragmentation"
        ),
        setting("ASCEND_GLOBAL_LOG_LEVEL", 3, "default", "errors only; 1 when hunting a fault"),
        setting("TORCH_HCCL_ASYNC_ERROR_HANDLING", 1, "default", "ends a rank on an error CQE"),
    ]


def nccl(plan: Plan, *, amd: bool) -> list[Setting]:
    """Return NCCL (or RCCL, same names) and torch variables."""
    s, fabric = plan.strategy, plan.cluster.fabric
    alloc = "PYTORCH_HIP_ALLOC_CONF" if amd else "PYTORCH_CUDA_ALLOC_CONF"
    out = [
        setting("TORCH_NCCL_ASYNC_ERROR_HANDLING", 1, "default", "ends a rank on a failed peer"),
        setting("TORCH_NCCL_TRACE_BUFFER_SIZE", 2000, "default", "flight recorder for hangs"),
        setting(alloc, "expandable_segments:True", "default", "less fragmentation"),
        setting("NCCL_DEBUG", "WARN", "default", "INFO when hunting a fault"),
    ]
    if s.framework == "megatron" and (s.tp > 1 or s.cp > 1) and s.zero not in ("fsdp", "hsdp"):
        out.append(
            setting(
                "CUDA_DEVICE_MAX_CONNECTIONS",
                1,
                "plan",
                "order of communication and GEMM under tp or cp",
            )
        )
    if nodes_of(plan).hosts > 1:
        out += [
            setting("NCCL_IB_TIMEOUT", 22, "default", "17 s; survives a link flap"),
            setting(
                "NCCL_IB_SL",
                SERVICE_LEVEL[DEFAULT_PRIORITY["gradient"]],
                "default",
                "medium: gradients; must match the switch",
            ),
        ]
    if any(level.reduces for level in fabric.levels) and not amd:
        out.append(setting("NCCL_NVLS_ENABLE", 1, "cluster", "switches of the domain add"))
    if fabric.domain_cards > 8 and not amd:
        out.append(setting("NCCL_MNNVL_ENABLE", 1, "cluster", "domain wider than a host"))
    return out


def memory_bytes(plan: Plan) -> float:
    """Return device memory that HCCL takes: communicators x 2 x buffer."""
    return communicators_of(plan) * 2.0 * buffer_mb(plan) * 2**20
