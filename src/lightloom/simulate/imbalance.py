"""MoE imbalance: the busiest expert rank gets more tokens than the mean, and all wait for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError
from lightloom.core.model import Model

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Skew:
    """How uneven routing is: ``zipf`` popularity with an exponent, or a fixed factor."""

    kind: str
    """none, zipf or factor."""
    amount: float = 1.0


def parse_skew(text: str) -> Skew:
    """Return the skew named by `text`: ``none``, ``zipf:1.2`` or a factor such as ``1.3``."""
    name, _, rest = text.strip().partition(":")
    if name == "none" and not rest:
        return Skew("none")
    try:
        value = float(rest if name == "zipf" else text)
    except ValueError:
        raise InputError(f"imbalance {text!r} cannot be read", out="none, zipf:1.2, or 1.3")
    if name == "zipf" and 0.0 <= value <= 4.0:
        return Skew("zipf", value)
    if name != "zipf" and value >= 1.0:
        return Skew("factor", value)
    raise InputError(f"imbalance {text!r} is out of range",
                     out="zipf:0 to zipf:4, or a factor of 1 and more")  # fmt: skip


def popularity(experts: int, topk: int, exponent: float) -> F64:
    """Return the share of token copies each expert gets, most popular first.

    Zipf ``rank ** -exponent``, but no expert can get more than 1 / topk of the copies: a token
    chooses it once. What is cut off goes to the others in proportion.
    """
    share: F64 = np.arange(1, experts + 1, dtype=np.float64) ** -exponent
    share /= share.sum()
    limit = max(1.0 / topk, 1.0 / experts)
    for _ in range(experts):
        over = share > limit * (1 + 1e-12)
        if not over.any():
            break
        spare = 1.0 - limit * over.sum() - share[(share == limit) & ~over].sum()
        free = ~over & (share < limit)
        share[over] = limit
        share[free] *= spare / share[free].sum()
    return share


def routing(model: Model, ep: int, skew: Skew, seed: int) -> Callable[[int, int], float] | None:
    """Return (stage, micro-batch) -> tokens of the busiest expert rank over the mean; None if even.

    Popularity is dealt anew to experts for every stage and micro-batch.
    """
    moe = next((block.mlp for block in model.blocks if block.mlp.is_moe), None)
    if skew.kind == "none":
        return None
    if moe is None or ep < 2:
        what = "has no experts" if moe is None else "keeps its experts together (ep 1)"
        raise InputError(f"imbalance: {model.name} {what}: no rank waits for another's tokens",
                         out="leave out --imbalance, or plan with --ep 2 and more")  # fmt: skip
    if skew.kind == "factor":
        return lambda stage, micro_batch: skew.amount
    share = popularity(moe.experts, moe.topk, skew.amount)

    def factor(stage: int, micro_batch: int) -> float:
        rng = np.random.default_rng((seed, stage, micro_batch))
        load = rng.permutation(share).reshape(ep, -1).sum(axis=1)
        return float(load.max() * ep)

    return factor
