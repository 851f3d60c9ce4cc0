"""What a stage does in one operation: pieces of compute, each with the transfers beside it.

These are per-operation costs only: nothing here knows the step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lightloom.core.traffic import TrafficClass

SELF = "self"
"""Axis of a message to one other rank: no group meets."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One communication of a card, as it would run alone."""

    name: str
    traffic: TrafficClass
    axis: str
    """Group that meets: tp, cp, ep, dp, pp, ``world``; `SELF` for a message."""
    seconds: float
    """Duration when nothing else uses the links."""
    bytes: float = 0.0
    """Bytes one card sends."""
    load: tuple[float, ...] = (1.0,)
    """Share of the card's bandwidth into each fabric level that it takes while alone, 0 to 1."""

    def times(self, factor: float) -> Transfer:
        """The same transfer with `factor` times the bytes and seconds."""
        return replace(self, seconds=self.seconds * factor, bytes=self.bytes * factor)


@dataclass(frozen=True, slots=True)
class Piece:
    """Compute and the transfers that run beside it; ends when all of them have ended.

    A blocking collective is a piece without compute.
    """

    name: str
    compute_s: float = 0.0
    transfers: tuple[Transfer, ...] = ()
    routed_s: float = 0.0
    """Part of `compute_s` that grows with the tokens routed to this card's experts."""

    def routed(self, factor: float) -> Piece:
        """The same piece on the card that gets `factor` times the mean of the routed tokens."""
        if self.routed_s == 0.0 and all(t.traffic != "expert" for t in self.transfers):
            return self
        transfers = tuple(t.times(factor) if t.traffic == "expert" else t for t in self.transfers)
        more = self.routed_s * (factor - 1.0)
        return Piece(self.name, self.compute_s + more, transfers, self.routed_s + more)

    @property
    def alone_s(self) -> float:
        """Seconds when nothing contends and compute does not slow down."""
        lanes: dict[str, float] = {}
        for t in self.transfers:
            lanes[t.traffic] = lanes.get(t.traffic, 0.0) + t.seconds
        return max(self.compute_s, max(lanes.values(), default=0.0))


@dataclass(frozen=True, slots=True)
class StageWork:
    """All that one model stage does for one micro-batch, and what it keeps."""

    forward: tuple[Piece, ...]
    inputs: tuple[Piece, ...]
    """Input-gradient half; recomputation included where it happens."""
    weights: tuple[Piece, ...]
    """Weight-gradient half, with whatever it must compute again."""
    backward: tuple[Piece, ...]
    """The whole backward in one go (what recomputes once what the halves recompute twice)."""
    send: Transfer | None = None
    """Activation to the next stage; the gradient back is as large."""
    activation_bytes: float = 0.0
    """Kept from F until B (or I) of the micro-batch."""
    between_bytes: float = 0.0
    """Kept from I until W where the backward is split."""
    static_bytes: float = 0.0
    """Weights, gradients, optimiser state and all else that stays."""
    gradients: tuple[Transfer, ...] = ()
    """Reduction of the stage's gradients, once a step."""
    parameters: tuple[Transfer, ...] = ()
    """Gathering of updated parameters, once a step."""
    optimizer_s: float = 0.0
    layers: int = 1
    """Buckets in which gradients and parameters travel: all but one hide under the stage's own
    work."""


@dataclass(frozen=True, slots=True)
class StepWork:
    """One step of a job: work of every model stage and how the pieces may overlap."""

    stages: tuple[StageWork, ...]
    overlap_grad: bool = True
    """Gradients are reduced while later backwards run."""
    overlap_param: bool = True
    """Parameters are gathered while the first forwards run."""
    overlap_pp: bool = True
    """Messages between stages leave the compute lane free; else a rank waits until its message
    has arrived."""
    norm: Transfer | None = None
    """Agreement of all ranks on the gradient norm before the optimiser."""
    origin: str = ""
    """Where the costs come from, in words."""


def pair(forward: tuple[Piece, ...], backward: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Return a forward and a backward run together: each hides the other's communication.

    One piece: computes add up (they share the cores), transfers run beside them (DeepSeek-V3,
    section 3.2.1).
    """
    both = (*forward, *backward)
    transfers = tuple(t for piece in both for t in piece.transfers)
    compute = sum(piece.compute_s for piece in both)
    return (Piece("F+B", compute, transfers, sum(piece.routed_s for piece in both)),)


def alone(pieces: tuple[Piece, ...]) -> float:
    """Return seconds of an operation when nothing contends."""
    return sum(piece.alone_s for piece in pieces)
