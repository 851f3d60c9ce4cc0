"""The heater loop that holds a ring on its channel while the room warms and cools.

A ring drifts 10 GHz (80 pm) per degree; its heater can only add heat, so it is locked above the
hottest room it must survive. 5 pm are 0.06 degree: never an open-loop figure, only the residual of
a loop that works. Axes: T samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError

from .light import DRIFT_HZ_PER_K, drift_pm

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Loop:
    """A proportional-integral loop on the phase shift that a monitor diode sees."""

    lock_c: float = 75.0
    """Temperature of the ring on its channel, Celsius; above the hottest room."""
    heater_k: float = 60.0
    """Degrees that the heater adds at full power."""
    tau_s: float = 2e-3
    """Thermal time constant of ring and heater (assumed)."""
    period_s: float = 1e-4
    """Sampling period of the loop."""
    proportional: float = 4.0
    integral: float = 400.0
    """Per second."""
    noise_k: float = 0.01
    """Rms error of one reading, as temperature."""


@dataclass(frozen=True, slots=True)
class Locked:
    """How the loop did."""

    residual_pm_T: F64
    heater_T: F64
    """Share of full heater power."""
    open_loop_pm_T: F64
    """Drift of the same ring without a loop, from its start."""

    @property
    def rms_pm(self) -> float:
        """Root mean square residual, first tenth (lock-in) left out."""
        return float(np.sqrt(np.mean(self.residual_pm_T[len(self.residual_pm_T) // 10 :] ** 2)))

    @property
    def worst_pm(self) -> float:
        """Largest residual after lock-in."""
        return float(np.abs(self.residual_pm_T[len(self.residual_pm_T) // 10 :]).max())

    @property
    def headroom(self) -> float:
        """Smallest distance of the heater from either end, as a share of full power."""
        kept = self.heater_T[len(self.heater_T) // 10 :]
        return float(min(kept.min(), 1.0 - kept.max()))


def lock(ambient_c_T: F64, seconds: float, loop: Loop | None = None, seed: int = 0) -> Locked:
    """Return residual, heater power and open-loop drift along a course of room temperatures.

    `ambient_c_T` is spread evenly over `seconds` and interpolated at the loop's period.
    """
    law = loop or Loop()
    if seconds <= 0 or law.period_s <= 0 or law.period_s > law.tau_s:
        raise InputError("the loop must sample faster than its ring warms (period <= tau)")
    count = max(int(seconds / law.period_s), 10)
    if count > 2_000_000:
        raise InputError(f"{count} loop steps; shorten the course or lengthen the period")
    room = np.interp(np.linspace(0, 1, count), np.linspace(0, 1, len(ambient_c_T)), ambient_c_T)
    noise = np.random.default_rng(seed).normal(0.0, law.noise_k, count)
    decay = float(np.exp(-law.period_s / law.tau_s))
    residual, heater = np.empty(count), np.empty(count)
    lift = min(max(law.lock_c - float(room[0]), 0.0), law.heater_k)
    total = lift / law.heater_k
    for step, (warm, error) in enumerate(zip(room.tolist(), noise.tolist(), strict=True)):
        off = warm + lift - law.lock_c
        seen = off + error
        wish = total - law.proportional * seen / law.heater_k
        power = min(max(wish, 0.0), 1.0)
        if power == wish:
            total -= law.integral * law.period_s * seen / law.heater_k
        lift = lift * decay + power * law.heater_k * (1.0 - decay)
        residual[step], heater[step] = off, power
    scale = drift_pm(DRIFT_HZ_PER_K)
    return Locked(residual * scale, heater, (room - room[0]) * scale)
