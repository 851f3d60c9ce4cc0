"""The few constants of the cost model, each with a meaning, read from catalog/calibration.toml.

Nothing here knows a source, a row or a chip by name: constants hang on an architecture
generation, a technology of a fabric level, a framework, or on nothing.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import msgspec

from lightloom.core.files import CATALOG, read_toml


class Kernels(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Efficiency of one generation's kernels against its data sheet."""

    gemm: float = 0.80
    """Share of the peak that a large matrix product reaches."""
    attention: float = 0.60
    """Share of the peak that fused attention reaches, forward."""
    attention_backward: float = 0.52
    expert: float = 0.62
    """Share of the peak of a grouped product."""
    memory: float = 0.82
    """Share of the memory bandwidth that element-wise kernels reach."""
    launch_s: float = 4e-6
    """Shortest time of one kernel."""


class Comm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Collectives: share of the link rate by technology, and start-up."""

    efficiency: dict[str, float] = {}
    """By tier of a level (nvlink, infiniband, roce, hccs, ub, pcie ...); ``*`` for the rest."""
    launch_s: float = 8e-6
    """Start-up of one collective."""
    hop_s: float = 1.5e-6
    """Software cost of one step of a ring or a tree, beside the level's own latency."""

    def of(self, tier: str) -> float:
        """Return the share of the link rate reached on `tier`."""
        return self.efficiency.get(tier, self.efficiency.get("*", 0.8))


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that measurement taught the cost model."""

    version: int = 1
    kernels: dict[str, Kernels] = {}
    """By architecture generation of the chip; ``*`` for the rest."""
    comm: Comm = Comm()
    overlap: dict[str, dict[str, float]] = {}
    """Framework -> axis -> share of that axis's communication that can hide under computation."""
    overhead: dict[str, float] = {}
    """Seconds or shares outside the model's parts: ``step_s``, ``layer_s``, ``jitter``."""
    interval: dict[str, tuple[float, float]] = {}
    """Context -> log-ratio of the 5 % and 95 % quantiles of measured over predicted."""
    made_from: str = ""

    def kernels_of(self, arch: str) -> Kernels:
        """Return the constants of a generation, or the general ones."""
        return self.kernels.get(arch) or self.kernels.get("*") or Kernels()


def read_calibration(path: Path | str) -> Calibration:
    """Return the calibration in a TOML file."""
    return read_toml(path, Calibration, "calibration")


@lru_cache(maxsize=1)
def default_calibration() -> Calibration:
    """Return the calibration that ships with the product."""
    return read_calibration(CATALOG / "calibration.toml")
