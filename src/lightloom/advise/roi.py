"""Cost of one training run: every line a range with its source, and what moves it most.

Cost is a function of named inputs; each input is set to its low and its high end while the others
stay central. The tornado is those swings, the range their sum in quadrature (independent inputs).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from lightloom.core.decision import CostLine, Ranged, RoiOption, Swing
from lightloom.core.errors import InputError
from lightloom.core.plan import Plan
from lightloom.core.source import Source

from .money import Money, source_line

HOURS = 8766.0
"""Hours of a year."""
DERIVED = "derived: planned step x goodput"
Basis = Literal["own", "rent"]


class Run(NamedTuple):
    """One run on one machine and all figures it needs."""

    plan: Plan
    tokens: float
    basis: Basis
    inputs: dict[str, Ranged]
    names: dict[str, str]
    """``rent`` and ``capital`` -> the name of the price that was used."""
    network_included: bool
    moves: bool
    """Another vendor than today's: the code must be migrated."""
    wider: bool = False
    """The same chip on a wider domain than another machine compared: the fabric costs more."""


def run_of(
    plan: Plan, tokens: float, money: Money, basis: Basis, now_vendor: str, wider: bool = False
) -> Run:
    """Return one run with its inputs; prices of the chip are called rent and capital."""
    if tokens <= 0 or not math.isfinite(tokens):
        raise InputError(f"--tokens {tokens:g}: must be above 0", out="--tokens 15T")
    p, chip = plan.prediction, plan.cluster.chip
    inputs = {k: v for k, v in money.figures.items() if "." not in k}
    names = {}
    for what, found in (("rent", money.rent(chip)), ("capital", money.capital(chip))):
        if found is not None:
            names[what], inputs[what] = found
    step = Source(origin="derived", ref=f"the planner's 90 % interval: {p.trust}")
    inputs["step_s"] = Ranged(value=p.step_s, low=p.low_s, high=p.high_s, unit="s", source=step)
    inputs["goodput"] = goodput_range(plan)
    moves = bool(now_vendor) and chip.vendor.lower() != now_vendor.lower()
    return Run(
        plan, tokens, basis, inputs, names, chip.name in money.network_included, moves, wider
    )


def goodput_range(plan: Plan) -> Ranged:
    """Return goodput with the range that the machine's failure rates allow.

    Lost share scales with the square root of the failure rate (Young 1974: the best interval).
    """
    good = plan.prediction.goodput
    fail = plan.cluster.failures
    lost = 1.0 - good
    worst = min(0.95, lost * math.sqrt(fail.card_hours / fail.low))
    best = lost * math.sqrt(fail.card_hours / fail.high)
    hours = f"{fail.low:,.0f} to {fail.high:,.0f} card-hours between failures"
    source = Source(origin="derived", ref=f"Young 1974; {hours} (the machine's file)")
    return Ranged(
        value=good, low=1.0 - worst, high=1.0 - min(best, lost), unit="share", source=source
    )


def times(run: Run, v: Mapping[str, float]) -> tuple[float, float, float]:
    """Return (hours that train, wall hours, kW of the cards and hosts without the site)."""
    hours = run.tokens / run.plan.strategy.tokens * v["step_s"] / 3600.0
    kw = run.plan.prediction.power_w / run.plan.cluster.pue / 1000.0
    return hours, hours / v["goodput"], kw


def lines_of(run: Run, v: Mapping[str, float]) -> dict[str, float]:
    """Return money by line under one set of values."""
    hours, wall, kw = times(run, v)
    out = (own_lines if run.basis == "own" else rent_lines)(run, v, hours, kw)
    running = sum(out.values())
    out["goodput"] = running * (wall / hours - 1.0)
    if run.basis == "own":
        fixed = running - out["power"] - out["cooling"]
        out["set-up"] = fixed * v["setup_days"] / (365.25 * v["life_years"])
    else:
        out["set-up"] = v["rent"] * run.plan.cards * 24.0 * v["rent_setup_days"]
    out["migration"] = v["migration_months"] * v["salary_year"] / 12.0 if run.moves else 0.0
    return out


