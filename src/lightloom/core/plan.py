"""Plan: model + cluster + strategy + placement + what is predicted of them."""

from __future__ import annotations

import msgspec

from .cluster import Cluster
from .model import Model
from .placement import Placement
from .strategy import Strategy


class StageMemory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes on the worst rank of one pipeline stage, by part."""

    stage: int
    parts: dict[str, float]
    """weights, gradients, optimizer, activations, gathered, logits, communicators, ..."""

    @property
    def total(self) -> float:
        """Bytes of all parts."""
        return sum(self.parts.values())


class Prediction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step as predicted. Seconds, bytes, watts, FLOPs."""

    step_s: float
    low_s: float
    high_s: float
    """90 % interval of the step time."""
    extrapolated: bool
    trust: str
    """Why the interval is what it is, in words."""
    parts: dict[str, float]
    """Seconds of the step by part; they add up to step_s."""
    hidden: dict[str, float]
    """Seconds of communication per axis that run under computation."""
    tokens_per_s_per_card: float
    mfu: float
    hfu: float
    model_flops: float
    """FLOPs of one step of the whole job, no recompute, causal attention counted half."""
    memory: tuple[StageMemory, ...]
    usable_bytes: float
    """Bytes a rank may use on this chip."""
    bubble: float
    """Share of the step."""
    exposed_comm: float
    """Share of the step."""
    power_w: float
    energy_j: float
    """Whole job, one step."""
    goodput: float
    wall: str
    """Which wall binds: compute, memory capacity, memory bandwidth, communication, failures."""
    assumptions: tuple[str, ...] = ()

    @property
    def peak_bytes(self) -> float:
        """Bytes on the worst rank of the job."""
        return max(stage.total for stage in self.memory)


class Rejected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A runner-up and why it lost."""

    strategy: Strategy
    step_s: float
    peak_bytes: float
    why: str


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Self-contained: another machine can simulate, emit or run it."""

    version: int = 1
    kind: str = "plan"
    model: Model
    cluster: Cluster
    strategy: Strategy
    placement: Placement
    prediction: Prediction
    cards: int
    """Cards asked for; those beyond strategy.world_size idle."""
    searched: int = 0
    """Candidates the planner counted; 0 for a configuration given by hand."""
    why: str = ""
    rejected: tuple[Rejected, ...] = ()
    made_by: str = ""

    @property
    def idle_cards(self) -> int:
        """Cards paid for and not used."""
        return self.cards - self.strategy.world_size
