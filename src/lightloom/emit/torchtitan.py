"""torchtitan: a job TOML and its launch line (v0.2.2, the last release with TOML files)."""

from __future__ import annotations

from lightloom.core.errors import InfeasibleError, InputError
from lightloom.core.plan import Plan

from .bundle import Bundle, EmittedFile, Setting, head, lines_of, setting
from .capability import require
from .environment import environment_of, group_minutes
from .launch import environment_file, host_script, launch_lines, numa_file

FLAVORS = {
    "llama-3-8b": ("llama3", "8B"), "llama-3.1-8b": ("llama3", "8B"),
    "llama-3-70b": ("llama3", "70B"), "llama-3.1-70b": ("llama3", "70B"),
    "llama-3.1-405b": ("llama3", "405B"), "deepseek-v3": ("deepseek_v3", "671B"),
    "deepseek-r1": ("deepseek_v3", "671B"), "qwen3-0.6b": ("qwen3", "0.6B"),
    "qwen3-1.7b": ("qwen3", "1.7B"), "qwen3-8b": ("qwen3", "8B"), "qwen3-32b": ("qwen3", "32B"),
    "llama-4-scout-17b-16e": ("llama4", "17bx16e"), "gpt-oss-20b": ("gpt_oss", "20b"),
    "gpt-oss-120b": ("gpt_oss", "120b"),
}  # fmt: skip
"""Models that torchtitan v0.2.2 defines, by our catalogue name."""
SCHEDULES = {
    "gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B",
    "zero-bubble": "InterleavedZeroBubble", "zb-v": "ZBVZeroBubble", "dualpipe-v": "DualPipeV",
}  # fmt: skip


def emit(plan: Plan) -> Bundle:
    """Return ``job.toml``, ``train.sh`` and the environment."""
    require(plan, "torchtitan")
    text = host_script(
        plan,
        "torchtitan v0.2.2; run on every host from its checkout",
        launch_lines(plan, '-m torchtitan.train --job.config_file "$here/job.toml" "$@"'),
    )
    files = (
        EmittedFile("job.toml", toml_of(plan)),
        EmittedFile("train.sh", text, executable=True),
        environment_file(plan, environment_of(plan)),
        numa_file(plan),
    )
    return Bundle("torchtitan", files)


def flavor_of(plan: Plan) -> tuple[str, str]:
    """Return torchtitan's model name and flavor."""
    name = plan.model.name.lower()
    for known in sorted(FLAVORS, key=len, reverse=True):
        if name.startswith(known):
            return FLAVORS[known]
    raise InfeasibleError(
        f"torchtitan v0.2.2 has no {plan.model.name}",
        out=f"it has {', '.join(sorted(FLAVORS))}; or --for megatron, --for fsdp",
    )


def sections(plan: Plan) -> dict[str, list[Setting]]:
    """Return every section with its settings."""
    s = plan.strategy
    name, flavor = flavor_of(plan)
    local = s.micro_batch * (s.micro_batches if s.pp > 1 else 1)
    out = {
        "job": [setting("dump_folder", text("./outputs"), "default")],
        "model": [
            setting("name", text(name), "model"),
            setting("flavor", text(flavor), "model"),
            setting("hf_assets_path", text("./assets/hf"), "site", "tokenizer"),
        ],
        "training": [
            setting("local_batch_size", local, "plan",
                    "all micro-batches of a step" if s.pp > 1 else "one micro-batch"),
            setting("global_batch_size", s.global_batch),
            setting("seq_len", s.seq),
            setting("max_norm", 1.0, "default"),
            setting("steps", 10000, "site"),
            setting("dataset", text("c4"), "site"),
            *([setting("enable_cpu_offload", True)] if s.offload_optimizer else []),
        ],
        "parallelism": parallel_part(plan),
        "activation_checkpoint": checkpoint_part(plan),
        "compile": [setting("enable", True, "default", "fused element-wise kernels")],
        "comm": [
            setting("init_timeout_seconds", 600, "default"),
            setting("train_timeout_seconds", group_minutes() * 60, "default"),
        ],
        "checkpoint": [
            setting("enable", True, "default"),
            setting("interval", 500, "default", "see the goodput line of estimate"),
            setting("async_mode", text("async"), "default"),
        ],
        "metrics": [setting("log_freq", 1, "default", "to compare with the prediction")],
    }  # fmt: skip
    if s.precision.startswith("fp8"):
        out["quantize.linear.float8"] = [setting("filter_fqns", '["output"]', "default")]
        out["model"].append(setting("converters", '["quantize.linear.float8"]'))
    return out


def parallel_part(plan: Plan) -> list[Setting]:
    """Return the parallelism section."""
    s = plan.strategy
    replicate = 1
    if s.zero == "hsdp":
        replicate = max(1, s.dp // max(1, (s.hsdp_shard or plan.cluster.host.cards) // s.cp))
    out = [
        setting("data_parallel_replicate_degree", replicate),
        setting("data_parallel_shard_degree", s.dp // replicate),
        setting("fsdp_reshard_after_forward", text("default"), "default"),
        setting("tensor_parallel_degree", s.tp),
        setting("enable_async_tensor_parallel", s.overlap_tp and s.tp > 1),
        setting("pipeline_parallel_degree", s.pp),
        setting("context_parallel_degree", s.cp),
        setting("expert_parallel_degree", s.ep),
    ]
    if plan.model.is_moe:
        out.append(setting("expert_tensor_parallel_degree", s.etp))
    if s.pp > 1:
        if s.schedule not in SCHEDULES:
            raise InputError(f"torchtitan has no schedule {s.schedule}")
        name = "Interleaved1F1B" if s.schedule == "1f1b" and s.vpp > 1 else SCHEDULES[s.schedule]
        out += [
            setting("pipeline_parallel_schedule", text(name)),
            setting("pipeline_parallel_microbatch_size", s.micro_batch),
        ]
        if s.vpp > 1:
            per = -(-plan.model.layers // (s.pp * s.vpp))
            out.append(setting("pipeline_parallel_layers_per_stage", per))
    return out


def checkpoint_part(plan: Plan) -> list[Setting]:
    """Return activation checkpointing."""
    mode = setting("mode", text(plan.strategy.recompute))
    if plan.strategy.recompute == "selective":
        return [mode, setting("selective_ac_option", text("op"), "default", "per operator")]
    return [mode]


def text(value: str) -> str:
    """Return a TOML string."""
    return f'"{value}"'


def toml_of(plan: Plan) -> str:
    """Return the file, the origin of every setting as a comment."""
    lines = head(plan, "torchtitan v0.2.2 job")
    for name, settings in sections(plan).items():
        lines += ["", f"[{name}]"]
        lines += [f"{item.name} = {item.value}  # {item.note}" for item in settings]
    return lines_of(lines)
