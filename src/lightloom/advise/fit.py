"""Supernode or not, for training: speed for the money, and the figure that would flip it.

Work for the money = speed ratio over price ratio of a card-hour, at the same number of cards. The
verdict stands on that range; growth, a profile, utilisation, budget, staff and ecosystem can each
move it, and each says by how much.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from lightloom.core.advice import Advice
from lightloom.core.catalog import load_cluster
from lightloom.core.cluster import Cluster
from lightloom.core.decision import Fit, FitOption, Flip, GrowthYear, Reason, VerdictCode
from lightloom.core.errors import InfeasibleError, InputError
from lightloom.core.hf_size import model_of_size
from lightloom.core.lang import _
from lightloom.core.model import Model
from lightloom.core.plan import Plan
from lightloom.core.units import parse_count, parse_time
from lightloom.cost.flops import parameters_of

from .fit_rules import rules_of
from .money import Money, source_line
from .odds import Desk, Ratio, speed_of

LOW_USE = 0.20
"""Utilisation that the articles call the sign of a purchase that failed."""
ONLY = 1e9
"""Speed ratio where only the candidate can hold the model."""
YEAR_S = 31557600.0
CHANGE = re.compile(r"\b([a-z0-9][\w-]*):([\w.]+=[^\s;,]+)")
"""A change inside a note of a cluster's file: ``supernode-8192:board.link=853.33Gb/s``."""


class Situation(NamedTuple):
    """What the user says of the site; None or empty means not said."""

    growth: float | None = None
    """Times a year that the model grows."""
    advice: Advice | None = None
    budget: float | None = None
    """Money a year."""
    staff: float | None = None
    """People who run the machine."""
    utilisation: float | None = None
    adapted: bool | None = None
    """The framework is adapted to the candidate."""
    aware: bool | None = None
    """The collective library knows the topology."""
    automatic: bool | None = None
    """Recovery runs without a person."""


def parse_growth(text: str) -> float:
    """Return growth a year from ``3x/year``, ``1.5x/6mo`` or ``2x/quarter``."""
    factor, mark, period = text.strip().lower().partition("/")
    month = YEAR_S / 12
    words = {"year": YEAR_S, "y": YEAR_S, "month": month, "mo": month, "quarter": 3 * month}
    words |= {f"{name}s": seconds for name, seconds in words.items()}
    number = period.rstrip("abcdefghijklmnopqrstuvwxyz").strip() or "1"
    unit = period.removeprefix(number).strip() or "year"
    if not factor.endswith("x") or not mark:
        raise InputError(f"--growth {text!r}: not a growth", out="--growth 3x/year")
    times = parse_count(factor[:-1], "--growth")
    if unit not in words:
        parse_time(f"{number} {unit}", "--growth")
        raise InputError(f"--growth {text!r}: the period is year, quarter or month")
    seconds = parse_count(number, "--growth") * words[unit]
    if times <= 0 or seconds <= 0:
        raise InputError(f"--growth {text!r}: must be above 0", out="--growth 3x/year")
    return float(times ** (YEAR_S / seconds))


def fit(
    model: Model,
    now: Cluster,
    candidates: Sequence[Cluster],
    money: Money,
    desk: Desk,
    said: Situation,
) -> Fit:
    """Return whether any candidate is worth it for training this model."""
    if not candidates:
        raise InputError("no candidate", out="--candidates supernode-8192")
    here = planned(desk, model, restarted(now, money, said))
    options = []
    for machine in candidates:
        there = planned(desk, model, restarted(machine, money, said))
        options.append(option_of(here, there, now, machine, money, desk, said))
    options.sort(key=lambda o: -o.value)
    best = options[0]
    years = growth_of(model, now, candidates, desk, said)
    cards = max(here.cards if here else 0, *(o.cards for o in options))
    if not cards:
        raise InfeasibleError(
            f"{model.name} fits on none of these machines", out="more --cards, or another machine"
        )
    code, text = verdict_of(best, now, said, years)
    return Fit(
        workload=model.name,
        task="train",
        now=now.name,
        cards=cards,
        options=tuple(options),
        code=code,
        text=text,
        reasons=reasons_of(here, best, now, candidates, money, said, years),
        flips=(*flips_of(best, said, years), *reading_flips(here, best, model, candidates, desk)),
        growth=years,
        rules=rules_of(model, here, best, said.advice, said.utilisation),
        notes=notes_of(options),
    )


def planned(desk: Desk, model: Model, machine: Cluster) -> Plan | None:
    """Return the best plan, None where nothing fits."""
    try:
        return desk.plan(model, machine)
    except InfeasibleError:
        return None


