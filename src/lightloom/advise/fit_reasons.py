"""Reasons of a fit: what the machine does for the job, and what the site can do with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from lightloom.core.cluster import Cluster
from lightloom.core.decision import FitOption, GrowthYear, Reason
from lightloom.core.lang import _
from lightloom.core.plan import Plan
from lightloom.core.units import show_count

from .money import Money, source_line

if TYPE_CHECKING:
    from .fit import Situation

Side = Literal["move", "stay", "neither"]
PREDICTED = "derived: the planner's best strategy on each machine"
SAID = "said by the user"
FULL = 0.8
"""Utilisation from which a machine is taken to be full (assumed)."""


def side(condition: bool) -> Side:
    """Return which side a reason favours."""
    return "move" if condition else "stay"


def about_machine(
    here: Plan | None, best: FitOption, now: Cluster, machine: Cluster
) -> list[Reason]:
    """Return memory, communication pattern and the factors of the speed."""
    if here is None or best.speed == 0.0:
        lone = machine.name if here is None else now.name
        return [
            Reason(
                what=_("memory: the job fits only on {m}").format(m=lone),
                favours=side(here is None),
                source=PREDICTED,
            )
        ]
    out = []
    for name, value in best.factors.items():
        if abs(value - 1.0) >= 0.01:
            out.append(
                Reason(
                    what=f"{name}: x{value:.2f}",
                    favours=side(value > 1),
                    numbers={"factor": value},
                    source=PREDICTED,
                )
            )
    s, p = here.strategy, here.prediction
    comm = {axis: p.parts.get(axis, 0.0) for axis in ("tp", "cp", "ep", "pp", "dp")}
    heavy = max(comm, key=lambda a: comm[a])
    if comm[heavy] > 0:
        degree = getattr(s, heavy)
        inside = degree <= now.fabric.domain_cards
        what = _(
            "pattern: the exposed communication on {now} is mostly {a} ({d} ranks, domain"
            " {dom:,}); {e:.0%} of the step"
        ).format(now=now.name, a=heavy, d=degree, dom=now.fabric.domain_cards, e=p.exposed_comm)
        out.append(
            Reason(
                what=what,
                favours="neither" if inside else "move",
                numbers={"exposed": p.exposed_comm, "degree": degree},
                source=PREDICTED,
            )
        )
    return out


def about_site(
    best: FitOption,
    now: Cluster,
    machine: Cluster,
    money: Money,
    said: Situation,
    years: Sequence[GrowthYear],
) -> list[Reason]:
    """Return profile, growth, utilisation, budget, staff and ecosystem."""
    return [
        *profile_reason(said),
        *growth_reason(best, years),
        *use_reason(best, said),
        *budget_reason(best, machine, money, said),
        *staff_reason(best, money, said),
        *ecosystem(best, now, machine, money, said),
    ]


def profile_reason(said: Situation) -> list[Reason]:
    """Return what the profile says of transfer and waiting."""
    if said.advice is None:
        return [
            Reason(
                what=_(
                    "no profile: the communication share is a prediction; --profile TRACE"
                    " replaces it by a measurement"
                ),
                favours="neither",
                source="-",
            )
        ]
    v = said.advice.verdict
    helps = v.code == "fabric-helps"
    transfer = f"{v.transfer_exposed:.1%}" if v.transfer_exposed is not None else "?"
    what = _(
        "profile: {s:.1%} of the step is exposed communication, {t} is transfer; {text}"
    ).format(s=v.naive_share, t=transfer, text=v.text)
    numbers = {"exposed": v.naive_share}
    if v.transfer_exposed is not None:
        numbers["transfer"] = v.transfer_exposed
    return [
        Reason(
            what=what,
            favours=side(helps),
            numbers=numbers,
            source=f"measured: {', '.join(said.advice.files[:2])}",
        )
    ]


def growth_reason(best: FitOption, years: Sequence[GrowthYear]) -> list[Reason]:
    """Return what growth does to the speed."""
    if not years:
        return []
    first, last = years[0].speed.get(best.cluster, 0.0), years[-1].speed.get(best.cluster, 0.0)
    words = _("only it holds the model") if last >= 1e9 else f"x{last:.2f}"
    what = _("growth: {p} parameters in 3 years; the speed goes from x{a:.2f} to {b}").format(
        p=show_count(years[-1].parameters), a=first, b=words
    )
    return [
        Reason(
            what=what,
            favours=side(last > max(first, best.price)),
            source=PREDICTED,
            numbers={"speed_now": first, "speed_3_years": min(last, 1e9)},
        )
    ]


def use_reason(best: FitOption, said: Situation) -> list[Reason]:
    """Return what the utilisation seen says."""
    u = said.utilisation
    if u is None:
        return [
            Reason(what=_("utilisation not said: --utilisation 0.4"), favours="neither", source="-")
        ]
    room = 1.0 / max(u, 1e-6)
    what = _("utilisation {u:.0%}: the machine of today has room for {r:.1f}x the work").format(
        u=u, r=room
    )
    return [
        Reason(
            what=what,
            favours="stay" if u < 0.5 else "move" if u >= FULL else "neither",
            numbers={"utilisation": u, "room": room},
            source=SAID,
        )
    ]


def budget_reason(best: FitOption, machine: Cluster, money: Money, said: Situation) -> list[Reason]:
    """Return whether a year of the cards compared is within the budget."""
    found = money.rent(machine.chip)
    if said.budget is None or found is None or not best.cards:
        return []
    name, rent = found
    year = rent.value * best.cards * 8766.0
    most = int(said.budget / (rent.value * 8766.0))
    what = _("budget: {n:,} cards cost {y:.3g} {cur} a year; {b:.3g} buys {m:,} cards").format(
        n=best.cards, y=year, cur=money.currency, b=said.budget, m=most
    )
    return [
        Reason(
            what=what,
            favours=side(year <= said.budget),
            numbers={"year": year, "cards": most},
            source=f"{name} {source_line(rent)}",
        )
    ]


def staff_reason(best: FitOption, money: Money, said: Situation) -> list[Reason]:
    """Return whether enough people run the machine."""
    if said.staff is None or not best.cards:
        return []
    least, per = money.figures["staff_least"], money.figures["staff_per_1000"]
    need = max(least.value, per.value * best.cards / 1000.0)
    what = _("staff: {s:g} people; a machine of {n:,} cards takes about {k:.1f}").format(
        s=said.staff, n=best.cards, k=need
    )
    return [
        Reason(
            what=what,
            favours="neither" if said.staff >= need else "stay",
            numbers={"staff": said.staff, "needed": need},
            source=f"staff_per_1000 {source_line(per)}",
        )
    ]


def ecosystem(
    best: FitOption, now: Cluster, machine: Cluster, money: Money, said: Situation
) -> list[Reason]:
    """Return framework, collective library and recovery (S4: these three decide)."""
    out = []
    if machine.chip.vendor.lower() != now.chip.vendor.lower():
        months, salary = money.figures["migration_months"], money.figures["salary_year"]
        cost = months.value * salary.value / 12.0
        found = money.rent(now.chip)
        saved = 0.0
        if found is not None and best.value > 1.0 and best.cards:
            saved = found[1].value * best.cards * 730.5 * (1.0 - 1.0 / best.value)
        back = (
            _("paid back in {m:.1f} months of full use").format(m=cost / saved)
            if saved
            else _("never paid back by this speed")
        )
        what = _("migration to another vendor's stack: {c:.3g} {cur}, {back}").format(
            c=cost, cur=money.currency, back=back
        )
        favours: Side = "neither" if saved and cost / saved < 12 else "stay"
        out.append(
            Reason(
                what=what,
                favours=favours,
                numbers={"cost": cost, "saved_month": saved},
                source=f"migration_months {source_line(months)}",
            )
        )
    texts = (
        (
            said.adapted,
            _("the framework is adapted to it"),
            _("the framework is not adapted to it: lightloom migrate lists what is missing"),
        ),
        (
            said.aware,
            _("the collective library knows the topology"),
            _("the collective library does not know the topology: near cards do not talk first"),
        ),
        (
            said.automatic,
            _("recovery is automatic"),
            _("recovery needs a person: goodput counts {s:.0f} s a restart").format(
                s=money.value("manual_restart_s")
            ),
        ),
    )
    for answer, yes, no in texts:
        if answer is not None:
            out.append(
                Reason(
                    what=yes if answer else no, favours="neither" if answer else "stay", source=SAID
                )
            )
    return out
