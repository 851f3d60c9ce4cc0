"""DistributedDataParallel as it stands in scripts: each rank a group of its own, we sum."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


def ddp(model: torch.nn.Module, **options: Any) -> torch.nn.parallel.DistributedDataParallel:
    """Return the model wrapped by DDP over a group of this rank alone, which no loss can break.

    Its hooks, buckets and ``module.`` names are as usual; the session sums over all ranks.
    """
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return torch.nn.parallel.DistributedDataParallel(model, **options)
