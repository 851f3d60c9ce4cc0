"""PyTorch FSDP2: a module that builds the mesh and shards any model as the plan says."""

from __future__ import annotations

from lightloom.core.plan import Plan

from .bundle import Bundle, EmittedFile, head, lines_of
from .capability import require
from .environment import environment_of
from .launch import environment_file, host_script, launch_lines, numa_file


def emit(plan: Plan) -> Bundle:
    """Return ``fsdp_plan.py`` (mesh and sharding), ``launch.sh`` and the environment."""
    require(plan, "fsdp")
    launch = host_script(
        plan,
        "start a script that imports fsdp_plan: ./launch.sh train.py ARGS",
        'export PYTHONPATH="$here:${PYTHONPATH:-}"',
        launch_lines(plan, '"${@:?script and its arguments}"'),
    )
    files = (
        EmittedFile("fsdp_plan.py", module_of(plan)),
        EmittedFile("launch.sh", launch, executable=True),
        environment_file(plan, environment_of(plan)),
        numa_file(plan),
    )
    return Bundle("fsdp", files)


def shard_degree(plan: Plan) -> int:
    """Return ranks that share one copy of the weights."""
    s = plan.strategy
    if s.zero == "hsdp":
        return min(s.dp, s.hsdp_shard or plan.cluster.host.cards)
    return s.dp


def module_of(plan: Plan) -> str:
    """Return Python that a training script imports; constants carry their origin."""
    s = plan.strategy
    shard = shard_degree(plan)
    dtype = {"fp16": "float16", "fp32": "float32"}.get(s.precision, "bfloat16")
    reduce = "float32" if s.gradient_dtype == "fp32" else "bfloat16"
    constants = [
        f"REPLICAS = {s.dp // shard}  # plan: copies of the weights",
        f"SHARDS = {shard}  # plan: ranks that share one copy",
        f"TP = {s.tp}  # plan",
        f"MICRO_BATCH = {s.micro_batch}  # plan: sequences",
        f"ACCUMULATE = {s.micro_batches}  # plan: micro-batches of a step",
        f"GLOBAL_BATCH = {s.global_batch}  # plan: sequences",
        f"SEQ = {s.seq}  # plan: tokens",
        f"RESHARD = {s.zero != '2'}  # plan: gather weights again in backward",
        f"RECOMPUTE = {s.recompute != 'none'}  # plan: {s.recompute}",
        f"OFFLOAD = {s.offload_optimizer}  # plan",
    ]
    return lines_of('"""Mesh and sharding of the plan; see mesh() and shard()."""', "",
                    head(plan, "PyTorch FSDP2"), "", IMPORTS, "", constants, "",
                    BODY.format(dtype=dtype, reduce=reduce).rstrip().splitlines())  # fmt: skip


IMPORTS = [
    "import torch",
    "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (",
    "    checkpoint_wrapper,",
    ")",
    "from torch.distributed.device_mesh import DeviceMesh, init_device_mesh",
    "from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy",
    "from torch.distributed.fsdp import fully_shard",
]
BODY = '''
def mesh(device: str) -> DeviceMesh:
    """Return the mesh (replicate, shard, tp), tp innermost so that it stays in the host."""
    return init_device_mesh(
        device, (REPLICAS, SHARDS, TP), mesh_dim_names=("replicate", "shard", "tp")
    )


def shard(model: torch.nn.Module, layers: torch.nn.ModuleList, on: DeviceMesh) -> None:
    """Shard every layer, then the rest; call it before the optimiser is made."""
    data = on["replicate", "shard"] if REPLICAS > 1 else on["shard"]
    policy = MixedPrecisionPolicy(param_dtype=torch.{dtype}, reduce_dtype=torch.{reduce})
    offload = CPUOffloadPolicy() if OFFLOAD else OffloadPolicy()
    for index, layer in enumerate(layers):
        wrapped = checkpoint_wrapper(layer) if RECOMPUTE else layer
        layers[index] = wrapped
        fully_shard(wrapped, mesh=data, mp_policy=policy, offload_policy=offload,
                    reshard_after_forward=RESHARD)
    fully_shard(model, mesh=data, mp_policy=policy, offload_policy=offload,
                reshard_after_forward=RESHARD)
'''
