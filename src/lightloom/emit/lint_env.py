"""Rules of the environment: variables that do not exist, ranges, order of time-outs."""

from __future__ import annotations

import itertools
import re

from lightloom.core.errors import nearest
from lightloom.core.finding import Finding, Severity

from .facts import hccl_variables, nccl_names
from .shell import Word

ABSENT = {
    "HCCL_TIMEOUT": "use HCCL_CONNECT_TIMEOUT (set-up) and HCCL_EXEC_TIMEOUT (one collective)",
    "NCCL_TIMEOUT": "set the time-out in init_process_group(timeout=...)",
    "NCCL_SOCKET_TIMEOUT": "NCCL has no such variable; NCCL_IB_TIMEOUT is the nearest",
}
"""Variables that guides print and no library reads."""
BOUNDS = {
    "HCCL_CONNECT_TIMEOUT": (120, 7200), "HCCL_EXEC_TIMEOUT": (0, 2147483647),
    "HCCL_EVENT_TIMEOUT": (0, 2147483647), "HCCL_BUFFSIZE": (1, 2**31),
    "HCCL_IF_BASE_PORT": (1024, 65520), "HCCL_RDMA_SL": (0, 7), "HCCL_RDMA_TC": (0, 255),
    "HCCL_RDMA_TIMEOUT": (5, 24), "HCCL_RDMA_RETRY_CNT": (1, 7),
    "HCCL_RDMA_QPS_PER_CONNECTION": (1, 32), "HCCL_INTRA_ROCE_ENABLE": (0, 1),
    "HCCL_INTRA_PCIE_ENABLE": (0, 1), "HCCL_WHITELIST_DISABLE": (0, 1),
    "HCCL_MULTI_QP_THRESHOLD": (1, 8192), "HCCL_ENTRY_LOG_ENABLE": (0, 1),
    "P2P_HCCL_BUFFSIZE": (0, 2**31), "ASCEND_GLOBAL_LOG_LEVEL": (0, 4),
    "TASK_QUEUE_ENABLE": (0, 2), "NCCL_IB_TIMEOUT": (1, 31), "NCCL_IB_SL": (0, 15),
    "NCCL_IB_TC": (0, 255), "NCCL_IB_RETRY_CNT": (1, 7), "NCCL_NVLS_ENABLE": (0, 2),
    "NCCL_P2P_DISABLE": (0, 1), "NCCL_SHM_DISABLE": (0, 1), "NCCL_IB_DISABLE": (0, 1),
    "NCCL_MNNVL_ENABLE": (0, 2), "TORCH_HCCL_ASYNC_ERROR_HANDLING": (0, 1),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": (0, 3), "CUDA_DEVICE_MAX_CONNECTIONS": (1, 32),
    "CPU_AFFINITY_CONF": (0, 2), "OMP_NUM_THREADS": (1, 1024),
    "MASTER_PORT": (1, 65535),
}  # fmt: skip
"""Lowest and highest value, from the libraries' own documentation."""
WORDS = {
    "HCCL_DETERMINISTIC": {"false", "true", "strict"},
    "HCCL_INTER_HCCS_DISABLE": {"TRUE", "FALSE"},
    "HCCL_SOCKET_FAMILY": {"AF_INET", "AF_INET6"}, "NCCL_SOCKET_FAMILY": {"AF_INET", "AF_INET6"},
    "NCCL_DEBUG": {"VERSION", "WARN", "INFO", "TRACE"},
}  # fmt: skip
HCCL_EXTRA = {"HCCL_OP_BASE_FFTS_MODE", "HCCL_ASYNC_ERROR_HANDLING", "HCCL_BLOCKING_WAIT",
              "HCCL_DESYNC_DEBUG", "HCCL_OP_BASE_FFTS_MODE_ENABLE", "HCCL_SOCKET_PORT_RANGE",
              "HCCL_LOGIC_SUPERPOD_ID", "HCCL_NPU_NET_PROTOCOL"}  # fmt: skip
ALGORITHMS = {"NA", "ring", "H-D_R", "NHR", "NHR_V1", "NB", "AHC", "pipeline", "pairwise",
              "fullmesh"}  # fmt: skip
OPERATORS = {"allgather", "reducescatter", "allreduce", "broadcast", "reduce", "scatter",
             "alltoall"}  # fmt: skip


def check(name: str, env: dict[str, Word], group_s: float | None = None) -> list[Finding]:
    """Return findings about an environment; `group_s` is the process-group time-out if known."""
    out: list[Finding] = []
    for key, word in env.items():
        out += check_one(name, key, word)
    return [*out, *check_order(name, env, group_s), *check_pairs(name, env)]


def finding(name: str, word: Word, code: str, what: str, remedy: str = "",
            severity: Severity = "error") -> Finding:  # fmt: skip
    """Return a finding at the line of a variable."""
    return Finding(severity=severity, code=code, subject=f"{name}:{word.line}", what=what,
                   remedy=remedy)  # fmt: skip


