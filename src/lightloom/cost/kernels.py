"""Seconds of the kernels that fill a training step: a law, corrected where kernels were measured.

Every function broadcasts its shape arguments with numpy and returns float64 seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightloom.core.chip import Chip

from .calibration import Kernels, default_calibration
from .kernels_law import attention_law, dtype_key, expert_law, gemm_law
from .kernels_surface import surface_of

F64 = NDArray[np.float64]


def _constants(kernels: Kernels | None) -> Kernels:
    return kernels if kernels is not None else default_calibration().kernels


def _log(value: Any) -> F64:
    logs: F64 = np.log(np.maximum(np.asarray(value, np.float64), 1e-9))
    return logs


def gemm_coords(m: Any, n: Any, k: Any) -> dict[str, F64]:
    """Return where a product lies on a surface: log sizes, and whether rows fill tiles of 128."""
    odd = (np.asarray(m, np.float64) % 128.0 != 0.0).astype(np.float64)
    return {"odd": odd, "m": _log(m), "n": _log(n), "k": _log(k)}


def attention_coords(b: Any, s: Any, h: Any, kv: Any, dim: Any) -> dict[str, F64]:
    """Return where fused attention lies on a surface: log batch, tokens, heads, head size."""
    return {"b": _log(b), "s": _log(s), "h": _log(h), "kv": _log(kv), "d": _log(dim),
            "bh": _log(b) + _log(h)}  # fmt: skip


def expert_coords(t: Any, h: Any, f: Any, e: Any, k: Any, ranks: Any, skew: Any) -> dict[str, F64]:
    """Return where an expert layer lies on a surface: log sizes, rows of an expert, routing."""
    rows = _log(t) + _log(k) - _log(ranks)
    return {"t": _log(t), "h": _log(h), "f": _log(f), "e": _log(e), "k": _log(k),
            "g": _log(ranks), "r": rows - _log(e), "w": np.asarray(skew, np.float64)}  # fmt: skip


def gemm_seconds(
    chip: Chip,
    m: Any,
    n: Any,
    k: Any,
    dtype: str = "bf16",
    batch: Any = 1,
    kernels: Kernels | None = None,
) -> F64:
    """Return seconds of `batch` products (m x k)(k x n) in one kernel."""
    c = _constants(kernels)
    seconds = gemm_law(chip, c.gemm, m, n, k, dtype, batch)
    surface = surface_of("gemm", chip, dtype_key(dtype)) if c.surfaces else None
    if surface is not None and np.all(np.asarray(batch) == 1):
        seconds = seconds * np.exp(surface(gemm_coords(m, n, k)))
    return seconds


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
    """Return seconds of fused attention; `causal` counts the lower triangle only."""
    c = _constants(kernels)
    seconds = attention_law(
        chip, c.attention, batch=batch, q_tokens=q_tokens, kv_tokens=kv_tokens, heads=heads,
        kv_heads=kv_heads, qk_dim=qk_dim, v_dim=v_dim, dtype=dtype, causal=causal,
        backward=backward,
    )  # fmt: skip
    surface = surface_of("attention", chip, "bf16") if c.surfaces else None
    if surface is not None:
        at = attention_coords(batch, q_tokens, heads, kv_heads, np.minimum(qk_dim, v_dim))
        seconds = seconds * np.exp(surface(at))
    return seconds


def expert_seconds(
    chip: Chip,
    *,
    tokens: Any,
    hidden: Any,
    inner: Any,
    experts: Any,
    topk: Any,
    gated: Any = True,
    dtype: str = "bf16",
    ranks: Any = 1.0,
    skew: Any = 0.0,
    kernels: Kernels | None = None,
) -> F64:
    """Return seconds of one forward of the experts held by a card.

    `tokens` counts token rows before replication by top-k, of all `ranks` that share the experts:
    the card computes tokens x topk / ranks rows spread over its `experts` experts of local width
    `inner`. With `ranks` 1 (after a dispatch) tokens x topk are the rows received, and the law
    stands alone: experts were measured with their routing.
    """
    c = _constants(kernels)
    seconds = expert_law(
        chip, c.expert, tokens=tokens, hidden=hidden, inner=inner, experts=experts, topk=topk,
        ranks=ranks, skew=skew, gated=gated, dtype=dtype,
    )  # fmt: skip
    surface = surface_of("expert", chip, dtype_key(dtype)) if c.surfaces else None
    if surface is not None and np.all(np.asarray(ranks) > 1):
        at = expert_coords(tokens, hidden, inner, experts, topk, ranks, skew)
        seconds = seconds * np.exp(surface(at))
    return seconds


def memory_seconds(chip: Chip, bytes_: Any, kernels: Kernels | None = None) -> F64:
    """Return seconds of element-wise kernels that move `bytes_` (read plus written)."""
    c = _constants(kernels)
    seconds: F64 = np.asarray(bytes_, np.float64) / (chip.hbm_bandwidth * c.memory)
    return seconds
