"""Jitter: every card is a little late every step, and the latest one makes all others wait.

One card in one step is late by a share eps of the step, P(eps > x) = (scale / x)^shape (Pareto,
independent over cards and steps). The latest of n cards then has quantile q at
``scale (n / -ln q)^(1/shape)``: the tail grows with the number of cards, which is what logs of
large runs show.

Axes: R measured runs, S sampled steps, K lanes (the worst replicas of a step), N nodes, P pipeline
ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError
from lightloom.core.files import CATALOG, read_toml
from lightloom.core.units import parse_time

from .graph import Graph, longest

F64 = NDArray[np.float64]
LANES = 4
"""Replicas followed per sampled step: the step ends with one of the worst."""
OUTLIER = 0.09
"""p95/median - 1 above this holds evaluation or logging inside the interval: not fitted."""


class _Drag(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    amount: float
    origin: str
    ref: str
    arch: list[str] = []


class _Jitter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    scale: float
    shape: float
    source: str


class _Recompute(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    torch: int
    torch_frameworks: list[str]
    torch_source: str
    other: int
    other_source: str


class StepConstants(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """catalog/step.toml."""

    version: int
    jitter: _Jitter
    drag: dict[str, _Drag]
    recompute: _Recompute

    def drag_of(self, arch: str) -> tuple[float, str]:
        """Return (slow-down of compute beside a transfer, where it comes from)."""
        row = next((d for d in self.drag.values() if arch in d.arch), self.drag["default"])
        return row.amount, f"{row.origin}: {row.ref}"

    def repeats(self, framework: str) -> int:
        """Return forwards of a block that W repeats under full recomputation."""
        r = self.recompute
        return r.torch if framework in r.torch_frameworks else r.other


def constants() -> StepConstants:
    """Return the constants that ship with the product."""
    return read_toml(CATALOG / "step.toml", StepConstants, "step constants")


@dataclass(frozen=True, slots=True)
class Jitter:
    """Noise of one job."""

    scale: float = 0.0
    """Smallest lateness of a card, share of the step."""
    shape: float = 3.0
    link_s: float = 0.0
    """Standard deviation of the arrival of one transfer, seconds."""
    source: str = "assumed"

    def latest(self, cards: float, quantile: float) -> float:
        """Return the lateness of the latest of `cards` at a quantile over steps."""
        return float(self.scale * (cards / -np.log(quantile)) ** (1.0 / self.shape))

    def p95_over_median(self, cards: float) -> float:
        """Return p95 over median of the step time on `cards` cards in lockstep."""
        return (1.0 + self.latest(cards, 0.95)) / (1.0 + self.latest(cards, 0.5))


def parse_jitter(text: str) -> Jitter:
    """Return the noise named by `text`: ``measured``, ``none``, ``pareto:SCALE:SHAPE``,
    ``link:12ns``, or several joined by commas."""
    found = Jitter()
    for part in text.split(","):
        name, _, rest = part.strip().partition(":")
        if name == "none":
            continue
        if name == "measured":
            known = constants().jitter
            found = Jitter(known.scale, known.shape, found.link_s, known.source)
        elif name == "link" and rest:
            link_s = parse_time(rest, f"jitter {part!r}")
            found = Jitter(found.scale, found.shape, link_s, found.source)
        elif name == "pareto" and rest.count(":") == 1:
            scale, shape = (_number(x, part) for x in rest.split(":"))
            found = Jitter(scale, shape, found.link_s, "given")
        else:
            raise InputError(f"jitter {part!r} cannot be read",
                             out="measured, none, pareto:SCALE:SHAPE or link:12ns")  # fmt: skip
    return found


def _number(text: str, part: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"jitter {part!r}: {text!r} is not a number", out="pareto:0.0013:3.2")
    if not 0.0 < value < np.inf:
        raise InputError(f"jitter {part!r}: {text} must be a number above 0",
                         out="pareto:0.0013:3.2")  # fmt: skip
    return value


def fit(cards_R: F64, p95_over_median_R: F64) -> Jitter:
    """Return the noise that fits measured p95/median of runs of `cards_R`, least absolute log
    error, rows above `OUTLIER` left out. Grid search: same rows, same answer."""
    late_R = p95_over_median_R - 1.0
    keep = (late_R > 0.0) & (late_R < OUTLIER)
    n, goal = cards_R[keep], np.log(late_R[keep])
    best = (np.inf, 0.0, 0.0)
    for shape in np.arange(1.2, 12.0, 0.1):
        high, mid = ((n / -np.log(q)) ** (1.0 / shape) for q in (0.95, 0.5))
        scale = np.geomspace(1e-6, 1e-2, 321)[:, None]
        seen = np.log(scale * (high - mid) / (1.0 + scale * mid))
        error = np.abs(seen - goal).mean(axis=1)
        at = int(error.argmin())
        if error[at] < best[0] - 1e-12:
            best = (float(error[at]), float(scale[at, 0]), float(shape))
    return Jitter(best[1], best[2], 0.0, f"fitted on {int(keep.sum())} runs")


def sample_steps(
    graph: Graph,
    seconds_N: F64,
    transfers_N: F64,
    *,
    together: int,
    apart: int,
    jitter: Jitter,
    samples: int,
    rng: np.random.Generator,
    message_s: float = 0.0,
) -> F64:
    """Return sampled step times over the quiet one, shape (S,).

    `seconds_N` lasts each node, with `transfers_N` transfers. On each pipeline rank `together`
    cards run in lockstep (the latest counts); `apart` such sets meet only at the end of the step.
    The worst `LANES` sets of every step are followed through the graph; a late card's delay is
    spread over its nodes, so what slack the schedule has can absorb it.
    """
    ranks = graph.schedule.ranks
    worst = _worst_sets(jitter, ranks, together, apart, samples, rng)
    lanes = worst.shape[1]
    rank_N = np.array(graph.rank_N)
    quiet = longest(graph, seconds_N[:, None], message_s)[1].max()
    busy = np.bincount(rank_N, seconds_N, minlength=ranks)
    late = worst.reshape(ranks, -1) * (quiet / np.maximum(busy, 1e-30))[:, None]
    noisy = seconds_N[:, None] * (1.0 + late[rank_N])
    if jitter.link_s > 0.0:
        drawn = np.abs(rng.normal(0.0, jitter.link_s, (len(graph), samples * lanes)))
        spread = np.sqrt(2.0 * np.log(max(together * apart, 2)))
        noisy = noisy + drawn * (transfers_N * spread)[:, None]
    end = longest(graph, noisy, message_s)[1].max(axis=0)
    step: F64 = end.reshape(lanes, samples).max(axis=0) / quiet
    return step


def _worst_sets(
    jitter: Jitter, ranks: int, together: int, apart: int, samples: int, rng: np.random.Generator
) -> F64:
    """Return lateness of every pipeline rank of the worst sets of each step: (P, K, S)."""
    lanes = min(LANES, apart)
    kept = np.zeros((ranks, lanes, samples))
    if jitter.scale == 0.0:
        return kept
    for s in range(samples):
        draw = rng.exponential(size=(ranks, apart))
        late = jitter.scale * (together / draw) ** (1.0 / jitter.shape)
        order = np.argpartition(-late.max(axis=0), lanes - 1)[:lanes]
        kept[:, :, s] = late[:, order]
    return kept