def check_one(name: str, key: str, word: Word) -> list[Finding]:
    """Check one variable by itself."""
    if key in ABSENT:
        return [finding(name, word, "no-such-variable", f"{key} does not exist", ABSENT[key])]
    unknown = unknown_variable(key)
    if unknown:
        return [finding(name, word, "unknown-variable", f"no library reads {key}{unknown}",
                        severity="warning")]  # fmt: skip
    if "$" in word.text:
        return []
    if key == "HCCL_ALGO":
        return check_algo(name, word)
    if key in WORDS and word.text not in WORDS[key]:
        allowed = "|".join(sorted(WORDS[key]))
        return [finding(name, word, "value", f"{key}={word.text!r}: one of {allowed}")]
    if key in BOUNDS:
        low, high = BOUNDS[key]
        if not re.fullmatch(r"-?\d+", word.text):
            return [finding(name, word, "value", f"{key}={word.text!r} is not a whole number")]
        if not low <= int(word.text) <= high:
            return [finding(name, word, "range", f"{key}={word.text} is outside {low}..{high}")]
    if key == "HCCL_RDMA_TC" and int(word.text) % 4:
        return [finding(name, word, "range", f"HCCL_RDMA_TC={word.text} is not a multiple of 4",
                        "traffic class = 4 x DSCP")]  # fmt: skip
    return []


def unknown_variable(key: str) -> str:
    """Return the complaint about a name that no library documents, or an empty string."""
    if key.startswith("HCCL_") and key not in hccl_variables() and key not in HCCL_EXTRA:
        return nearest(key, [*hccl_variables(), *HCCL_EXTRA]) or " "
    if key.startswith("NCCL_") and key not in nccl_names():
        return nearest(key, nccl_names()) or " "
    return ""


def check_algo(name: str, word: Word) -> list[Finding]:
    """Check the syntax of HCCL_ALGO: ``level0:NA;level1:ring`` or ``allreduce=level0:...``."""
    for part in word.text.split("/"):
        head, _, levels = part.rpartition("=")
        if head and head not in OPERATORS:
            return [finding(name, word, "algo", f"HCCL_ALGO: unknown operator {head!r}"
                            f"{nearest(head, OPERATORS)}")]  # fmt: skip
        for level in levels.split(";"):
            match = re.fullmatch(r"level([012]):(\S+)", level.strip())
            if not match:
                return [finding(name, word, "algo", f"HCCL_ALGO={word.text!r} is not valid syntax",
                                "level0:NA;level1:ring")]  # fmt: skip
            if match[2] not in ALGORITHMS or (match[1] == "0" and match[2] != "NA"):
                want = "NA" if match[1] == "0" else "|".join(sorted(ALGORITHMS - {"NA"}))
                return [finding(name, word, "algo", f"HCCL_ALGO: level{match[1]}:{match[2]}",
                                f"level{match[1]} takes {want}")]  # fmt: skip
    return []


def number(env: dict[str, Word], key: str) -> float | None:
    """Return a numeric variable, None where it is absent or not a number."""
    text = env[key].text if key in env else ""
    return float(text) if re.fullmatch(r"\d+", text) else None


def check_order(name: str, env: dict[str, Word], group_s: float | None) -> list[Finding]:
    """Check connect < exec < event < process group."""
    if not any(key.startswith("HCCL_") for key in env):
        return []
    default = {"HCCL_CONNECT_TIMEOUT": 120.0, "HCCL_EXEC_TIMEOUT": 1836.0,
               "HCCL_EVENT_TIMEOUT": 1868.0}  # fmt: skip
    chain = [(key, number(env, key) if key in env else value) for key, value in default.items()]
    chain.append(("process group", group_s))
    out = []
    for (low, a), (high, b) in itertools.pairwise(chain):
        touched = [env[k] for k in (low, high) if k in env]
        if a is not None and b is not None and touched and a >= b and a:
            out.append(finding(name, touched[0], "timeout-order",
                               f"{low} {a:g} s is not shorter than {high} {b:g} s",
                               "connect < exec < event < process group"))  # fmt: skip
    return out


def check_pairs(name: str, env: dict[str, Word]) -> list[Finding]:
    """Check variables that depend on one another."""
    out = []
    pcie, roce = (env.get(f"HCCL_INTRA_{k}_ENABLE") for k in ("PCIE", "ROCE"))
    if pcie and roce and pcie.text == roce.text == "1":
        out.append(finding(name, roce, "intra", "HCCL_INTRA_PCIE_ENABLE and _ROCE_ENABLE both 1",
                           "one of them"))  # fmt: skip
    if pcie and not roce and pcie.text == "0":
        out.append(finding(name, pcie, "intra", "HCCL_INTRA_PCIE_ENABLE=0 alone leaves no path",
                           "with HCCL_INTRA_ROCE_ENABLE=1"))  # fmt: skip
    retry, mode = env.get("HCCL_OP_RETRY_ENABLE"), env.get("HCCL_OP_EXPANSION_MODE")
    if retry and ":1" in retry.text and mode and not mode.text.startswith("AI"):
        out.append(finding(name, retry, "retry", f"operation retry needs AI_CPU, mode is "
                           f"{mode.text}"))  # fmt: skip
    return out
