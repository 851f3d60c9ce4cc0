"""Fitting the kernel laws and their surfaces to measured kernels, and folds that prove both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import kernels
from .calibration import AttentionLaw, ExpertLaw, GemmLaw, Kernels
from .calibration_fit import Knob, fit_law
from .kernels_law import attention_law, dtype_key, expert_law, gemm_law
from .kernels_rows import KernelRows
from .kernels_surface import Surface, pick

F64 = NDArray[np.float64]
SAMPLE = 2500
"""Rows of one generation and type that a fit of constants looks at."""
NARROW = ("fp8", "fp8-block")


def law_seconds(rows: KernelRows, law: Any) -> F64:
    """Return the law's seconds of every row (rows must be known)."""
    total = np.zeros(len(rows))
    for system, chip in rows.chips.items():
        for dtype in np.unique(rows.dtype_N[rows.system_N == system]).tolist():
            z = (rows.system_N == system) & (rows.dtype_N == dtype)
            x = rows.shape_N[z].T
            if rows.family == "gemm":
                total[z] = gemm_law(chip, law, x[0], x[1], x[2], dtype)
            elif rows.family == "attention":
                total[z] = attention_law(
                    chip, law, batch=x[0], q_tokens=x[1], kv_tokens=x[1], heads=x[2],
                    kv_heads=x[3], qk_dim=x[4], v_dim=x[4], dtype=dtype,
                )  # fmt: skip
            else:
                total[z] = expert_law(
                    chip, law, tokens=x[0], hidden=x[1], inner=x[2] / x[5], experts=x[4] / x[6],
                    topk=x[3], ranks=x[6], skew=rows.skew_N[z], gated=gated_of(x), dtype=dtype,
                )  # fmt: skip
    return total


def gated_of(x: F64) -> F64:
    """Return 1 where an expert has three matrices, 0 where two.

    The tables do not say; the two-matrix experts among public models of these sizes are
    Nemotron's (22 of 512 experts, or 2688 x 1856): assumed.
    """
    two = ((x[3] == 22) & (x[4] == 512)) | ((x[1] == 2688) & (x[2] == 1856))
    gated: F64 = 1.0 - two.astype(np.float64)
    return gated


def coords_of(rows: KernelRows) -> dict[str, F64]:
    """Return where every row lies on its family's surfaces."""
    x = rows.shape_N.T
    if rows.family == "gemm":
        return kernels.gemm_coords(*x)
    if rows.family == "attention":
        return kernels.attention_coords(*x)
    return kernels.expert_coords(x[0], x[1], x[2] / x[5], x[4] / x[6], x[3], x[6], rows.skew_N)


def start_of(family: str) -> Any:
    """Return the law before any measurement."""
    narrow = {d: {"share": 0.8, "launch_s": 2.5, "quantise": 1.0} for d in NARROW}
    if family == "gemm":
        return GemmLaw(by_dtype=narrow, quantise=1.0)
    if family == "attention":
        sizes = {"64": 1.0, "192": 0.8, "256": 1.0, "512": 0.7}
        return AttentionLaw(by_dim={d: {"share": x} for d, x in sizes.items()})
    return ExpertLaw()


def knobs_of(family: str, archs: list[str], dtypes: list[str]) -> tuple[Knob, ...]:
    """Return the constants that a fit may turn, with how loosely each is held."""

    def of_arch(*names: str, prior: float = 0.02) -> list[Knob]:
        return [Knob(n, "by_arch", a, prior=prior) for a in archs for n in names]

    if family == "gemm":
        base = [
            Knob("share", share=True),
            Knob("prologue"),
            Knob("launch_s"),
            Knob("memory", share=True),
            Knob("wave", share=True),
        ]
        base += [Knob("step", index=i, share=True) for i in range(4)]
        base += [
            Knob(n, "by_dtype", d)
            for d in dtypes
            if d in NARROW
            for n in ("share", "launch_s", "quantise")
        ]
        held = [replace(knob, prior=0.1) for knob in base]
        return (*held, *of_arch("share", "launch_s"))
    if family == "attention":
        base = [
            Knob("keys"),
            Knob("critical"),
            Knob("tail"),
            Knob("launch_s"),
            Knob("memory", share=True),
        ]
        return (*base, *of_arch("share", "exponential", "keys", "critical", "tail", "launch_s"))
    names = (
        "share",
        "memory",
        "depth",
        "width",
        "tile",
        "rows",
        "slots",
        "tokens",
        "slot_s",
        "expert_s",
        "launch_s",
        "hot",
        "idle",
    )
    base = [Knob(n, share=n in ("share", "memory", "idle")) for n in names]
    base += [
        Knob(n, "by_dtype", d)
        for d in dtypes
        if d in NARROW
        for n in ("share", "rows", "slots", "tokens", "slot_s", "launch_s", "tile")
    ]
    turned = ("share", "rows", "slots", "tokens", "slot_s", "launch_s", "tile")
    return (*base, *of_arch(*turned))


