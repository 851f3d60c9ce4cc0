"""Which model and which data ``quantize-check`` works on: the shipped GPT, or a user's factory."""

from __future__ import annotations

import importlib.util
import lzma
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from lightloom.core.errors import InputError
from lightloom.core.files import CATALOG, read_bytes

from .quantize import Loss

CONTEXT, BATCH = 64, 16


class Subject(NamedTuple):
    """A model with its calibration and held-out batches."""

    name: str
    model: nn.Module
    calibration: list[torch.Tensor]
    held: list[torch.Tensor]
    bad: list[torch.Tensor] | None
    loss: Loss | None
    notes: tuple[str, ...]


def token_loss(model: nn.Module, batch: torch.Tensor) -> tuple[float, torch.Tensor]:
    """Return next-token loss and the most likely tokens of windows [B, T + 1]."""
    logits = model(batch[:, :-1])
    value = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1))
    return float(value), logits.argmax(dim=-1)


class Windows(nn.Module):  # type: ignore[misc]
    """A token model that takes windows of one token more than it reads."""

    def __init__(self, model: nn.Module) -> None:
        """Wrap `model`."""
        super().__init__()
        self.model = model

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Return logits of all but the last token; whole windows pass through unchanged."""
        seen: torch.Tensor = self.model(batch[:, :CONTEXT])
        return seen


def windows(text: bytes, count: int, seed: int) -> torch.Tensor:
    """Return `count` windows [count, CONTEXT + 1] from all over the text, in random order."""
    room = len(text) - CONTEXT - 1
    if room < count:
        raise InputError(f"the data holds {len(text):,} bytes: too few for {count} windows",
                         out=f"at least {count * 2 + CONTEXT:,} bytes")  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randperm(room, generator=generator)[:count]
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    return torch.stack([data[s : s + CONTEXT + 1] for s in starts.tolist()])


def gpt_subject(data: str | None, weights: str | None, batches: int, steps: int, seed: int,
                bad: str | None) -> Subject:  # fmt: skip
    """Return the shipped GPT on text: trained here for `steps`, or with the weights given."""
    from .example_gpt import GPT

    shipped = lzma.decompress((CATALOG / "text" / "kjv.txt.xz").read_bytes())
    text = read_bytes(data, "data") if data else shipped
    torch.manual_seed(seed)
    model = GPT(128, 2, 4, CONTEXT, 0.0)
    notes = []
    if weights:
        load_weights(model, weights)
        notes.append(f"weights of {weights}")
    else:
        loss = train(model, shipped[: len(shipped) * 8 // 10], steps, seed)
        notes.append(f"the shipped GPT, trained here for {steps} steps to loss {loss:.3f}")
    split = len(text) * 8 // 10
    calibration = windows(text[:split], batches * BATCH, seed).split(BATCH)
    held = windows(text[split:], 8 * BATCH, seed + 1).split(BATCH)
    notes.append(f"calibrated on {batches} batches of the first 80 % of the data, "
                 "held-out windows from the rest")  # fmt: skip
    poor = read_bytes(bad, "bad data") if bad else b"a" * 4096
    wrong = windows(poor, 2 * BATCH, seed).split(BATCH)
    notes.append(f"bad calibration set: {bad or 'one letter, repeated'}")
    inputs = [c[:, :-1] for c in calibration]
    return Subject("gpt", Windows(model), inputs, list(held), [w[:, :-1] for w in wrong],
                   lambda m, b: token_loss(m, b), tuple(notes))  # fmt: skip


def train(model: nn.Module, text: bytes, steps: int, seed: int) -> float:
    """Train the model for a while and return the last loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = windows(text, steps * BATCH, seed + 2).split(BATCH)
    value = float("nan")
    for batch in data:
        logits = model(batch[:, :-1])
        loss = functional.cross_entropy(logits.reshape(-1, 256), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = float(loss.detach())
    return value


def load_weights(model: nn.Module, path: str) -> None:
    """Load safetensors into the model, or name the first tensor that differs."""
    from safetensors.torch import load

    try:
        state = load(read_bytes(path, "weights"))
    except (ValueError, RuntimeError, KeyError) as error:
        raise InputError(f"weights {path}: not safetensors: {error}") from error
    except Exception as error:
        if type(error).__name__ != "SafetensorError":
            raise
        raise InputError(f"weights {path}: not safetensors: {error}") from error
    own = model.state_dict()
    trimmed = {k.removeprefix("model."): v for k, v in state.items()}
    for name, tensor in own.items():
        if name not in trimmed:
            raise InputError(f"weights {path}: no tensor {name}")
        if trimmed[name].shape != tensor.shape:
            raise InputError(f"weights {path}: {name} has shape {tuple(trimmed[name].shape)}, "
                             f"the model {tuple(tensor.shape)}")  # fmt: skip
    model.load_state_dict({name: trimmed[name] for name in own})


def user_subject(spec: str, data: str | None, weights: str | None, batches: int,
                 bad: str | None) -> Subject:  # fmt: skip
    """Return the model of ``FILE.py:FACTORY`` with inputs from an .npy file.

    The file may define ``loss(model, batch) -> (float, answers)``; without it the end-to-end
    quality is not measured, and nothing is said of it.
    """
    path, _, factory = spec.rpartition(":")
    module = load_module(path)
    if not hasattr(module, factory):
        raise InputError(f"model {spec}: {path} has no {factory}")
    model = getattr(module, factory)()
    if not isinstance(model, nn.Module):
        raise InputError(f"model {spec}: {factory}() returns {type(model).__name__}, not a Module")
    if weights:
        load_weights(model, weights)
    if data is None:
        raise InputError("which data?", out="--data inputs.npy: first axis counts batches")
    inputs = arrays(data)
    if len(inputs) < 4:
        raise InputError(f"data {data}: {len(inputs)} batches; at least 4 (half is held out)")
    split = len(inputs) // 2
    loss = getattr(module, "loss", None)
    notes = [f"{split} batches to calibrate, {len(inputs) - split} held out"]
    if loss is None:
        notes.append(f"{path} defines no loss(model, batch): end-to-end quality is not measured")
    model.eval()
    return Subject(spec, model, inputs[:split][:batches], inputs[split:],
                   arrays(bad) if bad else None, loss, tuple(notes))  # fmt: skip


def load_module(path: str) -> Any:
    """Return a Python file as a module."""
    if not Path(path).is_file():
        raise InputError(f"model: {path or '(no file)'} does not exist",
                         out="gpt, or FILE.py:FACTORY")  # fmt: skip
    found = importlib.util.spec_from_file_location("user_model", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def arrays(path: str) -> list[torch.Tensor]:
    """Return the batches of an .npy file."""
    import io

    import numpy as np

    try:
        data = np.load(io.BytesIO(read_bytes(path, "data")), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"data {path}: not an .npy file: {error}") from error
    if data.ndim < 2:
        raise InputError(f"data {path}: shape {data.shape}; the first axis counts batches")
    return [torch.from_numpy(np.ascontiguousarray(batch)) for batch in data]
