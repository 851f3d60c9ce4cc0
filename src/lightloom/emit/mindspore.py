"""MindSpore: MindFormers YAML and its msrun line (Ascend, graph mode)."""

from __future__ import annotations

from typing import Any

import yaml

from lightloom.core.errors import InfeasibleError
from lightloom.core.plan import Plan

from .bundle import Bundle, EmittedFile, head, lines_of
from .capability import require
from .environment import CONNECT_S, environment_of
from .launch import environment_file, host_script
from .stages import stage_layers
from .topology import nodes_of, vendor_of

ORIGINS = (
    "parallel_config, runner_config.batch_size, recompute_config: plan",
    "model.model_config sizes: model",
    "context.max_device_memory: cluster (usable memory less the library's share)",
    "optimizer, lr_schedule, runner_wrapper: default, set for your run",
    "load_checkpoint, train_dataset paths: site",
)


def emit(plan: Plan) -> Bundle:
    """Return ``job.yaml``, ``train.sh`` and the environment for MindFormers."""
    require(plan, "mindspore")
    if vendor_of(plan) != "ascend":
        raise InfeasibleError(
            f"mindspore is emitted for Ascend; {plan.cluster.name} has {plan.cluster.chip.title}",
            out="--for megatron or fsdp, or a plan for an Ascend machine",
        )
    nodes = nodes_of(plan)
    lines = [f"# {line}" for line in ORIGINS]
    job = lines_of(head(plan, "MindFormers job"), lines,
                   yaml.safe_dump(config_of(plan), sort_keys=False).rstrip())  # fmt: skip
    where = ["--node_rank=${NODE_RANK:?0 on the first host}",
             "--master_addr=${MASTER_ADDR:?address of the first host}"]  # fmt: skip
    launch = host_script(
        plan, "MindFormers through msrun; run on every host from its checkout",
        " \\\n  ".join([
            f"exec msrun --worker_num={nodes.world} --local_worker_num={nodes.per_node}",
            *(f'"{word}"' for word in where if nodes.hosts > 1),
            '"--master_port=${MASTER_PORT:-8118}" --join=True',
            f"--cluster_time_out={CONNECT_S * 2} --log_dir=./msrun_log",
            'run_mindformer.py --config "$here/job.yaml" --run_mode train "$@"',
        ]),
    )  # fmt: skip
    return Bundle("mindspore", (
        EmittedFile("job.yaml", job),
        EmittedFile("train.sh", launch, executable=True),
        environment_file(plan, environment_of(plan)),
    ))  # fmt: skip


def config_of(plan: Plan) -> dict[str, Any]:
    """Return the whole MindFormers configuration."""
    s = plan.strategy
    return {
        "seed": 42,
        "output_dir": "./output",
        "load_checkpoint": "",
        "use_parallel": s.world_size > 1,
        "run_mode": "train",
        "trainer": {"type": "CausalLanguageModelingTrainer", "model_name": plan.model.name},
        "runner_config": {
            "epochs": 1,
            "batch_size": s.micro_batch,
            "sink_mode": True,
            "sink_size": 1,
            "gradient_accumulation_steps": 1 if s.pp > 1 else s.micro_batches,
        },
        "runner_wrapper": {
            "type": "MFTrainOneStepCell",
            "scale_sense": 65536.0 if s.precision == "fp16" else 1.0,
            "use_clip_grad": True,
        },
        "optimizer": {"type": "AdamW", "betas": [0.9, 0.95], "eps": 1.0e-8, "weight_decay": 0.1},
        "lr_schedule": {
            "type": "CosineWithWarmUpLR", "learning_rate": 1.5e-4, "lr_end": 1.5e-5,
            "warmup_ratio": 0.01, "total_steps": -1,
        },
        "train_dataset": {
            "data_loader": {"type": "MindDataset", "dataset_dir": "", "shuffle": True},
            "input_columns": ["input_ids"],
            "drop_remainder": True,
        },
        "train_dataset_task": {"type": "CausalLanguageModelDataset"},
        **parallel_part(plan),
        "recompute_config": recompute_part(plan),
        "context": {
            "mode": 0,
            "device_target": "Ascend",
            "max_device_memory": f"{int(plan.prediction.usable_bytes / 2**30)}GB",
        },
        "model": {"model_config": model_part(plan), "arch": {"type": arch_of(plan)}},
    }  # fmt: skip


