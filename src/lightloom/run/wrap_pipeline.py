"""Pipeline by torch.distributed.pipelining, alone or with tensor parallel stages (the product)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from . import wrap_tensor
from .axes import Build, Part


class StagePart(Part):
    """One stage; the schedule is made anew with the groups."""

    def __init__(self, module: torch.nn.Module, stage: int, stages: int, micro: int,
                 split: Callable[[Any], tuple[Any, Any]],
                 loss_of: Callable[[Any, Any], torch.Tensor]) -> None:  # fmt: skip
        self.module, self.stage, self.stages, self.micro = module, stage, stages, micro
        self.split, self.loss_of = split, loss_of
        self.schedule: Any = None

    def regroup(self, mesh: Any) -> None:
        """Make stage and schedule on the new group; a single stage needs neither."""
        if self.stages == 1:
            return
        stage = PipelineStage(
            self.module, self.stage, self.stages, torch.device("cpu"), group=mesh["pp"].get_group()
        )
        self.schedule = Schedule1F1B(stage, self.micro, loss_fn=self.loss_of)

    def compute(self, batch: Any) -> torch.Tensor | None:
        """Return the mean loss on the last stage, None elsewhere."""
        inputs, target = self.split(batch)
        losses: list[torch.Tensor] = []
        if self.stages == 1:
            for x, y in zip(inputs.chunk(self.micro), target.chunk(self.micro), strict=True):
                losses.append(self.loss_of(self.module(x), y))
                (losses[-1] / self.micro).backward()
            return torch.stack(losses).mean().detach()
        if self.stage == 0:
            self.schedule.step(inputs)
            return None
        if self.stage < self.stages - 1:
            self.schedule.step()
            return None
        self.schedule.step(target=target, losses=losses)
        return torch.stack(losses).mean().detach()


def pipeline(make: Callable[[], torch.nn.Module],
             stage_of: Callable[[torch.nn.Module, int, int], torch.nn.Module],
             split: Callable[[Any], tuple[Any, Any]],
             loss_of: Callable[[Any, Any], torch.Tensor], *, micro: int = 2,
             plan: Callable[[torch.nn.Module], Mapping[str, Any]] | None = None
             ) -> Build:  # fmt: skip
    """Return how to build one stage of a pipeline.

    `stage_of(model, stage, stages)` cuts the model, `split(batch)` gives (inputs, target),
    `loss_of(output, target)` the last stage's loss; `micro` parts of a micro-batch are in flight.
    With `plan(stage)` the stage's matrices are also cut over the ``tp`` axis. A layout without one
    of the axes gives stages that are not cut, or a whole model.
    """

    def whole(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        inputs, target = split(batch)
        return loss_of(model(inputs), target)

    def build(mesh: Any) -> Part:
        named = mesh.mesh_dim_names
        stage, stages = 0, 1
        if "pp" in named:
            stage, stages = mesh["pp"].get_local_rank(), mesh["pp"].size()
        module = stage_of(make(), stage, stages) if stages > 1 else make()
        if plan is not None and "tp" in named:
            module = wrap_tensor.cut(module, mesh["tp"], plan(module))
        if stages == 1:
            return wrap_tensor.TensorPart(module, whole)
        return StagePart(module, stage, stages, micro, split, loss_of)

    return build
