"""One optical link: where the light goes, what the receiver sees, what ageing does to it.

Powers in dBm and losses in dB are the field's own units; everything else is SI.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from lightloom.core.errors import InputError, pick
from lightloom.core.files import CATALOG, read_toml
from lightloom.core.source import Source

from .light_error import Delivery, ber_of_q, deliver, error_limit
from .light_grid import check_channel, load_grid, symbol_rate

CHARGE = 1.602176634e-19
LIGHT_SPEED = 299792458.0
DRIFT_HZ_PER_K = 10e9
"""Silicon rings and filters: 0.08 nm per degree near 1550 nm, hence 10 GHz (S0; published)."""
PM_PER_HZ = 1550e-9**2 / LIGHT_SPEED * 1e12


class Link(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link as designed."""

    title: str
    bits_per_s: float
    format: str
    fec: str
    spacing_hz: float
    laser_dbm: float
    """Per channel, into the modulator."""
    modulator_db: float
    extinction_db: float
    facets: int
    """Couplings between chip and fibre."""
    coupling: float
    """Power ratio of one facet."""
    waveguide_m: float
    waveguide_db_per_m: float
    fibre_m: float
    fibre_db_per_km: float
    connectors: int
    connector_db: float
    switches: int
    switch_db: float
    filters_db: float
    """Multiplexer and demultiplexer together, at resonance."""
    filter_fwhm_hz: float
    responsivity: float
    """Amperes per watt."""
    noise_a_per_rthz: float
    rin_db_per_hz: float
    crosstalk_db: float
    """Same-channel leakage of one switch port, relative to the signal."""
    interferers: int
    """Ports that leak onto this channel."""
    adjacent_db: float
    """Leakage of a neighbouring channel through the filter at resonance."""
    mode_radius_m: float
    bit_clock_jitter_s: float
    """Rms jitter of the recovered clock: a property of the receiver."""
    packet_delay_variation_s: float
    """Spread of packet arrival: a property of queues; a circuit has none of its own."""
    sources: dict[str, Source]


