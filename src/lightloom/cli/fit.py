"""``lightloom fit``: is another machine worth it for this work."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import click

from .options import echo_json, json_option

if TYPE_CHECKING:
    from lightloom.advise.fit import Situation
    from lightloom.core.advice import Advice
    from lightloom.core.cluster import Cluster
    from lightloom.core.decision import Fit

TASKS = ("train", "serve", "recommender", "hpc")


@click.command()
@click.argument("work", metavar="MODEL|WORKLOAD")
@click.option("--now", required=True, metavar="NAME|FILE", help="machine of today")
@click.option("--candidates", required=True, metavar="C2,C3", help="machines considered")
@click.option(
    "--task",
    type=click.Choice(TASKS),
    default=None,
    help="train; serve, recommender, hpc from bounds",
)
@click.option(
    "--workload",
    default="",
    metavar="K=V,...",
    help="context=128k,concurrency=256 and the like, as in plan",
)
@click.option("--cards", type=int, default=None, help="cards compared on every machine")
@click.option("--seq", type=int, default=None, help="tokens of a sequence")
@click.option("--global-batch", default=None, help="sequences of one step, or tokens: 4Mtok")
@click.option("--precision", default="bf16", help="bf16, fp8, ...")
@click.option("--growth", default=None, metavar="3x/year", help="how the model grows")
@click.option("--profile", multiple=True, metavar="TRACE", help="profile of a run on --now")
@click.option("--budget", default=None, metavar="5MUSD", help="money a year")
@click.option("--staff", type=float, default=None, help="people who run the machine")
@click.option("--utilisation", type=float, default=None, help="share of card-hours used today")
@click.option(
    "--framework-adapted/--framework-not-adapted",
    default=None,
    help="whether your framework runs on the candidate",
)
@click.option(
    "--topology-aware/--topology-blind",
    default=None,
    help="whether its collective library knows the topology",
)
@click.option(
    "--automatic-recovery/--manual-recovery",
    default=None,
    help="whether a failure restarts without a person",
)
@click.option("--price", default=None, metavar="FILE", help="your prices, with currency and source")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=V|LOW..HIGH",
    help="one figure: rent.h100=2.1, fabric_premium=0.2",
)
@json_option
def fit(work: str, now: str, candidates: str, as_json: bool, **o: Any) -> None:
    """Say whether a candidate is worth it, why, and which figure would change the answer.

    \b
    lightloom fit deepseek-v3 --now traditional-8192 --candidates supernode-8192 --growth 3x/year
    lightloom fit llama-3.1-70b --task serve --workload context=128k,concurrency=64 \\
        --now dgx-h100 --candidates gb200-nvl72
    lightloom fit cfd --now dgx-a100 --candidates supernode-8192
    """
    from lightloom.advise.money import check_chips
    from lightloom.core.catalog import load_cluster
    from lightloom.core.errors import InputError

    from .desk import cards_of

    machine = load_cluster(now)
    names = [c.strip() for c in candidates.split(",") if c.strip()]
    if not names:
        raise InputError("--candidates: no machine", out="--candidates supernode-8192")
    if now in names:
        raise InputError(f"--candidates {now}: is the machine of today",
                         out="name another one")  # fmt: skip
    others = [load_cluster(name) for name in dict.fromkeys(names)]
    check_chips(o["settings"], (one.chip for one in (machine, *others)))
    cards, note = cards_of(o["cards"], [machine, *others])
    task = task_of(work, o["task"])
    decide = train if task == "train" else bounded
    result = decide(work, task, machine, others, cards, o)
    if as_json:
        echo_json(result)
        return
    from lightloom.show.fit import show_fit

    show_fit(result, note)


def task_of(work: str, task: str | None) -> str:
    """Return the task: what was said, or what the word names."""
    from lightloom.advise.fit_workload import PRESETS

    if task:
        return task
    if work in TASKS and work != "serve":
        return work
    return "hpc" if work in PRESETS else "train"


def train(
    work: str, task: str, now: Cluster, others: list[Cluster], cards: int, o: dict[str, Any]
) -> Fit:
    """Return the verdict for training."""
    from lightloom.advise.fit import fit as decide
    from lightloom.advise.money import load_money
    from lightloom.core.catalog import load_model

    from .desk import desk

    money = load_money(o["price"], o["settings"])
    planner = desk(cards, o["seq"], o["global_batch"], o["precision"])
    return decide(load_model(work), now, others, money, planner, situation(o))


def situation(o: dict[str, Any]) -> Situation:
    """Return what was said of the site."""
    from lightloom.advise.fit import Situation, parse_growth
    from lightloom.core.errors import InputError
    from lightloom.core.units import parse_count

    used = o["utilisation"]
    if used is not None and not 0 < used <= 1:
        raise InputError(
            f"--utilisation {used:g}: a share above 0, at most 1", out="--utilisation 0.4"
        )
    if o["staff"] is not None and not 0 <= o["staff"] < 1e6:
        raise InputError(f"--staff {o['staff']:g}: a number of people")
    budget = None
    if o["budget"]:
        text = re.sub(r"(?i)\s*(USD|CNY|EUR|RMB|GBP|JPY)$", "", o["budget"].strip())
        budget = parse_count(text, "--budget")
        if not 0.0 < budget < math.inf:
            raise InputError(f"--budget {o['budget']}: must be above 0", out="--budget 5MUSD")
    return Situation(
        growth=parse_growth(o["growth"]) if o["growth"] else None,
        advice=advice_of(o["profile"]) if o["profile"] else None,
        budget=budget,
        staff=o["staff"],
        utilisation=used,
        adapted=o["framework_adapted"],
        aware=o["topology_aware"],
        automatic=o["automatic_recovery"],
    )


def advice_of(paths: tuple[str, ...]) -> Advice:
    """Return what the profile says."""
    from lightloom.advise.analyse import Questions, analyse
    from lightloom.advise.read import find, load
    from lightloom.core.errors import InputError

    sources = find(list(paths))
    if not sources.profiles:
        raise InputError(f"--profile {paths[0]}: no profile in it")
    return analyse(load(sources, lambda text: click.echo(text, err=True)), Questions())


def bounded(
    work: str, task: str, now: Cluster, others: list[Cluster], cards: int, o: dict[str, Any]
) -> Fit:
    """Return the verdict for inference, recommender or HPC."""
    from lightloom.advise.fit_workload import PRESETS, fit_workload
    from lightloom.advise.money import load_money
    from lightloom.core.catalog import load_model
    from lightloom.core.errors import InputError
    from lightloom.plan import workload as w

    said = w.parse_workload(task, o["workload"])
    if task == "hpc" and work in PRESETS:
        told = {p.partition("=")[0].strip() for p in o["workload"].split(",")}
        said |= {k: v for k, v in PRESETS[work].items() if k not in told}
    if task == "serve" and work == "serve":
        raise InputError("which model?", out="lightloom fit llama-3.1-70b --task serve ...")
    model = load_model(work) if task == "serve" else None
    precision = o["precision"].split("-")[0]

    def bounds(machine: Cluster, asked: dict[str, float]) -> dict[str, float]:
        if model is not None:
            rows = w.serve(model, machine, asked, precision, cards)
        elif task == "recommender":
            rows = w.recommender(machine, asked, cards)
        else:
            rows = w.hpc(machine, asked, cards)
        return {row.name: row.value for row in rows}

    name = model.name if model else work
    money = load_money(o["price"], o["settings"])
    return fit_workload(name, task, now, others, cards, money, bounds, said)
