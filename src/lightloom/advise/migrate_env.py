"""NCCL, CUDA and invented variables to HCCL and torch_npu: value, reason, source.

The map is the HCCL manual's own counterpart column (catalog/emit/hccl_env.csv), with the values
that mean something else there converted.
"""

from __future__ import annotations

from typing import NamedTuple

from lightloom.emit.facts import hccl_variables
from lightloom.emit.lint_env import ABSENT, BOUNDS, check_algo, unknown_variable
from lightloom.emit.shell import Word

MAP = {
    "NCCL_SOCKET_IFNAME": "HCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_FAMILY": "HCCL_SOCKET_FAMILY",
    "NCCL_IB_SL": "HCCL_RDMA_SL",
    "NCCL_IB_TC": "HCCL_RDMA_TC",
    "NCCL_IB_TIMEOUT": "HCCL_RDMA_TIMEOUT",
    "NCCL_IB_RETRY_CNT": "HCCL_RDMA_RETRY_CNT",
    "NCCL_IB_QPS_PER_CONNECTION": "HCCL_RDMA_QPS_PER_CONNECTION",
    "CUDA_VISIBLE_DEVICES": "ASCEND_RT_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES": "ASCEND_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF": "PYTORCH_NPU_ALLOC_CONF",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "TORCH_HCCL_ASYNC_ERROR_HANDLING",
    "NCCL_ASYNC_ERROR_HANDLING": "TORCH_HCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_BLOCKING_WAIT": "TORCH_HCCL_BLOCKING_WAIT",
    "NCCL_BLOCKING_WAIT": "TORCH_HCCL_BLOCKING_WAIT",
    "TORCH_NCCL_DESYNC_DEBUG": "TORCH_HCCL_DESYNC_DEBUG",
    "NCCL_DEBUG_FILE": "ASCEND_PROCESS_LOG_PATH",
    "CUDA_LAUNCH_BLOCKING": "ASCEND_LAUNCH_BLOCKING",
    "HCCL_ASYNC_ERROR_HANDLING": "TORCH_HCCL_ASYNC_ERROR_HANDLING",
    "HCCL_BLOCKING_WAIT": "TORCH_HCCL_BLOCKING_WAIT",
    "HCCL_DESYNC_DEBUG": "TORCH_HCCL_DESYNC_DEBUG",
}
"""Variables of the same meaning and value, or a value that `converted` turns."""
LOG_LEVEL = {"VERSION": "3", "WARN": "3", "INFO": "1", "TRACE": "0", "ABORT": "3"}
"""NCCL_DEBUG -> ASCEND_GLOBAL_LOG_LEVEL (0 debug, 1 info, 2 warning, 3 error)."""
ALGORITHM = {
    "ring": "level0:NA;level1:ring",
    "tree": "level0:NA;level1:NHR",
    "collnet": "level0:NA;level1:NHR",
    "nvls": "level0:NA;level1:NHR",
    "h-d_r": "level0:NA;level1:H-D_R",
    "nhr": "level0:NA;level1:NHR",
    "mesh": "level0:NA;level1:NHR",
}
NONE = {
    "NCCL_IB_HCA": ("an NPU owns its network port", "hccn_tool -i N -ip -g shows it"),
    "NCCL_IB_GID_INDEX": ("an NPU owns its network port", "hccn_tool -i N -gid_index"),
    "NCCL_IB_DISABLE": (
        "an NPU has no socket transport between cards",
        "HCCL_SOCKET_IFNAME for the host side",
    ),
    "NCCL_NET_GDR_LEVEL": ("the port sits on the NPU: always direct", ""),
    "NCCL_NET_GDR_READ": ("the port sits on the NPU: always direct", ""),
    "NCCL_CROSS_NIC": ("one port per NPU", ""),
    "NCCL_NVLS_ENABLE": ("no reduction in the switch", "HCCL_OP_EXPANSION_MODE"),
    "NCCL_COLLNET_ENABLE": ("no reduction in the network", ""),
    "NCCL_MAX_CTAS": ("collectives do not run on the matrix cores", "HCCL_OP_EXPANSION_MODE"),
    "NCCL_MIN_CTAS": ("collectives do not run on the matrix cores", "HCCL_OP_EXPANSION_MODE"),
    "NCCL_NTHREADS": ("collectives do not run on the matrix cores", "HCCL_OP_EXPANSION_MODE"),
    "NCCL_MIN_NCHANNELS": ("no channels", "HCCL_RDMA_QPS_PER_CONNECTION"),
    "NCCL_MAX_NCHANNELS": ("no channels", "HCCL_RDMA_QPS_PER_CONNECTION"),
    "NCCL_LAUNCH_MODE": ("no such choice", ""),
    "NCCL_PROTO": ("no protocols (LL, LL128, Simple)", "HCCL_ALGO chooses the algorithm only"),
    "NCCL_P2P_DISABLE": (
        "only some boards choose",
        "HCCL_INTRA_ROCE_ENABLE (A2 Box16, 300T Pro), HCCL_INTER_HCCS_DISABLE (A3)",
    ),
    "NCCL_P2P_LEVEL": ("only some boards choose", "HCCL_INTRA_PCIE_ENABLE"),
    "NCCL_SHM_DISABLE": ("no shared-memory transport between cards", ""),
    "NCCL_TOPO_FILE": ("a rank table and the board's own topology file", "RANK_TABLE_FILE"),
    "NCCL_GRAPH_FILE": ("a rank table and the board's own topology file", "RANK_TABLE_FILE"),
    "NCCL_BUFFSIZE": (
        "bytes of a channel there, MB of a communicator here",
        "HCCL_BUFFSIZE (added with its rule)",
    ),
    "CUDA_HOME": ("another toolkit", "source /usr/local/Ascend/ascend-toolkit/set_env.sh"),
    "NVTE_FUSED_ATTN": ("Transformer Engine", "--use-flash-attn of MindSpeed"),
    "NVTE_FLASH_ATTN": ("Transformer Engine", "--use-flash-attn of MindSpeed"),
}
"""Variables without a counterpart: why, and the nearest."""
KEEP = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "no effect on an NPU; MindSpeed's own scripts export it and "
    "Megatron checks it"
}
FAMILIES = ("NCCL_", "TORCH_NCCL_", "HCCL_", "NVTE_", "NVSHMEM_", "UCX_", "CUDA_", "NVIDIA_")
MANUAL = "HCCL manual"
COLUMN = "published: counterpart column of the HCCL manual"


