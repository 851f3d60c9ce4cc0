"""Megatron-LM: ``pretrain_gpt.py`` with every flag and where it comes from (core_v0.15.0)."""

from __future__ import annotations

from lightloom.core.plan import Plan

from .bundle import Bundle, EmittedFile, Setting, array_of, setting
from .capability import require
from .environment import environment_of, group_minutes
from .launch import environment_file, host_script, launch_lines, numa_file
from .megatron_model import model_settings
from .stages import is_even, megatron_layout, stage_layers


def emit(plan: Plan) -> Bundle:
    """Return ``train.sh`` with ``environment.sh`` and ``numa.sh``."""
    require(plan, "megatron")
    text = host_script(
        plan,
        "Megatron-LM (core_v0.15.0) pre-training; run on every host from its checkout",
        array_of("MODEL", [*model_settings(plan.model), *vocabulary(plan)]),
        array_of("PARALLEL", parallel_settings(plan)),
        array_of("BATCH", batch_settings(plan)),
        array_of("PRECISION", precision_settings(plan)),
        array_of("MEMORY", memory_settings(plan)),
        array_of("TRAINING", training_settings()),
        launch_lines(
            plan,
            'pretrain_gpt.py "${MODEL[@]}" "${PARALLEL[@]}" "${BATCH[@]}" "${PRECISION[@]}" '
            '"${MEMORY[@]}" "${TRAINING[@]}" "$@"',
        ),
    )
    return Bundle(
        "megatron",
        (
            EmittedFile("train.sh", text, executable=True),
            environment_file(plan, environment_of(plan)),
            numa_file(plan),
        ),
    )


def vocabulary(plan: Plan) -> list[Setting]:
    """Return vocabulary size, padded as Megatron pads it (to 128 x tp)."""
    return [
        setting("--vocab-size", plan.model.vocab, "model"),
        setting("--make-vocab-size-divisible-by", 128, "default", "times tp"),
    ]


def degree_settings(plan: Plan, context: Setting) -> list[Setting]:
    """Return the degree of every axis; `context` says how context parallelism exchanges."""
    s = plan.strategy
    out = [
        setting("--tensor-model-parallel-size", s.tp),
        setting("--pipeline-model-parallel-size", s.pp),
        setting("--context-parallel-size", s.cp),
    ]
    if s.sequence_parallel and s.tp > 1:
        out.append(setting("--sequence-parallel"))
    if s.cp > 1:
        out.append(context)
    if plan.model.is_moe:
        out += [
            setting("--expert-model-parallel-size", s.ep),
            setting("--expert-tensor-parallel-size", s.etp),
            setting(
                "--moe-token-dispatcher-type", "alltoall", "default", "what the prediction prices"
            ),
        ]
    return out


def parallel_settings(plan: Plan) -> list[Setting]:
    """Return every axis and its overlap."""
    s = plan.strategy
    kind = "a2a" if s.cp_kind == "all-to-all" else "p2p"
    out = degree_settings(plan, setting("--cp-comm-type", kind))
    if plan.model.is_moe and s.overlap_ep:
        out += [setting("--overlap-moe-expert-parallel-comm"), setting("--delay-wgrad-compute")]
    if s.pp > 1:
        out += stage_settings(plan)
    return [
        *out,
        *data_parallel_settings(plan),
        *([setting("--tp-comm-overlap")] if s.overlap_tp and s.tp > 1 else []),
        setting(
            "--distributed-timeout-minutes",
            group_minutes(),
            "default",
            "longer than every wait inside the library",
        ),
    ]


def stage_settings(plan: Plan) -> list[Setting]:
    """Return how layers are spread over the pipeline."""
    s = plan.strategy
    out = []
    if not is_even(plan) or (plan.model.mtp_layers and s.vpp > 1):
        out.append(setting("--pipeline-model-parallel-layout", megatron_layout(plan)))
    elif s.vpp > 1:
        out.append(setting("--num-layers-per-virtual-pipeline-stage", stage_layers(plan)[0]))
    if s.vpp > 1 and not s.overlap_pp:
        out.append(setting("--no-overlap-p2p-communication"))
    return out


