"""Prices and assumptions of a decision: shipped, overridden by a file or on the command line.

Every figure carries a range and a source. A user's file must name its currency, and each of its
figures a source; figures it leaves out come from the shipped ones, converted at its own rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from lightloom.core.chip import Chip
from lightloom.core.decision import Ranged
from lightloom.core.errors import InputError, nearest
from lightloom.core.files import CATALOG, read_bytes, read_toml
from lightloom.core.prices import Price, Prices, load_prices, rent_of
from lightloom.core.source import Source
from lightloom.core.units import parse_count

SINGLE = {
    "electricity_kwh": "money/kWh",
    "colocation_kw_month": "money/kW/month",
    "network_share": "share",
    "residual_share": "share",
    "pue": "ratio",
}
"""Shipped prices that are one figure, with unit."""
MONEY = {"electricity_kwh", "colocation_kw_month", "salary_year"}
"""Figures counted in currency, beside rent.* and capital.*."""
SHARES = {"network_share", "residual_share", "utilisation", "building_share"}
"""Figures that must lie between 0 and 1."""
POSITIVE = {"utilisation", "life_years", "pue"}
"""Figures that divide, so they must be above 0."""


class _Assumptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shipped assumptions file."""

    version: int = 1
    title: str
    currency: str
    network_included: tuple[str, ...]
    figures: dict[str, Ranged]


class Money(NamedTuple):
    """All figures of a decision."""

    currency: str
    figures: dict[str, Ranged]
    """By name; rent and capital of a chip as ``rent.h100``."""
    network_included: tuple[str, ...]
    said: frozenset[str]
    """Names that the user gave."""

    def value(self, name: str) -> float:
        """Return the central value of a figure."""
        return self.figures[name].value

    def rent(self, chip: Chip) -> tuple[str, Ranged] | None:
        """Return (name, rent of one rank-hour), scaled from another chip where none is known."""
        return self._of("rent", chip)

    def capital(self, chip: Chip) -> tuple[str, Ranged] | None:
        """Return (name, capital of one rank), None where nobody published one."""
        return self._of("capital", chip)

    def _of(self, what: str, chip: Chip) -> tuple[str, Ranged] | None:
        names = [k for k in self.figures if k.startswith(f"{what}.")]
        exact = f"{what}.{chip.name}"
        if exact in names:
            return exact, self.figures[exact]
        known = [n for n in names if chip.name.startswith(n.partition(".")[2] + "-")]
        if known:
            best = max(known, key=len)
            return best, self.figures[best]
        if what == "rent" and "rent.h100" in names:
            shipped = self.figures["rent.h100"]
            base = Price(
                value=shipped.value, low=shipped.low, high=shipped.high, source=shipped.source
            )
            price = rent_of(_prices_with(base), chip)
            return exact, ranged(price, "money/card-hour")
        return None


def _prices_with(h100: Price) -> Prices:
    return msgspec.structs.replace(load_prices(), rent={"h100": h100})


def ranged(price: Price, unit: str) -> Ranged:
    """Return a price as a figure with unit."""
    return Ranged(value=price.value, low=price.low, high=price.high, unit=unit, source=price.source)


def shipped() -> Money:
    """Return the figures of the catalogue, in US dollars."""
    prices = load_prices()
    path = CATALOG / "decide" / "assumptions.toml"
    assumed = read_toml(path, _Assumptions, "assumptions")
    figures = {name: ranged(getattr(prices, name), unit) for name, unit in SINGLE.items()}
    figures |= assumed.figures
    figures |= {f"rent.{k}": ranged(v, "money/card-hour") for k, v in prices.rent.items()}
    figures |= {f"capital.{k}": ranged(v, "money/card") for k, v in prices.capital.items()}
    return Money(assumed.currency, figures, assumed.network_included, frozenset())


def load_money(path: str | None = None, settings: tuple[str, ...] = ()) -> Money:
    """Return all figures: shipped, then the user's file, then ``NAME=VALUE`` settings."""
    money = with_file(shipped(), path) if path else shipped()
    for text in settings:
        money = with_setting(money, text)
    return money


def with_file(money: Money, path: str) -> Money:
    """Return the figures with those of a TOML file in their place."""
    try:
        data = msgspec.toml.decode(read_bytes(path, "prices"))
    except msgspec.DecodeError as error:
        raise InputError(f"prices {path}: {error}") from error
    currency = data.pop("currency", None)
    if not isinstance(currency, str) or not currency.strip():
        raise InputError(f"prices {path}: no currency", out='currency = "USD" on a line of its own')
    said = {name: _figure(path, name, value, money) for name, value in _flat(data).items()}
    rate = said.pop("usd", None)
    figures = dict(money.figures)
    if currency.upper() != money.currency:
        figures = _converted(path, currency, money, set(said), rate)
    for name, value in said.items():
        check_range(f"prices {path}: {name}", name, value)
        figures[name] = value
    return Money(currency.upper(), figures, money.network_included, money.said | set(said))


def _flat(data: dict[str, Any]) -> dict[str, Any]:
    """Return figures by dotted name; version and title are left out."""
    out: dict[str, Any] = {}
    for name, value in data.items():
        if name in ("rent", "capital") and isinstance(value, dict) and "value" not in value:
            out |= {f"{name}.{chip}": figure for chip, figure in value.items()}
        elif name not in ("version", "title"):
            out[name] = value
    return out


