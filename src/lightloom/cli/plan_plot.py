"""Pictures of a plan by matplotlib (the plot extra)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightloom.core.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from lightloom.core.plan import Plan
    from lightloom.plan.scale import Curve


def draw(path: str, plans: Sequence[Plan], curve: Curve | None) -> None:
    """Draw the sweep where there is one, else where the time of the best few goes."""
    if Path(path).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot {path}: .png, .svg or .pdf")
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot") from error
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5))
    if curve:
        draw_curve(axes, curve)
    else:
        draw_parts(axes, plans)
    figure.tight_layout()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def draw_curve(axes: Any, curve: Curve) -> None:
    """Draw tokens/s against cards with its interval, perfect scaling and the knee."""
    good = [p for p in curve.points if p.plan]
    cards = [p.cards for p in good]
    speed = [p.tokens_per_s for p in good]
    low = [p.plan.strategy.tokens / p.plan.prediction.high_s for p in good if p.plan]
    high = [p.plan.strategy.tokens / p.plan.prediction.low_s for p in good if p.plan]
    axes.fill_between(cards, low, high, alpha=0.2, label="90 % interval")
    axes.loglog(cards, speed, "o-", label="best plan")
    axes.loglog(cards, [speed[0] * c / cards[0] for c in cards], "--", color="grey",
                label="twice the cards, twice the speed")  # fmt: skip
    if curve.knee:
        axes.axvline(curve.knee, color="tab:red", linestyle=":",
                     label=f"knee {curve.knee:,}: {curve.bends}")  # fmt: skip
    axes.set_xlabel("cards")
    axes.set_ylabel("tokens/s")
    axes.legend()


def draw_parts(axes: Any, plans: Sequence[Plan]) -> None:
    """Draw stacked bars of where the step goes."""
    names = [n for n in plans[0].prediction.parts
             if any(p.prediction.parts[n] > 0 for p in plans)]  # fmt: skip
    labels = [f"{i}. tp{p.strategy.tp} pp{p.strategy.pp} ep{p.strategy.ep} dp{p.strategy.dp}"
              for i, p in enumerate(plans, start=1)]  # fmt: skip
    left = [0.0] * len(plans)
    for name in names:
        sizes = [p.prediction.parts[name] for p in plans]
        axes.barh(labels, sizes, left=left, label=name)
        left = [a + b for a, b in zip(left, sizes, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("seconds of a step")
    axes.legend(fontsize="small", ncols=2)