class Answer(NamedTuple):
    """What becomes of one variable: new pairs, or none and the nearest."""

    pairs: tuple[tuple[str, str], ...]
    why: str
    source: str
    lacking: bool = False
    nearest: str = ""
    kept: bool = False


def ours(name: str) -> bool:
    """Return whether a variable concerns cards or their communication."""
    return (
        name in MAP or name in NONE or name in KEEP or name in ABSENT or (name.startswith(FAMILIES))
    )


def source_of(name: str) -> str:
    """Return where the meaning of an HCCL variable is published."""
    row = hccl_variables().get(name)
    return f"published: {row['source']}" if row else f"published: {MANUAL}"


def answer(name: str, value: str) -> Answer:
    """Return what becomes of ``name=value``."""
    if name in ABSENT:
        return invented(name, value)
    if name in KEEP:
        return Answer(((name, value),), KEEP[name], f"published: {MANUAL}", kept=True)
    if name == "HCCL_ALGO":
        return algorithm(name, value)
    if name == "NCCL_ALGO":
        return algorithm(name, value)
    if name == "NCCL_DEBUG":
        level = LOG_LEVEL.get(value.upper().strip("\"'"), "3")
        why = "level 0 debug, 1 info, 2 warning, 3 error; plog files, not the terminal"
        return Answer((("ASCEND_GLOBAL_LOG_LEVEL", level),), why, f"published: {MANUAL}")
    if name == "NCCL_DEBUG_SUBSYS":
        return Answer(
            (("HCCL_DEBUG_CONFIG", '"alg,task,resource"'),),
            "modules alg, task, resource; no others",
            source_of("HCCL_DEBUG_CONFIG"),
        )
    if name == "NCCL_MNNVL_ENABLE":
        off = "TRUE" if value.strip("\"'") == "0" else "FALSE"
        return Answer(
            (("HCCL_INTER_HCCS_DISABLE", off),),
            "A3 only; the sense is inverted",
            source_of("HCCL_INTER_HCCS_DISABLE"),
        )
    if name in MAP:
        return mapped(name, value)
    if name in NONE:
        why, nearest = NONE[name]
        return Answer((), why, COLUMN, True, nearest)
    if name.startswith(("HCCL_", "P2P_HCCL_")):
        return native(name, value)
    wrong = unknown_variable(name)
    if wrong:
        return Answer(
            (), f"no library reads {name}", f"published: {MANUAL}", True, wrong.strip("; ")
        )
    if name.startswith(FAMILIES):
        return Answer((), "no counterpart in the HCCL manual", COLUMN, True)
    return Answer(((name, value),), "", "", kept=True)


