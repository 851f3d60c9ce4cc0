"""Decisions: is a machine worth it, what does a run cost, with ranges, sources and what flips them.

`Fit` is what ``lightloom fit`` prints, `Roi` what ``lightloom roi`` prints. Money is in `currency`;
seconds, tokens, watts and shares of one elsewhere.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .source import Source

VerdictCode = Literal["move", "lean-move", "lean-stay", "stay", "not-enough-data"]


class Ranged(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A figure with its range and its source."""

    value: float
    low: float
    high: float
    unit: str = ""
    source: Source


class Reason(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reason of a verdict."""

    what: str
    favours: Literal["move", "stay", "neither"]
    numbers: dict[str, float] = {}
    source: str
    """measured, published, data sheet, derived or assumed, and of what."""


class Flip(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A figure, where it stands, and where the verdict would change."""

    figure: str
    now: float
    at: float | None
    """None: no value of this figure changes the verdict."""
    unit: str = ""
    text: str


class RuleSaid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule of thumb from the articles, beside our answer."""

    rule: str
    source: str
    says: str
    ours: str
    agrees: bool | None
    """None: the rule does not apply or cannot be evaluated here."""
    fails: str
    """Where it fails."""


class FitOption(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One candidate beside the machine of today. Ratios are candidate over now."""

    cluster: str
    title: str
    cards: int
    speed: float
    """Work per second at the same number of cards; 0 where the job does not fit."""
    speed_low: float
    speed_high: float
    price: float
    """Price of a card-hour, candidate over now."""
    price_low: float
    price_high: float
    price_source: str
    value: float
    """Work for the money: speed over price."""
    value_low: float
    value_high: float
    pays_up_to: float
    """Price ratio at which both are worth the same: the speed."""
    step_s: float = 0.0
    exposed_comm: float = 0.0
    goodput: float = 0.0
    wall: str = ""
    factors: dict[str, float] = {}
    """Where the speed comes from; the product is the speed."""
    code: VerdictCode
    why: str


class GrowthYear(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same question when the model has grown."""

    year: float
    parameters: float
    speed: dict[str, float]
    """Candidate -> speed over the machine of today; 0: does not fit, inf as 1e9: only it fits."""


class Fit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a candidate machine is worth it for one workload."""

    version: int = 1
    kind: Literal["fit"] = "fit"
    workload: str
    task: str
    now: str
    cards: int
    options: tuple[FitOption, ...]
    """Best value first."""
    code: VerdictCode
    text: str
    reasons: tuple[Reason, ...]
    flips: tuple[Flip, ...]
    rules: tuple[RuleSaid, ...]
    growth: tuple[GrowthYear, ...] = ()
    table: tuple[dict[str, float], ...] = ()
    """Inference: context, concurrency, bytes of keys and values, speed of the best candidate."""
    notes: tuple[str, ...] = ()


class CostLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the cost of a run."""

    name: str
    value: float
    low: float
    high: float
    how: str
    """The arithmetic in words."""
    sources: tuple[str, ...]


class Swing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one uncertain input does to the cost of a million tokens; one bar of the tornado."""

    name: str
    at_low: float
    """Cost of a million tokens with this input at its low end, all others central."""
    at_high: float
    low: float
    high: float
    value: float
    unit: str = ""
    source: str = ""

    @property
    def width(self) -> float:
        """Money between the two ends."""
        return abs(self.at_high - self.at_low)


class RoiOption(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one run costs on one machine."""

    cluster: str
    title: str
    cards: int
    basis: Literal["own", "rent"]
    step_s: float
    goodput: float
    seconds: float
    """Wall time of the run, goodput counted."""
    card_hours: float
    energy_kwh: float
    """At the site."""
    lines: tuple[CostLine, ...]
    cost: float
    low: float
    high: float
    per_million: float
    """Money for a million tokens."""
    per_million_low: float
    per_million_high: float
    tornado: tuple[Swing, ...]
    """Widest first."""
    break_even: float | None
    """Utilisation above which owning is cheaper than renting; None: not enough data."""
    break_even_why: str
    missing: tuple[str, ...] = ()
    """Figures without which nothing can be said; cost is then 0."""


class MoneyFactor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One factor between two machines, in speed and in money of this run."""

    name: str
    speed: float
    saves: float
    """Money; negative: costs more."""
    why: str


class Roi(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cost of one training run on several machines."""

    version: int = 1
    kind: Literal["roi"] = "roi"
    model: str
    tokens: float
    currency: str
    options: tuple[RoiOption, ...]
    """As asked for; the first is what the others are compared with."""
    code: Literal["cheaper", "undecided", "not-enough-data"]
    text: str
    factors: dict[str, tuple[MoneyFactor, ...]] = {}
    """Other machine -> where its speed-up over the first comes from, and what each part saves."""
    prices: dict[str, Ranged]
    """Every input with range and source."""
    notes: tuple[str, ...] = ()