def fit_family(rows: KernelRows, seed: int = 0, sample: int = SAMPLE) -> Any:
    """Return the law of a family fitted to `rows`, generations and types weighing the same."""
    rng = np.random.default_rng(seed)
    keys = np.array([dtype_key(d) for d in rows.dtype_N.tolist()])
    arch = rows.arch
    picked = []
    for a in np.unique(arch):
        for d in np.unique(keys[arch == a]):
            z = np.flatnonzero((arch == a) & (keys == d))
            picked.append(rng.choice(z, min(sample, len(z)), replace=False))
    small = rows.take(np.concatenate(picked))
    knobs = knobs_of(rows.family, np.unique(arch).tolist(), np.unique(keys).tolist())
    start = start_of(rows.family)
    if rows.family == "attention":
        start, knobs = _head_sizes(start, knobs, small)
    log = np.log(small.seconds_N)
    scale = 0.2 if rows.family == "expert" else 0.1
    return fit_law(start, knobs, lambda law: np.log(law_seconds(small, law)) - log, scale)


def _head_sizes(
    law: AttentionLaw, knobs: tuple[Knob, ...], rows: KernelRows
) -> tuple[AttentionLaw, tuple[Knob, ...]]:
    """Return knobs for head sizes other than 128 that `rows` have, general and by generation."""
    more = []
    for dim in ("64", "192", "256", "512"):
        for arch in np.unique(rows.arch[rows.shape_N[:, 4] == float(dim)]).tolist():
            more += [Knob(f"dim{dim}", "by_arch", arch, prior=0.02)]
        more.append(Knob("share", "by_dim", dim, prior=0.02))
    return law, (*knobs, *more)


Terms = tuple[tuple[str, ...], ...]
TERMS: dict[str, Terms] = {
    "gemm": (("odd", "m", "n"), ("n", "k"), ("odd", "m", "k")),
    "attention": (("b", "s"), ("s", "h"), ("b", "h"), ("h", "kv"), ("s", "d"), ("h", "d"),
                  ("b", "d"), ("s", "h", "d"), ("b", "s", "h"), ("b", "s", "d"),
                  ("s", "bh", "d"), ("h", "kv", "d"), ("b", "s", "kv")),
    "expert": (("h", "f"), ("g", "k", "e"), ("t", "g", "w"), ("e", "w", "k"), ("h", "f", "t"),
               ("w", "g", "h"), ("r",), ("f", "k"), ("f", "g"), ("h", "k", "g")),
}  # fmt: skip
HOLD: dict[str, float] = {"gemm": 3.0, "attention": 2.0, "expert": 6.0}
"""Rows of zero error that each cell is held by: shrinkage of thin cells."""
LARGEST_AXIS = 24


def _nodes(values: F64) -> F64:
    """Return the nodes of an axis: the values that occur, thinned where they are many."""
    nodes = np.unique(np.round(values, 4))
    if len(nodes) > LARGEST_AXIS:
        nodes = np.unique(np.round(np.quantile(nodes, np.linspace(0, 1, LARGEST_AXIS)), 4))
    return nodes


def axes_of(family: str, coords: dict[str, F64]) -> dict[str, F64]:
    """Return the nodes of a family's surface for the shapes that occur."""
    axes = {n: _nodes(coords[n]) for n in dict.fromkeys(sum(TERMS[family], ()))}
    if family == "gemm":
        axes["m"] = _nodes(coords["m"][coords["odd"] == 0])
    return axes


def build_surface(
    family: str, axes: dict[str, F64], coords: dict[str, F64], error: F64, rounds: int = 8
) -> Surface:
    """Return additive tables fitted to `error` (log measured / law) by backfitting."""
    place = {n: np.clip(np.round(np.interp(coords[n], a, np.arange(len(a)))), 0, len(a) - 1)
             .astype(np.int64) for n, a in axes.items()}  # fmt: skip
    shapes = [tuple(len(axes[n]) for n in names) for names in TERMS[family]]
    index = [np.ravel_multi_index([place[n] for n in names], shape)
             for names, shape in zip(TERMS[family], shapes, strict=True)]  # fmt: skip
    sizes = [int(np.prod(shape)) for shape in shapes]
    count = [np.bincount(i, minlength=s) + HOLD[family] for i, s in zip(index, sizes, strict=True)]
    tables = [np.zeros(s) for s in sizes]
    total = np.zeros(len(error))
    for _ in range(rounds):
        for j, i in enumerate(index):
            rest = total - tables[j][i]
            tables[j] = np.bincount(i, error - rest, minlength=sizes[j]) / count[j]
            total = rest + tables[j][i]
    terms = {names: t.reshape(shape)
             for names, t, shape in zip(TERMS[family], tables, shapes, strict=True)}  # fmt: skip
    surface = Surface(axes, terms)
    return _with_detail(surface, place, error - total) if family == "gemm" else surface


DETAIL = {"m": 0.5, "n": 0.4, "k": 1.2}
"""Width in nodes over which neighbouring products share what tables of two axes leave."""


