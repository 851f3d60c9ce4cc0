"""Calibration of low precision on a real model: activation statistics, scales, errors measured.

Nothing is claimed that was not measured here: per-layer errors on data the calibration did not
see, and the end-to-end loss on held-out windows. Arithmetic is emulated: numbers are rounded to
the format and multiplied in fp32 (what a kernel with fp32 accumulation returns).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import torch
from torch import nn

from lightloom.core.errors import InputError, nearest

LIMITS = {"fp8": 448.0, "int8": 127.0, "int4": 7.0}
"""Largest magnitude of each format: e4m3, and symmetric integers."""
GROUP = 64
"""Input channels that share one int4 scale of the weights."""
BINS = 4096
"""Logarithmic bins of an activation histogram, from 2^-24 to 2^24."""


class LayerStats(msgspec.Struct, frozen=True, kw_only=True):
    """What one matrix product sees."""

    name: str
    inputs: int
    outputs: int
    samples: int
    """Vectors seen."""
    absmax: float
    p999: float
    """99.9 % of magnitudes lie below."""
    mean: float
    std: float
    channel_ratio: float
    """Largest channel's maximum over the median channel's: outlier channels."""


class LayerError(msgspec.Struct, frozen=True, kw_only=True):
    """Error of one matrix product in one format, on data the calibration did not see."""

    name: str
    scale: float
    """Activation scale: real value of one unit; 0 where activations stay wide."""
    weight_error: float
    """Relative L2 error of the rounded weights."""
    output_error: float
    """Relative L2 error of the product."""
    clipped: float
    """Share of activations above the calibrated range."""


class SchemeResult(msgspec.Struct, frozen=True, kw_only=True):
    """One format end to end."""

    scheme: str
    layers: tuple[LayerError, ...]
    loss: float | None
    """Held-out loss; None where it was not measured."""
    loss_change: float | None
    agreement: float | None
    """Share of held-out positions with the same most likely answer."""
    bad_loss_change: float | None = None
    """The same with scales from the bad calibration set."""
    bad_agreement: float | None = None
    bad_layer: LayerError | None = None
    """The layer that the bad set hurts most, with its error and clipped share."""


class Running:
    """Statistics of one layer's input, gathered batch by batch. Axis C channels."""

    def __init__(self, channels: int) -> None:
        """Start with nothing seen."""
        self.top_C = torch.zeros(channels)
        self.bins = torch.zeros(BINS)
        self.sum = self.squares = 0.0
        self.count = 0

    def add(self, x: torch.Tensor) -> None:
        """Add one batch of vectors [..., C]."""
        flat = x.detach().reshape(-1, x.shape[-1]).float()
        size = flat.abs()
        self.top_C = torch.maximum(self.top_C, size.amax(dim=0))
        place = ((size.clamp_min(2.0**-24).log2() + 24.0) / 48.0 * BINS).long().clamp(0, BINS - 1)
        self.bins += torch.bincount(place.reshape(-1), minlength=BINS).float()
        self.sum += float(flat.sum())
        self.squares += float((flat * flat).sum())
        self.count += flat.shape[0]

    def quantile(self, share: float) -> float:
        """Return the magnitude below which `share` of all values lie (upper edge of its bin)."""
        if share >= 1.0:
            return float(self.top_C.max())
        total = self.bins.cumsum(0)
        index = int(torch.searchsorted(total, share * float(total[-1])))
        return min(float(2.0 ** ((index + 1) / BINS * 48.0 - 24.0)), float(self.top_C.max()))

    def stats(self, name: str, layer: nn.Linear) -> LayerStats:
        """Return the statistics so far."""
        values = max(1, self.count * len(self.top_C))
        mean = self.sum / values
        median = float(self.top_C.median())
        return LayerStats(
            name=name, inputs=layer.in_features, outputs=layer.out_features, samples=self.count,
            absmax=float(self.top_C.max()), p999=self.quantile(0.999), mean=mean,
            std=max(0.0, self.squares / values - mean * mean) ** 0.5,
            channel_ratio=float(self.top_C.max()) / median if median > 0 else float("inf"),
        )  # fmt: skip


class Calibration(NamedTuple):
    """Statistics of every matrix product of a model."""

    layers: dict[str, Running]
    batches: int


Batches = Sequence[torch.Tensor]


def linears(model: nn.Module) -> dict[str, nn.Linear]:
    """Return every matrix product by name, or say that there is none."""
    found = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    if not found:
        raise InputError("the model has no nn.Linear: nothing to calibrate")
    return found


def calibrate(model: nn.Module, batches: Batches) -> Calibration:
    """Return activation statistics of each layer over representative batches."""
    if len(batches) < 2:
        raise InputError(f"{len(batches)} calibration batches: one cannot be representative",
                         out="--batches 8 or more, from all over the data")  # fmt: skip
    running = {name: Running(layer.in_features) for name, layer in linears(model).items()}
    hooks = [
        layer.register_forward_pre_hook(lambda _m, a, r=running[name]: r.add(a[0]))
        for name, layer in linears(model).items()
    ]
    try:
        with torch.no_grad():
            for batch in batches:
                model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return Calibration(running, len(batches))


def rounded(x: torch.Tensor, scheme: str, scale: torch.Tensor | float) -> torch.Tensor:
    """Return `x` rounded to the format at a scale; values beyond the range are clipped."""
    limit = LIMITS[scheme]
    unit = (x / scale).clamp(-limit, limit)
    if scheme == "fp8":
        return unit.to(torch.float8_e4m3fn).to(x.dtype) * scale
    return unit.round() * scale


