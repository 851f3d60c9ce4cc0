"""Seconds of the kernels that fill a training step, from shapes and data-sheet quantities.

Every function broadcasts its shape arguments with numpy and returns float64 seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightloom.core.chip import BYTES, Chip

from .calibration import Kernels, default_calibration

F64 = NDArray[np.float64]
TILE_M, TILE_N = 128, 256


def _constants(chip: Chip, kernels: Kernels | None) -> Kernels:
    return kernels if kernels is not None else default_calibration().kernels_of(chip.arch)


def _roof(flops_s: F64, bytes_s: F64, launch_s: float) -> F64:
    """Return the smooth maximum of the two roofs, and the shortest time of a kernel."""
    longest = np.maximum(flops_s, bytes_s)
    shorter = np.minimum(flops_s, bytes_s)
    roof: F64 = longest * (1.0 + (shorter / np.maximum(longest, 1e-30)) ** 4) ** 0.25
    return roof + launch_s


def gemm_seconds(
    chip: Chip,
    m: Any,
    n: Any,
    k: Any,
    dtype: str = "bf16",
    batch: Any = 1,
    kernels: Kernels | None = None,
) -> F64:
    """Return seconds of `batch` products (m x k)(k x n) in one kernel.

    Roofline of 2 m n k FLOPs at the data sheet's peak and of the operands' bytes, with whole
    waves of 128 x 256 tiles over the chip's cores.
    """
    c = _constants(chip, kernels)
    m, n, k, batch = (np.asarray(x, np.float64) for x in (m, n, k, batch))
    cores = max(chip.cores, 1)
    tiles = batch * np.ceil(m / TILE_M) * np.ceil(n / TILE_N)
    waves = np.ceil(tiles / cores) * cores / tiles
    padded = 2.0 * tiles * TILE_M * TILE_N * k * np.minimum(waves, 4.0)
    width = BYTES.get(dtype, 2.0)
    moved = batch * (m * k * width + k * n * width + m * n * 2.0)
    return _roof(
        padded / (chip.peak_of(dtype) * c.gemm),
        moved / (chip.hbm_bandwidth * c.memory),
        c.launch_s,
    )


def attention_seconds(
    chip: Chip,
    *,
    batch: Any,
    q_tokens: Any,
    kv_tokens: Any,
    heads: Any,
    kv_heads: Any,
    qk_dim: Any,
    v_dim: Any,
    dtype: str = "bf16",
    causal: bool = True,
    backward: bool = False,
    kernels: Kernels | None = None,
) -> F64:
    """Return seconds of fused attention; `causal` counts the lower triangle only.

    Forward 2 B h s t (d_qk + d_v) FLOPs, halved when causal; backward 2.5 times as many.
    """
    c = _constants(chip, kernels)
    batch, q, t = (np.asarray(x, np.float64) for x in (batch, q_tokens, kv_tokens))
    heads, kv, dk, dv = (np.asarray(x, np.float64) for x in (heads, kv_heads, qk_dim, v_dim))
    flops = 2.0 * batch * heads * q * t * (dk + dv) * (0.5 if causal else 1.0)
    width = BYTES.get(dtype, 2.0)
    moved = batch * width * (heads * q * (dk + dv) + kv * t * (dk + dv))
    share = c.attention_backward if backward else c.attention
    work = 2.5 if backward else 1.0
    return _roof(
        work * flops / (chip.peak_of(dtype) * share),
        work * moved / (chip.hbm_bandwidth * c.memory),
        c.launch_s,
    )


def expert_seconds(
    chip: Chip,
    *,
    tokens: Any,
    hidden: Any,
    inner: Any,
    experts: Any,
    topk: Any,
    gated: bool = True,
    dtype: str = "bf16",
    kernels: Kernels | None = None,
) -> F64:
    """Return seconds of one forward of the experts held by a card.

    `tokens` counts token rows before replication by top-k whose experts are all local: the card
    computes tokens x topk rows spread evenly over `experts` local experts of width `inner`.
    """
    c = _constants(chip, kernels)
    tokens, hidden, inner = (np.asarray(x, np.float64) for x in (tokens, hidden, inner))
    experts, topk = np.asarray(experts, np.float64), np.asarray(topk, np.float64)
    rows = tokens * topk
    used = np.minimum(experts, np.maximum(rows, 1.0))
    padded = used * np.ceil(rows / used / TILE_M) * TILE_M
    mats = 3.0 if gated else 2.0
    width = BYTES.get(dtype, 2.0)
    moved = used * mats * hidden * inner * width + rows * 2.0 * (2.0 * hidden + mats * inner)
    return _roof(
        2.0 * mats * padded * hidden * inner / (chip.peak_of(dtype) * c.expert),
        moved / (chip.hbm_bandwidth * c.memory),
        3.0 * c.launch_s,
    )


def memory_seconds(chip: Chip, bytes_: Any, kernels: Kernels | None = None) -> F64:
    """Return seconds of element-wise kernels that move `bytes_` (read plus written)."""
    c = _constants(chip, kernels)
    seconds: F64 = np.asarray(bytes_, np.float64) / (chip.hbm_bandwidth * c.memory)
    return seconds