def restarted(machine: Cluster, money: Money, said: Situation) -> Cluster:
    """Return the machine with a person's restart time where recovery is not automatic."""
    if said.automatic is not False:
        return machine
    slow = max(machine.failures.restart_s, money.value("manual_restart_s"))
    failures = msgspec.structs.replace(machine.failures, restart_s=slow)
    return msgspec.structs.replace(machine, failures=failures)


def option_of(
    here: Plan | None,
    there: Plan | None,
    now: Cluster,
    machine: Cluster,
    money: Money,
    desk: Desk,
    said: Situation,
) -> FitOption:
    """Return one candidate beside today's machine."""
    price, source = price_ratio(now, machine, money)
    factors: dict[str, float] = {}
    if there is None:
        speed, wall = Ratio(0.0, 0.0, 0.0), _("does not fit")
    elif here is None:
        speed, wall = Ratio(ONLY, ONLY, ONLY), there.prediction.wall
    else:
        factors = {f.name: f.value for f in desk.factors(there, here.cluster)}
        speed, factors = capped(speed_of(here, there), factors, said.advice)
        wall = there.prediction.wall
    made = judged(machine, there.cards if there else 0, speed, price, source)
    p = there.prediction if there else None
    return msgspec.structs.replace(
        made,
        step_s=p.step_s if p else 0.0,
        exposed_comm=p.exposed_comm if p else 0.0,
        goodput=p.goodput if p else 0.0,
        wall=wall,
        factors=factors,
    )


def judged(machine: Cluster, cards: int, speed: Ratio, price: Ratio, source: str) -> FitOption:
    """Return a candidate with its verdict: work for the money is speed over price."""
    value = Ratio(speed.value / price.value, *both(speed, price))
    code = code_of(value, source)
    return FitOption(
        cluster=machine.name,
        title=machine.title,
        cards=cards,
        speed=speed.value,
        speed_low=speed.low,
        speed_high=speed.high,
        price=price.value,
        price_low=price.low,
        price_high=price.high,
        price_source=source,
        value=value.value,
        value_low=value.low,
        value_high=value.high,
        pays_up_to=speed.value,
        code=code,
        why=why_option(code, speed, price),
    )


def both(speed: Ratio, price: Ratio) -> tuple[float, float]:
    """Return (low, high) of speed over price, independent, in quadrature of logarithms."""
    if speed.value <= 0:
        return 0.0, 0.0
    middle = speed.value / price.value
    down = math.hypot(math.log(speed.value / speed.low), math.log(price.high / price.value))
    up = math.hypot(math.log(speed.high / speed.value), math.log(price.value / price.low))
    return middle * math.exp(-down), middle * math.exp(up)


def price_ratio(now: Cluster, machine: Cluster, money: Money) -> tuple[Ratio, str]:
    """Return the price of a card-hour, candidate over now, and where it comes from."""
    mine, theirs = money.rent(now.chip), money.rent(machine.chip)
    premium = money.figures["fabric_premium"]
    if now.chip.name == machine.chip.name:
        wider = machine.fabric.domain_cards > now.fabric.domain_cards
        narrower = machine.fabric.domain_cards < now.fabric.domain_cards
        if not wider and not narrower:
            return Ratio(1.0, 1.0, 1.0), "derived: same chip, same domain"
        up = Ratio(1 + premium.value, 1 + premium.low, 1 + premium.high)
        down = Ratio(1 / up.value, 1 / up.high, 1 / up.low)
        return (up if wider else down), f"fabric_premium {source_line(premium)}"
    if mine is None or theirs is None or not mine[1].low:
        raise InputError(
            f"no price of a card-hour for {now.chip.name if mine is None else machine.chip.name}",
            out=f"--set rent.{machine.chip.name}=2.5",
        )
    a, b = mine[1], theirs[1]
    spread = math.hypot(*(math.log(x.high / x.value) for x in (a, b)))
    drop = math.hypot(*(math.log(x.value / x.low) for x in (a, b)))
    value = b.value / a.value
    source = f"{theirs[0]} {source_line(b)}; {mine[0]} {source_line(a)}"
    return Ratio(value, value * math.exp(-drop), value * math.exp(spread)), source


