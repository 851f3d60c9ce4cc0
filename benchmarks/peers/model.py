"""The job every system in benchmarks/run.py trains: 3.1 M parameters, 37 MB of state with Adam."""

from __future__ import annotations

import time

import torch
from torch import nn

torch.set_num_threads(1)
BATCH = 64


def build(width: int = 1024) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a network of three square layers and its optimiser, equal on every rank."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, width),
    )  # fmt: skip
    return model, torch.optim.Adam(model.parameters(), lr=1e-4)


def batch(index: int, width: int = 1024) -> torch.Tensor:
    """Return micro-batch `index`."""
    return torch.randn(BATCH, width, generator=torch.Generator().manual_seed(index))


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return the loss: reproduce the input."""
    return ((model(x) - x) ** 2).mean()


def say(rank: int, step: int) -> None:
    """Print one committed step with the host's clock."""
    print(f"STEP {rank} {step} {time.monotonic_ns()}", flush=True)
