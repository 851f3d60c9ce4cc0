"""Goodput: the share of time that trains, when cards fail and checkpoints cost time.

Young 1974, Daly 2006: interval tau = sqrt(2 d M) between checkpoints that stop the job for d
seconds, job MTBF M = card-hours / cards; lost share d / tau + tau / (2 M) + R / M.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.cluster import Cluster

F64 = NDArray[np.float64]
ASSUMED_HOST_WRITE = 2e9
"""Bytes/s per host to storage where the cluster's file says nothing."""
CHECKPOINT_BYTES = 14.0
"""bf16 weight, fp32 master and two moments, per parameter."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """Failure arithmetic of one job. Seconds and shares."""

    goodput: float
    mtbf_s: float
    checkpoint_s: float
    interval_s: float


def write_seconds(cluster: Cluster, cards: F64, parameters: float) -> F64:
    """Return seconds to write one whole checkpoint, job stopped."""
    hosts = np.maximum(cards / max(cluster.host.cards, 1), 1.0)
    shared = cluster.storage.shared_write
    rate = hosts * (cluster.storage.local_write or ASSUMED_HOST_WRITE)
    rate = np.minimum(rate, shared) if shared else rate
    seconds: F64 = CHECKPOINT_BYTES * parameters / rate
    return seconds


def goodput_of(
    cluster: Cluster, cards: F64, parameters: float, card_hours: float | None = None
) -> tuple[F64, F64, F64, F64]:
    """Return (goodput, MTBF s, checkpoint s, best interval s), each of the shape of `cards`."""
    hours = card_hours if card_hours is not None else cluster.failures.card_hours
    cards = np.asarray(cards, np.float64)
    mtbf = hours * 3600.0 / cards
    write = write_seconds(cluster, cards, parameters)
    tau = np.sqrt(2.0 * write * mtbf)
    lost = write / tau + tau / (2.0 * mtbf) + cluster.failures.restart_s / mtbf
    return np.maximum(1.0 - lost, 0.0), mtbf, write, tau


def goodput_detail(cluster: Cluster, cards: int, parameters: float) -> Goodput:
    """Return the failure arithmetic of one job in words' order."""
    good, mtbf, write, tau = goodput_of(cluster, np.array([float(cards)]), parameters)
    return Goodput(float(good[0]), float(mtbf[0]), float(write[0]), float(tau[0]))