def capped(
    speed: Ratio, factors: dict[str, float], advice: Advice | None
) -> tuple[Ratio, dict[str, float]]:
    """Return the speed with the fabric's part limited to what the profile can gain.

    An infinitely fast fabric saves a share s of the measured step, so no fabric gives more than
    1 / (1 - s), whatever the communication share.
    """
    gain = fabric_limit(advice)
    names = [n for n in factors if n not in ("chip", "recovery")]
    fabric = math.prod(factors[n] for n in names)
    if gain is None or fabric <= gain:
        return speed, factors
    cut = gain / fabric
    kept = {n: v for n, v in factors.items() if n not in names}
    return Ratio(*(x * cut for x in speed)), {**kept, "fabric, limited by the profile": gain}


def fabric_limit(advice: Advice | None) -> float | None:
    """Return the most that any fabric can give, from the profile's what-if; None: not known."""
    found = (
        next((w for w in advice.what_ifs if w.change == "bandwidth=inf"), None)
        if (advice)
        else None
    )
    if found is None:
        return None
    saved = found.high if found.saved is None else found.saved
    return 1.0 / max(1e-6, 1.0 - min(max(saved, 0.0), 1.0))


def code_of(value: Ratio, source: str) -> VerdictCode:
    """Return the verdict of one ratio of work for the money."""
    if value.low > 1.0:
        return "move"
    if value.high < 1.0:
        return "stay"
    if "assumed: scaled" in source:
        return "not-enough-data"
    return "lean-move" if value.value > 1.0 else "lean-stay"


def why_option(code: VerdictCode, speed: Ratio, price: Ratio) -> str:
    """Return one line on a candidate."""
    if speed.value == 0.0:
        return _("the job does not fit")
    if speed.value == ONLY:
        return _("only this machine holds the job")
    base = _("{s:.2f}x the work of a card-hour at {p:.2f}x its price").format(
        s=speed.value, p=price.value
    )
    if code == "not-enough-data":
        return base + _("; the price is a guess: pays up to {s:.2f}x").format(s=speed.value)
    return base


def scaled(model: Model, times: float) -> Model:
    """Return the model grown in parameters: more experts where it has some, else wider and deeper.

    Experts are multiplied by the nearest whole number; what one token passes stays as it is.
    """
    total = parameters_of(model).total
    if not model.is_moe:
        return model_of_size(f"{total * times / 1e9:.4g}B")
    more = max(1, round(times))
    blocks = tuple(
        msgspec.structs.replace(b, mlp=msgspec.structs.replace(b.mlp, experts=b.mlp.experts * more))
        if b.mlp.is_moe
        else b
        for b in model.blocks
    )
    return msgspec.structs.replace(model, blocks=blocks, name=f"{model.name} x{more} experts")


def growth_of(
    model: Model, now: Cluster, candidates: Sequence[Cluster], desk: Desk, said: Situation
) -> tuple[GrowthYear, ...]:
    """Return the speeds when the model has grown for one, two and three years."""
    if said.growth is None:
        return ()
    out = []
    for year in (0.0, 1.0, 2.0, 3.0):
        grown = scaled(model, said.growth**year) if year else model
        here = planned(desk, grown, now)
        speeds = {}
        for machine in candidates:
            there = planned(desk, grown, machine)
            speeds[machine.name] = (
                0.0 if there is None else (ONLY if here is None else speed_of(here, there).value)
            )
        out.append(
            GrowthYear(year=year, parameters=float(parameters_of(grown).total), speed=speeds)
        )
    return tuple(out)


def verdict_of(
    best: FitOption, now: Cluster, said: Situation, years: Sequence[GrowthYear]
) -> tuple[VerdictCode, str]:
    """Return the verdict in one sentence."""
    code, limit = best.code, fabric_limit(said.advice)
    growing = turn_year(best, years)
    if said.utilisation is not None and said.utilisation < LOW_USE and best.speed < ONLY:
        return "stay", _("stay on {now}: {u:.0%} of it is used; fill it before buying {c}").format(
            now=now.name, u=said.utilisation, c=best.cluster
        )
    texts = {
        "move": _("move to {c}: {v:.2f}x the work for the money ({lo:.2f} .. {hi:.2f})"),
        "lean-move": _(
            "{c} looks better, not surely: {v:.2f}x the work for the money ({lo:.2f} .. {hi:.2f})"
        ),
        "lean-stay": _(
            "{now} looks better, not surely: {c} gives {v:.2f}x the work for the money"
            " ({lo:.2f} .. {hi:.2f})"
        ),
        "stay": _(
            "stay on {now}: {c} gives {v:.2f}x the work for the money ({lo:.2f} .. {hi:.2f})"
        ),
        "not-enough-data": _(
            "not enough data: no published price; {c} pays while its card-hour"
            " costs at most {s:.2f}x that of {now}"
        ),
    }
    if best.speed == ONLY:
        return "move", _("move to {c}: the job does not fit on {now}").format(
            c=best.cluster, now=now.name
        )
    text = texts[code].format(
        c=best.cluster,
        now=now.name,
        v=best.value,
        lo=best.value_low,
        hi=best.value_high,
        s=best.speed,
    )
    if limit is not None and limit < 1.05:
        text += _("; the profile gains at most {g:.1%} from any fabric").format(g=limit - 1)
    if growing is not None and code not in ("move",):
        text += _("; with this growth it turns in year {y:.0f}").format(y=growing)
    return code, text


