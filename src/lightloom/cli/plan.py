"""``lightloom plan``: every strategy of a job priced, the best few with why."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from lightloom.core.lang import _

from .options import FINITE, cluster_option, echo_json, json_option

if TYPE_CHECKING:
    from lightloom.core.cluster import Cluster
    from lightloom.cost.job import Job
    from lightloom.plan.decide import Answer, Asked
    from lightloom.plan.search import Found

BOUND_TASKS = ("serve", "recommender", "hpc")


@click.command()
@click.argument("model", metavar="CONFIG.json|NAME|SIZE", required=False)
@cluster_option
@click.option("--cards", type=int, default=None, help="cards of the job; whole machine if not said")
@click.option("--seq", type=int, default=None, help="tokens of a sequence; the model's, <= 8192")
@click.option("--global-batch", default=None, help="sequences of one step, or tokens: 4Mtok")
@click.option("--precision", default="bf16", help="bf16, fp8, fp8-block, mxfp8, fp16, ...")
@click.option("--framework", default=None, help="megatron mindspeed torchtitan fsdp deepspeed ...")
@click.option("--task", default="pretrain",
              help="pretrain finetune lora; serve recommender hpc give bounds")  # fmt: skip
@click.option("--fix", multiple=True, metavar="AXIS=VALUE", help="hold tp=8, pp=1..16, zero=1 ...")
@click.option("--objective", type=click.Choice(["time", "cost", "energy"]), default="time",
              help="what to make small")  # fmt: skip
@click.option("--top", type=int, default=10, help="how many to list")
@click.option("--pick", type=int, default=1, help="which of the list goes into -o")
@click.option("--compare", default=None, metavar="NAME|FILE", help="machine to compare with")
@click.option("--sweep", default=None, metavar="cards=A..B", help="throughput against cards")
@click.option("--grow-batch", is_flag=True, help="with --sweep: batch grows with the cards")
@click.option("--deadline", default=None, metavar="30d", help="fewest cards in time; with --tokens")
@click.option("--tokens", default=None, metavar="15T", help="tokens of the whole run")
@click.option("--budget", default=None, metavar="5MUSD", help="model and tokens for the money")
@click.option("--price", type=FINITE, default=None, help="currency per card-hour")
@click.option("--memory-limit", default=None, metavar="60GiB", help="bytes a rank may use")
@click.option("--workload", default="", metavar="K=V,...", help="for serve, recommender, hpc")
@click.option("--calibration", default=None, metavar="FILE", help="constants of your own runs")
@click.option("--plot", default=None, metavar="F.png|svg", help="picture of the list or the sweep")
@click.option("--html", default=None, metavar="F.html", help="report of one file")
@json_option
@click.option("-o", "--output", default=None, metavar="PLAN.json", help="write the chosen plan")
def plan(model: str | None, cluster: str | None, as_json: bool, **o: Any) -> None:
    """Search all strategies of a job and show the best few, with why.

    \b
    lightloom plan deepseek-v3 --cluster supernode-8192 --global-batch 16384 -o plan.json
    lightloom plan llama-3.1-70b --cluster dgx-h100 --cards 1024 --compare traditional-8192
    lightloom plan 70B --cluster supernode-8192 --deadline 30d --tokens 15T
    """
    from lightloom.core.catalog import load_cluster, names
    from lightloom.core.errors import InputError

    if cluster is None:
        raise InputError("which machine?", out=f"--cluster NAME: {', '.join(names('clusters'))}")
    machine = load_cluster(cluster)
    if o["task"] in BOUND_TASKS:
        show_bounds(model, machine, o, as_json)
        return
    if o["workload"]:
        raise InputError(f"--workload describes other tasks, not {o['task']}",
                         out=f"--task {', '.join(BOUND_TASKS)}")  # fmt: skip
    if model is None:
        raise InputError("which model?", out="a config.json, a name or a size such as 70B")
    job, notes = job_of(model, machine, o)
    asked = asked_of(o)
    if o["budget"]:
        show_budget(job, asked, o, as_json)
    elif o["deadline"]:
        show_deadline(job, asked, o, as_json)
    else:
        show_plan(job, asked, notes, o, as_json)


def job_of(model: str, machine: Cluster, o: dict[str, Any]) -> tuple[Job, list[str]]:
    """Return the job asked for, and what was filled in."""
    from lightloom.core.catalog import load_model
    from lightloom.cost.request import Asked, request

    if o["framework"] is None:
        o["framework"] = "mindspeed" if machine.chip.vendor.lower() in (
            "huawei", "ascend") else "megatron"  # fmt: skip
    asked = Asked(cards=o["cards"], seq=o["seq"], global_batch=o["global_batch"],
                  precision=o["precision"], framework=o["framework"], task=o["task"],
                  dp=1)  # fmt: skip
    job, _, notes = request(load_model(model), machine, asked)
    notes = [n for n in notes if "idle" not in n]
    return job, [*notes, f"framework {o['framework']}: its own flags for what is not searched"]


def asked_of(o: dict[str, Any]) -> Asked:
    """Return what decides the search."""
    from lightloom.core.errors import InputError
    from lightloom.core.units import parse_bytes
    from lightloom.plan.decide import Asked
    from lightloom.plan.space import parse_fixes

    if o["top"] < 1 or not 1 <= o["pick"] <= o["top"]:
        raise InputError(f"--top {o['top']} --pick {o['pick']}: pick is one of the list, from 1")
    limit = None
    if o["memory_limit"]:
        limit = above_zero(parse_bytes(o["memory_limit"], "--memory-limit"), "--memory-limit")
    return Asked(parse_fixes(o["fix"]), o["precision"], o["objective"], o["top"], limit,
                 calibration_of(o["calibration"]))  # fmt: skip


def above_zero(value: float, option: str) -> float:
    """Return `value`, or say that it must be above 0."""
    from lightloom.core.errors import InputError

    if not 0 < value < float("inf"):
        raise InputError(f"{option} {value:g}: must be above 0")
    return value


def calibration_of(path: str | None):  # type: ignore[no-untyped-def]
    """Return a user's calibration, None for the shipped one."""
    if path is None:
        return None
    from lightloom.cost.calibration import read_calibration

    return read_calibration(path)