def weight_of(layer: nn.Linear, scheme: str) -> torch.Tensor:
    """Return the layer's weights rounded: per output channel, int4 per group of 64 inputs."""
    weight = layer.weight.detach().float()
    if scheme == "int4":
        rows, columns = weight.shape
        if columns % GROUP == 0:
            grouped = weight.reshape(rows, columns // GROUP, GROUP)
            scale = grouped.abs().amax(dim=-1, keepdim=True).clamp_min(1e-12) / LIMITS[scheme]
            return rounded(grouped, scheme, scale).reshape(rows, columns)
    scale = weight.abs().amax(dim=-1, keepdim=True).clamp_min(1e-12) / LIMITS[scheme]
    return rounded(weight, scheme, scale)


def scales_of(calibration: Calibration, scheme: str, percentile: float) -> dict[str, float]:
    """Return the activation scale of each layer; int4 keeps activations wide (0)."""
    if scheme == "int4":
        return dict.fromkeys(calibration.layers, 0.0)
    return {
        name: max(r.quantile(percentile / 100.0), 1e-12) / LIMITS[scheme]
        for name, r in calibration.layers.items()
    }


def quantised(
    layer: nn.Linear, scheme: str, scale: float
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the layer's product with weights and (unless the scale is 0) inputs rounded."""
    weight = weight_of(layer, scheme).to(layer.weight.dtype)

    def forward(x: torch.Tensor) -> torch.Tensor:
        seen = rounded(x, scheme, scale) if scale else x
        return nn.functional.linear(seen, weight, layer.bias)

    return forward


def layer_errors(model: nn.Module, scheme: str, scales: dict[str, float], batch: torch.Tensor
                 ) -> tuple[LayerError, ...]:  # fmt: skip
    """Return each layer's error on the inputs that the full-precision model gives it."""
    out: dict[str, LayerError] = {}

    def measure(name: str, layer: nn.Linear, x: torch.Tensor, y: torch.Tensor) -> None:
        low = quantised(layer, scheme, scales[name])(x)
        weight = layer.weight.detach().float()
        wrong = weight_of(layer, scheme) - weight
        clipped = (x.abs() > scales[name] * LIMITS[scheme]).float().mean() if scales[name] else 0.0
        out[name] = LayerError(
            name=name, scale=scales[name], weight_error=float(wrong.norm() / weight.norm()),
            output_error=float((low - y).norm() / y.norm().clamp_min(1e-12)),
            clipped=float(clipped),
        )  # fmt: skip

    hooks = [
        layer.register_forward_hook(lambda m, a, y, n=name: measure(n, m, a[0], y))
        for name, layer in linears(model).items()
    ]
    try:
        with torch.no_grad():
            model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return tuple(out[name] for name in scales if name in out)


class Replaced:
    """The model with every matrix product rounded, for the length of a ``with``."""

    def __init__(self, model: nn.Module, scheme: str, scales: dict[str, float]) -> None:
        """Prepare; nothing changes before ``with``."""
        self.layers = linears(model)
        self.scheme, self.scales = scheme, scales

    def __enter__(self) -> None:
        for name, layer in self.layers.items():
            layer.forward = quantised(layer, self.scheme, self.scales[name])

    def __exit__(self, *_: object) -> None:
        for layer in self.layers.values():
            del layer.forward


Loss = Callable[[nn.Module, torch.Tensor], tuple[float, torch.Tensor]]
"""(mean loss, most likely answers) of one held-out batch."""


def end_to_end(model: nn.Module, batches: Batches, loss: Loss) -> tuple[float, torch.Tensor]:
    """Return mean held-out loss and all answers."""
    with torch.no_grad():
        results = [loss(model, batch) for batch in batches]
    answers = torch.cat([answer.reshape(-1) for _, answer in results])
    return sum(value for value, _ in results) / len(results), answers


def check_scheme(model: nn.Module, scheme: str, good: Calibration, bad: Calibration | None,
                 held: Batches, loss: Loss | None, percentile: float) -> SchemeResult:  # fmt: skip
    """Return one format's result: per layer, and end to end where a loss is known."""
    scales = scales_of(good, scheme, percentile)
    layers = layer_errors(model, scheme, scales, held[0])
    worst_layer = None
    if bad is not None and scheme != "int4":
        hurt = layer_errors(model, scheme, scales_of(bad, scheme, percentile), held[0])
        worst_layer = max(hurt, key=lambda e: e.output_error)
    if loss is None:
        return SchemeResult(scheme=scheme, layers=layers, loss=None, loss_change=None,
                            agreement=None, bad_layer=worst_layer)  # fmt: skip
    plain, answers = end_to_end(model, held, loss)
    with Replaced(model, scheme, scales):
        low, low_answers = end_to_end(model, held, loss)
    worse = agreed = None
    if bad is not None and scheme != "int4":
        with Replaced(model, scheme, scales_of(bad, scheme, percentile)):
            worst, worst_answers = end_to_end(model, held, loss)
        worse, agreed = worst - plain, float((worst_answers == answers).float().mean())
    return SchemeResult(
        scheme=scheme, layers=layers, loss=low, loss_change=low - plain,
        agreement=float((low_answers == answers).float().mean()), bad_loss_change=worse,
        bad_agreement=agreed, bad_layer=worst_layer,
    )  # fmt: skip


def parse_schemes(text: str) -> list[str]:
    """Return the formats asked for."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in LIMITS:
            raise InputError(f"--schemes {name!r}: unknown{nearest(name, LIMITS)}",
                             out=f"one of {', '.join(LIMITS)}")  # fmt: skip
    return names
