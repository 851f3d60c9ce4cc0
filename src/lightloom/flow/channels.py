"""Effective bandwidth of a one-hop spine, with and without channels that know their traffic.

Axes: K traffic classes, I senders, J receivers, F flows, L ends of channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError
from lightloom.fabric.wavelength_spine import colour, share_out, verify

from .share import Paths, max_min

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Scheme = Literal["aware", "shared", "hashed"]
SCHEMES: dict[str, str] = {
    "aware": "every class has its own channels, in proportion to its bytes (edge colouring)",
    "shared": "the same circuits, but a pair's classes share its channels without priority",
    "hashed": "flows fall on whole fibres by hash and share them, as on a routed network",
}


@dataclass(frozen=True, slots=True)
class Overheads:
    """What stands between a channel's rate and useful bytes."""

    framing: float = 256 / 257 * 4096 / (4096 + 40)
    """256b/257b line code (IEEE 802.3 clause 91), 40 bytes of header and check a 4 KiB frame."""
    fec: float = 1.0
    """1: the channel rate is quoted after FEC; 514/544 where it is the rate on the line."""
    reconfigure_s: float = 0.0
    """Seconds for one change of circuits, all parts (light: switch, laser, clock, control)."""
    reconfigurations: int = 0
    """Changes inside the measured exchange; circuits set once per job cost none."""
    skew_s: float = 20e-6
    """Standard deviation of the boards' arrival; assumed."""
    retransmission: float = 1.0
    """Share of frames that arrive at the first attempt."""


@dataclass(frozen=True, slots=True)
class Effective:
    """One scheme on one exchange."""

    scheme: Scheme
    seconds: float
    """From the first byte to the last, all overheads."""
    bound_s: float
    """Max-flow bound: bytes of the busiest board over all its channels."""
    parts: dict[str, float]
    """Factors framing, fec, retransmission, contention, reconfiguration, skew; their product is
    `effective`."""
    class_s: dict[str, float]
    """Seconds until a class is through, contention only."""

    @property
    def effective(self) -> float:
        """Useful share of the max-flow bound."""
        return math.prod(self.parts.values())


def exchange(
    boards: int, expert_bytes: float, gradient_bytes: float, imbalance: float = 0.0, seed: int = 0
) -> F64:
    """Return bytes (K=2, I, J): expert all-to-all between all boards, gradient ring both ways.

    `expert_bytes` and `gradient_bytes` leave one board; `imbalance` is the standard deviation of
    the logarithm of each pair's expert bytes (hot experts).
    """
    if boards < 2:
        raise InputError("an exchange needs at least two boards")
    spread = np.random.default_rng(seed).normal(0.0, imbalance, (boards, boards))
    expert_IJ = np.exp(spread) * (1.0 - np.eye(boards))
    expert_IJ *= expert_bytes * boards / expert_IJ.sum()
    ring_IJ = np.zeros((boards, boards))
    here = np.arange(boards)
    np.add.at(ring_IJ, (here, (here + 1) % boards), gradient_bytes / 2)
    np.add.at(ring_IJ, (here, (here - 1) % boards), gradient_bytes / 2)
    return np.stack([expert_IJ, ring_IJ])


