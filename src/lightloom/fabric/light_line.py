"""An amplified line between halls: noise of amplifiers and of the fibre's nonlinearity.

The supernode's own links are below 100 m and unamplified: nothing here applies to them. It is for
the line between two sites, and is checked against gnpy 3.0.1 (tests/fabric/test_light_line.py).

Axes: C channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
PLANCK = 6.62607015e-34


@dataclass(frozen=True, slots=True)
class Line:
    """Equal spans, each followed by an amplifier that makes up its loss."""

    spans: int
    metres: float
    """Length of one span."""
    loss_db_per_km: float = 0.2
    beta2: float = -2.13e-26
    """Dispersion, s^2/m (standard fibre)."""
    gamma: float | F64 = 1.27e-3
    """Nonlinearity, 1/(W m); one number, or one for each channel (it grows with frequency)."""
    noise_figure_db: float = 5.5


@dataclass(frozen=True, slots=True)
class Quality:
    """Signal over noise in each channel's own bandwidth, dB."""

    ase_db_C: F64
    nli_db_C: F64
    total_db_C: F64


def quality(line: Line, frequency_C: F64, baud: float, watts: float) -> Quality:
    """Return signal over noise of every channel at the end of the line.

    Amplifier noise a span: h f B (F G - 1) (Agrawal 7.2). Nonlinear interference: GN model for
    rectangular channels, incoherent between spans, eq. 120 and 123 of Poggiolini et al.,
    arXiv:1209.0394; weights 16/27 (own channel) and 32/27 (others).
    """
    alpha = line.loss_db_per_km / 1000.0 / (10.0 * math.log10(math.e))
    gain = math.exp(alpha * line.metres)
    figure = 10.0 ** (line.noise_figure_db / 10.0)
    ase_C = line.spans * PLANCK * frequency_C * baud * (figure * gain - 1.0)
    effective = -math.expm1(-alpha * line.metres) / alpha
    bend = math.pi**2 / alpha * abs(line.beta2) * baud
    apart_CC = frequency_C[None, :] - frequency_C[:, None]
    psi_CC = np.arcsinh(bend * (apart_CC + baud / 2)) - np.arcsinh(bend * (apart_CC - baud / 2))
    psi_CC *= effective**2 * alpha / (4.0 * math.pi * abs(line.beta2))
    weight_CC = np.where(np.eye(len(frequency_C), dtype=bool), 16.0 / 27.0, 32.0 / 27.0)
    eta_C = np.asarray(line.gamma) ** 2 * (weight_CC * psi_CC).sum(axis=1) / baud**2
    nli_C = line.spans * eta_C * watts**3
    return Quality(
        10 * np.log10(watts / ase_C),
        10 * np.log10(watts / nli_C),
        10 * np.log10(watts / (ase_C + nli_C)),
    )
