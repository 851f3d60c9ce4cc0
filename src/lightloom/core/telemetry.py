"""Telemetry: one measured series."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Telemetry:
    """Readings of one metric of one subject. T samples."""

    metric: str
    """Name with its unit as Prometheus has it: ``step_seconds``, ``link_pre_fec_ber``."""
    subject: str
    """``rank:3``, ``card:17``, ``link:b3-b7``."""
    time_T: NDArray[np.float64]
    """Seconds since the epoch."""
    value_T: NDArray[np.float64]