class Progress:
    """A line on stderr once a search takes longer than two seconds."""

    def __init__(self, what: str) -> None:
        self.what, self.start, self.shown = what, time.monotonic(), False

    def search(self, found: Found) -> None:
        """Show how many candidates are priced."""
        best = f", best {found.best[0].step_s:.3g} s" if found.best else ""
        self.line(f"{found.priced:,} priced of {found.counted:,}{best}")

    def count(self, done: int, total: int) -> None:
        """Show how many of several searches are done."""
        self.line(f"{done} of {total}")

    def line(self, text: str) -> None:
        """Show one line, replacing the last."""
        if time.monotonic() - self.start > 2 and sys.stderr.isatty():
            click.echo(f"\r{self.what}: {text}\x1b[K", err=True, nl=False)
            self.shown = True

    def end(self) -> None:
        """Clear the line."""
        if self.shown:
            click.echo("\r\x1b[K", err=True, nl=False)


def show_plan(job: Job, asked: Asked, notes: list[str], o: dict[str, Any], as_json: bool) -> None:
    """Search, then show, write and draw what was asked for."""
    from lightloom.core.files import write_bytes, write_json
    from lightloom.cost.flops import six_n_d
    from lightloom.plan.decide import check_cards, plan

    check_cards(job)
    start = time.process_time()
    progress = Progress("plan")
    answer = plan(job, asked, progress.search)
    progress.end()
    seconds = time.process_time() - start
    if not answer.found.complete:
        notes.append("stopped by Ctrl-C: the best so far, not proved best")
    best = answer.plans[0]
    comparison = comparison_of(job, answer, asked, o)
    curve = curve_of(job, asked, o)
    flops = six_n_d(job.model, best.strategy.tokens)
    if o["output"]:
        chosen = answer.plans[min(o["pick"], len(answer.plans)) - 1]
        write_json(o["output"], chosen)
    made = "lightloom " + " ".join(sys.argv[1:])
    if o["html"]:
        write_bytes(o["html"], report_of(answer, comparison, curve, notes, made).encode())
    if o["plot"]:
        from .plan_plot import draw

        draw(o["plot"], answer.plans, curve)
    if as_json:
        echo_json(json_of(answer, comparison, curve, notes, seconds, flops))
    else:
        print_plan(answer, comparison, curve, notes, seconds, flops, o)
    if o["tokens"] and not as_json:
        print_run(answer, o["tokens"])
    if not answer.found.complete:
        sys.exit(130)