def own_lines(run: Run, v: Mapping[str, float], hours: float, kw: float) -> dict[str, float]:
    """Return lines of an owned machine for the hours that train; idle hours are paid as well."""
    cards, share, left = run.plan.cards, v["network_share"], v["residual_share"]
    paid = hours / HOURS / v["utilisation"]
    capital = v["capital"] * cards
    network = 0.0 if run.network_included else capital * share / (1.0 - share)
    network += capital * v["fabric_premium"] * run.wider
    months = paid * 12.0
    building = v["colocation_kw_month"] * v["building_share"]
    return {
        "hardware": capital * (1.0 - left) / v["life_years"] * paid,
        "network": network * (1.0 - left) / v["life_years"] * paid,
        "financing": (capital + network) * v["interest"] * (1.0 + left) / 2.0 * paid,
        "power": kw * hours * v["electricity_kwh"],
        "cooling": kw * hours * (v["pue"] - 1.0) * v["electricity_kwh"],
        "site": kw * months * building,
        "staff": people(run, v) * v["salary_year"] * paid,
    }


def rent_lines(run: Run, v: Mapping[str, float], hours: float, kw: float) -> dict[str, float]:
    """Return lines of a rented machine for the hours that train."""
    return {
        "rent": v["rent"] * (1.0 + v["fabric_premium"] * run.wider) * run.plan.cards * hours,
        "staff": people(run, v) * v["salary_year"] * hours / HOURS,
    }


def people(run: Run, v: Mapping[str, float]) -> float:
    """Return people who run the machine: a rota at least, then by cards."""
    return max(v["staff_least"], v["staff_per_1000"] * run.plan.cards / 1000.0)


NEEDS: dict[str, tuple[str, ...]] = {
    "hardware": ("capital", "residual_share", "life_years", "utilisation", "step_s"),
    "network": (
        "network_share",
        "fabric_premium",
        "capital",
        "residual_share",
        "life_years",
        "utilisation",
    ),
    "financing": ("interest", "capital", "residual_share", "utilisation"),
    "power": ("electricity_kwh", "step_s"),
    "cooling": ("pue", "electricity_kwh"),
    "site": ("colocation_kw_month", "building_share", "utilisation"),
    "staff": ("staff_per_1000", "staff_least", "salary_year"),
    "rent": ("rent", "fabric_premium", "step_s"),
    "goodput": ("goodput",),
    "set-up": ("setup_days", "rent_setup_days"),
    "migration": ("migration_months", "salary_year"),
}
"""Line -> inputs it is made of."""
HOW = {
    "hardware": "capital x (1 - residual) / life x years / utilisation",
    "network": "share of total capital; 0 where the capital price holds the fabric",
    "financing": "interest x mean of value and residual x years / utilisation",
    "power": "kW of cards and hosts x hours x tariff",
    "cooling": "(PUE - 1) x power: cooling and losses of the site",
    "site": "the part of a colocation price that is not energy: space, distribution",
    "staff": "people x salary x time",
    "rent": "cards x hours x rent; hardware, network, power, cooling, site, financing inside",
    "goodput": "everything above again for the time lost to failures",
    "set-up": "bring-up and first clean run",
    "migration": "person-months to another vendor's stack; 0 on the same",
}


def price(run: Run) -> RoiOption:
    """Return the cost of one run; an option without a price says what is missing."""
    p, cluster = run.plan.prediction, run.plan.cluster
    centre = {name: figure.value for name, figure in run.inputs.items()}
    _, wall, kw = times(run, centre)
    missing = missing_of(run)
    lines, tornado = ([], []) if missing else (cost_lines(run, centre), swings(run, centre))
    cost = sum(line.value for line in lines)
    down, up = spread_of([(s.at_low, s.at_high) for s in tornado], per_million(run, cost))
    even, why = break_even(run, centre)
    return RoiOption(
        cluster=cluster.name,
        title=cluster.title,
        cards=run.plan.cards,
        basis=run.basis,
        step_s=p.step_s,
        goodput=p.goodput,
        seconds=wall * 3600.0,
        card_hours=wall * run.plan.cards,
        energy_kwh=kw * wall * centre["pue"],
        lines=tuple(lines),
        cost=cost,
        per_million=per_million(run, cost),
        per_million_low=down,
        per_million_high=up,
        low=down * run.tokens / 1e6,
        high=up * run.tokens / 1e6,
        tornado=tuple(tornado),
        break_even=even,
        break_even_why=why,
        missing=missing,
    )