class _Links(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    links: dict[str, Link]


def load_links() -> dict[str, Link]:
    """Return the link designs of the catalogue."""
    return read_toml(CATALOG / "optics" / "links.toml", _Links, "links").links


def load_link(name: str) -> Link:
    """Return the link design called `name`."""
    return pick(load_links(), name, "link design")


@dataclass(frozen=True, slots=True)
class State:
    """What time and the room have done to a link; the default is a new one."""

    coupling: float | None = None
    """Power ratio of one facet now; None: as designed."""
    detuning_hz: float = 0.0
    """Distance between laser and filter, what the lock loop leaves."""
    vibration_g: float = 0.0
    vibration_hz: float = 100.0
    phase_noise: float = 0.0
    """Radians per root hertz at `offset_hz`."""
    offset_hz: float = 1e4
    extra_db: float = 0.0
    """Dirt, bent fibre, spliced repair."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What reaches the receiver and what it makes of it."""

    losses_db: dict[str, float]
    received_dbm: float
    q: float
    prefec_ber: float
    delivery: Delivery
    noise: dict[str, float]
    """Share of each source in the noise power of the receiver."""


def budget(link: Link, state: State | None = None, quantile: float = 0.999999) -> Budget:
    """Return losses, received power, Q, errors and delivery of a link in a state."""
    now = state or State()
    check_channel(link.bits_per_s, link.format, link.spacing_hz)
    losses = _losses(link, now)
    received = link.laser_dbm - sum(losses.values())
    q, noise = _eye(link, now, received)
    levels = load_grid().formats[link.format].levels
    ber = ber_of_q(q, levels)
    flight = link.fibre_m * 1.468 / LIGHT_SPEED + link.waveguide_m * 4.2 / LIGHT_SPEED
    return Budget(
        losses, received, q, ber,
        deliver(ber, link.fec, link.bits_per_s, flight, quantile), noise,
    )  # fmt: skip


def _losses(link: Link, now: State) -> dict[str, float]:
    coupling = link.coupling if now.coupling is None else now.coupling
    if not 0.0 < coupling <= 1.0:
        raise InputError(f"coupling {coupling:g} is not a power ratio above 0 and at most 1")
    shaken = shaken_coupling(now.vibration_g, now.vibration_hz, link.mode_radius_m)
    losses = {
        "modulator": link.modulator_db,
        "facets": 10.0 * link.facets * math.log10(1.0 / coupling),
        "waveguide": link.waveguide_m * link.waveguide_db_per_m,
        "fibre": link.fibre_m / 1000.0 * link.fibre_db_per_km,
        "connectors": link.connectors * link.connector_db,
        "switches": link.switches * link.switch_db,
        "filters": link.filters_db,
        "detuning": detuning_db(now.detuning_hz, link.filter_fwhm_hz),
        "vibration": -10.0 * math.log10(shaken) if shaken > 0 else math.inf,
        "other": now.extra_db,
    }
    return {part: loss for part, loss in losses.items() if loss or part == "facets"}


def detuning_db(detuning_hz: float, fwhm_hz: float) -> float:
    """Return loss of a Lorentzian filter off its resonance: 10 log10(1 + (2 df / FWHM)^2)."""
    return 10.0 * math.log10(1.0 + (2.0 * detuning_hz / fwhm_hz) ** 2)


def shaken_coupling(acceleration_g: float, hertz: float, mode_radius_m: float) -> float:
    """Return the coupling ratio left at the peak of a vibration.

    Displacement x = a / (2 pi f)^2 of a facet that does not follow; two equal Gaussian modes
    overlap by exp(-(x / w)^2) (Joyce and DeLoach 1984).
    """
    shift = acceleration_g * 9.80665 / (2.0 * math.pi * hertz) ** 2
    return math.exp(-((shift / mode_radius_m) ** 2))


def shaking_hertz(loss: float, acceleration_g: float, mode_radius_m: float) -> float:
    """Return the frequency at or below which `acceleration_g` costs the share `loss`.

    "15 % above 0.05 g" (S0) needs 2.2 um of shift in a 5.5 um mode: 75 Hz or less, a building's
    shaking, not the 12 kHz resonance of the casting.
    """
    shift = mode_radius_m * math.sqrt(-math.log(1.0 - loss))
    return math.sqrt(acceleration_g * 9.80665 / shift) / (2.0 * math.pi)


def _eye(link: Link, now: State, received_dbm: float) -> tuple[float, dict[str, float]]:
    """Return Q of the worst inner eye and the shares of the noise (Agrawal, ch. 4 and 8)."""
    levels = load_grid().formats[link.format].levels
    if levels < 2:
        raise InputError(
            f"format {link.format} is coherent: this budget is for direct detection",
            out="use nrz or pam4, or `light line` for an amplified coherent line",
        )
    watts = 1e-3 * 10.0 ** (received_dbm / 10.0)
    current = link.responsivity * watts
    ratio = 10.0 ** (link.extinction_db / 10.0)
    swing = 2.0 * current * (ratio - 1.0) / (ratio + 1.0)
    band = 0.75 * symbol_rate(link.bits_per_s, link.format)
    leak = link.interferers * 10.0 ** (link.crosstalk_db / 10.0)
    off = (link.filter_fwhm_hz / 2) ** 2
    side = 10.0 ** (link.adjacent_db / 10.0) * (link.spacing_hz**2 + off)
    near = max(link.spacing_hz - abs(now.detuning_hz), 0.0)
    adjacent = 2.0 * side / (near**2 + off)
    noise = {
        "thermal": link.noise_a_per_rthz**2 * band,
        "shot": 2.0 * CHARGE * current * band,
        "laser intensity": 10.0 ** (link.rin_db_per_hz / 10.0) * current**2 * band,
        "same-channel crosstalk": leak * current**2,
    }
    sigma = math.sqrt(sum(noise.values()))
    opening = swing / (levels - 1) - 2.0 * current * adjacent
    shares = {part: value / sigma**2 for part, value in noise.items()}
    return max(opening, 0.0) / (2.0 * sigma), shares


def margin_db(link: Link, state: State | None = None) -> float:
    """Return dB that can still be lost before FEC loses a frame in 1e12; negative: it does now."""
    now = state or State()
    received = link.laser_dbm - sum(_losses(link, now).values())
    limit = error_limit(link.fec)
    levels = load_grid().formats[link.format].levels
    low, high = -30.0, 30.0
    for _ in range(40):
        middle = (low + high) / 2
        fine = ber_of_q(_eye(link, now, received - middle)[0], levels) < limit
        low, high = (middle, high) if fine else (low, middle)
    return (low + high) / 2


def drift_hz(kelvin: float) -> float:
    """Return the drift of an unlocked ring or filter: 10 GHz per degree."""
    return DRIFT_HZ_PER_K * kelvin


def drift_pm(hertz: float) -> float:
    """Return a frequency offset as picometres near 1550 nm."""
    return hertz * PM_PER_HZ


def linewidth_hz(density: float, offset_hz: float) -> float:
    """Return the laser linewidth behind a phase-noise density (rad per root Hz) at an offset.

    White frequency noise: S_phi(f) = linewidth / (pi f^2), one-sided.
    """
    if offset_hz <= 0:
        raise InputError("a phase noise needs the offset at which it was measured (above 0 Hz)")
    if density < 0:
        raise InputError(f"phase noise {density:g} rad/rtHz is below 0")
    return math.pi * offset_hz**2 * density**2


def phase_rms(density: float, offset_hz: float, low_hz: float, high_hz: float) -> float:
    """Return radians rms between two frequencies for the same white frequency noise."""
    width = linewidth_hz(density, offset_hz)
    return math.sqrt(width / math.pi * (1.0 / low_hz - 1.0 / high_hz))
