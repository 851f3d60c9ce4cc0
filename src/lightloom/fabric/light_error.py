"""From a noisy eye to lost frames: BER, Q, FEC, retransmission, and how long a proof takes."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from lightloom.core.errors import InputError, nearest

NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Code:
    """A Reed-Solomon code over 10-bit symbols."""

    total: int
    data: int
    corrects: int

    @property
    def rate(self) -> float:
        """Data over line bits."""
        return self.data / self.total


CODES = {"none": Code(528, 528, 0), "kr4": Code(528, 514, 7), "kp4": Code(544, 514, 15)}
"""IEEE 802.3 clause 91: RS(528,514) and RS(544,514), 10-bit symbols."""


def ber_of_q(q: float, levels: int = 2) -> float:
    """Return bit errors per bit of an eye whose half opening is `q` noise deviations.

    2 (M-1) / (M log2 M) x Q(q) for M amplitude levels with Gray coding (Proakis).
    """
    share = 2.0 * (levels - 1) / (levels * math.log2(levels))
    return share * 0.5 * math.erfc(q / math.sqrt(2.0))


def q_of_ber(ber: float, levels: int = 2) -> float:
    """Return the eye's half opening in noise deviations for a bit error rate."""
    share = 2.0 * (levels - 1) / (levels * math.log2(levels))
    if not 0.0 < ber < share / 2:
        raise InputError(f"bit error rate {ber:g} is not between 0 and {share / 2:g}")
    low, high = 0.0, 40.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if ber_of_q(middle, levels) > ber else (low, middle)
    return (low + high) / 2


def code(name: str) -> Code:
    """Return a code by name: none, kr4, kp4."""
    if name not in CODES:
        raise InputError(f"no FEC {name!r}{nearest(name, CODES)}")
    return CODES[name]


def frame_loss(ber: float, fec: str) -> float:
    """Return the share of FEC frames that cannot be corrected, errors independent.

    Binomial tail over 10-bit symbols; `none` counts a frame of 5,280 bits lost at its first error.
    """
    c = code(fec)
    if ber <= 0:
        return 0.0
    symbol = -math.expm1(10 * math.log1p(-min(ber, 0.5)))
    logs = [
        math.lgamma(c.total + 1) - math.lgamma(k + 1) - math.lgamma(c.total - k + 1)
        + k * math.log(symbol) + (c.total - k) * math.log1p(-symbol)
        for k in range(c.corrects + 1, c.total + 1)
    ]  # fmt: skip
    top = max(logs)
    return min(1.0, math.exp(top) * math.fsum(math.exp(x - top) for x in logs))


@functools.cache
def error_limit(fec: str, loss: float = 1e-12) -> float:
    """Return the bit error rate before FEC at which the share `loss` of frames is lost."""
    low, high = -30.0, -0.4
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if frame_loss(10.0**middle, fec) < loss else (low, middle)
    return float(10.0**low)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a link delivers once frames can be lost."""

    fec: str
    prefec_ber: float
    frame_loss: float
    efficiency: float
    """Useful share of the line rate: code rate x frames that arrive at the first attempt."""
    base_s: float
    """One frame: serialisation, decoding, flight."""
    tail_s: float
    """Latency that the quantile asked for stays under."""
    quantile: float


def deliver(
    ber: float, fec: str, bits_per_s: float, flight_s: float, quantile: float = 0.999999,
    resend_s: float = 2e-6,
) -> Delivery:  # fmt: skip
    """Return efficiency and latency tail: a lost frame is sent again (selective repeat).

    `resend_s`: from a loss to the frame's new start, a round trip and the sender's turn (assumed).
    The k-th repeat is needed with probability loss^k, so the tail is base + k x (resend + base).
    """
    c = code(fec)
    loss = frame_loss(ber, fec)
    line = c.total * 10 / bits_per_s
    base = flight_s + line * (1.0 if fec == "none" else 2.0)
    repeats = 0
    if 0.0 < loss <= 0.999:
        repeats = max(0, math.ceil(math.log(1.0 - quantile) / math.log(loss) - 1e-9) - 1)
    tail = math.inf if loss > 0.999 else base + repeats * (resend_s + base)
    return Delivery(fec, ber, loss, c.rate * (1.0 - loss), base, tail, quantile)


def proof_seconds(ber: float, bits_per_s: float, confidence: float = 0.95) -> float:
    """Return seconds without one error that prove `ber`: -ln(1 - confidence) / (ber x rate).

    1e-15 at 80 Gb/s takes 10.4 hours on every channel; a minute proves 6.2e-13.
    """
    return -math.log(1.0 - confidence) / (ber * bits_per_s)


def proven(errors: int, bits: float, confidence: float = 0.95) -> float:
    """Return the bit error rate that a test has proven: upper limit for `errors` in `bits`.

    Exact Poisson limit (chi-square), found by bisection.
    """
    if bits <= 0 or errors < 0:
        raise InputError(f"{errors} errors in {bits:g} bits prove nothing")
    low, high = 0.0, errors + 10.0 + 10.0 * math.sqrt(errors + 1.0)
    for _ in range(60):
        mean = (low + high) / 2
        tail = math.exp(-mean) * math.fsum(
            math.exp(k * math.log(mean) - math.lgamma(k + 1)) if mean > 0 else float(k == 0)
            for k in range(errors + 1)
        )
        low, high = (mean, high) if tail > 1.0 - confidence else (low, mean)
    return high / bits


@dataclass(frozen=True, slots=True)
class Extrapolated:
    """A bit error rate beyond what was counted, by the Q method."""

    q: float
    q_low: float
    ber: float
    ber_high: float
    """Upper limit at the confidence asked for."""
    bits: float
    """Bits that were really counted."""
    verified: float
    """Rate that the count at the working point alone proves."""


def extrapolate(
    attenuation_db: Sequence[float], errors: Sequence[int], bits: Sequence[float],
    levels: int = 2, confidence: float = 0.95,
) -> Extrapolated:  # fmt: skip
    """Return the error rate at 0 dB from error counts with light taken away.

    Thermal noise leaves Q proportional to optical power, so ln Q falls linearly with dB; a
    weighted line through the counted points gives Q at 0 dB. Needs 3 points with errors.
    """
    rows = [
        (a, q_of_ber(e / b, levels), e)
        for a, e, b in zip(attenuation_db, errors, bits, strict=True)
        if e > 0
    ]
    if len(rows) < 3 or len({a for a, _, _ in rows}) < 2:
        raise InputError(
            f"{len(rows)} attenuations with errors; three are needed",
            out="attenuate more until errors are counted, for 3 or more settings",
        )
    x = np.array([a for a, _, _ in rows])
    y = np.log([q for _, q, _ in rows])
    weight = np.sqrt([e for _, _, e in rows])
    line, scatter = np.polyfit(x, y, 1, w=weight, cov="unscaled")
    residual = float(np.sum((weight * (y - np.polyval(line, x))) ** 2))
    spread = math.sqrt(float(scatter[1, 1]) * max(residual / max(len(rows) - 2, 1), 1e-12))
    log_q = float(line[1])
    low = math.exp(log_q - NORMAL.inv_cdf(confidence) * spread)
    at_zero = [
        (e, b) for a, e, b in zip(attenuation_db, errors, bits, strict=True) if abs(a) < 1e-9
    ]
    verified = proven(at_zero[0][0], at_zero[0][1], confidence) if at_zero else math.nan
    q = math.exp(log_q)
    return Extrapolated(
        q, low, ber_of_q(q, levels), ber_of_q(low, levels), float(sum(bits)), verified
    )