def effective(
    bytes_KIJ: F64, names: Sequence[str], channels: int, rate: float, scheme: Scheme,
    overheads: Overheads | None = None, planned_KIJ: F64 | None = None,
    fibres: int = 8, flows: int = 8, seed: int = 0,
) -> Effective:  # fmt: skip
    """Return how much of the max-flow bound `scheme` turns into useful bytes.

    `planned_KIJ`: what channels were laid out for, where it differs from what is sent.
    `fibres`: parallel fibres of a board that hashed flows choose from; `flows`: hashed flows of
    one pair and class (queue pairs).
    """
    over = overheads or Overheads()
    total_IJ = bytes_KIJ.sum(axis=0)
    busiest = max(total_IJ.sum(axis=1).max(), total_IJ.sum(axis=0).max())
    bound_s = float(busiest) / (channels * rate)
    if bound_s <= 0:
        raise InputError("nothing is sent: bytes, channels and rate must be above zero")
    if scheme == "hashed":
        done_K = _hashed(bytes_KIJ, fibres, channels * rate / fibres, flows, seed)
    else:
        plan = bytes_KIJ if planned_KIJ is None else planned_KIJ
        done_K = _circuits(bytes_KIJ, plan, channels, rate, scheme == "shared")
    moving = float(done_K.max())
    rates = over.framing * over.fec * over.retransmission
    late = over.skew_s * _expected_maximum(total_IJ.shape[0])
    setup = over.reconfigure_s * over.reconfigurations
    wire = moving / rates
    seconds = wire + setup + late
    parts = {
        "framing": over.framing,
        "fec": over.fec,
        "retransmission": over.retransmission,
        "contention": bound_s / moving,
        "reconfiguration": wire / (wire + setup),
        "skew": (wire + setup) / seconds,
    }
    return Effective(
        scheme, seconds, bound_s, parts, dict(zip(names, done_K.tolist(), strict=True))
    )


def _circuits(bytes_KIJ: F64, plan_KIJ: F64, channels: int, rate: float, shared: bool) -> F64:
    """Return seconds per class on circuits; the assignment is made and verified, not assumed."""
    lit_KIJ = share_out(plan_KIJ, channels)
    wrong = verify(colour(lit_KIJ, channels), lit_KIJ)
    assert not wrong, wrong
    if not shared:
        with np.errstate(divide="ignore", invalid="ignore"):
            done = np.where(bytes_KIJ > 0, bytes_KIJ / (lit_KIJ * rate), 0.0)
        return np.asarray(done.max(axis=(1, 2)))
    pair_IJ = lit_KIJ.sum(axis=0) * rate
    left, now = bytes_KIJ.copy(), np.zeros_like(pair_IJ)
    done_KIJ = np.zeros_like(bytes_KIJ)
    for _ in range(len(bytes_KIJ)):  # processor sharing: every class of a pair at equal speed
        active = left > 0
        count = active.sum(axis=0)
        least = np.where(active, left, np.inf).min(axis=0)
        step = np.where(count > 0, least, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            now = now + np.where(count > 0, step * count / pair_IJ, 0.0)
        left = np.where(active, left - step, 0.0)
        left[left < 1e-9 * bytes_KIJ] = 0.0
        done_KIJ = np.where(active & (left <= 0), now, done_KIJ)
    return np.asarray(done_KIJ.max(axis=(1, 2)))


def _hashed(bytes_KIJ: F64, fibres: int, rate: float, flows: int, seed: int) -> F64:
    """Return seconds per class when flows fall on fibres at random and share them fairly.

    A flow leaves by one fibre of its sender and arrives by the fibre of the same number (planes).
    Played as a fluid; the next 1 % of flows to end are ended together.
    """
    rng = np.random.default_rng(seed)
    kind, i, j = (np.repeat(x, flows) for x in np.nonzero(bytes_KIJ))
    left = bytes_KIJ[kind, i, j] / flows
    fibre = rng.integers(0, fibres, len(left))
    senders, receivers = bytes_KIJ.shape[1:]
    ends = np.stack([i * fibres + fibre, (senders + j) * fibres + fibre], axis=1)
    capacity = np.full((senders + receivers) * fibres, rate)
    done = np.zeros(len(left))
    alive, now = np.arange(len(left)), 0.0
    while len(alive):
        start = np.arange(0, 2 * len(alive) + 1, 2)
        speed = max_min(Paths(start, ends[alive].ravel()), capacity)
        time = left[alive] / speed
        step = float(np.partition(time, len(alive) // 100)[len(alive) // 100])
        now += step
        left[alive] -= speed * step
        over = time <= step
        done[alive[over]] = now
        alive = alive[~over]
    return np.array([done[kind == k].max(initial=0.0) for k in range(len(bytes_KIJ))])


def _expected_maximum(count: int) -> float:
    """Return the mean of the largest of `count` standard normals (Blom 1958)."""
    from statistics import NormalDist

    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0