def _figure(path: str, name: str, value: Any, money: Money) -> Ranged:
    where = f"prices {path}: {name}"
    known = [*money.figures, "usd"]
    if name not in known and name.partition(".")[0] not in ("rent", "capital"):
        raise InputError(
            f"{where}: unknown figure{nearest(name, known)}",
            out=f"known: {', '.join(sorted(known))}, rent.CHIP",
        )
    if not isinstance(value, dict) or "value" not in value:
        raise InputError(
            f"{where}: not a table with value and source",
            out=f'[{name}]  value = 1.0  source = "invoice of 2026-11"',
        )
    source = value.get("source")
    if isinstance(source, str) and source.strip():
        source = {"origin": "published", "ref": source}
    if not isinstance(source, dict) or not (source.get("ref") or source.get("note")):
        raise InputError(
            f"{where}: no source for this figure",
            out='source = "where it comes from"; no figure goes without',
        )
    middle = value["value"]
    try:
        return msgspec.convert(
            {
                "value": middle,
                "low": value.get("low", middle),
                "high": value.get("high", middle),
                "unit": value.get("unit", unit_of(name, money)),
                "source": {"origin": "published", **source},
            },
            Ranged,
        )
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}") from error


def unit_of(name: str, money: Money) -> str:
    """Return the unit of a figure by name."""
    head = name.partition(".")[0]
    words = {"rent": "money/card-hour", "capital": "money/card", "usd": "currency per US dollar"}
    return words.get(head) or money.figures[name].unit


def _converted(
    path: str, currency: str, money: Money, said: set[str], rate: Ranged | None
) -> dict[str, Ranged]:
    """Return the shipped figures in another currency, or say what is missing."""
    dollars = {n for n in money.figures if is_money(n)} - said
    if rate is None:
        keep = {n: v for n, v in money.figures.items() if not is_money(n)}
        missing = sorted(n for n in dollars if n in MONEY)
        if missing:
            raise InputError(
                f"prices {path}: {currency} has no figure for {', '.join(missing)}, and no rate "
                "for the shipped US dollars",
                out='add them, or [usd] value = 7.1 source = "rate of the day"',
            )
        return keep
    out = dict(money.figures)
    for name in dollars:
        old = out[name]
        note = f"converted at {rate.value:g} {currency} per US dollar ({rate.source.ref})"
        source = msgspec.structs.replace(old.source, note=f"{old.source.note}; {note}".strip("; "))
        out[name] = Ranged(
            value=old.value * rate.value,
            low=old.low * rate.low,
            high=old.high * rate.high,
            unit=old.unit,
            source=source,
        )
    return out


def is_money(name: str) -> bool:
    """Return whether a figure is counted in currency."""
    return name in MONEY or name.partition(".")[0] in ("rent", "capital")


def check_range(where: str, name: str, value: Ranged) -> None:
    """Raise InputError where a figure makes no sense."""
    low, middle, high = numbers = (value.low, value.value, value.high)
    if not all(math.isfinite(n) for n in numbers) or not 0 <= low <= middle <= high:
        raise InputError(f"{where}: 0 <= low <= value <= high does not hold: {numbers}")
    if name == "pue" and low < 1:
        raise InputError(f"{where}: PUE is site power over machine power, never below 1")
    if name in SHARES and value.high > 1:
        raise InputError(f"{where}: a share lies between 0 and 1, not {value.high:g}")
    if name in POSITIVE and value.low <= 0:
        raise InputError(f"{where}: must be above 0, not {value.low:g}")


def with_setting(money: Money, text: str) -> Money:
    """Return the figures with one set as ``electricity_kwh=0.08`` or ``pue=1.1..1.3``."""
    name, mark, value = (part.strip() for part in text.partition("="))
    if not mark or not value:
        raise InputError(f"--set {text!r}: not NAME=VALUE", out="--set electricity_kwh=0.05..0.12")
    known = name in money.figures or name.partition(".")[0] in ("rent", "capital")
    if not known:
        raise InputError(
            f"--set {name}: unknown figure{nearest(name, money.figures)}",
            out=f"known: {', '.join(sorted(money.figures))}",
        )
    ends = [parse_count(v, f"--set {name}") for v in value.split("..")]
    if len(ends) > 2:
        raise InputError(f"--set {text!r}: one value, or LOW..HIGH")
    source = Source(origin="assumed", ref="said on the command line", confidence="high")
    figure = Ranged(
        value=sum(ends) / len(ends),
        low=ends[0],
        high=ends[-1],
        unit=unit_of(name, money),
        source=source,
    )
    check_range(f"--set {name}", name, figure)
    return Money(
        money.currency, {**money.figures, name: figure}, money.network_included, money.said | {name}
    )


def check_chips(settings: tuple[str, ...], chips: Iterable[Chip]) -> None:
    """Raise InputError where a rent or capital is set for a chip that none of `chips` is.

    ``rent.h100`` is always of use: rents that nobody published are scaled from it.
    """
    names = sorted({chip.name for chip in chips})
    for text in settings:
        what, mark, chip = text.partition("=")[0].strip().partition(".")
        fits = any(n == chip or n.startswith(f"{chip}-") for n in names)
        if what in ("rent", "capital") and mark and not fits and (what, chip) != ("rent", "h100"):
            raise InputError(
                f"--set {what}.{chip}: no machine here has that chip",
                out=", ".join(f"{what}.{n}" for n in names),
            )


def source_line(figure: Ranged) -> str:
    """Return where a figure comes from in one line."""
    s = figure.source
    return f"{s.origin}: {s.ref}" if s.ref else f"{s.origin}: {s.note}"