def comparison_of(job: Job, answer: Answer, asked: Asked, o: dict[str, Any]):  # type: ignore[no-untyped-def]
    """Return the comparison asked for, or None."""
    if not o["compare"]:
        return None
    from lightloom.core.catalog import load_cluster
    from lightloom.plan.compare import compare

    return compare(job, answer.plans[0], load_cluster(o["compare"]), asked)


def curve_of(job: Job, asked: Asked, o: dict[str, Any]):  # type: ignore[no-untyped-def]
    """Return the sweep asked for, or None."""
    if not o["sweep"]:
        return None
    from lightloom.plan.scale import parse_sweep, sweep

    progress = Progress("sweep")
    counts = [n for n in parse_sweep(o["sweep"]) if n <= job.cluster.cards]
    curve = sweep(job, counts, asked, grow_batch=o["grow_batch"], progress=progress.count)
    progress.end()
    return curve


def report_of(answer: Answer, comparison, curve, notes: list[str], made: str) -> str:  # type: ignore[no-untyped-def]
    """Return the HTML report."""
    from lightloom.show.plan_report import report

    groups = [(answer.plans[0].cluster.title, answer.plans)]
    curves = [("this machine", [(p.cards, p.tokens_per_s) for p in curve.points])] if curve else []
    factors, speedup = [], 1.0
    if comparison:
        groups.append((comparison.there.cluster.title, (comparison.there,)))
        factors = [(f.name, f.value, f.why) for f in comparison.factors]
        speedup = comparison.speedup
    return report(groups, curves, factors, speedup, notes, made)


def json_of(
    answer: Answer, comparison: Any, curve: Any, notes: list[str], seconds: float, flops: float
) -> Any:
    """Return everything the screen says, as data."""
    import msgspec

    found = answer.found
    out: dict[str, Any] = {
        "counted": found.counted, "priced": found.priced, "fitting": found.fitting,
        "complete": found.complete, "cpu_s": seconds, "six_n_d": flops, "notes": notes,
        "plans": [
            {"rank": i, "strategy": p.strategy, "prediction": p.prediction,
             "peak_bytes": p.prediction.peak_bytes, "cards": p.cards, "why": p.why}
            for i, p in enumerate(answer.plans, start=1)
        ],
    }  # fmt: skip
    if comparison:
        out["compare"] = {
            "cluster": comparison.there.cluster.name, "speedup": comparison.speedup,
            "factors": [f._asdict() for f in comparison.factors],
            "strategy": comparison.there.strategy, "prediction": comparison.there.prediction,
        }  # fmt: skip
    if curve:
        out["sweep"] = {
            "points": [{"cards": p.cards, "tokens_per_s": p.tokens_per_s,
                        "efficiency": p.efficiency, "why": p.why,
                        "strategy": p.plan.strategy if p.plan else None,
                        "step_s": p.plan.prediction.step_s if p.plan else None,
                        "low_s": p.plan.prediction.low_s if p.plan else None,
                        "high_s": p.plan.prediction.high_s if p.plan else None}
                       for p in curve.points],
            "knee": curve.knee, "bends": curve.bends,
        }  # fmt: skip
    return msgspec.to_builtins(out)


