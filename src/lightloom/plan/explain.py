"""Why this plan: what the runners-up lose, which neighbours it beat, what would flip it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from lightloom.core.cluster import Cluster
from lightloom.core.errors import InputError
from lightloom.core.plan import Plan, Prediction, Rejected
from lightloom.core.strategy import Strategy
from lightloom.cost.calibration import Calibration
from lightloom.cost.job import Job
from lightloom.cost.predict import predict

WORDS = {
    "gemm": "matrix products in smaller pieces", "attention": "attention in smaller pieces",
    "experts": "experts in smaller pieces", "elementwise": "more element-wise traffic",
    "recompute": "recomputation", "launch": "more kernels to launch",
    "tp": "tensor-parallel communication not hidden", "cp": "context-parallel communication",
    "ep": "expert all-to-all not hidden", "pp": "pipeline messages",
    "dp": "gradient and parameter exchange not hidden", "bubble": "pipeline bubble",
    "optimizer": "optimiser on fewer shards", "data": "step overhead",
    "straggler": "waiting for the slowest",
}  # fmt: skip
"""What it means when a part of the step is longer."""


class Beaten(NamedTuple):
    """A neighbour of the chosen strategy."""

    change: str
    step_s: float
    peak_bytes: float
    fits: bool
    why: str


def why_slower(best: Prediction, other: Prediction) -> str:
    """Return what makes `other` slower than `best`: the parts that grew, largest first.

    Parts add up to the step, so the differences add up to the whole difference.
    """
    gap = other.step_s - best.step_s
    if gap <= 0:
        return "as fast" if gap > -1e-12 else f"{-gap / best.step_s:.1%} faster"
    grown = sorted(
        ((other.parts[name] - best.parts.get(name, 0.0), name) for name in other.parts),
        reverse=True,
    )
    large = [name for size, name in grown if size > 0.25 * gap][:2] or [grown[0][1]]
    return f"{gap / best.step_s:+.1%}: " + ", ".join(WORDS.get(name, name) for name in large)


def why_best(best: Plan) -> str:
    """Return one sentence on what the winner does well, from its own shares."""
    p, s = best.prediction, best.strategy
    domain = best.cluster.fabric.domain_cards
    parts = []
    if best.model.is_moe and s.ep > 1:
        span = s.ep * s.etp
        parts.append(f"experts {'stay inside' if span <= domain else 'span'} a domain")
    if s.tp > 1:
        parts.append("tp stays in the domain" if s.tp <= domain else "tp leaves the domain")
    if s.recompute == "none":
        parts.append("nothing is recomputed")
    if s.pp > 1:
        parts.append(f"bubble {p.bubble:.1%}")
    parts.append(f"exposed communication {p.exposed_comm:.1%}")
    return "; ".join(parts)


def moves(job: Job, s: Strategy) -> Iterator[tuple[str, Strategy]]:
    """Yield every neighbour: one choice changed, dp following so that the cards stay in use."""
    for axis in ("tp", "pp", "cp", "ep", "etp", "vpp", "micro_batch"):
        for factor in (2.0, 0.5):
            value = getattr(s, axis) * factor
            if value >= 1 and value == int(value):
                yield from changed(job, s, axis, int(value))
    for recompute in ("none", "selective", "full"):
        if recompute != s.recompute:
            yield f"recompute {recompute}", msgspec.structs.replace(s, recompute=recompute)
    for zero in ("0", "1", "2", "3", "fsdp"):
        if zero != s.zero:
            yield f"zero {zero}", msgspec.structs.replace(s, zero=zero)


def changed(job: Job, s: Strategy, axis: str, value: int) -> Iterator[tuple[str, Strategy]]:
    """Yield the strategy with one degree changed, where it is still whole."""
    change: dict[str, Any] = {axis: value}
    if axis in ("tp", "pp", "cp"):
        dp = s.dp * getattr(s, axis) / value
        if dp < 1 or dp != int(dp):
            return
        change["dp"] = int(dp)
    new = msgspec.structs.replace(s, **change)
    if axis in ("vpp", "pp") and s.schedule in ("1f1b", "interleaved"):
        kind: Any = "interleaved" if new.vpp > 1 and new.pp > 1 else "1f1b"
        new = msgspec.structs.replace(new, schedule=kind, vpp=new.vpp if new.pp > 1 else 1)
    extra = f", dp {s.dp} -> {new.dp}" if new.dp != s.dp else ""
    yield f"{axis} {getattr(s, axis)} -> {value}{extra}", new


def neighbours(job: Job, plan: Plan, calibration: Calibration | None = None) -> list[Beaten]:
    """Return the legal neighbours of a plan, fastest first; illegal ones are left out."""
    out = []
    for change, strategy in moves(job, plan.strategy):
        try:
            p = predict(job, strategy, calibration)
        except InputError:
            continue
        fits = p.peak_bytes <= job.usable
        why = why_slower(plan.prediction, p) if fits else (
            f"needs {p.peak_bytes / 2**30:.0f} GiB of {job.usable / 2**30:.0f}")  # fmt: skip
        out.append(Beaten(change, p.step_s, p.peak_bytes, fits, why))
    return sorted(out, key=lambda b: (not b.fits, b.step_s))


def with_bandwidth(cluster: Cluster, index: int, factor: float) -> Cluster:
    """Return the machine with one level's links faster or slower."""
    levels = list(cluster.fabric.levels)
    levels[index] = msgspec.structs.replace(levels[index], link=levels[index].link * factor)
    fabric = msgspec.structs.replace(cluster.fabric, levels=tuple(levels))
    return msgspec.structs.replace(cluster, fabric=fabric)


class Flip(NamedTuple):
    """A change of the machine at which a runner-up becomes the best."""

    what: str
    factor: float
    to: Strategy


def flips(job: Job, plan: Plan, others: list[Rejected]) -> list[Flip]:
    """Return, per level of the fabric, how much slower or faster its links must be to flip it."""
    out = []
    for index, level in enumerate(job.cluster.fabric.levels):
        for low, high, word in ((1.0, 1 / 64, "slower"), (1.0, 64.0, "faster")):
            found = first_flip(job, plan, others, index, low, high)
            if found:
                factor, strategy = found
                shown = 1 / factor if word == "slower" else factor
                out.append(Flip(f"links of level {level.name} {shown:.3g}x {word}", factor,
                                strategy))  # fmt: skip
    return out


def first_flip(job: Job, plan: Plan, others: list[Rejected], index: int, low: float, high: float
               ) -> tuple[float, Strategy] | None:  # fmt: skip
    """Return the nearest factor between `low` and `high` at which another wins, by bisection."""

    def winner(factor: float) -> Strategy:
        machine = with_bandwidth(job.cluster, index, factor)
        changed_job = msgspec_replace(job, machine)
        times = {0: predict(changed_job, plan.strategy).step_s}
        for i, other in enumerate(others, start=1):
            times[i] = predict(changed_job, other.strategy).step_s
        best = min(times, key=lambda k: (times[k], k))
        return plan.strategy if best == 0 else others[best - 1].strategy

    if winner(high) == plan.strategy:
        return None
    for _ in range(12):
        middle = (low * high) ** 0.5
        if winner(middle) == plan.strategy:
            low = middle
        else:
            high = middle
    return high, winner(high)


def msgspec_replace(job: Job, cluster: Cluster) -> Job:
    """Return the job on another machine."""
    from dataclasses import replace

    return replace(job, cluster=cluster)
