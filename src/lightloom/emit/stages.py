"""Layers of every pipeline stage, as launch files want them."""

from __future__ import annotations

from lightloom.core.plan import Plan
from lightloom.cost.pipeline import even_layers


def stage_layers(plan: Plan) -> tuple[int, ...]:
    """Return decoder layers of each of the pp x vpp stages, in model order.

    As the plan says; otherwise as the cost engine spreads them.
    """
    s = plan.strategy
    return s.stage_layers or even_layers(plan.model.layers, s.pp * s.vpp)


def is_even(plan: Plan) -> bool:
    """True where every stage has the same number of layers."""
    return len(set(stage_layers(plan))) == 1


def padded_layers(plan: Plan) -> tuple[int, ...]:
    """Return, for equal chunks as long as the longest, the place of every real layer.

    MindSpeed's ``--noop-layers`` names the other places: layers that do nothing, counted from 0.
    """
    counts = stage_layers(plan)
    longest = max(counts)
    return tuple(c * longest + i for c, count in enumerate(counts) for i in range(count))


def megatron_layout(plan: Plan) -> str:
    """Return ``--pipeline-model-parallel-layout``: E embedding, t layer, m prediction, L loss."""
    counts = stage_layers(plan)
    parts = [f"t*{n}" if n > 1 else "t" * n for n in counts]
    parts[0] = "E" + parts[0]
    tail = (
        f"m*{plan.model.mtp_layers}" if plan.model.mtp_layers > 1 else "m" * plan.model.mtp_layers
    )
    parts[-1] += tail + "L"
    return "|".join(parts)
