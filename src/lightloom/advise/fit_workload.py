"""Supernode or not, for inference, recommender and HPC: from bounds, and by context and load.

The bounds come from an injected planner. Both machines reach a part of their bound; that the part
is the same within `TRUST` is assumed, and said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from lightloom.core.cluster import Cluster
from lightloom.core.decision import Fit, FitOption, Flip, Reason, RuleSaid
from lightloom.core.errors import InfeasibleError, InputError
from lightloom.core.lang import _
from lightloom.core.units import show_bytes, show_count, show_time

from .fit import ONLY, judged, price_ratio
from .fit_rules import serving_rules
from .money import Money
from .odds import Ratio

Bounds = Callable[[Cluster, dict[str, float]], dict[str, float]]
"""(machine, description) -> bound by name; InfeasibleError where it does not fit."""
METRIC = {"serve": "most output tokens", "recommender": "most samples", "hpc": "most iterations"}
TRUST = 1.3
"""Factor by which the part of its bound that a machine reaches may differ (assumed)."""
CONTEXTS = (4096.0, 32768.0, 131072.0, 1048576.0)
LOADS = (1.0, 16.0, 64.0, 256.0)
PRESETS = {
    "molecular-dynamics": {
        "flops": 2e11,
        "bytes": 2e9,
        "reductions": 4.0,
        "reduce-bytes": 4e6,
        "halo": 2e6,
    },
    "climate": {
        "flops": 5e12,
        "bytes": 2e12,
        "reductions": 20.0,
        "reduce-bytes": 256.0,
        "halo": 4e7,
    },
    "cfd": {"flops": 1e12, "bytes": 5e11, "reductions": 60.0, "reduce-bytes": 64.0, "halo": 2e7},
}
"""HPC by name: one iteration of the whole machine (assumed; --workload overrides)."""


def fit_workload(
    name: str,
    task: str,
    now: Cluster,
    candidates: Sequence[Cluster],
    cards: int,
    money: Money,
    bounds: Bounds,
    said: dict[str, float],
) -> Fit:
    """Return whether a candidate is worth it for one workload that is not training."""
    metric = METRIC[task]
    lacking = unknown(bounds, now, said)
    if lacking:
        raise InputError(f"{name} on {now.name}: {lacking}", out="another machine as --now")
    here = reached(bounds, now, said)
    options = []
    for machine in candidates:
        there = reached(bounds, machine, said)
        made = workload_option(here, there, metric, now, machine, cards, money)
        lacking = unknown(bounds, machine, said)
        if lacking:
            made = msgspec.structs.replace(made, code="not-enough-data", why=lacking)
        options.append(made)
    options.sort(key=lambda o: -o.value)
    best = options[0]
    if here is None and best.speed == 0.0 and best.code != "not-enough-data":
        raise InfeasibleError(
            f"{name} fits on none of these machines",
            out="more --cards, a shorter context or fewer sequences",
        )
    machine = next(c for c in candidates if c.name == best.cluster)
    table = serve_table(bounds, now, machine, said) if task == "serve" else ()
    share = (here or {}).get("share of memory for keys and values", 1.0)
    rules: tuple[RuleSaid, ...] = ()
    if task == "serve":
        rules = serving_rules(best, said["context"], share if here else 1.0)
    return Fit(
        workload=name,
        task=task,
        now=now.name,
        cards=cards,
        options=tuple(options),
        code=best.code,
        text=sentence(best, now, task),
        rules=rules,
        table=table,
        reasons=tuple(reasons_of(task, here, reached(bounds, machine, said), now, machine)),
        flips=tuple(flips_of(best, table)),
        notes=(
            *(f"{o.cluster}: price ratio {o.price:.2f}: {o.price_source}" for o in options),
            _(
                "bounds, not predictions; both machines are taken to reach the same part of"
                " theirs within {t:g}x (assumed)"
            ).format(t=TRUST),
        ),
    )


def reached(bounds: Bounds, machine: Cluster, said: dict[str, float]) -> dict[str, float] | None:
    """Return the bounds; None where it does not fit, or nothing is known of the machine for it."""
    try:
        return bounds(machine, said)
    except (InfeasibleError, InputError):
        return None


def unknown(bounds: Bounds, machine: Cluster, said: dict[str, float]) -> str:
    """Return what is not known of a machine for this work (a rate nobody published), or empty."""
    try:
        bounds(machine, said)
    except InputError as error:
        return error.what
    except InfeasibleError:
        return ""
    return ""


def ratio_of(here: dict[str, float] | None, there: dict[str, float] | None, metric: str) -> float:
    """Return the bound of the candidate over today's; 0 and ONLY where one does not fit."""
    if there is None:
        return 0.0
    return ONLY if here is None else there[metric] / here[metric]


def workload_option(
    here: dict[str, float] | None,
    there: dict[str, float] | None,
    metric: str,
    now: Cluster,
    machine: Cluster,
    cards: int,
    money: Money,
) -> FitOption:
    """Return one candidate."""
    value = ratio_of(here, there, metric)
    certain = value in (0.0, ONLY)
    speed = Ratio(value, *((value, value) if certain else (value / TRUST, value * TRUST)))
    price, source = price_ratio(now, machine, money)
    return judged(machine, cards if there else 0, speed, price, source)


