"""Several machines, one run: which is cheaper, how sure, and where the difference comes from."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lightloom.core.cluster import Cluster
from lightloom.core.decision import MoneyFactor, Ranged, Roi, RoiOption
from lightloom.core.errors import InputError
from lightloom.core.lang import _
from lightloom.core.plan import Plan

from .money import Money
from .odds import Desk, Factor, speed_of
from .roi import Basis, Run, lines_of, per_million, price, run_of

OWN_INPUTS = {"rent", "capital", "step_s", "goodput"}
"""Inputs that differ between machines; every other one moves all machines together."""


def roi(
    plans: Sequence[Plan],
    tokens: float,
    money: Money,
    desk: Desk,
    *,
    basis: str = "auto",
    now: Cluster | None = None,
) -> Roi:
    """Return the cost of a run on every machine, the cheapest, and what would settle a doubt."""
    if not plans:
        raise InputError("no machine to price", out="--options dgx-h100,supernode-8192")
    chosen = basis_of(basis, plans, money)
    vendor = now.chip.vendor if now else plans[0].cluster.chip.vendor
    runs = [run_of(p, tokens, money, chosen, vendor, wider(p, plans)) for p in plans]
    options = tuple(price(run) for run in runs)
    code, text = verdict(runs, options, money)
    factors = {}
    for run, option in zip(runs[1:], options[1:], strict=True):
        if not option.missing and not options[0].missing:
            found = desk.factors(run.plan, runs[0].plan.cluster)
            factors[option.cluster] = money_factors(options[0], option, found)
    return Roi(
        model=plans[0].model.name,
        tokens=tokens,
        currency=money.currency,
        options=options,
        code=code,
        text=text,
        factors=factors,
        prices=prices_used(runs, money),
        notes=notes_of(runs, options, chosen, vendor),
    )


def wider(plan: Plan, plans: Sequence[Plan]) -> bool:
    """Return whether another machine has the same chip on a narrower domain."""
    mine = plan.cluster
    return any(
        p.cluster.chip.name == mine.chip.name
        and p.cluster.fabric.domain_cards < mine.fabric.domain_cards
        for p in plans
    )


def basis_of(basis: str, plans: Sequence[Plan], money: Money) -> Basis:
    """Return own where every machine has a capital price, else rent; or what was asked for."""
    if basis == "own" or basis == "rent":
        return "own" if basis == "own" else "rent"
    owned = all(money.capital(plan.cluster.chip) is not None for plan in plans)
    return "own" if owned else "rent"


def prices_used(runs: Sequence[Run], money: Money) -> dict[str, Ranged]:
    """Return every input by the name a user can set."""
    out: dict[str, Ranged] = {}
    for run in runs:
        for name, figure in run.inputs.items():
            if name in ("step_s", "goodput"):
                out[f"{name}.{run.plan.cluster.name}"] = figure
            else:
                out[run.names.get(name, name)] = figure
    return dict(sorted(out.items()))


def verdict(runs: Sequence[Run], options: Sequence[RoiOption], money: Money):  # type: ignore[no-untyped-def]
    """Return (code, text): the cheapest machine, or what is missing to say so."""
    lacking = [name for option in options for name in option.missing]
    if lacking:
        return "not-enough-data", _(
            "not enough data: no price {names}. Give it with --set or --price"
        ).format(names=", ".join(lacking))
    order = sorted(range(len(runs)), key=lambda i: options[i].per_million)
    if len(order) == 1:
        one = options[0]
        return "cheaper", _("{c:.3g} {cur} a million tokens ({lo:.3g} .. {hi:.3g})").format(
            c=one.per_million, cur=money.currency, lo=one.per_million_low, hi=one.per_million_high
        )
    best, second = order[0], order[1]
    gap, low, high, widest = difference(runs[best], runs[second])
    name, other = options[best].cluster, options[second].cluster
    share = gap / options[second].per_million
    if low > 0:
        return "cheaper", _(
            "{a} is cheaper than {b} by {s:.0%} ({lo:.3g} .. {hi:.3g} {cur} a million tokens)"
        ).format(a=name, b=other, s=share, lo=low, hi=high, cur=money.currency)
    kind = "rent" if runs[best].basis == "rent" else "capital"
    shared = runs[best].names[kind] == runs[second].names[kind]
    guessed = [
        runs[i].names["rent"]
        for i in (best, second)
        if kind == "rent"
        and not shared
        and runs[i].inputs["rent"].source.origin == "assumed"
        and runs[i].names["rent"] not in money.said
    ]
    at = None if shared else settle(runs[best], runs[second])
    flip = _("; at {name} = {at:.3g} both cost the same").format(name=at[0], at=at[1]) if at else ""
    if guessed:
        return "not-enough-data", _(
            "not enough data: {a} looks {s:.0%} cheaper than {b}, but"
            " {names} is not published{flip}"
        ).format(a=name, b=other, s=share, names=" and ".join(dict.fromkeys(guessed)), flip=flip)
    return "undecided", _(
        "undecided: {a} looks {s:.0%} cheaper than {b}, within the range of {widest}{flip}"
    ).format(a=name, b=other, s=share, widest=widest, flip=flip)


def difference(a: Run, b: Run) -> tuple[float, float, float, str]:
    """Return (b - a, low, high) in money a million tokens, and the input that widens it most.

    Inputs that both share move together; the ratio of the two steps carries its own range.
    """
    va, vb = ({k: f.value for k, f in run.inputs.items()} for run in (a, b))
    middle = total(b, vb) - total(a, va)
    ends: list[tuple[str, float, float]] = []
    for name in sorted((set(a.inputs) | set(b.inputs)) - {"step_s"}):
        shared = name not in OWN_INPUTS or a.names.get(name, 0) == b.names.get(name, 1)
        figures = (
            [(a.inputs.get(name), b.inputs.get(name))]
            if shared
            else [(a.inputs.get(name), None), (None, b.inputs.get(name))]
        )
        for one, two in figures:
            pair = [
                total(b, moved(vb, name, two, i)) - total(a, moved(va, name, one, i))
                for i in (0, 1)
            ]
            owner = a if one is not None else b
            ends.append((owner.names.get(name, name), min(pair), max(pair)))
    ratio = speed_of(a.plan, b.plan)
    pair = [
        total(b, {**vb, "step_s": vb["step_s"] * ratio.value / end}) - total(a, va)
        for end in (ratio.low, ratio.high)
    ]
    ends.append(("the step times", min(pair), max(pair)))
    down = math.sqrt(sum(max(0.0, middle - low) ** 2 for _n, low, _h in ends))
    up = math.sqrt(sum(max(0.0, high - middle) ** 2 for _n, _l, high in ends))
    widest = max(ends, key=lambda e: e[2] - e[1])[0]
    return middle, middle - down, middle + up, widest


def total(run: Run, v: dict[str, float]) -> float:
    """Return money a million tokens under one set of values."""
    return per_million(run, sum(lines_of(run, v).values()))


def moved(v: dict[str, float], name: str, figure: Ranged | None, end: int) -> dict[str, float]:
    """Return values with one input at its low (0) or high (1) end."""
    return v if figure is None else {**v, name: (figure.low, figure.high)[end]}


def settle(a: Run, b: Run) -> tuple[str, float] | None:
    """Return the price of the cheaper machine at which both cost the same."""
    name = "rent" if a.basis == "rent" else "capital"
    va, vb = ({k: f.value for k, f in run.inputs.items()} for run in (a, b))
    want = total(b, vb)
    base, more = total(a, {**va, name: 0.0}), total(a, va)
    if more <= base:
        return None
    return a.names[name], va[name] * (want - base) / (more - base)


def money_factors(
    first: RoiOption, other: RoiOption, factors: Sequence[Factor]
) -> tuple[MoneyFactor, ...]:
    """Return what each factor of the speed-up saves over the first machine.

    cost = price x time, so the whole saving is shared by logarithms: each factor takes
    ln(factor) / ln(cost ratio) of it, and the price of a card-hour takes the rest.
    """
    saved, ratio = first.cost - other.cost, first.cost / other.cost
    unit = saved / math.log(ratio) if abs(math.log(ratio)) > 1e-9 else first.cost
    out = [
        MoneyFactor(
            name=f.name, speed=f.value, why=f.why, saves=unit * math.log(max(f.value, 1e-9))
        )
        for f in factors
    ]
    speed = math.prod(f.value for f in factors)
    rest = saved - sum(f.saves for f in out)
    said = _("money for the same time: {r:.2f}x").format(r=speed / ratio)
    return (*out, MoneyFactor(name=_("price of the time"), speed=1.0, saves=rest, why=said))


def notes_of(
    runs: Sequence[Run], options: Sequence[RoiOption], basis: Basis, vendor: str
) -> tuple[str, ...]:
    """Return what was taken for granted."""
    out = [
        _("basis: owned machines, idle hours paid")
        if basis == "own"
        else _("basis: rented machines; an owned one needs capital.CHIP prices of all options")
    ]
    if any(run.wider for run in runs):
        out.append(
            _("the same chip on a wider domain is taken to cost fabric_premium more (assumed)")
        )
    out += [
        _("{c}: the chip's power is not published: power, cooling and site are 0").format(
            c=run.plan.cluster.name
        )
        for run in runs
        if not run.plan.prediction.power_w
    ]
    if any(run.moves for run in runs):
        out.append(
            _("migration is charged to this run alone where the vendor is not {v}").format(v=vendor)
        )
    out += [f"{o.cluster}: {runs[i].plan.prediction.trust}" for i, o in enumerate(options)]
    out += [f"{run.plan.cluster.name}: {note}" for run in runs for note in run.plan.cluster.notes]
    return tuple(out)