def _with_detail(surface: Surface, place: dict[str, NDArray[np.int64]], left: F64) -> Surface:
    """Return the surface as one table of all axes, the remainder smoothed in."""
    names = ("odd", "m", "n", "k")
    shape = tuple(len(surface.axes[n]) for n in names)
    flat = np.ravel_multi_index([place[n] for n in names], shape)
    size = int(np.prod(shape))
    sums: F64 = np.bincount(flat, left, minlength=size).reshape(shape).astype(np.float64)
    seen: F64 = np.minimum(np.bincount(flat, minlength=size), 1).reshape(shape).astype(np.float64)
    sums = sums * seen / np.maximum(np.bincount(flat, minlength=size).reshape(shape), 1)
    for axis, name in enumerate(names):
        if name in DETAIL:
            sums = _blur(sums, axis, DETAIL[name])
            seen = _blur(seen, axis, DETAIL[name])
    nodes = np.meshgrid(*(surface.axes[n] for n in names), indexing="ij")
    smooth = surface(dict(zip(names, nodes, strict=True)))
    return replace(surface, terms={names: smooth + sums / (seen + 0.04)})


def _blur(table: F64, axis: int, width: float) -> F64:
    """Return a Gaussian blur along one axis, nothing beyond its ends."""
    gap = np.arange(table.shape[axis])[:, None] - np.arange(table.shape[axis])[None, :]
    kernel = np.exp(-0.5 * (gap / width) ** 2)
    kernel = kernel / kernel.sum(axis=0, keepdims=True).max()
    blurred: F64 = np.moveaxis(np.tensordot(kernel, table, axes=(1, axis)), 0, axis)
    return blurred


def fit_surfaces(rows: KernelRows, law: Any) -> dict[str, Surface]:
    """Return the surface of each generation and type, by its shipped name.

    Where a generation was measured on several chips each has its own as well: the generation's
    plus what that chip does beside it.
    """
    error = np.log(rows.seconds_N / law_seconds(rows, law))
    coords = coords_of(rows)
    keys = np.array([dtype_key(d) for d in rows.dtype_N.tolist()])
    arch = rows.arch
    found = {}
    for a in np.unique(arch).tolist():
        for d in np.unique(keys[arch == a]).tolist():
            z = (arch == a) & (keys == d)
            part = {n: c[z] for n, c in coords.items()}
            axes = axes_of(rows.family, part)
            shared = build_surface(rows.family, axes, part, error[z])
            found[f"{rows.family}/{a}/{d}"] = shared
            systems = np.unique(rows.system_N[z]).tolist()
            for system in systems if len(systems) > 1 else ():
                own = z & (rows.system_N == system)
                part = {n: c[own] for n, c in coords.items()}
                left = error[own] - shared(part)
                mine = build_surface(rows.family, axes, part, left)
                terms = {names: shared.terms[names] + t for names, t in mine.terms.items()}
                found[f"{rows.family}/{rows.chips[system].name}/{d}"] = Surface(axes, terms)
    return found


def predict_rows(rows: KernelRows, law: Any, surfaces: dict[str, Surface]) -> F64:
    """Return seconds of every row by law and surfaces."""
    seconds = law_seconds(rows, law)
    coords = coords_of(rows)
    keys = np.array([dtype_key(d) for d in rows.dtype_N.tolist()])
    for system, chip in rows.chips.items():
        for d in np.unique(keys).tolist():
            surface = pick(surfaces, rows.family, chip, d)
            z = (rows.system_N == system) & (keys == d)
            if surface is not None and z.any():
                seconds[z] *= np.exp(surface({n: c[z] for n, c in coords.items()}))
    return seconds


def folds_by_shape(rows: KernelRows, seed: int = 0, folds: int = 5) -> NDArray[np.int64]:
    """Return a fold per row; equal shapes share one, on every chip and in every type.

    An expert layer's shape is its matrices and how they are cut, whatever the tokens or routing.
    """
    first = 1 if rows.family == "expert" else 0
    kinds, inverse = np.unique(rows.shape_N[:, first:], axis=0, return_inverse=True)
    chosen = np.random.default_rng(seed).integers(0, folds, len(kinds))
    picked: NDArray[np.int64] = chosen[inverse.ravel()]
    return picked


def out_of_fold(
    rows: KernelRows, fold_N: NDArray[Any], tell: Callable[[str], None] | None = None
) -> F64:
    """Return seconds of every row by constants and surfaces that never saw its fold."""
    seconds = np.zeros(len(rows))
    for fold in np.unique(fold_N).tolist():
        if tell is not None:
            tell(f"{rows.family}: fold {fold}")
        seen, kept = rows.take(fold_N != fold), fold_N == fold
        law = fit_family(seen)
        seconds[kept] = predict_rows(rows.take(kept), law, fit_surfaces(seen, law))
    return seconds


def fit_kernels(tables: dict[str, KernelRows]) -> tuple[Kernels, dict[str, Surface]]:
    """Return all kernel constants and surfaces fitted to measured tables, by family."""
    laws = {family: fit_family(rows) for family, rows in tables.items()}
    surfaces: dict[str, Surface] = {}
    for family, rows in tables.items():
        surfaces |= fit_surfaces(rows, laws[family])
    return Kernels(**laws, surfaces=True), surfaces
