"""The few constants of the cost model, each with a meaning, read from catalog/calibration.toml.

Nothing here knows a source, a row or a chip by name: constants hang on an architecture
generation, an arithmetic type, a technology of a fabric level, a framework, or on nothing. A
generation that no measurement covers gets 1.0 for every ``by_arch`` factor.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import msgspec

from lightloom.core.files import CATALOG, read_toml

Factors = dict[str, dict[str, float]]
"""Generation or type -> field -> factor on that field of the law."""


class GemmLaw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Matrix products: tiles on cores, whole waves, operands' bytes, one launch."""

    share: float = 0.80
    """Share of the data sheet's peak that a 256 x 256 tile reaches in its inner loop."""
    step: tuple[float, float, float, float] = (0.99, 0.95, 0.85, 0.75)
    """Share of each smaller tile class relative to the next larger one."""
    prologue: float = 120.0
    """Columns of k that filling and draining a tile's pipeline is worth."""
    memory: float = 0.75
    """Share of the memory bandwidth."""
    wave: float = 0.4
    """How much of the last, part-filled wave is paid: 0 nothing, 1 all."""
    launch_s: float = 2.3e-6
    quantise: float = 0.0
    """Passes over the left operand (3 bytes an element) to cast it to a narrow type."""
    by_dtype: Factors = {}
    by_arch: Factors = {}


class AttentionLaw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fused attention: products and exponentials side by side, rows of 128 queries."""

    share: float = 0.73
    """Share of the peak that the two products reach."""
    exponential: float = 0.74
    """Share of 16 exponentials a clock and core."""
    sharpness: float = 3.7
    """Norm in which products and exponentials overlap: 1 add up, large: the longer counts."""
    keys: float = 100.0
    """Keys that starting a row of queries is worth."""
    critical: float = 0.6
    """Weight of the longest row, which bounds small problems."""
    tail: float = 2.0
    memory: float = 0.7
    launch_s: float = 12e-6
    backward: float = 2.5
    """Backward FLOPs over forward FLOPs."""
    backward_share: float = 0.80
    """Backward share of the peak over the forward one."""
    by_dim: Factors = {}
    """Factor on `share` for head sizes other than 128."""
    by_arch: Factors = {}


class ExpertLaw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Grouped products of local experts with sorting, activation and combination."""

    share: float = 0.75
    depth: float = 90.0
    """Columns of k that a tile's start is worth."""
    width: float = 4.0
    """Columns of n lost to the edge of a tile."""
    tile: float = 120.0
    """Rows of a tile; half a tile is lost per expert on average."""
    memory: float = 0.85
    rows: float = 1.0
    """Passes over the rows' activations."""
    slots: float = 0.3
    """Passes over all tokens x top-k rows, also those that other ranks compute."""
    tokens: float = 1.5
    """Passes over the tokens."""
    slot_s: float = 0.2e-9
    """Seconds per token and chosen expert (sorting)."""
    expert_s: float = 10e-9
    """Seconds per expert of the layer (offsets)."""
    launch_s: float = 20e-6
    hot: float = 2.0
    """Spread of the busiest rank's load under imbalanced routing."""
    hot_power: float = 1.1
    idle: float = 0.2
    """Share of experts without rows under imbalanced routing."""
    by_dtype: Factors = {}
    by_arch: Factors = {}


class Kernels(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All kernels of a training step."""

    gemm: GemmLaw = GemmLaw()
    attention: AttentionLaw = AttentionLaw()
    expert: ExpertLaw = ExpertLaw()
    memory: float = 0.82
    """Share of the memory bandwidth that element-wise kernels reach."""
    surfaces: bool = False
    """Correct the laws by the measured surfaces of the chip's generation, where there are any."""


class CommLaw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family of collectives: gather (and reduce-scatter), reduce (all-reduce), exchange."""

    share: float = 0.80
    """Share of the links' rate that a very large group reaches (of a node's own switch)."""
    edge: float = 0.30
    """Loss of that share for small groups: share - edge / ranks."""
    launch_s: float = 8e-6
    """Start-up."""
    step_s: float = 1.0e-6
    """Each further step of a ring (per doubling for an exchange)."""
    ramp: float = 0.6
    """How slowly the rate builds up with size: seconds per root of (wire time x 10 us)."""


class Comm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Collectives: share of the link rate by technology, start-up, ramp."""

    efficiency: dict[str, float] = {}
    """Share of the link rate by tier of levels above the first (infiniband, roce, hccs, ub ...);
    ``*`` for the rest. The innermost switch follows the laws below."""
    gather: CommLaw = CommLaw()
    reduce: CommLaw = CommLaw()
    exchange: CommLaw = CommLaw()
    dispatch: float = 0.65
    """Share of an outer level's rate that experts' dispatch reaches: many small writes at once."""
    in_switch: float = 1.2
    """Rate of reductions inside the switch over the ring's rate, 8 ranks and more."""
    hop_s: float = 1.5e-6
    """Software cost of one step over an outer level, beside its own latency."""
    by_arch: Factors = {}
    """Generation -> factor on `launch_s`, on `in_switch`."""

    def of(self, tier: str) -> float:
        """Return the share of the link rate reached on `tier`."""
        return self.efficiency.get(tier, self.efficiency.get("*", 0.8))


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that measurement taught the cost model."""

    version: int = 1
    kernels: Kernels = Kernels()
    comm: Comm = Comm()
    overlap: dict[str, dict[str, float]] = {}
    """Framework -> axis -> share of that axis's communication that can hide under computation."""
    overhead: dict[str, float] = {}
    """Seconds or shares outside the model's parts: ``step_s``, ``layer_s``, ``jitter``."""
    scale: dict[str, dict[str, float]] = {}
    """Part of the step -> what a job is -> factor (see `calibration_scale`)."""
    spread: dict[str, float] = {}
    """What a job is -> factor on the spread of its residuals (see `interval`)."""
    interval: dict[str, tuple[float, float]] = {}
    """``*``: 5 % and 95 % quantiles of log(measured / predicted) in units of the spread;
    ``memory KIND``: of peak memory."""
    made_from: str = ""

    def kernels_of(self, arch: str) -> Kernels:
        """Return the laws of all kernels; they look the generation up themselves."""
        return self.kernels


def factor(table: Factors, key: str, field: str) -> float:
    """Return the factor of `key` on `field`; 1.0 where nothing is known."""
    return table.get(key, {}).get(field, 1.0)


def read_calibration(path: Path | str) -> Calibration:
    """Return the calibration in a TOML file."""
    return read_toml(path, Calibration, "calibration")


@lru_cache(maxsize=1)
def default_calibration() -> Calibration:
    """Return the calibration that ships with the product."""
    return read_calibration(CATALOG / "calibration.toml")
