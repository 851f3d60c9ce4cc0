"""A small network cut along any axis: ``lightloom run --example axes --shards 4 -- --axes pp,tp``.

Reads top to bottom like a training script of your own.
"""

from __future__ import annotations

import argparse
import sys
from collections import OrderedDict

import torch
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.nn import functional

import lightloom.run as ll
from lightloom.run.axes import Build, axes
from lightloom.run.example_gpt import Text
from lightloom.run.wrap_ddp import ddp
from lightloom.run.wrap_fsdp import fsdp
from lightloom.run.wrap_pipeline import pipeline
from lightloom.run.wrap_tensor import tensor

parser = argparse.ArgumentParser(prog="lightloom run --example axes --")
parser.add_argument("--axes", choices=["ddp", "fsdp", "tp", "pp", "pp,tp"],
                    help="default: as --shards plan says, or tp")  # fmt: skip
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--context", type=int, default=32)
parser.add_argument("--batch", type=int, default=8, help="sequences of one micro-batch")


class Block(nn.Module):  # type: ignore[misc]
    """A norm and a two-layer network."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Network(nn.Module):  # type: ignore[misc]
    """Bytes in, distribution over the next byte out; any contiguous part of it is a stage."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.Sequential(
            nn.Embedding(256, width), *(Block(width) for _ in range(layers)), nn.Linear(width, 256)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of the whole model, the output of a stage's part."""
        return self.parts(x)


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy."""
    return functional.cross_entropy(output.reshape(-1, 256), target.reshape(-1))


def whole_loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Return the loss of a model that sees the whole micro-batch."""
    return loss_of(model(batch[:, :-1]), batch[:, 1:])


def split(batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (inputs, target)."""
    return batch[:, :-1].contiguous(), batch[:, 1:].contiguous()


def stage_of(model: nn.Module, stage: int, stages: int) -> nn.Module:
    """Return the model with only one stage's layers, under the names of the whole model."""
    parts = list(model.parts.named_children())
    size = -(-len(parts) // stages)
    model.parts = nn.Sequential(OrderedDict(parts[stage * size : (stage + 1) * size]))
    return model


def plan(model: nn.Module) -> dict[str, object]:
    """Return how the blocks' matrices are cut: columns first, rows next."""
    out: dict[str, object] = {}
    for name, module in model.named_modules():
        if isinstance(module, Block):
            out |= {f"{name}.up": ColwiseParallel(), f"{name}.down": RowwiseParallel()}
    return out


def build_of(args: argparse.Namespace, planned: bool) -> tuple[Build, dict[str, int]]:
    """Return how to build one rank's part, and the axes of a replica; none: the run's layout."""

    def make() -> Network:
        return Network(args.width, args.layers)

    def blocks(model: nn.Module) -> list[nn.Module]:
        return [m for m in model.modules() if isinstance(m, Block)]

    if args.axes is None and planned:
        return pipeline(make, stage_of, split, loss_of, plan=plan), {}
    if args.axes == "fsdp":
        return fsdp(make, blocks, whole_loss), {"fsdp": 2}
    if args.axes in (None, "tp"):
        return tensor(make, plan(make()), whole_loss), {"tp": 2}
    cut = plan if args.axes == "pp,tp" else None
    degrees = {"pp": 2, "tp": 2} if cut else {"pp": 2}
    return pipeline(make, stage_of, split, loss_of, plan=cut), degrees


def train_ddp(args: argparse.Namespace, loader: object) -> None:
    """Train replicas that are whole models in torch's own wrapper."""
    model = ddp(Network(args.width, args.layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with ll.session() as s:
        s.track(model=model, optimizer=optimizer, rng=True)
        for batch in s.steps(loader):
            loss = whole_loss(model, batch)
            loss.backward()
            if s.reduce_gradients(model, loss):
                optimizer.step()


def main(args: argparse.Namespace) -> None:
    """Train until the run's steps are done."""
    loader = torch.utils.data.DataLoader(
        Text(args.context), batch_size=args.batch, shuffle=True, drop_last=True
    )
    if args.axes == "ddp":
        train_ddp(args, loader)
        return
    largest = sum(p.numel() for p in Network(args.width, args.layers).parameters())
    with ll.session() as s:
        build, degrees = build_of(args, planned=bool(s.spec.layouts))
        job = axes(
            s, build, lambda own: torch.optim.AdamW(own, lr=1e-3), largest=largest, **degrees
        )
        for batch in s.steps(loader):
            loss = job.compute(batch)
            if job.reduce(loss):
                job.step()


if __name__ == "__main__":
    main(parser.parse_args(sys.argv[1:]))
