"""The grid: which channels fit in which band, and at what rate."""

from __future__ import annotations

import functools

import msgspec

from lightloom.core.errors import InfeasibleError, InputError, pick
from lightloom.core.files import CATALOG, read_toml


class Band(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Part of the spectrum that one family of lasers and filters covers."""

    low_hz: float
    high_hz: float
    ref: str

    @property
    def width_hz(self) -> float:
        """Hertz from edge to edge."""
        return self.high_hz - self.low_hz


class Format(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A modulation format."""

    bits: float
    """Bits per symbol."""
    width: float
    """Optical width over symbol rate, filters included."""
    levels: int
    """Amplitude levels of the eye (2 NRZ, 4 PAM4); 0: coherent."""
    ref: str


class Grid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bands and formats of the catalogue."""

    bands: dict[str, Band]
    formats: dict[str, Format]


@functools.cache
def load_grid() -> Grid:
    """Return the bands and formats of the catalogue."""
    return read_toml(CATALOG / "optics" / "grid.toml", Grid, "grid")


def bands_for(channels: int, spacing_hz: float, allowed: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the bands that hold `channels` at `spacing_hz`: C first, then L, then S.

    `allowed` limits the choice. Raises InfeasibleError with the arithmetic where they do not fit:
    128 channels on a 75 GHz grid are 9.6 THz and need C and L; the C band holds 64.
    """
    known = load_grid().bands
    order = allowed or ("C", "L", "S")
    for band in order:
        pick(known, band, "band")
    if channels < 1 or spacing_hz <= 0:
        raise InputError(f"{channels} channels of {spacing_hz:g} Hz are no grid")
    left, used = channels, []
    for band in order:
        if left <= 0:
            break
        left -= int(known[band].width_hz / spacing_hz * (1 + 1e-9))
        used.append(band)
    if left > 0:
        width = sum(known[b].width_hz for b in order)
        raise InfeasibleError(
            f"{channels} channels x {spacing_hz / 1e9:g} GHz = "
            f"{channels * spacing_hz / 1e12:g} THz; band {'+'.join(order)} is "
            f"{width / 1e12:g} THz and holds {channels - left}",
            out=f"a grid of {width / channels / 1e9:g} GHz, or more bands"
            + ("" if len(order) == len(known) else " (C+L)"),
        )
    return tuple(used)


def symbol_rate(bits_per_s: float, name: str) -> float:
    """Return symbols per second of `bits_per_s` in the format `name`."""
    return bits_per_s / pick(load_grid().formats, name, "modulation format").bits


def check_channel(bits_per_s: float, name: str, spacing_hz: float) -> float:
    """Return hertz that a channel needs; raises InfeasibleError where the slot is narrower."""
    need = symbol_rate(bits_per_s, name) * load_grid().formats[name].width
    if need > spacing_hz * (1 + 1e-9):
        raise InfeasibleError(
            f"{bits_per_s / 1e9:g} Gb/s as {name} needs {need / 1e9:g} GHz, "
            f"the slot is {spacing_hz / 1e9:g} GHz",
            out="a denser format (coherent dp-qpsk, dp-16qam), a wider slot or a lower rate",
        )
    return need