def turn_year(best: FitOption, years: Sequence[GrowthYear]) -> float | None:
    """Return the first year in which the candidate is worth its price."""
    found = [y.year for y in years if y.year and y.speed.get(best.cluster, 0.0) > best.price]
    return found[0] if found else None


def reasons_of(
    here: Plan | None,
    best: FitOption,
    now: Cluster,
    candidates: Sequence[Cluster],
    money: Money,
    said: Situation,
    years: Sequence[GrowthYear],
) -> tuple[Reason, ...]:
    """Return the reasons, those of the machine first."""
    from .fit_reasons import about_machine, about_site

    machine = next(c for c in candidates if c.name == best.cluster)
    return (
        *about_machine(here, best, now, machine),
        *about_site(best, now, machine, money, said, years),
    )


def flips_of(best: FitOption, said: Situation, years: Sequence[GrowthYear]) -> tuple[Flip, ...]:
    """Return the figures at which the verdict changes, the nearest first."""
    if best.speed in (0.0, ONLY):
        return ()
    out = [
        Flip(
            figure="price of a card-hour over now",
            now=best.price,
            at=best.speed,
            unit="x",
            text=_("{c} pays below {s:.2f}x, not above (range {lo:.2f} .. {hi:.2f})").format(
                c=best.cluster, s=best.speed, lo=best.speed_low, hi=best.speed_high
            ),
        ),
        Flip(
            figure="speed over now",
            now=best.speed,
            at=best.price,
            unit="x",
            text=_("{c} pays above {p:.2f}x").format(c=best.cluster, p=best.price),
        ),
    ]
    limit = fabric_limit(said.advice)
    if limit is not None:
        need = max(0.0, 1.0 - 1.0 / best.price) if best.price > 1 else 0.0
        out.append(
            Flip(
                figure="transfer-bound share of the step",
                now=1.0 - 1.0 / limit,
                at=need,
                unit="share",
                text=_("a fabric alone pays from {n:.0%} of the step").format(n=need),
            )
        )
    if said.utilisation is not None:
        out.append(
            Flip(
                figure="utilisation",
                now=said.utilisation,
                at=LOW_USE,
                unit="share",
                text=_("below {u:.0%} nothing new is worth buying (article 2)").format(u=LOW_USE),
            )
        )
    if years:
        turn = turn_year(best, years)
        out.append(
            Flip(
                figure="year of growth",
                now=0.0,
                at=turn,
                unit="years",
                text=_("pays from year {t:.0f}").format(t=turn)
                if turn is not None
                else _("no year up to 3 changes it"),
            )
        )
    return tuple(out)


def reading_flips(
    here: Plan | None, best: FitOption, model: Model, candidates: Sequence[Cluster], desk: Desk
) -> tuple[Flip, ...]:
    """Return the work for the money if an ambiguous figure of the machine is read otherwise."""
    machine = next(c for c in candidates if c.name == best.cluster)
    out = []
    for name, change in CHANGE.findall(" ".join(machine.notes)):
        if here is None or name != machine.name:
            continue
        there = planned(desk, model, load_cluster(f"{name}:{change}"))
        if there is None:
            continue
        value = speed_of(here, there).value / best.price
        turns = (value > 1) != (best.value > 1)
        word = _("the answer turns") if turns else _("the answer stays")
        text = _("read as {c}: {v:.2f}x the work for the money; {w}").format(
            c=change, v=value, w=word
        )
        out.append(Flip(figure=_("reading of the machine"), now=best.value, at=value, text=text))
    return tuple(out)


def notes_of(options: Sequence[FitOption]) -> tuple[str, ...]:
    """Return where the prices come from."""
    return tuple(
        f"{o.cluster}: price ratio {o.price:.2f} ({o.price_low:.2f} .. "
        f"{o.price_high:.2f}): {o.price_source}"
        for o in options
    )