def missing_of(run: Run) -> tuple[str, ...]:
    """Return prices without which this run has no cost."""
    need = "capital" if run.basis == "own" else "rent"
    return () if need in run.inputs else (f"{need}.{run.plan.cluster.chip.name}",)


def per_million(run: Run, cost: float) -> float:
    """Return money for a million tokens."""
    return cost / run.tokens * 1e6


def cost_lines(run: Run, centre: Mapping[str, float]) -> list[CostLine]:
    """Return every line with its range and the sources of what it is made of."""
    middle = lines_of(run, centre)
    out = []
    for name, value in middle.items():
        ends = []
        for need in NEEDS[name]:
            if need in run.inputs:
                figure = run.inputs[need]
                ends.append(
                    tuple(
                        lines_of(run, {**centre, need: end})[name]
                        for end in (figure.low, figure.high)
                    )
                )
        low, high = spread_of(ends, value)
        sources = tuple(
            f"{run.names.get(n, n)} {source_line(run.inputs[n])}"
            for n in NEEDS[name]
            if n in run.inputs and n != "step_s"
        )
        out.append(
            CostLine(
                name=name,
                value=value,
                low=low,
                high=high,
                how=HOW[name],
                sources=sources or (DERIVED,),
            )
        )
    return out


def spread_of(ends: list[tuple[float, ...]], middle: float) -> tuple[float, float]:
    """Return (low, high) of independent swings in quadrature; low is never below 0."""
    down = math.sqrt(sum(max(0.0, middle - min(e)) ** 2 for e in ends))
    up = math.sqrt(sum(max(0.0, max(e) - middle) ** 2 for e in ends))
    return max(0.0, middle - down), middle + up


def swings(run: Run, centre: Mapping[str, float]) -> list[Swing]:
    """Return what each input does to the cost of a million tokens, widest first."""
    out = []
    for name, figure in run.inputs.items():
        ends = [
            per_million(run, sum(lines_of(run, {**centre, name: end}).values()))
            for end in (figure.low, figure.high)
        ]
        if abs(ends[1] - ends[0]) > 1e-12:
            out.append(
                Swing(
                    name=run.names.get(name, name),
                    at_low=ends[0],
                    at_high=ends[1],
                    low=figure.low,
                    high=figure.high,
                    value=figure.value,
                    unit=figure.unit,
                    source=source_line(figure),
                )
            )
    return sorted(out, key=lambda s: -s.width)


def break_even(run: Run, v: Mapping[str, float]) -> tuple[float | None, str]:
    """Return the utilisation at which owning a card-hour costs what renting one does, and why.

    fixed / u + variable = rent, so u = fixed / (rent - variable).
    """
    lacking = [n for n in ("capital", "rent") if n not in v]
    if lacking:
        chip = run.plan.cluster.chip.name
        return None, f"not enough data: no {lacking[0]}.{chip} price"
    rented, owned = run.inputs["rent"], run.inputs["capital"]
    ends = [
        _even(run, {**v, "rent": r, "capital": c})
        for r, c in (
            (rented.high, owned.low),
            (rented.value, owned.value),
            (rented.low, owned.high),
        )
    ]
    words = " .. ".join("never" if e is None else f"{e:.0%}" for e in (ends[0], ends[2]))
    rent = f"{run.names['rent']} {source_line(run.inputs['rent'])}"
    if ends[1] is None:
        return None, f"renting is always cheaper at the central prices (range {words}); {rent}"
    return ends[1], f"range {words} with {rent}"


def _even(run: Run, v: Mapping[str, float]) -> float | None:
    hours, _, kw = times(run, v)
    owned = own_lines(run, {**v, "utilisation": 1.0}, hours, kw)
    hourly = {k: x / hours / run.plan.cards for k, x in owned.items() if k != "staff"}
    variable = hourly["power"] + hourly["cooling"]
    fixed = sum(hourly.values()) - variable
    if v["rent"] <= variable or fixed > v["rent"] - variable:
        return None
    return fixed / (v["rent"] - variable)