def invented(name: str, value: str) -> Answer:
    """Return the real variables for one that no library reads."""
    said = f"{name} does not exist: no library reads it"
    source = "published: absent from the HCCL, NCCL and torch_npu documentation"
    seconds = value.strip("\"'")
    if name != "HCCL_TIMEOUT" or not seconds.isdigit():
        return Answer((), said, source, True, ABSENT[name])
    execute = max(int(seconds), 1)
    connect = min(max(min(int(seconds), 7200), 120), max(120, execute - 60))
    pairs = (
        ("HCCL_CONNECT_TIMEOUT", str(connect)),
        ("HCCL_EXEC_TIMEOUT", str(execute)),
        ("HCCL_EVENT_TIMEOUT", str(execute + 32)),
    )
    why = f"{said}; set-up, one collective and the event wait have one each, in this order"
    return Answer(pairs, why, source)


def algorithm(name: str, value: str) -> Answer:
    """Return valid syntax for an algorithm; what is valid already stays."""
    text = value.strip("\"'")
    if name == "HCCL_ALGO" and not check_algo("", Word(text, 0)):
        return Answer(((name, value),), "valid", source_of("HCCL_ALGO"), kept=True)
    first = text.lower().lstrip("^").split(",")[0].split(":")[-1]
    found = ALGORITHM.get(first)
    if found is None or text.startswith("^"):
        return Answer(
            (),
            f"{name}={text} names nothing that HCCL has",
            source_of("HCCL_ALGO"),
            True,
            'HCCL_ALGO="level0:NA;level1:<ring|H-D_R|NHR|...>", or unset: automatic',
        )
    asked = (
        f"HCCL_ALGO={text} is not valid syntax"
        if name == "HCCL_ALGO"
        else (f"{text}: one algorithm per level; level0 is automatic")
    )
    none = (
        ""
        if first in ("ring", "h-d_r", "nhr")
        else f"; there is no {first}, NHR also takes a logarithm of steps"
    )
    return Answer((("HCCL_ALGO", f'"{found}"'),), asked + none, source_of("HCCL_ALGO"))


def mapped(name: str, value: str) -> Answer:
    """Return the counterpart with its value in range."""
    new = MAP[name]
    text, why = value.strip("\"'"), f"counterpart of {name}"
    if new in BOUNDS and text.isdigit():
        low, high = BOUNDS[new]
        high = 20 if new == "HCCL_RDMA_TIMEOUT" else high
        number = min(max(int(text), low), high)
        number -= number % 4 if new == "HCCL_RDMA_TC" else 0
        if number != int(text):
            why += (
                f"; {text} is outside {low}..{high}"
                if new != "HCCL_RDMA_TC"
                else (f"; {text} is not a multiple of 4")
            )
            text = str(number)
        return Answer(((new, text),), why, source_of(new))
    if new == "HCCL_SOCKET_IFNAME" and text.startswith("ib"):
        why += "; ib* is a GPU host's port: name the host's Ethernet port"
    return Answer(((new, value),), why, source_of(new))


def native(name: str, value: str) -> Answer:
    """Return an HCCL variable as it is, or say that it does not exist."""
    wrong = unknown_variable(name)
    if wrong:
        return Answer(
            (), f"no library reads {name}", f"published: {MANUAL}", True, wrong.strip("; ")
        )
    meaning = hccl_variables().get(name, {}).get("meaning", "")
    return Answer(((name, value),), f"stays: {meaning}".rstrip(": "), source_of(name), kept=True)