def print_plan(
    answer: Answer, comparison: Any, curve: Any, notes: list[str], seconds: float, flops: float,
    o: dict[str, Any],
) -> None:  # fmt: skip
    """Print the screen."""
    from lightloom.core.told import told
    from lightloom.show.plan import factor_table, plan_view, print_all, sweep_table
    from lightloom.show.plan_report import label_of

    found = answer.found
    views: list[Any] = [plan_view(answer.plans, found.counted, found.priced, seconds, flops, notes)]
    if comparison:
        factors = [(f.name, f.value, f.why) for f in comparison.factors]
        views += ["", factor_table(factors, comparison.speedup, comparison.there.cluster.name)]
    if curve:
        rows = [(p.cards, p.plan.prediction.step_s if p.plan else 0.0, p.tokens_per_s,
                 p.efficiency, label_of(p.plan) if p.plan else "-", p.why)
                for p in curve.points]  # fmt: skip
        knee = _("no knee in this range: doubling always gives more than 1.7 times")
        if curve.knee:
            bends = told(curve.bends)
            knee = _("knee at {n:,} cards: {w}").format(n=curve.knee, w=bends)
        views += ["", sweep_table(rows), knee]
    print_all(*views)
    click.echo(next_lines(o), err=True)


def next_lines(o: dict[str, Any]) -> str:
    """Return what to type next."""
    wrote = [f"{_('wrote')} {o[k]}" for k in ("output", "html", "plot") if o[k]]
    file = o["output"]
    tip = _("next: add -o plan.json to simulate, emit or run it; --compare, --sweep, --html")
    if file:
        tip = (f"{_('next')}: lightloom explain {file} · lightloom simulate {file} · "
               f"lightloom emit {file} --for {o['framework']}")  # fmt: skip
    return "\n".join([*wrote, tip])


def print_run(answer: Answer, text: str) -> None:
    """Print how long the whole run takes."""
    from lightloom.core.units import parse_count, show_time
    from lightloom.plan.inverse import run_of

    tokens = above_zero(parse_count(text, "--tokens"), "--tokens")
    run = run_of(answer.plans[0], tokens)
    said = _("{n} tokens: {t} on {c:,} cards with goodput {g:.1%} ({h:,.0f} card-hours)")
    click.echo(said.format(n=text, t=show_time(run.seconds), c=run.cards,
                           g=run.plan.prediction.goodput, h=run.card_hours))  # fmt: skip


def show_deadline(job: Job, asked: Asked, o: dict[str, Any], as_json: bool) -> None:
    """Answer: how few cards finish in time."""
    from lightloom.core.errors import InputError
    from lightloom.core.units import parse_count, parse_time, show_time
    from lightloom.plan.inverse import cards_for
    from lightloom.show.plan import plan_view, print_all

    if not o["tokens"]:
        raise InputError("--deadline needs --tokens", out="--deadline 30d --tokens 15T")
    tokens = above_zero(parse_count(o["tokens"], "--tokens"), "--tokens")
    deadline = parse_time(o["deadline"], "--deadline")
    progress = Progress("deadline")
    run = cards_for(job, tokens, deadline, asked, progress.count)
    progress.end()
    write_plan(run.plan, o)
    if as_json:
        echo_json({"cards": run.cards, "seconds": run.seconds, "card_hours": run.card_hours,
                   "strategy": run.plan.strategy, "prediction": run.plan.prediction})  # fmt: skip
        return
    from lightloom.cost.flops import six_n_d

    flops = six_n_d(job.model, run.plan.strategy.tokens)
    said = _("{n} tokens within {d}: {c:,} cards are enough ({t}, {h:,.0f} card-hours)")
    click.echo(said.format(n=o["tokens"], d=show_time(deadline), c=run.cards,
                           t=show_time(run.seconds), h=run.card_hours) + "\n")  # fmt: skip
    print_all(plan_view([run.plan], run.plan.searched, run.plan.searched, 0.0, flops, []))


