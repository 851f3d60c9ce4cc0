"""Prices: what energy, rent and capital cost, as ranges with their source."""

from __future__ import annotations

from pathlib import Path

import msgspec

from .chip import Chip
from .errors import InputError
from .files import CATALOG, read_toml
from .source import Source


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One price with its range."""

    value: float
    low: float
    high: float
    source: Source


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices of one currency. Rent in currency per rank-hour, capital per rank."""

    version: int = 1
    title: str
    electricity_kwh: Price
    colocation_kw_month: Price
    network_share: Price
    residual_share: Price
    pue: Price
    rent: dict[str, Price] = {}
    """By chip name."""
    capital: dict[str, Price] = {}


def load_prices(path: str | Path | None = None) -> Prices:
    """Return the shipped prices (US dollars), or those of a user's TOML file."""
    prices = read_toml(path or CATALOG / "prices" / "usd.toml", Prices, "prices")
    single = ("electricity_kwh", "colocation_kw_month", "network_share", "residual_share", "pue")
    found = {**{name: getattr(prices, name) for name in single},
             **{f"rent.{k}": v for k, v in prices.rent.items()},
             **{f"capital.{k}": v for k, v in prices.capital.items()}}  # fmt: skip
    for name, price in found.items():
        if not 0 <= price.low <= price.value <= price.high < 1e12:
            raise InputError(f"prices: {name}: 0 <= low <= value <= high does not hold")
    return prices


def rent_of(prices: Prices, chip: Chip) -> Price:
    """Return rent of one rank of `chip` for an hour: its own, else scaled from H100 by BF16 peak.

    The scaled figure is assumed and wide: a factor two below and above.
    """
    if chip.name in prices.rent:
        return prices.rent[chip.name]
    known = next((n for n in prices.rent if chip.name.startswith(n)), None)
    if known is not None:
        return prices.rent[known]
    if "h100" not in prices.rent:
        raise InputError(f"prices: no rent for {chip.name}", out=f"add [rent.{chip.name}]")
    h100 = prices.rent["h100"]
    value = h100.value * chip.peak_of("bf16") / 989e12
    note = f"{chip.name} has no published rent: H100's scaled by dense BF16 peak"
    source = Source(origin="assumed", ref="scaled from h100", note=note, confidence="low")
    return Price(value=value, low=value / 2, high=value * 2, source=source)
