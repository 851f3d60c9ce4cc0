"""Strategy: how one training job is cut into ranks, and what each rank keeps."""

from __future__ import annotations

from typing import Literal

import msgspec

from .framework import FrameworkName

Recompute = Literal["none", "selective", "full"]
Zero = Literal["0", "1", "2", "3", "fsdp", "hsdp"]
Task = Literal["pretrain", "finetune", "lora"]
ScheduleName = Literal[
    "gpipe", "1f1b", "interleaved", "zero-bubble", "zb-v", "dualpipe", "dualpipe-v"
]


class Strategy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Degrees of every axis and all choices that change cost."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    """Data-parallel replicas (expert parallelism lies inside dp x cp x tp, it adds no ranks)."""
    cp: int = 1
    ep: int = 1
    etp: int = 1
    vpp: int = 1
    """Model chunks per pipeline rank."""
    micro_batch: int = 1
    """Sequences of one micro-batch of one replica."""
    global_batch: int
    """Sequences of one step of the whole job."""
    seq: int
    """Tokens of one sequence."""
    precision: str = "bf16"
    """Arithmetic of the big matrix products: bf16, fp16, fp8, fp4, fp32."""
    recompute: Recompute = "none"
    recompute_layers: int = 0
    """With `full`: layers per pipeline rank that are recomputed; 0 is all."""
    zero: Zero = "1"
    hsdp_shard: int = 0
    """With `hsdp`: ranks that share one copy; 0 is one domain or host."""
    sequence_parallel: bool = True
    cp_kind: Literal["ring", "all-to-all"] = "ring"
    schedule: ScheduleName = "1f1b"
    stage_layers: tuple[int, ...] = ()
    """Layers of each pipeline stage (pp x vpp numbers); empty: as even as possible."""
    optimizer_dtype: str = "fp32"
    gradient_dtype: str = "fp32"
    offload_optimizer: bool = False
    overlap_grad: bool = True
    overlap_param: bool = True
    overlap_tp: bool = False
    overlap_pp: bool = True
    overlap_ep: bool = False
    framework: FrameworkName = "megatron"
    task: Task = "pretrain"
    lora_rank: int = 16

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def micro_batches(self) -> int:
        """Micro-batches that each replica accumulates in one step."""
        return self.global_batch // (self.dp * self.micro_batch)

    @property
    def tokens(self) -> int:
        """Tokens of one step of the whole job."""
        return self.global_batch * self.seq

    @property
    def expert_dp(self) -> int:
        """Replicas of each expert."""
        return self.dp * self.cp * self.tp // (self.ep * self.etp)
