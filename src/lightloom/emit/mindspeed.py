"""MindSpeed-LLM on Ascend: Megatron's flags with its own names, through torch_npu (v2.3.0)."""

from __future__ import annotations

from lightloom.core.errors import InfeasibleError
from lightloom.core.plan import Plan

from .bundle import Bundle, EmittedFile, Setting, array_of, setting
from .capability import require
from .environment import environment_of, group_minutes
from .launch import environment_file, host_script, launch_lines, numa_file
from .megatron import batch_settings, degree_settings, training_settings
from .megatron_model import attention_settings, mlp_settings, neutral, refuse_unknown, widths
from .stages import is_even, padded_layers, stage_layers
from .topology import vendor_of

_DROP = {
    "--moe-layer-freq", "--moe-router-dtype", "--window-size", "--kv-channels",
    "--moe-shared-expert-intermediate-size", "--moe-router-load-balancing-type",
    "--tokenizer-type", "--tokenizer-model", "--async-save", "--add-qkv-bias",
}  # fmt: skip
"""Megatron's flags that this framework spells in its own way or lacks."""


def emit(plan: Plan) -> Bundle:
    """Return ``train.sh``, ``environment.sh`` and ``numa.sh`` for MindSpeed-LLM."""
    require(plan, "mindspeed")
    if vendor_of(plan) != "ascend":
        raise InfeasibleError(
            f"mindspeed runs on Ascend; {plan.cluster.name} has {plan.cluster.chip.title}",
            out="--for megatron, or a plan for an Ascend machine",
        )
    text = host_script(
        plan,
        "MindSpeed-LLM v2.3.0 pre-training; run on every host from its checkout",
        array_of("MODEL", model_part(plan)),
        array_of("PARALLEL", parallel_part(plan)),
        array_of("BATCH", batch_settings(plan)),
        array_of("KERNELS", kernel_part(plan)),
        array_of("MEMORY", memory_part(plan)),
        array_of("TRAINING", training_part(plan)),
        launch_lines(
            plan,
            f"{script_of(plan)} "
            '"${MODEL[@]}" "${PARALLEL[@]}" "${BATCH[@]}" "${KERNELS[@]}" "${MEMORY[@]}" '
            '"${TRAINING[@]}" "$@"',
        ),
    )
    files = (
        EmittedFile("train.sh", text, executable=True),
        environment_file(plan, environment_of(plan)),
        numa_file(plan),
    )
    return Bundle("mindspeed", files)


def script_of(plan: Plan) -> str:
    """Return the entry script: pre-training, or fine-tuning by posttrain_gpt.py."""
    return "pretrain_gpt.py" if plan.strategy.task == "pretrain" else "posttrain_gpt.py"


def model_part(plan: Plan) -> list[Setting]:
    """Return the network."""
    model = plan.model
    refuse_unknown(model)
    attention = model.blocks[-1].attention
    shared = [
        *depth(plan),
        *widths(model)[1:],
        *attention_settings(model, attention),
        *mlp_settings(model),
    ]
    out = [setting("--use-mcore-models", None, "default", "the only maintained path")]
    out += [item for item in shared if item.name not in _DROP]
    if attention.head_dim * attention.heads != model.hidden and attention.kind != "mla":
        out.append(setting("--kv-channels", attention.head_dim, "model"))
    if any(b.attention.kind == "sliding" for b in model.blocks):
        out.append(setting("--sliding-window", max(b.attention.window for b in model.blocks)))
    out += [
        setting("--max-position-embeddings", model.max_seq, "model"),
        setting("--position-embedding-type", "rope", "model"),
        setting("--use-rotary-position-embeddings", None, "model"),
        neutral("--rotary-base", model, "rope_theta", 10000),
        setting("--padded-vocab-size", padded_vocab(plan), "model", "a multiple of tp"),
        setting("--make-vocab-size-divisible-by", 1, "default", "padded size is given"),
    ]
    return [*out, *expert_part(plan)]


def fills_with_noops(plan: Plan) -> bool:
    """Return whether chunks of unequal length are filled up with layers that do nothing."""
    s = plan.strategy
    chunked = s.vpp > 1 or s.schedule == "dualpipe-v"
    return s.pp > 1 and chunked and not is_even(plan)


def depth(plan: Plan) -> list[Setting]:
    """Return the number of layers, those that do nothing included and named."""
    if not fills_with_noops(plan):
        return [setting("--num-layers", plan.model.layers, "model")]
    real, counts = set(padded_layers(plan)), stage_layers(plan)
    total = len(counts) * max(counts)
    noops = [str(i) for i in range(total) if i not in real]
    return [
        setting("--num-layers", total, "plan", f"{plan.model.layers} and {len(noops)} empty ones"),
        setting("--noop-layers", ",".join(noops), "plan", "uneven chunks, counted from 0"),
    ]