def arch_of(plan: Plan) -> str:
    """Return the MindFormers class."""
    if any(b.attention.kind == "mla" for b in plan.model.blocks):
        return "DeepseekV3ForCausalLM"
    return "LlamaForCausalLM"


def parallel_part(plan: Plan) -> dict[str, Any]:
    """Return parallel and parallel_config."""
    s = plan.strategy
    return {
        "parallel": {
            "parallel_mode": 1,
            "gradients_mean": False,
            "enable_alltoall": plan.model.is_moe,
            "full_batch": True,
            "search_mode": "sharding_propagation",
            "enable_parallel_optimizer": s.zero != "0",
            "parallel_optimizer_config": {
                "gradient_accumulation_shard": False,
                "parallel_optimizer_threshold": 64,
                "optimizer_weight_shard_size": -1,
            },
        },
        "parallel_config": {
            "data_parallel": s.dp,
            "model_parallel": s.tp,
            "context_parallel": s.cp,
            "expert_parallel": s.ep,
            "pipeline_stage": s.pp,
            "use_seq_parallel": s.sequence_parallel and s.tp > 1,
            "micro_batch_num": s.micro_batches if s.pp > 1 else 1,
            "vocab_emb_dp": False,
            "gradient_aggregation_group": 4,
            **({"context_parallel_algo": "ulysses_cp"}
               if s.cp > 1 and s.cp_kind == "all-to-all" else {}),
        },
    }  # fmt: skip


def recompute_part(plan: Plan) -> dict[str, Any]:
    """Return recompute_config."""
    s = plan.strategy
    full: bool | int = s.recompute_layers or True
    return {
        "recompute": full if s.recompute == "full" else False,
        "select_recompute": s.recompute == "selective",
        "parallel_optimizer_comm_recompute": s.zero == "3",
        "mp_comm_recompute": True,
        "recompute_slice_activation": s.sequence_parallel and s.tp > 1,
    }


def model_part(plan: Plan) -> dict[str, Any]:
    """Return model_config; ``offset`` moves layers between stages where they are uneven."""
    model, s = plan.model, plan.strategy
    last = model.blocks[-1]
    counts = stage_layers(plan)
    base = model.layers // len(counts)
    out: dict[str, Any] = {
        "type": "DeepseekV3Config" if last.attention.kind == "mla" else "LlamaConfig",
        "batch_size": s.micro_batch,
        "seq_length": s.seq,
        "hidden_size": model.hidden,
        "num_layers": model.layers,
        "num_heads": last.attention.heads,
        "n_kv_heads": last.attention.kv_heads,
        "vocab_size": model.vocab,
        "intermediate_size": next((b.mlp.hidden for b in model.blocks if b.mlp.hidden), 0)
        or last.mlp.expert_hidden,
        "rms_norm_eps": float(model.settings.get("norm_eps", 1e-5)),
        "theta": float(model.settings.get("rope_theta", 10000.0)),
        "compute_dtype": "float16" if s.precision == "fp16" else "bfloat16",
        "param_init_type": "float32",
        "use_flash_attention": True,
        "offset": [n - base for n in counts] if len(set(counts)) > 1 else 0,
        "pp_interleave_num": s.vpp,
    }
    if last.mlp.is_moe:
        out["moe_config"] = {
            "expert_num": last.mlp.experts,
            "num_experts_chosen": last.mlp.topk,
            "shared_expert_num": last.mlp.shared_experts,
            "moe_intermediate_size": last.mlp.expert_hidden,
        }
    return out