def data_parallel_settings(plan: Plan) -> list[Setting]:
    """Return optimiser sharding and gradient overlap."""
    s = plan.strategy
    out: list[Setting] = []
    kinds = {
        "2": "optim_grads",
        "3": "optim_grads_params",
        "fsdp": "optim_grads_params",
        "hsdp": "optim_grads_params",
    }
    if s.zero in kinds:
        out += [
            setting("--use-megatron-fsdp"),
            setting("--data-parallel-sharding-strategy", kinds[s.zero]),
            setting("--use-distributed-optimizer", None, "default", "FSDP needs it"),
            setting("--ckpt-format", "fsdp_dtensor", "default", "FSDP needs it"),
        ]
        if s.zero == "hsdp":
            shard = s.hsdp_shard or plan.cluster.host.cards
            out.append(
                setting("--num-distributed-optimizer-instances", max(1, s.dp * s.cp // shard))
            )
    elif s.zero == "1":
        out.append(setting("--use-distributed-optimizer"))
    if s.overlap_grad and s.dp * s.cp > 1:
        out.append(setting("--overlap-grad-reduce"))
    if s.overlap_param and s.zero != "0" and s.dp * s.cp > 1:
        out.append(setting("--overlap-param-gather"))
    return out


def batch_settings(plan: Plan) -> list[Setting]:
    """Return sequences and their length."""
    s = plan.strategy
    return [
        setting("--micro-batch-size", s.micro_batch),
        setting("--global-batch-size", s.global_batch),
        setting("--seq-length", s.seq),
    ]


def precision_settings(plan: Plan) -> list[Setting]:
    """Return arithmetic types."""
    s = plan.strategy
    kind = s.precision.split("-")[0]
    out = []
    if kind == "fp16":
        out += [setting("--fp16"), setting("--initial-loss-scale", 65536, "default", "2^16")]
    elif kind != "fp32":
        out.append(setting("--bf16"))
    if kind == "fp8":
        recipe = s.precision.partition("-")[2] or "delayed"
        names = {
            "blockwise": "blockwise",
            "mx": "mxfp8",
            "mxfp8": "mxfp8",
            "tensorwise": "tensorwise",
        }
        out += [
            setting("--fp8-format", "hybrid", "default", "e4m3 forward, e5m2 backward"),
            setting("--fp8-recipe", names.get(recipe, "delayed")),
        ]
    if kind == "fp4":
        out += [setting("--fp4-format", "e2m1"), setting("--fp4-recipe", "nvfp4")]
    if s.gradient_dtype == "fp32" and kind in ("bf16", "fp8", "fp4"):
        out.append(setting("--accumulate-allreduce-grads-in-fp32"))
    elif s.gradient_dtype == "bf16":
        out.append(setting("--grad-reduce-in-bf16"))
    if s.optimizer_dtype == "bf16":
        out += [
            setting("--use-precision-aware-optimizer"),
            setting("--exp-avg-dtype", "bf16"),
            setting("--exp-avg-sq-dtype", "bf16"),
        ]
    return out


def memory_settings(plan: Plan) -> list[Setting]:
    """Return recompute and offload."""
    s = plan.strategy
    out = []
    if s.recompute == "selective":
        out.append(setting("--recompute-granularity", "selective"))
    elif s.recompute == "full":
        method = "block" if s.recompute_layers else "uniform"
        out += [
            setting("--recompute-granularity", "full"),
            setting("--recompute-method", method),
            setting("--recompute-num-layers", s.recompute_layers or 1),
        ]
    if s.offload_optimizer:
        out += [
            setting("--optimizer-cpu-offload"),
            setting("--use-precision-aware-optimizer", None, "default", "offload needs it"),
            setting("--overlap-cpu-optimizer-d2h-h2d", None, "default", "hides the copies"),
        ]
    out.append(setting("--attention-backend", "flash", "default", "what the prediction prices"))
    return out


def training_settings() -> list[Setting]:
    """Return what training needs and the plan does not decide."""
    return [
        setting("--lr", 1.5e-4, "default", "set for your run"),
        setting("--min-lr", 1.5e-5, "default", "set for your run"),
        setting("--lr-decay-style", "cosine", "default"),
        setting("--lr-warmup-iters", 500, "default", "set for your run"),
        setting("--train-iters", "${TRAIN_ITERS:-500000}", "site", "steps"),
        setting("--weight-decay", 0.1, "default"),
        setting("--adam-beta1", 0.9, "default"),
        setting("--adam-beta2", 0.95, "default"),
        setting("--clip-grad", 1, "default"),
        setting("--init-method-std", 0.02, "default"),
        setting("--data-path", "${DATA_PATH:?set DATA_PATH}", "site"),
        setting("--split", "99,1,0", "default"),
        setting("--tokenizer-type", "HuggingFaceTokenizer", "default"),
        setting("--tokenizer-model", "${TOKENIZER:?set TOKENIZER}", "site"),
        setting("--save", "${SAVE_DIR:?set SAVE_DIR}", "site"),
        setting("--load", "${LOAD_DIR:-$SAVE_DIR}", "site"),
        setting("--save-interval", 500, "default", "see the goodput line of estimate"),
        setting("--async-save", None, "default", "saving does not stop the step"),
        setting("--eval-iters", 0, "default"),
        setting("--log-interval", 1, "default"),
        setting("--log-throughput", None, "default", "to compare with the prediction"),
        setting("--manual-gc", None, "default", "no rank collects garbage alone"),
    ]
