"""Chip: one accelerator as its data sheet and measurements describe it."""

from __future__ import annotations

import msgspec

from .errors import InputError, nearest
from .source import Source

BYTES = {
    "fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0,
    "fp8": 1.0, "int8": 1.0, "fp4": 0.5, "int4": 0.5,
}  # fmt: skip
"""Bytes of one element of each arithmetic type (scales of block formats not counted)."""


class Chip(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One card. All rates per card, dense arithmetic, one direction."""

    version: int = 1
    name: str
    title: str
    vendor: str
    year: int
    arch: str
    """Generation: ampere, hopper, blackwell, cdna3, davinci, tpu ..."""
    peak: dict[str, float]
    """Dense FLOP/s by arithmetic type (bf16, fp16, fp8, fp4, tf32, fp32, int8)."""
    hbm_bytes: float
    """Physical high-bandwidth memory in bytes as sold (decimal or binary as the sheet says)."""
    hbm_usable: float | None = None
    """What a process can really allocate before any framework starts, bytes; None: assumed."""
    hbm_bandwidth: float
    l2_bytes: float = 0.0
    cores: int = 0
    """Streaming multiprocessors, compute units or AI cores; 0 unknown."""
    clock_hz: float = 0.0
    scaleup_bandwidth: float = 0.0
    """Bytes/s per direction into the inner domain."""
    scaleout_bandwidth: float = 0.0
    """Bytes/s per direction into the cluster network."""
    tdp_w: float = 0.0
    idle_w: float = 0.0
    ranks: int = 1
    """Processes a package carries (dies that are their own device); figures are per rank."""
    sources: dict[str, Source]
    """Origin per field; key ``*`` stands for all fields not named."""

    def kind_of(self, dtype: str) -> str:
        """Return the arithmetic that serves `dtype`: its own, or the next wider the chip has."""
        chain = {
            "fp4": ("fp4", "fp8", "int8", "bf16"), "fp8": ("fp8", "bf16"), "bf16": ("bf16", "fp16"),
            "fp16": ("fp16", "bf16"), "tf32": ("tf32", "bf16", "fp32"), "fp32": ("fp32", "tf32"),
            "int8": ("int8", "fp8", "bf16"), "int4": ("int4", "int8", "fp8", "bf16"),
        }  # fmt: skip
        for kind in chain.get(dtype, ()):
            if kind in self.peak:
                return kind
        raise InputError(f"chip {self.name}: no {dtype} arithmetic{nearest(dtype, self.peak)}")

    def peak_of(self, dtype: str) -> float:
        """Return dense FLOP/s for `dtype`; falls to the next wider type the chip really has."""
        return self.peak[self.kind_of(dtype)]

    def source_of(self, field: str) -> Source:
        """Return where `field` comes from."""
        return self.sources.get(field) or self.sources["*"]