def sentence(best: FitOption, now: Cluster, task: str) -> str:
    """Return the verdict."""
    if best.code == "not-enough-data" and not best.speed:
        return _("not enough data: {why}").format(why=best.why)
    if best.speed == ONLY:
        return _("move to {c}: this load does not fit on {now}").format(
            c=best.cluster, now=now.name
        )
    words = {
        "move": _("move to {c}"),
        "lean-move": _("{c} looks better, not surely"),
        "lean-stay": _("{now} looks better, not surely"),
        "stay": _("stay on {now}"),
        "not-enough-data": _(
            "not enough data: no published price; {c} pays below {s:.2f}x the card-hour of {now}"
        ),
    }
    text = words[best.code].format(c=best.cluster, now=now.name, s=best.speed)
    return _("{t}: {v:.2f}x the work for the money ({lo:.2f} .. {hi:.2f})").format(
        t=text, v=best.value, lo=best.value_low, hi=best.value_high
    )


def serve_table(
    bounds: Bounds, now: Cluster, machine: Cluster, said: dict[str, float]
) -> tuple[dict[str, float], ...]:
    """Return the speed of the candidate over contexts and concurrent sequences."""
    rows = []
    for context in CONTEXTS:
        for load in LOADS:
            asked = {**said, "context": context, "concurrency": load}
            here, there = reached(bounds, now, asked), reached(bounds, machine, asked)
            kv = (here or there or {}).get("keys and values", 0.0)
            rows.append(
                {
                    "context": context,
                    "concurrency": load,
                    "kv_bytes": kv * load,
                    "speed": ratio_of(here, there, METRIC["serve"]),
                    "replica_now": (here or {}).get("cards of one replica", 0.0),
                    "replica_then": (there or {}).get("cards of one replica", 0.0),
                }
            )
    return tuple(rows)


def shown(name: str, value: float) -> str:
    """Return a bound in its unit: shares, bytes, rates, numbers of things; all else is seconds."""
    if name.startswith("share"):
        return f"{value:.0%}"
    if name in ("weights", "keys and values"):
        return show_bytes(value)
    counted = name.startswith(("most", "replicas", "cards", "least cards"))
    return show_count(value) if counted else show_time(value)


def reasons_of(
    task: str,
    here: dict[str, float] | None,
    there: dict[str, float] | None,
    now: Cluster,
    machine: Cluster,
) -> list[Reason]:
    """Return what binds on both machines."""
    bound = "derived: roofline of memory, arithmetic and links"
    if here is None or there is None:
        lone = machine.name if here is None else now.name
        return [
            Reason(
                what=_("capacity: only {m} holds it").format(m=lone),
                source=bound,
                favours="move" if here is None else "stay",
            )
        ]
    out = []
    for name in here:
        a, b = here[name], there.get(name, 0.0)
        if a > 0 and b > 0 and abs(a / b - 1) > 0.02:
            # times shrink, rates grow: which way is better is in the unit
            grows = name.startswith("most") or name == "replicas"
            better = b > a if grows else b < a
            out.append(
                Reason(
                    what=f"{name}: {shown(name, a)} -> {shown(name, b)}",
                    source=bound,
                    favours="move" if better else "stay",
                    numbers={"now": a, "then": b},
                )
            )
    if task == "serve":
        host, need = now.host.cards, here["cards of one replica"]
        fits = need <= max(host, now.fabric.domain_cards)
        what = _("a replica takes {n:.0f} cards on {now}; its domain has {d:,}").format(
            n=need, now=now.name, d=now.fabric.domain_cards
        )
        out.append(
            Reason(
                what=what,
                favours="stay" if fits else "move",
                source=bound,
                numbers={"replica": need, "domain": now.fabric.domain_cards},
            )
        )
    return out


def flips_of(best: FitOption, table: Sequence[dict[str, float]]) -> list[Flip]:
    """Return the price, and for inference the load, at which the verdict changes."""
    out = []
    if best.speed not in (0.0, ONLY):
        out.append(
            Flip(
                figure="price of a card-hour over now",
                now=best.price,
                at=best.speed,
                unit="x",
                text=_("{c} pays below {s:.2f}x").format(c=best.cluster, s=best.speed),
            )
        )
    pays = best.value > 1.0
    turned = [r for r in table if r["speed"] and (r["speed"] > best.price) != pays]
    if turned:
        first = min(turned, key=lambda r: (r["context"] * r["concurrency"], r["context"]))
        text = _(
            "at {c:,.0f} tokens x {n:.0f} sequences ({g:.3g} GiB of keys and values) the"
            " answer turns"
        ).format(c=first["context"], n=first["concurrency"], g=first["kv_bytes"] / 2**30)
        out.append(
            Flip(
                figure="context x concurrency",
                now=0.0,
                unit="tokens",
                at=first["context"] * first["concurrency"],
                text=text,
            )
        )
    elif table:
        out.append(
            Flip(
                figure="context x concurrency",
                now=0.0,
                at=None,
                unit="tokens",
                text=_("no load of the table turns the answer"),
            )
        )
    return out
