"""Search: price the space best-first, and stop when nothing left can be better.

Bound. No kernel is faster than the chip's peak, and a pipeline fills and drains: with F FLOPs a
step, M micro-batches, c chunks per rank and W ranks,
step >= F / (W peak) x (1 + (pp - 1) / (c M)). Rows whose bound is not below the k-th best step
found so far can hold nothing better and are dropped. The objectives `cost` and `energy` have no
such bound per row: they price every candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lightloom.core.strategy import Strategy
from lightloom.cost.calibration import Calibration, default_calibration
from lightloom.cost.columns import Columns, strategy_of
from lightloom.cost.evaluate import Costs, evaluate
from lightloom.cost.flops import model_flops_per_sequence
from lightloom.cost.job import Job, legal
from lightloom.cost.precision import parse_precision

from .space import Outline, Space, batches, columns, complete, count, keys_of, outline

F64 = NDArray[np.float64]
CHUNK = 1 << 18
"""Candidates priced at once: about 60 MB of columns."""
FIRST = 1 << 13
"""Candidates of the first chunk, so that an incumbent is there early."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One candidate of the result."""

    strategy: Strategy
    step_s: float
    peak_bytes: float
    objective: float


@dataclass(slots=True)
class Found:
    """What a search has seen so far."""

    best: list[Choice] = field(default_factory=list)
    """Best per set of degrees, best first."""
    counted: int = 0
    """Candidates of the space, before pruning."""
    priced: int = 0
    fitting: int = 0
    leanest: Choice | None = None
    """Candidate with the least memory, whether it fits or not."""
    complete: bool = True
    """False where the search was interrupted."""


def peak_of(job: Job, precision: str) -> float:
    """Return the fastest arithmetic any of the job's operators may use, FLOP/s of one card."""
    p = parse_precision(precision)
    kinds = {p.attention, p.mlp, p.experts, p.core, p.head}
    return max(job.cluster.chip.peak_of(kind) for kind in kinds)


def floor_flops(job: Job) -> float:
    """Return FLOPs that every candidate must do in one step: the model's own, nothing again."""
    one = model_flops_per_sequence(job.model, np.asarray([float(job.seq)]), job.task)
    return float(one[0]) * job.global_batch


def bounds(space: Space, rows: Outline, floor: float, peak: float) -> F64:
    """Return seconds below which no candidate of each outline row can be. Shape (R,)."""
    least: F64 = (floor / peak) / rows.world.astype(np.float64)
    return least


def inner_bounds(space: Space, rows: dict[str, NDArray[np.int64]], floor: float, peak: float
                 ) -> F64:  # fmt: skip
    """Return the bound of (outline, micro-batch, chunks) rows, fill and drain counted.

    A micro-batch costs at least f = F / (tp cp M dp peak) over the pipeline; its slowest stage at
    least f / pp. M slow + share (f - slow) is least at slow = f / pp when M >= share = 1 / vpp.
    """
    pp, vpp = rows["pp"], rows["vpp"]
    micro = space.job.global_batch // (rows["dp"] * rows["micro_batch"])
    each = floor / (rows["tp"] * rows["cp"] * micro * rows["dp"] * peak)
    fill = np.where(space_is_plain(space), (pp - 1) / vpp, 0.0)
    least: F64 = each / pp * (micro + fill)
    return least


def space_is_plain(space: Space) -> bool:
    """Return whether every schedule tried is 1F1B or interleaved (whose fill is known)."""
    words = space.fixes.words("schedule", ())
    return all(word in ("1f1b", "interleaved", "gpipe") for word in words)


def objective_of(name: str, found: Columns, costs: Costs) -> F64:
    """Return what is to be made small: seconds, card-seconds, or joules of one step."""
    if name == "cost":
        spent: F64 = costs.step_s * found.world / costs.goodput
        return spent
    if name == "energy":
        return costs.energy_j
    return costs.step_s


def search(
    job: Job,
    space: Space,
    *,
    top: int = 10,
    objective: str = "time",
    limit_bytes: float | None = None,
    calibration: Calibration | None = None,
    progress: Callable[[Found], None] | None = None,
) -> Found:
    """Return the best `top` sets of degrees; Ctrl-C inside returns the best so far."""
    cal = calibration if calibration is not None else default_calibration()
    rows = outline(space)
    found = Found(counted=count(space, rows) if len(rows) else 0)
    floor, peak = floor_flops(job), peak_of(job, space.precision)
    bound_R = bounds(space, rows, floor, peak)
    order = np.argsort(bound_R, kind="stable")
    usable = min(job.usable, limit_bytes) if limit_bytes else job.usable
    start, size = 0, FIRST
    per_row = max(1.0, found.counted / max(1, len(rows)))
    try:
        while start < len(order):
            cut = cutoff(found, top, objective)
            if bound_R[order[start]] >= cut:
                break
            stop = start + max(1, int(size / per_row))
            part = rows.take(order[start:stop])
            price(job, space, part, found, cut, usable, objective, top, cal, floor, peak)
            start, size = stop, min(CHUNK, size * 4)
            if progress:
                progress(found)
    except KeyboardInterrupt:
        found.complete = False
    return found


def cutoff(found: Found, top: int, objective: str) -> float:
    """Return the step time above which a candidate cannot enter the list."""
    if objective != "time" or len(found.best) < top:
        return float("inf")
    return found.best[top - 1].step_s


def price(
    job: Job, space: Space, part: Outline, found: Found, cut: float, usable: float,
    objective: str, top: int, cal: Calibration, floor: float, peak: float,
) -> None:  # fmt: skip
    """Price the candidates of some outline rows and keep the best in `found`."""
    inner = batches(space, part)
    keep = inner_bounds(space, inner, floor, peak) < cut
    inner = {name: column[keep] for name, column in inner.items()}
    if not len(inner["tp"]):
        return
    everything = columns(space, complete(space, inner))
    everything = everything.take(legal(job, everything))
    for begin in range(0, len(everything), CHUNK):
        some = everything.take(slice(begin, begin + CHUNK))
        costs = evaluate(job, some, cal)
        found.priced += len(some)
        merge(found, some, costs, usable, objective, top)


def merge(found: Found, some: Columns, costs: Costs, usable: float, objective: str,
          top: int) -> None:  # fmt: skip
    """Keep the best of `some`, one per set of degrees, and the leanest."""
    goal = objective_of(objective, some, costs)
    thin = int(costs.peak_bytes.argmin())
    if found.leanest is None or costs.peak_bytes[thin] < found.leanest.peak_bytes:
        found.leanest = choice(some, costs, goal, thin)
    fits = np.flatnonzero(costs.peak_bytes <= usable)
    found.fitting += len(fits)
    if not len(fits):
        return
    keys = keys_of(some.take(fits))
    order = np.lexsort((costs.peak_bytes[fits], goal[fits]))
    _, first = np.unique(keys[order], return_index=True)
    picked = fits[order[np.sort(first)][:top]]
    fresh = [choice(some, costs, goal, int(i)) for i in picked]
    every: dict[tuple[int, ...], Choice] = {}
    for one in sorted([*found.best, *fresh], key=lambda c: (c.objective, c.peak_bytes)):
        s = one.strategy
        every.setdefault((s.tp, s.pp, s.dp, s.cp, s.ep), one)
    found.best = list(every.values())[:top]


def choice(some: Columns, costs: Costs, goal: F64, row: int) -> Choice:
    """Return one candidate."""
    return Choice(strategy_of(some, row), float(costs.step_s[row]), float(costs.peak_bytes[row]),
                  float(goal[row]))  # fmt: skip
