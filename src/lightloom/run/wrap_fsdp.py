"""Fully sharded (FSDP2): ``fully_shard`` over the replica's ``fsdp`` axis.

Each rank of the replica takes its rows of the micro-batch; gradients arrive reduced and scattered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard

from .axes import Build, Part


class ShardedPart(Part):
    """A model of which each rank keeps one part of every parameter."""

    def __init__(self, module: torch.nn.Module, loss_of: Callable[[Any, Any], torch.Tensor]
                 ) -> None:  # fmt: skip
        self.module, self.loss_of = module, loss_of
        self.group: Any = None

    def regroup(self, mesh: Any) -> None:
        """Point every sharded module at the new group, as if it had been made with it."""
        sub = mesh["fsdp"]
        self.group = sub.get_group()
        for module in self.module.modules():
            if isinstance(module, FSDPModule):
                state = module._get_fsdp_state()
                state._training_state = type(state._training_state).IDLE
                for group in state._fsdp_param_groups:
                    group.mesh_info.mesh = sub
                    group.mesh_info.__post_init__()
                    clear(group)

    def compute(self, batch: Any) -> torch.Tensor | None:
        """Return the mean loss of the whole micro-batch."""
        n, at = self.group.size(), self.group.rank()
        if len(batch) % n:
            raise ValueError(f"a micro-batch of {len(batch)} rows is cut into {n} equal parts")
        loss = self.loss_of(self.module, batch[at::n])
        loss.backward()
        mean = loss.detach() / n
        dist.all_reduce(mean, group=self.group)
        return mean


def clear(group: Any) -> None:
    """Bring a parameter group back to its state between steps after a broken pass."""
    group._training_state = type(group._training_state).IDLE
    group.reshard()
    group._reset_iter_state()


def fsdp(make: Callable[[], torch.nn.Module],
         blocks: Callable[[torch.nn.Module], Iterable[torch.nn.Module]],
         loss_of: Callable[[Any, Any], torch.Tensor]) -> Build:  # fmt: skip
    """Return how to build a fully sharded part; `blocks` names the modules gathered together."""

    def build(mesh: Any) -> Part:
        module = make()
        for block in blocks(module):
            fully_shard(block, mesh=mesh["fsdp"])
        return ShardedPart(fully_shard(module, mesh=mesh["fsdp"]), loss_of)

    return build
