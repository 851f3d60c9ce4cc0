"""What an Ascend job must get right beside its text: time-outs, ports, TLS, memory, steps."""

from __future__ import annotations

import itertools
import re

from lightloom.core.finding import Finding
from lightloom.core.migration import Step

MANUAL = "published: HCCL manual"


def settings_of(text: str, groups: int, group_s: float | None, buffer_mb: int) -> list[Finding]:
    """Return findings on time-outs, ports, TLS and buffer memory of one job."""
    out = [*order_of(text, group_s), memory_of(groups, buffer_mb)]
    out.append(
        Finding(
            severity="info", code="ports", subject="every host",
            what="60000-60031 on the host and 16666 on the NPU must be free and reserved",
            remedy="sysctl -w net.ipv4.ip_local_reserved_ports=60000-60031,16666; several jobs on "
            "one NPU need HCCL_NPU_SOCKET_PORT_RANGE", source=MANUAL,
        )
    )  # fmt: skip
    out.append(
        Finding(
            severity="info", code="tls", subject="every NPU",
            what="the TLS switch of all NPU ports must be equal, or links fail (EI0006)",
            remedy="for i in 0 1 2 3 4 5 6 7; do hccn_tool -i $i -tls -g; done on every host",
            source="published: vllm-ascend issue 5461; ascend-faultdiag case 120",
        )
    )  # fmt: skip
    return out


def value(text: str, name: str) -> int | None:
    """Return a whole-number variable that a text sets, None where it does not."""
    found = re.findall(rf"\b{name}[\"'\]]*\s*=\s*[\"']?(\d+)", text)
    return int(found[-1]) if found else None


def order_of(text: str, group_s: float | None) -> list[Finding]:
    """Return whether connect < exec < event < process group holds."""
    names = ("HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT", "HCCL_EVENT_TIMEOUT")
    default = (120, 1836, 1868)
    chain = [(n, float(value(text, n) or d)) for n, d in zip(names, default, strict=True)]
    group = group_s if group_s is not None else 1800.0
    chain.append(("process group", group))
    wrong = [f"{a} {x:g} s >= {b} {y:g} s" for (a, x), (b, y) in itertools.pairwise(chain)
             if x >= y]  # fmt: skip
    said = "" if group_s is not None else " (not said: torch waits 1800 s by default)"
    if not wrong:
        shown = " < ".join(f"{n} {v:g}" for n, v in chain)
        return [Finding(severity="info", code="timeout-order", subject="time-outs",
                        what=f"in order: {shown} s", source=MANUAL)]  # fmt: skip
    return [
        Finding(severity="warning", code="timeout-order", subject="time-outs",
                what="; ".join(wrong) + said,
                remedy="init_process_group(timeout=timedelta(minutes=40)), or "
                "--distributed-timeout-minutes 40", source=MANUAL)
    ]  # fmt: skip


def memory_of(groups: int, buffer_mb: int) -> Finding:
    """Return the device memory that communicators take: groups x 2 x HCCL_BUFFSIZE."""
    total = groups * 2 * buffer_mb
    return Finding(
        severity="info", code="buffer-memory", subject="every NPU",
        what=f"{groups} communicators x 2 x {buffer_mb} MB = {total} MB of device memory",
        numbers={"bytes": total * 2.0**20, "groups": float(groups)}, source=MANUAL,
        remedy="HCCL_BUFFSIZE = ceil(micro-batch x seq x hidden x 2 / 2^20) MB is enough",
    )  # fmt: skip


def groups_of(text: str, python_groups: int) -> int:
    """Return communicators of one rank: the world, and one per axis or group that a job makes."""
    axes = 0
    for flag in ("tensor-model-parallel", "pipeline-model-parallel", "context-parallel",
                 "expert-model-parallel"):  # fmt: skip
        found = re.search(rf"--{flag}-size[= ]+(\d+)", text)
        axes += bool(found and int(found[1]) > 1)
    megatron = "--tensor-model-parallel-size" in text
    return 1 + python_groups + axes + int(megatron)


def steps_of(product: str) -> tuple[Step, ...]:
    """Return the baseline: one card, small, save, restore, compare, then larger."""
    return (
        Step(name="0 freeze", do="the old stack: fixed seed, dropout 0, deterministic kernels, "
             "20 steps, tensors recorded with layers.py, losses kept",
             passes="two runs of the old stack agree within `lightloom migrate --compare A A2`"),
        Step(name="1 one card", do="the migrated program, one layer of each kind, batch 1, fp32",
             passes="forward within 1e-4 of the old stack layer by layer"),
        Step(name="2 mixed precision", do="the same in bf16 (FP16 and BF16 kernels differ)",
             passes="layers within `--compare`'s tolerance for bf16; no NaN, no inf"),
        Step(name="3 one host", do="8 cards, the real layers, 200 steps",
             passes="loss within 1 % of the old stack's mean; no time-out; HCCL time-out order"),
        Step(name="4 save and restore", do="save at step 100, kill it, restore, go on to 200",
             passes="losses of 101..200 equal those without the stop (bitwise with "
             "HCCL_DETERMINISTIC=true)"),
        Step(name="5 checkpoint across", do="load the old stack's checkpoint, run step 1",
             passes="loss of step 1 within the bf16 tolerance of the old stack"),
        Step(name="6 two hosts", do="16 cards, `hccn_tool` links up, TLS equal, ports reserved",
             passes="step time within 10 % of one host's times the planned efficiency"),
        Step(name="7 baseline", do="1,000 steps at the target size, profile of 3 steps",
             passes="`lightloom experiment record`; the new reference for every later change"),
        Step(name="8 grow", do=f"double the cards of {product} and repeat 6 and 7",
             passes="`lightloom advise` names no straggler; the curve follows the plan"),
    )  # fmt: skip
