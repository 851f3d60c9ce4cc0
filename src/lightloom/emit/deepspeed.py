"""DeepSpeed: ``ds_config.json`` and the launch line of a script that reads it."""

from __future__ import annotations

import json
from typing import Any

from lightloom.core.errors import InfeasibleError
from lightloom.core.plan import Plan

from .bundle import Bundle, EmittedFile, head, lines_of
from .capability import require
from .environment import environment_of
from .launch import environment_file, host_script, launch_lines, numa_file


def emit(plan: Plan) -> Bundle:
    """Return ``ds_config.json``, ``train.sh`` and the environment."""
    require(plan, "deepspeed")
    s = plan.strategy
    if s.pp > 1 and s.zero in ("2", "3", "fsdp", "hsdp"):
        raise InfeasibleError(
            f"deepspeed: its pipeline engine does not run with ZeRO {s.zero}",
            out="--zero 1 with pp, or --pp 1 with this ZeRO",
        )
    text = host_script(
        plan,
        "DeepSpeed; SCRIPT must call deepspeed.initialize with this configuration",
        launch_lines(
            plan,
            '"${SCRIPT:?your training script}" --deepspeed --deepspeed_config '
            '"$here/ds_config.json" "$@"',
        ),
    )
    files = (
        EmittedFile("ds_config.json", json.dumps(config_of(plan), indent=2) + "\n"),
        EmittedFile("train.sh", text, executable=True),
        environment_file(plan, environment_of(plan)),
        numa_file(plan),
        EmittedFile("ORIGIN.md", origin_text(plan)),
    )
    return Bundle("deepspeed", files)


def config_of(plan: Plan) -> dict[str, Any]:
    """Return DeepSpeed's configuration; every batch figure multiplies out exactly."""
    s = plan.strategy
    out: dict[str, Any] = {
        "train_batch_size": s.global_batch,
        "train_micro_batch_size_per_gpu": s.micro_batch,
        "gradient_accumulation_steps": s.micro_batches,
        "gradient_clipping": 1.0,
        "zero_optimization": zero_of(plan),
        "wall_clock_breakdown": False,
    }
    kind = s.precision.split("-")[0]
    if kind == "fp16":
        out["fp16"] = {"enabled": True, "loss_scale": 0, "initial_scale_power": 16}
    elif kind == "bf16":
        out["bf16"] = {"enabled": True}
        if s.gradient_dtype == "fp32":
            out["data_types"] = {"grad_accum_dtype": "fp32"}
    if s.tp > 1:
        out["tensor_parallel"] = {"autotp_size": s.tp}
    if s.recompute == "full":
        out["activation_checkpointing"] = {
            "partition_activations": s.tp > 1,
            "contiguous_memory_optimization": False,
            "cpu_checkpointing": False,
        }
    return out


def zero_of(plan: Plan) -> dict[str, Any]:
    """Return the ZeRO section."""
    s = plan.strategy
    stage = {"fsdp": 3, "hsdp": 3}.get(s.zero) or int(s.zero)
    out: dict[str, Any] = {"stage": stage, "overlap_comm": s.overlap_grad}
    if stage:
        out |= {"contiguous_gradients": True, "reduce_bucket_size": 500_000_000}
    if stage == 3:
        out |= {
            "stage3_prefetch_bucket_size": min(500_000_000, plan.model.hidden**2),
            "stage3_param_persistence_threshold": 10 * plan.model.hidden,
            "stage3_gather_16bit_weights_on_model_save": True,
        }
    if s.zero == "hsdp":
        out["zero_hpz_partition_size"] = s.hsdp_shard or plan.cluster.host.cards
    if s.offload_optimizer and stage:
        out["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    return out


def origin_text(plan: Plan) -> str:
    """Return where each setting comes from (JSON has no comments)."""
    rows = [
        ("train_batch_size, train_micro_batch_size_per_gpu", "plan"),
        ("gradient_accumulation_steps", "plan: global batch / (dp x micro-batch)"),
        ("zero_optimization.stage, offload_optimizer, zero_hpz_partition_size", "plan"),
        ("bf16, fp16, data_types", "plan: precision and gradient type"),
        ("tensor_parallel, activation_checkpointing", "plan"),
        ("gradient_clipping 1.0, buckets, thresholds", "default"),
    ]
    return lines_of(
        head(plan, "where each setting of ds_config.json comes from", "-"),
        "",
        "| setting | origin |",
        "|---|---|",
        [f"| {name} | {origin} |" for name, origin in rows],
    )
