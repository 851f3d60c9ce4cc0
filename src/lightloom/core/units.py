"""The one door between text such as ``"400 Gb/s"`` and floats in SI base units."""

from __future__ import annotations

import math
import re

from .errors import InputError

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_TIME = {
    "ps": 1e-12, "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0,
    "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31557600.0,
}  # fmt: skip
_NUMBER = re.compile(r"^\s*([+-]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S.*)?$")


def _split(text: str, what: str) -> tuple[float, str]:
    match = _NUMBER.match(text)
    if not match:
        raise InputError(f"{what}: {text!r} is not a number with a unit", out="for example 64 GiB")
    value = float(match.group(1).replace("_", "").replace(",", ""))
    if not math.isfinite(value):
        raise InputError(f"{what}: {text!r} is not finite")
    return value, (match.group(2) or "").strip()


def _scale(prefix: str) -> float | None:
    return _BINARY.get(prefix, _DECIMAL.get(prefix))


def parse_bytes(text: str | float, what: str = "size") -> float:
    """Return bytes from ``"64 GiB"``, ``"1e9"``, ``"80 GB"`` (decimal) or ``"100 Gb"`` (bits)."""
    if isinstance(text, int | float):
        return float(text)
    value, unit = _split(text, what)
    if unit in ("", "B"):
        return value
    scale = _scale(unit[:-1])
    if scale is None or unit[-1] not in "Bb":
        raise InputError(f"{what}: unknown unit {unit!r}", out="use B, KiB, MiB, GiB, kB, MB, GB")
    return value * scale / (8.0 if unit[-1] == "b" else 1.0)


def parse_rate(text: str | float, what: str = "rate") -> float:
    """Return bytes per second from ``"400 Gb/s"``, ``"400 Gbps"`` or ``"50 GB/s"``."""
    if isinstance(text, int | float):
        return float(text)
    value, unit = _split(text, what)
    match = re.fullmatch(r"([kKMGTPE]?i?)(B|b|bit)(/s|ps)", unit)
    scale = _scale(match.group(1)) if match else None
    if match is None or scale is None:
        raise InputError(f"{what}: unknown unit {unit!r}", out="use Gb/s or GB/s")
    return value * scale / (1.0 if match.group(2) == "B" else 8.0)


def parse_time(text: str | float, what: str = "time") -> float:
    """Return seconds from ``"1.2 us"``, ``"30d"`` or ``"5 min"``."""
    if isinstance(text, int | float):
        return float(text)
    value, unit = _split(text, what)
    if unit == "":
        return value
    if unit not in _TIME:
        raise InputError(f"{what}: unknown unit {unit!r}", out=f"use one of {', '.join(_TIME)}")
    return value * _TIME[unit]


def parse_count(text: str | float, what: str = "count") -> float:
    """Return a plain number from ``"15T"``, ``"70B"`` (billions), ``"4M"`` or ``"1e12"``."""
    if isinstance(text, int | float):
        return float(text)
    value, unit = _split(text, what)
    scale = 1e9 if unit == "B" else _scale(unit)
    if scale is None:
        raise InputError(f"{what}: unknown unit {unit!r}", out="use k, M, B (10^9), T (10^12)")
    return value * scale


def parse_flops(text: str | float, what: str = "speed") -> float:
    """Return FLOP/s from ``"989 TFLOP/s"`` or ``"1 PFLOP/s"``."""
    if isinstance(text, int | float):
        return float(text)
    value, unit = _split(text, what)
    match = re.fullmatch(r"([kKMGTPE]?)FLOP(?:/s|S|s)", unit)
    if match is None:
        raise InputError(f"{what}: unknown unit {unit!r}", out="use TFLOP/s or PFLOP/s")
    return value * _DECIMAL[match.group(1)]


def _parse_unit(text: str | float, unit: str, what: str) -> float:
    if isinstance(text, int | float):
        return float(text)
    value, got = _split(text, what)
    scale = _DECIMAL.get(got.removesuffix(unit)) if got.endswith(unit) else None
    if got == "":
        return value
    if scale is None:
        raise InputError(f"{what}: unknown unit {got!r}", out=f"use {unit}, k{unit}, M{unit}")
    return value * scale


def parse_watts(text: str | float, what: str = "power") -> float:
    """Return watts from ``"700 W"`` or ``"1.2 MW"``."""
    return _parse_unit(text, "W", what)


def parse_hertz(text: str | float, what: str = "frequency") -> float:
    """Return hertz from ``"1.83 GHz"``."""
    return _parse_unit(text, "Hz", what)


def _three(value: float) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def _show(value: float, unit: str, step: float, prefixes: tuple[str, ...]) -> str:
    if not math.isfinite(value):
        return "-"
    index = 0
    while abs(value) >= step * 0.9995 and index < len(prefixes) - 1:
        value, index = value / step, index + 1
    return f"{_three(value)} {prefixes[index]}{unit}".rstrip()


def show_bytes(value: float) -> str:
    """Return bytes in binary units with three figures: ``"74.6 GiB"``."""
    return _show(value, "B", 1024.0, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))


def show_rate(value: float) -> str:
    """Return bytes per second in decimal units: ``"450 GB/s"``."""
    return _show(value, "B/s", 1000.0, ("", "k", "M", "G", "T", "P", "E"))


def show_flops(value: float) -> str:
    """Return FLOP/s in decimal units: ``"989 TFLOP/s"``."""
    return _show(value, "FLOP/s", 1000.0, ("", "k", "M", "G", "T", "P", "E"))


def show_count(value: float) -> str:
    """Return a count in the field's units: ``"671 B"`` for 6.71e11."""
    return _show(value, "", 1000.0, ("", "k", "M", "B", "T", "Q"))


def show_watts(value: float) -> str:
    """Return watts in decimal units: ``"1.20 MW"``."""
    return _show(value, "W", 1000.0, ("", "k", "M", "G"))


def show_time(value: float) -> str:
    """Return seconds in the unit a person would use: ``"4.67 s"``, ``"3.10 us"``, ``"2.50 d"``."""
    if not math.isfinite(value):
        return "-"
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 120.0)):
        if abs(value) >= size:
            return f"{_three(value / _TIME[unit])} {unit}"
    for unit in ("s", "ms", "us", "ns"):
        if abs(value) >= _TIME[unit] * 0.9995:
            return f"{_three(value / _TIME[unit])} {unit}"
    return f"{_three(value / 1e-12)} ps" if value else "0 s"
