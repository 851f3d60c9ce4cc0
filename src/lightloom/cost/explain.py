"""Words about a prediction: the wall that binds, what was assumed, how far to trust it."""

from __future__ import annotations

from lightloom.core.strategy import Strategy

from .calibration import Calibration
from .evaluate import Costs
from .flops import CONVENTION
from .frameworks import framework_of
from .interval import outside_reasons
from .job import Job
from .precision import parse_precision


def walls(job: Job, strategy: Strategy, costs: Costs, row: int = 0) -> dict[str, float]:
    """Return the share of the step that each wall takes; the largest binds.

    Compute: matrix kernels. Memory bandwidth: element-wise kernels and optimiser. Memory capacity:
    recomputation and the pipeline's bubble, which a model that fits would not need. Communication:
    exposed messages. Failures: time lost over time that trains.
    """
    parts = {name: float(v[row]) for name, v in costs.parts.items()}
    step = float(costs.step_s[row])
    good = max(float(costs.goodput[row]), 1e-6)
    return {
        "compute": (parts["gemm"] + parts["attention"] + parts["experts"]) / step,
        "memory bandwidth": (parts["elementwise"] + parts["optimizer"]) / step,
        "memory capacity": (parts["recompute"] + parts["bubble"]) / step,
        "communication": float(costs.exposed_comm[row]),
        "failures": (1.0 - good) / good,
    }


def wall_of(job: Job, strategy: Strategy, costs: Costs, row: int = 0) -> str:
    """Return the wall that binds, with its share of the step in words."""
    shares = walls(job, strategy, costs, row)
    name = max(shares, key=lambda k: shares[k])
    return f"{name} ({100.0 * shares[name]:.0f} % of the step)"


def trust_of(job: Job, strategy: Strategy, cal: Calibration) -> tuple[bool, str]:
    """Return (outside the evidence, why in words)."""
    reasons = outside_reasons(job, strategy.world_size, cal)
    if reasons:
        return True, "extrapolated: " + "; ".join(reasons)
    return False, f"inside the published range; calibrated on {cal.made_from}"


def _wider(job: Job, strategy: Strategy) -> list[str]:
    """Return a sentence for every type asked for that the chip's arithmetic does not have."""
    chip, p = job.cluster.chip, parse_precision(strategy.precision)
    pairs = {(k, chip.kind_of(k)) for k in (p.attention, p.mlp, p.experts, p.core, p.head)}
    return [f"{chip.title} has no {kind} arithmetic: {served} speed is used"
            for kind, served in sorted(pairs) if served != kind and kind != "fp16"]  # fmt: skip


def assumptions_of(job: Job, strategy: Strategy, cal: Calibration) -> tuple[str, ...]:
    """Return everything assumed, one sentence each, with origin."""
    chip = job.cluster.chip
    behaviour = framework_of(job.framework)
    found = [
        f"FLOPs: {CONVENTION}",
        f"framework defaults: {behaviour.defaults.pinned}",
        f"peak: {chip.source_of('peak').origin}, {chip.source_of('peak').ref}",
        f"failures: {job.cluster.failures.card_hours:,.0f} card-hours between interruptions "
        f"({job.cluster.failures.low:,.0f} to {job.cluster.failures.high:,.0f})",
    ]
    found += _wider(job, strategy)
    if not chip.hbm_usable:
        found.append("usable memory: 94 % of what is sold (assumed)")
    if not job.flash:
        found.append("attention is not fused: the score matrix is stored")
    if job.model.is_moe:
        found.append(
            "routing is balanced"
            if job.imbalance == 1.0
            else f"the busiest expert rank has {job.imbalance:g}x the mean"
        )
    found += [f"approximated: {text}" for text in job.model.approximated]
    found += [f"not understood, ignored: {text}" for text in job.model.ignored]
    found += list(job.cluster.notes)
    return tuple(found)
