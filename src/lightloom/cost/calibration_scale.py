"""Factors of a calibration that apply to a job: a product over what the job is.

A *key* says what a job is: its chip's generation, whether its matrices are narrow (8 bits or
fewer), the software stack and its generation, the outer network. ``Calibration.scale`` holds, per
part of the step, factors by key; a key that no measurement covered is absent and counts 1.
"""

from __future__ import annotations

from .calibration import Calibration
from .job import Job
from .memo import per_object

ABSOLUTE = {"under_tp": 0.0, "under_cp": 0.0, "under_ep": 0.0, "under_pp": 0.0, "under_dp": 0.0,
            "step_s": 0.0, "jitter": 0.0, "attention_floor": 0.0}  # fmt: skip
"""Parts that are values of their own (with what they are before calibration), not factors:
share of hidden communication that still costs, seconds of a step, spread of ranks; least time of
attention over its FLOPs at the peak (what a stack's own kernel reaches however long the row)."""
STACK = {
    "megatron": "nemo", "mindspeed": "mindspeed", "torchtitan": "torchtitan",
    "fsdp": "composer", "deepspeed": "megatron-deepspeed", "mindspore": "mindformers",
}  # fmt: skip
"""Software stack assumed for a framework where none is named: the one measured most."""
STACK_OF_EXPERTS = {"megatron": "bridge"}
"""The same for models with experts, where it differs."""
NARROW = ("fp8", "fp8-block", "fp4", "int8", "int4")


def era_of(year: int) -> str:
    """Return the generation of software: what attention and overlap were like."""
    if year <= 2022:
        return "era-classic"
    return f"era-{min(year, 2025)}"


def keys_of(job: Job, dtype: str) -> tuple[str, ...]:
    """Return what a job is, as keys; `dtype` the arithmetic of its matrices."""
    arch = job.cluster.chip.arch
    usual = STACK.get(job.framework, job.framework)
    if job.model.is_moe:
        usual = STACK_OF_EXPERTS.get(job.framework, usual)
    stack = job.stack or usual
    era, levels = era_of(job.era), job.cluster.fabric.levels
    tier = f"net-{levels[-1].tier}" if len(levels) > 1 else "net-none"
    width = "narrow" if dtype in NARROW else "wide"
    return ("*", arch, width, f"{arch} {width}", stack, f"{stack} {arch}", era, f"{arch} {era}",
            f"{stack} {width}", tier)  # fmt: skip


def scale_of(cal: Calibration, part: str, keys: tuple[str, ...]) -> float:
    """Return the factor (or value) of a part for a job with these keys."""
    table = cal.scale.get(part)
    if not table:
        return ABSOLUTE.get(part, 1.0)
    value = 1.0
    for key in keys:
        value *= table.get(key, 1.0)
    return value


@per_object(256)
def scales_of(cal: Calibration, job: Job, dtype: str) -> dict[str, float]:
    """Return every part's factor for a job."""
    keys = keys_of(job, dtype)
    return {part: scale_of(cal, part, keys) for part in (*FACTORS, *ABSOLUTE)}


FACTORS = ("soft", "gemm", "attention", "experts", "elementwise", "host", "tp", "cp", "ep", "pp",
           "dp", "optimizer")  # fmt: skip
"""Parts with a factor; ``soft`` multiplies all kernels of a stack."""