def show_budget(job: Job, asked: Asked, o: dict[str, Any], as_json: bool) -> None:
    """Answer: which model and how many tokens the money buys."""
    from lightloom.core.prices import load_prices, rent_of
    from lightloom.core.units import parse_count, show_count, show_time
    from lightloom.plan.inverse import for_budget

    text = o["budget"].upper().removesuffix("USD").removesuffix("CNY").strip()
    budget = parse_count(text, "--budget")
    price = rent_of(load_prices(), job.cluster.chip)
    rent = o["price"] if o["price"] is not None else price.value
    above_zero(budget, "--budget")
    above_zero(rent, "--price")
    found = for_budget(job, budget, rent, asked)
    if as_json:
        echo_json([{"parameters": a.parameters, "tokens": a.tokens, "cards": a.run.cards,
                    "seconds": a.run.seconds, "cost": a.cost, "rent_hour": rent,
                    "strategy": a.run.plan.strategy} for a in found])  # fmt: skip
        return
    source = "--price" if o["price"] is not None else f"{price.source.origin}: {price.source.ref}"
    said = _("{b} at {r:.3g} a card-hour ({s}), 20 tokens a parameter")
    click.echo(said.format(b=o["budget"], r=rent, s=source))
    for a in found:
        click.echo(f"  {a.run.cards:>8,} {_('cards')}  {show_count(a.parameters):>8} "
                   f"{_('parameters')}  {show_count(a.tokens):>8} {_('tokens')}  "
                   f"{show_time(a.run.seconds):>8}  MFU {a.run.plan.prediction.mfu:.1%}  "
                   f"{_('cost')} {a.cost:,.0f}")  # fmt: skip


def show_bounds(model: str | None, machine: Cluster, o: dict[str, Any], as_json: bool) -> None:
    """Answer for inference, recommender and HPC: bounds."""
    from lightloom.core.catalog import load_model
    from lightloom.core.errors import InputError
    from lightloom.plan import workload as w
    from lightloom.show.plan import bound_table, print_all

    cards = machine.cards if o["cards"] is None else o["cards"]
    if not 1 <= cards <= machine.cards:
        raise InputError(f"--cards {cards:,}: {machine.name} has {machine.cards:,}",
                         out=f"--cards 1 to {machine.cards}")  # fmt: skip
    said = w.parse_workload(o["task"], o["workload"])
    if o["task"] == "serve":
        if model is None:
            raise InputError("which model?", out="lightloom plan NAME --task serve")
        rows = w.serve(load_model(model), machine, said, o["precision"].split("-")[0], cards)
    else:
        rows = (w.recommender if o["task"] == "recommender" else w.hpc)(machine, said, cards)
    if as_json:
        echo_json({"task": o["task"], "cluster": machine.name, "cards": cards, "workload": said,
                   "bounds": [r._asdict() for r in rows]})  # fmt: skip
        return
    asked = ", ".join(f"{k}={v:g}" for k, v in said.items())
    on = _("{m} on {n:,} x {c}").format(m=o["task"], n=cards, c=machine.chip.title)
    click.echo(f"{on}: {asked}")
    click.echo(_("bounds, not predictions: no real system is faster than these") + "\n")
    print_all(bound_table([(r.name, r.value, r.unit, r.why) for r in rows]))


def write_plan(chosen, o: dict[str, Any]) -> None:  # type: ignore[no-untyped-def]
    """Write the plan file asked for."""
    from lightloom.core.files import write_json

    if o["output"]:
        write_json(o["output"], chosen)
        click.echo(f"{_('wrote')} {o['output']}", err=True)
