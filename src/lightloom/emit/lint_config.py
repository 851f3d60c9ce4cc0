"""Rules of configuration files: DeepSpeed JSON and torchtitan TOML."""

from __future__ import annotations

import tomllib
from typing import Any

from lightloom.core.errors import InputError, nearest
from lightloom.core.finding import Finding

from .facts import load
from .positions import Positions

DEEPSPEED = {
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
    "optimizer", "scheduler", "communication_data_type", "prescale_gradients",
    "gradient_predivide_factor", "sparse_gradients", "fp16", "bf16", "fp8", "amp", "data_types",
    "gradient_clipping", "zero_optimization", "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer", "aio", "offload", "steps_per_print", "wall_clock_breakdown",
    "dump_state", "activation_checkpointing", "sparse_attention", "comms_logger", "tensorboard",
    "wandb", "csv_monitor", "comet", "monitor_config", "elasticity", "flops_profiler",
    "autotuning", "data_efficiency", "curriculum_learning", "compression_training", "checkpoint",
    "tensor_parallel", "pipeline", "eigenvalue", "progressive_layer_drop", "nebula", "timers",
    "compile", "use_data_before_expert_parallel_", "seq_parallel_communication_data_type",
    "sequence_parallel_size", "torch_autocast", "zenflow", "expert_parallel", "hybrid_engine",
    "quantize_training", "load_universal_checkpoint", "disable_allgather", "graph_harvesting",
    "memory_breakdown", "dataloader_drop_last", "checkpoint_parallel_write_pipeline",
}  # fmt: skip
"""Top-level keys of DeepSpeed's configuration page, names only."""
ZERO = {
    "stage", "allgather_partitions", "allgather_bucket_size", "overlap_comm", "reduce_scatter",
    "reduce_bucket_size", "contiguous_gradients", "load_from_fp32_weights",
    "elastic_checkpoint", "grad_hooks", "round_robin_gradients", "offload_param",
    "offload_optimizer", "sub_group_size", "cpu_offload", "cpu_offload_params",
    "cpu_offload_use_pin_memory", "prefetch_bucket_size", "param_persistence_threshold",
    "model_persistence_threshold", "max_live_parameters", "max_reuse_distance",
    "gather_16bit_weights_on_model_save", "use_all_reduce_for_fetch_params",
    "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold",
    "stage3_model_persistence_threshold", "stage3_max_live_parameters",
    "stage3_max_reuse_distance", "stage3_gather_16bit_weights_on_model_save",
    "stage3_module_granularity_threshold", "stage3_use_all_reduce_for_fetch_params",
    "zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_gradients",
    "zero_quantized_nontrainable_weights", "ignore_unused_parameters", "legacy_stage1",
    "memory_efficient_linear", "pipeline_loading_checkpoint", "override_module_apply",
    "mics_shard_size", "mics_hierarchical_params_gather", "log_trace_cache_warnings",
    "use_multi_rank_bucket_allreduce", "leaf_module", "zeropp_loco_param", "enable_sanity_checks",
    "allow_untested_optimizer",
}  # fmt: skip


def check_deepspeed(name: str, doc: Positions) -> list[Finding]:
    """Return findings about a DeepSpeed configuration."""
    config = doc.value
    out: list[Finding] = []

    def say(code: str, what: str, *path: str, remedy: str = "") -> None:
        out.append(Finding(severity="error", code=code, what=what, remedy=remedy,
                           subject=f"{name}:{doc.line(*path)}"))  # fmt: skip

    for key in config:
        if key not in DEEPSPEED:
            say("unknown-key", f"{key} is not a DeepSpeed key{nearest(key, DEEPSPEED)}", key)
    counts = {}
    for key in ("train_batch_size", "train_micro_batch_size_per_gpu",
                "gradient_accumulation_steps"):  # fmt: skip
        value = config.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)
                                  or value < 1):  # fmt: skip
            say("value", f"{key} is {value!r}: a whole number above 0", key)
        elif value is not None:
            counts[key] = value
    if len(counts) == 3:
        total, micro, steps = counts.values()
        if total % (micro * steps):
            say("batch", f"train_batch_size {total} is not a multiple of micro-batch {micro} x "
                f"accumulation {steps}", "train_batch_size")  # fmt: skip
    both = [k for k in ("fp16", "bf16") if (config.get(k) or {}).get("enabled")]
    if len(both) == 2:
        say("conflict", "fp16 and bf16 are both enabled", "fp16")
    check_zero(config.get("zero_optimization"), say)
    return out


def check_zero(zero: Any, say: Any) -> None:
    """Check the ZeRO section."""
    if zero is None:
        return
    if not isinstance(zero, dict):
        say("value", "zero_optimization is not an object", "zero_optimization")
        return
    stage = zero.get("stage", 0)
    if stage not in (0, 1, 2, 3) or isinstance(stage, bool):
        say("value", f"stage is {stage!r}: 0..3", "zero_optimization", "stage")
        return
    for key in zero:
        if key not in ZERO:
            say("unknown-key", f"{key} is not a ZeRO key{nearest(key, ZERO)}",
                "zero_optimization", key)  # fmt: skip
        if key.startswith("stage3_") and stage != 3:
            say("void", f"{key} does nothing at stage {stage}", "zero_optimization", key)
    if "offload_param" in zero and stage != 3:
        say("needs", f"offload_param needs stage 3, this is {stage}", "zero_optimization")


def check_torchtitan(name: str, text: str) -> list[Finding]:
    """Return findings about a torchtitan job TOML (v0.2.2)."""
    try:
        config = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{name}: not TOML: {error}") from error
    out: list[Finding] = []
    classes = load("torchtitan")["classes"]

    def visit(table: dict[str, Any], kind: str, prefix: str) -> None:
        fields = classes[kind]
        for key, value in table.items():
            where = f"{name}:{line_of(text, prefix, key)}"
            if key not in fields:
                what = f"[{prefix or 'top'}] has no {key}{nearest(key, fields)}"
                out.append(Finding(severity="error", code="unknown-key", subject=where, what=what))
            elif isinstance(value, dict) and fields[key] in classes:
                visit(value, fields[key], f"{prefix}.{key}".lstrip("."))
            else:
                wrong = mismatch(value, fields[key])
                if wrong:
                    out.append(Finding(severity="error", code="value", subject=where,
                                       what=f"{key} = {value!r}: {wrong}"))  # fmt: skip

    visit(config, "JobConfig", "")
    return out


def line_of(text: str, section: str, key: str) -> int:
    """Return the line of a key inside a section, or of the section itself."""
    inside, head = not section, 1
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.strip()
        if bare.startswith("["):
            named = bare.split("#")[0].strip().strip("[]").strip()
            inside = named == section
            head = number if inside else head
            if named == f"{section}.{key}".lstrip("."):
                return number
        elif inside and bare.partition("=")[0].strip() == key:
            return number
    return head


def mismatch(value: Any, kind: Any) -> str:
    """Return why a TOML value does not fit a dataclass field, or an empty string."""
    if isinstance(kind, list):
        return "" if value in kind else f"one of {', '.join(map(str, kind))}"
    if "|" in kind or kind not in ("int", "float", "bool", "str", "list[str]"):
        return ""
    good = {
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "bool": isinstance(value, bool), "str": isinstance(value, str),
        "list[str]": isinstance(value, list) and all(isinstance(v, str) for v in value),
    }[kind]  # fmt: skip
    return "" if good else f"not {kind}"
