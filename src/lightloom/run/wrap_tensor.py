"""Tensor parallel by DTensor: ``parallelize_module`` over the replica's ``tp`` axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.distributed.tensor.parallel import parallelize_module

from .axes import Build, Part


class TensorPart(Part):
    """A whole model whose matrices are cut; each rank sees every micro-batch."""

    def __init__(self, module: torch.nn.Module, loss_of: Callable[[Any, Any], torch.Tensor]
                 ) -> None:  # fmt: skip
        self.module, self.loss_of = module, loss_of

    def compute(self, batch: Any) -> torch.Tensor | None:
        """Return the loss, equal on all ranks of the replica."""
        loss = self.loss_of(self.module, batch)
        loss.backward()
        return loss.detach()


def cut(module: torch.nn.Module, mesh: Any, plan: Mapping[str, Any]) -> torch.nn.Module:
    """Cut a module's matrices by a plan of torch's; each rank keeps its rows, nothing is sent."""
    return parallelize_module(module, mesh, dict(plan), src_data_rank=None)


def tensor(make: Callable[[], torch.nn.Module], plan: Mapping[str, Any],
           loss_of: Callable[[Any, Any], torch.Tensor]) -> Build:  # fmt: skip
    """Return how to build a tensor parallel part: `plan` is parallelize_module's."""
    return lambda mesh: TensorPart(cut(make(), mesh["tp"], plan), loss_of)
