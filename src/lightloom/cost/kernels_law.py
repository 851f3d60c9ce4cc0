"""Laws of the big kernels: seconds from shapes, data-sheet quantities and a few constants.

All arguments broadcast with numpy; nothing here is looked up in a table of measurements.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightloom.core.chip import BYTES, Chip

from .calibration import AttentionLaw, ExpertLaw, GemmLaw, factor

F64 = NDArray[np.float64]
TILES = ((256, 256, 0), (256, 128, 1), (128, 256, 1), (128, 128, 2), (128, 64, 3), (64, 128, 3),
         (64, 256, 3), (64, 64, 4))  # fmt: skip
"""Rows, columns and size class of the output tiles that libraries choose from."""
ROWS = 128.0
"""Queries of one tile of fused attention."""
EXPONENTIALS = 16.0
"""Exponentials of one core in one clock (special-function units of every generation so far)."""
ASSUMED_CORES, ASSUMED_CLOCK = 128, 1.7e9


def dtype_key(dtype: str) -> str:
    """Return the family of constants for an arithmetic type: bf16, fp8 or fp8-block."""
    if dtype in ("bf16", "fp16", "fp32", "tf32"):
        return "bf16"
    return "fp8-block" if dtype == "fp8-block" else "fp8"


def peak_of(chip: Chip, dtype: str) -> float:
    """Return the peak for `dtype`, block formats counted as their element type."""
    return chip.peak_of("fp8" if dtype == "fp8-block" else dtype)


def _cores(chip: Chip) -> float:
    return float(chip.cores or ASSUMED_CORES)


def gemm_law(chip: Chip, law: GemmLaw, m: Any, n: Any, k: Any, dtype: str, batch: Any = 1) -> F64:
    """Return seconds of `batch` products (m x k)(k x n).

    The quickest tile size: waves of tiles over the cores times a tile's time (k plus a start),
    also with k split where tiles are fewer than cores; the 4-norm with the operands' bytes over
    the memory bandwidth; a launch; for narrow types a pass that casts the left operand.
    """
    m, n, k, batch = (np.asarray(x, np.float64) for x in (m, n, k, batch))
    key, arch = dtype_key(dtype), chip.arch
    share = min(0.99, law.share * factor(law.by_dtype, key, "share")
                * factor(law.by_arch, arch, "share"))  # fmt: skip
    cores = _cores(chip)
    rate = peak_of(chip, dtype) / cores
    best: F64 | None = None
    shares = share * np.cumprod((1.0, *law.step))
    for rows, cols, size in TILES:
        tiles = batch * np.ceil(m / rows) * np.ceil(n / cols)
        waves = tiles / cores
        paid = np.ceil(waves) ** law.wave * np.maximum(waves, 1.0) ** (1.0 - law.wave)
        split = np.clip(np.floor(cores / tiles), 1.0, 4.0)
        deep = np.minimum(k + law.prologue, k / split + law.prologue * (0.5 + 0.5 * split))
        seconds = paid * deep * (2.0 * rows * cols / (rate * shares[size]))
        best = seconds if best is None else np.minimum(best, seconds)
    assert best is not None
    width = 1.0 if key != "bf16" else BYTES.get(dtype, 2.0)
    moved = batch * ((m * k + k * n) * width + 2.0 * m * n)
    read = moved / (chip.hbm_bandwidth * law.memory)
    cast = law.quantise * law.by_dtype.get(key, {}).get("quantise", 0.0)
    launch = law.launch_s * factor(law.by_dtype, key, "launch_s")
    launch *= factor(law.by_arch, arch, "launch_s")
    total: F64 = np.sqrt(np.sqrt(best**4 + read**4)) + launch
    return total + cast * batch * m * k * 3.0 / chip.hbm_bandwidth if cast else total


def attention_law(
    chip: Chip,
    law: AttentionLaw,
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
) -> F64:
    """Return seconds of fused attention; `causal` counts the lower triangle only.

    Per score the products take 2 (d_qk + d_v) FLOPs of a core's peak and one exponential takes a
    slot of its special-function units; both overlap. Rows of 128 queries are spread over the
    cores, and the longest row bounds a small problem. Queries, keys, values, output cross memory.
    """
    b, q, t = (np.asarray(x, np.float64) for x in (batch, q_tokens, kv_tokens))
    h, kv, dk, dv = (np.asarray(x, np.float64) for x in (heads, kv_heads, qk_dim, v_dim))
    arch, cores = chip.arch, _cores(chip)
    share = law.share * factor(law.by_arch, arch, "share")
    shares = share * _dim_share(law, arch, np.minimum(dk, dv))
    work = law.backward / law.backward_share if backward else 1.0
    product = 2.0 * (dk + dv) * cores / (chip.peak_of(_two_bytes(dtype)) * shares)
    speed = EXPONENTIALS * (chip.clock_hz or ASSUMED_CLOCK)
    single = 1.0 / (speed * law.exponential * factor(law.by_arch, arch, "exponential"))
    norm = law.sharpness
    score = (product**norm + single**norm) ** (1.0 / norm) * work
    rows = np.ceil(q / ROWS) * ROWS
    extra = law.keys * factor(law.by_arch, arch, "keys")
    keys = (t / 2.0 + ROWS / 2.0 if causal else t) + extra
    spread = b * h * rows * keys * score / cores
    longest = ROWS * (t + extra) * score * law.critical
    longest = longest * factor(law.by_arch, arch, "critical")
    filled = np.minimum(1.0, b * h * rows / ROWS / cores)
    tail = law.tail * factor(law.by_arch, arch, "tail")
    compute = np.sqrt(np.sqrt(spread**4 + longest**4)) + 0.5 * tail * longest * filled
    moved = 2.0 * b * (q * h * (dk + dv) + t * kv * (dk + dv)) * work
    launch = law.launch_s * factor(law.by_arch, arch, "launch_s")
    total: F64 = compute + moved / (chip.hbm_bandwidth * law.memory) + launch
    return total


def _two_bytes(dtype: str) -> str:
    return dtype if dtype in ("bf16", "fp16", "fp32", "tf32") else "bf16"


def _dim_share(law: AttentionLaw, arch: str, dim: F64) -> F64:
    """Return the factor of a head size on the share, interpolated between the sizes known."""
    known = {128: 1.0} | {int(d): row["share"] for d, row in law.by_dim.items()}
    own = law.by_arch.get(arch, {})
    sizes = sorted(known)
    values = [known[d] * own.get(f"dim{d}", 1.0) for d in sizes]
    found: F64 = np.interp(dim, sizes, values)
    return found


def expert_law(
    chip: Chip,
    law: ExpertLaw,
    *,
    tokens: Any,
    hidden: Any,
    inner: Any,
    experts: Any,
    topk: Any,
    ranks: Any = 1.0,
    skew: Any = 0.0,
    gated: Any = True,
    dtype: str = "bf16",
) -> F64:
    """Return seconds of one forward of `experts` local experts of local width `inner`.

    `tokens` are those of all `ranks` that share the experts; each rank computes
    tokens x topk / ranks rows, the busiest more under a power law of exponent `skew`. Rows
    padded to tiles at the peak, in the 2-norm with the weights' bytes; activations, sorting.
    """
    t, h, f = (np.asarray(x, np.float64) for x in (tokens, hidden, inner))
    e, k = np.asarray(experts, np.float64), np.asarray(topk, np.float64)
    g, s = np.asarray(ranks, np.float64), np.asarray(skew, np.float64)
    mats = 2.0 + np.asarray(gated, np.float64)
    key, arch = dtype_key(dtype), chip.arch

    def of(name: str) -> float:
        value = getattr(law, name) * factor(law.by_dtype, key, name)
        return float(value * factor(law.by_arch, arch, name))

    uneven = (s > 0).astype(np.float64)
    hot = 1.0 + uneven * of("hot") * np.sqrt(2.0 * np.log(g) / e) * np.maximum(
        s, 0.1
    ) ** of("hot_power")  # fmt: skip
    even = t * k / g
    rows = np.where(s > 0, np.minimum(even * hot, t * np.minimum(k, e)), even)
    full = np.exp(-rows / e)
    used = e * (1.0 - full) * (1.0 - uneven * min(of("idle"), 1.0) * np.exp(-rows / e / 64.0))
    padded = rows + used * of("tile") * 0.5
    flops = 2.0 * padded * (
        (mats - 1.0) * (f + of("width")) * (h + of("depth")) + h * (f + of("depth"))
    )  # fmt: skip
    compute = flops / (peak_of(chip, dtype) * min(of("share"), 0.995))
    width = 1.0 if key != "bf16" else 2.0
    weights = used * mats * h * f * width / (chip.hbm_bandwidth * min(of("memory"), 1.0))
    act = of("rows") * rows * (2.0 * h + (mats + 1.0) * f) + of("slots") * t * k * h
    act = (act + of("tokens") * t * h) * 2.0 / chip.hbm_bandwidth
    sort = of("slot_s") * t * k + of("expert_s") * e * g
    total: F64 = np.sqrt(compute**2 + weights**2) + act + sort + of("launch_s")
    return total
