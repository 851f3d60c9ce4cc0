"""What came out of a played step: nouns that views print and files hold."""

from __future__ import annotations

import msgspec

from .strategy import Strategy


class Spread(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Distribution of the step time over steps, seconds."""

    samples: int
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    p95_over_median: float
    source: str
    """Where the noise comes from."""


class PlayedStage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory and idleness of one pipeline rank (its worst card)."""

    rank: int
    peak_bytes: float
    rest_bytes: float
    """Before the first micro-batch: what always stays."""
    busy: float
    """Share of the step in which the card computes."""


class StepResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One played step. Seconds, bytes, shares of the step."""

    version: int = 1
    kind: str = "step"
    step_s: float
    estimate_s: float
    """What `estimate` says of the same plan, all its corrections included."""
    gap: float
    """Played over estimated, minus one."""
    gap_before_corrections: float
    """The same against the estimate without its step-level corrections."""
    schedule: str
    policy: str
    parts: dict[str, float]
    """Seconds of the mean card: compute, slowed, bubble, waiting, exposed per class."""
    hidden: dict[str, float]
    """Seconds of communication per class under computation, mean card."""
    exposed_comm: float
    bubble: float
    mfu: float
    tokens_per_s_per_card: float
    bandwidth: dict[str, dict[str, float]]
    """Per class: bytes of the mean card, seconds under way, bytes/s while under way."""
    stages: tuple[PlayedStage, ...]
    usable_bytes: float
    fits: bool
    units: int
    """Played units; each stands for cards that do the same."""
    cards: int
    events: int
    spread: Spread | None = None
    faults: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


class SweepRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One setting of a sweep."""

    setting: str
    step_s: float = 0.0
    """The median step where there is jitter."""
    tokens_per_s_per_card: float = 0.0
    parts: dict[str, float] = {}
    exposed_comm: float = 0.0
    bubble: float = 0.0
    mfu: float = 0.0
    peak_bytes: float = 0.0
    fits: bool = True
    p95_over_median: float = 0.0
    refused: str = ""
    """Why this setting cannot be played."""


class Sweep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of one sweep, in the order in which they were played."""

    version: int = 1
    kind: str = "sweep"
    over: str
    rows: tuple[SweepRow, ...]

    @property
    def best(self) -> SweepRow | None:
        """The setting that fits and trains most tokens a second."""
        good = [row for row in self.rows if not row.refused and row.fits]
        return max(good, key=lambda row: row.tokens_per_s_per_card, default=None)


class Choice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One other way to split a running job, judged on its measured load."""

    change: str
    """What is different, in the options' words."""
    strategy: Strategy
    step_s: float
    """Expected with the measured load."""
    peak_bytes: float
    moved_bytes: float
    """Weights and optimiser state that the busiest rank must fetch from others."""
    reshard_s: float
    saved_s: float
    """Per step, against the split in use; negative where it is slower."""
    pays_after: float
    """Steps until the resharding is earned back; infinite where it never is."""


class Replan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the measured load says about the split in use."""

    version: int = 1
    kind: str = "replan"
    step_s: float
    """Measured."""
    planned_s: float
    load: dict[str, float]
    """Measured seconds over planned seconds: compute, and communication per class."""
    stages: tuple[float, ...]
    """Measured compute of each pipeline rank over the mean."""
    choices: tuple[Choice, ...]
    """Best first."""
    keep: bool
    """True where no choice pays."""
    why: str