def padded_vocab(plan: Plan) -> int:
    """Return the vocabulary rounded up to a multiple of tp."""
    tp = plan.strategy.tp
    return -(-plan.model.vocab // tp) * tp


def expert_part(plan: Plan) -> list[Setting]:
    """Return experts in this framework's words."""
    model = plan.model
    moe = next((b.mlp for b in model.blocks if b.mlp.is_moe), None)
    if moe is None:
        return []
    marks = [model.blocks[i].mlp.is_moe for i in model.layer_blocks]
    first = marks.index(True)
    period = marks[first:].count(True)
    step = max(1, len(marks[first:]) // max(1, period))
    if step > 1 and fills_with_noops(plan):
        raise InfeasibleError(
            f"mindspeed: experts in every layer {step} cannot be counted over empty layers",
            out="--vpp 1, or a pp x vpp that divides the layers",
        )
    out = [
        setting("--moe-layer-freq", step, "model"),
        setting("--moe-permutation-async-comm", None, "default", "hides permutation"),
        setting("--moe-router-load-balancing-type", "aux_loss", "default", "balance of experts"),
    ]
    if first:
        place = padded_layers(plan)[first] if fills_with_noops(plan) else first
        out.append(setting("--first-k-dense-replace", place, "model"))
    if moe.shared_experts:
        out.append(setting("--n-shared-experts", moe.shared_experts, "model"))
    if model.settings.get("norm_topk"):
        out.append(setting("--norm-topk-prob", None, "model"))
    if model.mtp_layers:
        out.append(setting("--mtp-num-layers", model.mtp_layers, "model"))
    return out


def parallel_part(plan: Plan) -> list[Setting]:
    """Return every axis."""
    s = plan.strategy
    kind = "ulysses_cp_algo" if s.cp_kind == "all-to-all" else "megatron_cp_algo"
    out = degree_settings(plan, setting("--context-parallel-algo", kind))
    if s.pp > 1:
        out += stage_part(plan)
    if s.zero == "1":
        out.append(setting("--use-distributed-optimizer"))
    if s.overlap_grad and s.dp * s.cp > 1:
        out.append(setting("--overlap-grad-reduce"))
    if s.overlap_param and s.zero == "1" and s.dp * s.cp > 1:
        out.append(setting("--overlap-param-gather"))
    minutes = setting("--distributed-timeout-minutes", group_minutes(), "default",
                      "longer than HCCL_EVENT_TIMEOUT")  # fmt: skip
    backend = setting("--distributed-backend", "nccl", "default", "patched to hccl by torch_npu")
    return [*out, minutes, backend]


def stage_part(plan: Plan) -> list[Setting]:
    """Return how layers are spread over the pipeline."""
    s = plan.strategy
    if s.schedule == "dualpipe-v":
        out = [setting("--schedules-method", "dualpipev")]
        return [*out, setting("--moe-fb-overlap")] if plan.model.is_moe else out
    if s.vpp > 1:
        return [setting("--num-layers-per-virtual-pipeline-stage", max(stage_layers(plan)))]
    if is_even(plan):
        return []
    return [setting("--num-layer-list", ",".join(str(n) for n in stage_layers(plan)))]


def kernel_part(plan: Plan) -> list[Setting]:
    """Return fused kernels and precision."""
    gated = any(b.mlp.gated for b in plan.model.blocks)
    out = [
        setting("--use-flash-attn", None, "default", "what the prediction prices"),
        setting("--use-fused-rotary-pos-emb", None, "default", "one kernel"),
        *([setting("--use-fused-swiglu", None, "default", "one kernel")] if gated else []),
        *([setting("--use-fused-rmsnorm", None, "default", "one kernel")]
          if plan.model.norm == "rms" else []),
        setting("--no-masked-softmax-fusion", None, "default", "not on NPU"),
        setting("--attention-softmax-in-fp32", None, "default", "stable"),
    ]  # fmt: skip
    if plan.strategy.precision == "fp16":
        return [*out, setting("--fp16"), setting("--initial-loss-scale", 65536, "default")]
    return [*out, setting("--bf16")]


def memory_part(plan: Plan) -> list[Setting]:
    """Return recompute and offload."""
    s = plan.strategy
    out = []
    if s.recompute == "selective":
        out.append(setting("--recompute-activation-function", None, "plan", "selective"))
    elif s.recompute == "full":
        out += [
            setting("--recompute-granularity", "full"),
            setting("--recompute-method", "block" if s.recompute_layers else "uniform"),
            setting("--recompute-num-layers", s.recompute_layers or 1),
        ]
    if s.offload_optimizer:
        out.append(setting("--swap-optimizer"))
    return out


def training_part(plan: Plan) -> list[Setting]:
    """Return what training needs and the plan does not decide."""
    keep = [item for item in training_settings() if item.name not in _DROP]
    out = [
        *keep,
        setting("--tokenizer-type", "PretrainedFromHF", "default"),
        setting("--tokenizer-name-or-path", "${TOKENIZER:?set TOKENIZER}", "site"),
    ]
    s = plan.strategy
    if s.task != "pretrain":
        out += [setting("--finetune"), setting("--stage", "sft")]
    if s.task == "lora":
        out += [
            setting("--lora-r", s.lora_rank),
            setting("--lora-alpha", 2 * s.lora_rank, "default", "twice the rank"),
            Setting("--lora-target-modules", "linear_qkv", "default", "every projection",
                    ("linear_proj", "linear_fc1", "linear_fc2")),
        ]  # fmt: skip
    return out
