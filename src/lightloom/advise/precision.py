"""Two runs layer by layer: the first layer outside its tolerance, in the order of execution.

Error of a tensor = norm of the difference of its samples over the norm of the first run's. Rounding
errors of n layers in a chain add like a random walk, so the tolerance is k x eps x sqrt(n) with eps
of the arithmetic type (bf16 2^-8, fp16 2^-11, fp32 2^-24 with tf32 2^-11 as its floor) and k = 8,
assumed; ``--tolerance`` replaces k.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import msgspec

from lightloom.core.errors import InputError
from lightloom.core.files import read_bytes
from lightloom.core.migration import LayerGap, Precision

EPS = {
    "bfloat16": 2.0**-8,
    "float16": 2.0**-11,
    "float32": 2.0**-11,
    "float64": 2.0**-24,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}
"""Rounding step by type; float32 products may run as TF32 or HF32, so theirs is 2^-11."""
TOLERANCE = 8.0
LOSS = 0.01
"""Relative difference of the losses that a migration may show (assumed; a common bar is 1 %)."""
WORST = 12


class Record(msgspec.Struct, frozen=True):
    """One line of a recording."""

    step: int
    layer: str
    phase: str
    dtype: str
    norm: float | None
    values: list[float | None]
    shape: list[int] = []


class Recording(NamedTuple):
    """One run, in the order of execution."""

    path: str
    rows: dict[tuple[int, str, str, int], Record]
    losses: dict[int, float]


def read(path: str) -> Recording:
    """Return a recording of ``layers.py``, or the losses of a run report or a list of numbers."""
    data = read_bytes(path, "compare")
    rows: dict[tuple[int, str, str, int], Record] = {}
    losses: dict[int, float] = {}
    seen: dict[tuple[int, str, str], int] = {}
    whole = _losses(data)
    if whole is not None:
        return Recording(path, {}, whole)
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            text = line.replace(b"NaN", b"null").replace(b"-Infinity", b"null")
            record = msgspec.json.decode(text.replace(b"Infinity", b"null"), type=Record)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise InputError(
                f"{path}:{number}: {error}",
                out="a recording of layers.py (lightloom migrate -o writes it)",
            ) from error
        key = (record.step, record.layer, record.phase)
        seen[key] = seen.get(key, -1) + 1
        rows[(*key, seen[key])] = record
        if record.phase == "loss" and record.values and record.values[0] is not None:
            losses[record.step] = record.values[0]
    if not rows:
        raise InputError(f"{path}: no records", out="layers.record(model, path) before the loop")
    return Recording(path, rows, losses)


def _losses(data: bytes) -> dict[int, float] | None:
    """Return losses by step from a report or a list, None where the file is a recording."""
    try:
        found: Any = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None
    values = found.get("losses") if isinstance(found, dict) else found
    if not isinstance(values, list):
        return None
    return {i: float(v) for i, v in enumerate(values) if isinstance(v, int | float)}


def compare(a: Recording, b: Recording, tolerance: float = TOLERANCE) -> Precision:
    """Return the first layer outside its tolerance, the worst ones, and the losses' difference."""
    if tolerance <= 0 or not math.isfinite(tolerance):
        raise InputError(f"--tolerance {tolerance:g}: must be above 0", out="--tolerance 8")
    gaps: list[LayerGap] = []
    depth: dict[int, int] = {}
    for key, left in a.rows.items():
        right = b.rows.get(key)
        if right is None or left.phase == "loss":
            continue
        depth[left.step] = depth.get(left.step, 0) + 1
        gaps.append(gap_of(left, right, depth[left.step], tolerance))
    loss = loss_error(a.losses, b.losses)
    if not gaps and loss is None:
        raise InputError(
            f"{a.path} and {b.path} have no layer and no step in common",
            out="the same model and the same steps on both sides",
        )
    first = next((g for g in gaps if not g.passes), None)
    passes = first is None and (loss is None or loss <= LOSS)
    return Precision(
        a=a.path,
        b=b.path,
        layers=len(gaps),
        first=first,
        passes=passes,
        loss_error=loss,
        worst=tuple(sorted(gaps, key=lambda g: -g.error / g.tolerance)[:WORST]),
        only_a=names(a, b),
        only_b=names(b, a),
        text=sentence(first, loss, len(gaps)),
    )


def gap_of(a: Record, b: Record, depth: int, tolerance: float) -> LayerGap:
    """Return the error of one tensor."""
    eps = max(EPS.get(a.dtype, 2.0**-11), EPS.get(b.dtype, 2.0**-11))
    limit = tolerance * eps * math.sqrt(depth)
    error, why = error_of(a, b)
    dtype = a.dtype if a.dtype == b.dtype else f"{a.dtype} / {b.dtype}"
    return LayerGap(
        step=a.step,
        layer=a.layer,
        phase=a.phase,
        dtype=dtype,
        error=error,
        tolerance=limit,
        passes=error <= limit,
        why=why,
    )


def error_of(a: Record, b: Record) -> tuple[float, str]:
    """Return the relative error of the samples, and what is wrong with them."""
    if a.shape != b.shape or len(a.values) != len(b.values):
        return 1e9, f"shapes differ: {a.shape} and {b.shape}"
    pairs = list(zip(a.values, b.values, strict=True))
    if any(x is None or y is None for x, y in pairs):
        who = (
            "both runs"
            if any(x is None and y is None for x, y in pairs)
            else ("the first run" if any(x is None for x, _ in pairs) else "the second run")
        )
        return 1e9, f"not finite in {who}"
    finite = [(x, y) for x, y in pairs if x is not None and y is not None]
    below = math.sqrt(sum(x * x for x, _ in finite))
    apart = math.sqrt(sum((x - y) ** 2 for x, y in finite))
    if below == 0.0:
        return (0.0, "") if apart == 0.0 else (1e9, "zero in the first run only")
    return apart / below, ""


def loss_error(a: dict[int, float], b: dict[int, float]) -> float | None:
    """Return the mean relative difference over the steps that both have."""
    both = sorted(set(a) & set(b))
    if not both:
        return None
    return sum(abs(a[s] - b[s]) / max(abs(a[s]), 1e-12) for s in both) / len(both)


def names(a: Recording, b: Recording) -> tuple[str, ...]:
    """Return layers of `a` that `b` lacks, at most 20."""
    missing = dict.fromkeys(k[1] for k in a.rows if k not in b.rows) if a.rows and b.rows else {}
    return tuple(missing)[:20]


def sentence(first: LayerGap | None, loss: float | None, layers: int) -> str:
    """Return the answer in one sentence."""
    words = "" if loss is None else f"; losses differ by {loss:.2%} (bar {LOSS:.0%}, assumed)"
    if first is None:
        return f"{layers} tensors agree within tolerance{words}"
    why = f" ({first.why})" if first.why else ""
    return (
        f"first outside: {first.layer} {first.phase} of step {first.step}: error "
        f"{first.error:.3g} against {first.tolerance:.3g}{why}; what follows inherits it{words}"
    )
