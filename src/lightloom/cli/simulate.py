"""``lightloom simulate``: one step of a plan, played on a timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lightloom.core.lang import _

from .options import echo_json, json_option, seed_option

if TYPE_CHECKING:
    from lightloom.core.plan import Plan
    from lightloom.simulate.scenario import Outcome, Scenario


@click.command()
@click.argument("plan", metavar="PLAN.json")
@click.option(
    "--schedule",
    default="",
    help="gpipe, 1f1b, interleaved, zero-bubble, zb-h2, zb-v, dualpipe, dualpipe-v; the plan's own",
)
@click.option(
    "--share",
    type=click.Choice(["fair", "fifo", "strict", "weighted"]),
    default=None,
    help="how classes share a link: fair; strict when --priorities is given",
)
@click.option("--priorities", default="", help="expert=highest,gradient=medium,... (strict)")
@click.option("--chunk", default="4 MiB", help="a transfer gives way between chunks of this size")
@click.option("--no-overlap", is_flag=True, help="nothing hides under computation")
@click.option("--rolling", is_flag=True, help="ranks run on: the optimiser validates afterwards")
@click.option("--jitter", default="none", help="measured, none, pareto:SCALE:SHAPE, link:12ns")
@click.option("--samples", type=int, default=200, help="steps drawn when there is jitter")
@click.option("--fault", "faults", multiple=True, help="card:17=1.2x, link:17=2x, host:3=1.1x")
@click.option("--imbalance", default="none", help="zipf:1.2, or busiest expert rank over the mean")
@click.option("--ranks", default="", help="ranks to show: 0,7; one of each class if not said")
@click.option("--sweep", default="", help="priorities, schedule, micro-batches or jitter")
@click.option("--trace", default="", metavar="FILE", help="Chrome/Perfetto JSON, .gz packs it")
@click.option("--timeline", "timeline_file", default="", metavar="FILE", help="lightloom timeline")
@click.option("--csv", "csv_file", default="", metavar="FILE", help="one span a line")
@click.option("--plot", default="", metavar="FILE.svg", help="lanes and memory, or the sweep")
@seed_option
@json_option
def simulate(plan: str, sweep: str, as_json: bool, **options: Any) -> None:
    """Play one step: schedule, overlap, priorities, jitter, faults, memory over time."""
    from lightloom.core.files import read_json
    from lightloom.core.plan import Plan

    if options["plot"] and not options["plot"].endswith(".svg"):
        raise click.BadParameter(f"{options['plot']}: pictures are SVG", param_hint="--plot")
    loaded = read_json(plan, Plan, "plan")
    scenario = scenario_of({**options, "sweep": sweep})
    if sweep:
        named = ("trace", "timeline_file", "csv_file", "ranks")
        unused = next((name for name in named if options[name]), None)
        if unused:
            option = f"--{unused.removesuffix('_file')}"
            raise click.BadParameter("a sweep has no one step to write", param_hint=option)
        _sweep(loaded, scenario, sweep, options["plot"], as_json)
        return
    from lightloom.simulate.scenario import simulate as play

    outcome = play(loaded, scenario)
    wrote = _write(loaded, outcome, options)
    if as_json:
        echo_json(outcome.result)
        return
    from lightloom.show.simulate import print_view, step_view
    from lightloom.simulate.scenario import timeline

    spans = timeline(outcome, _ranks(options["ranks"]))
    notes = [f"lightloom simulate {plan} --sweep schedule",
             f"lightloom simulate {plan} --plot step.svg --trace step.json.gz"]  # fmt: skip
    print_view(step_view(loaded, outcome.strategy, outcome.result, spans, notes))
    for path in wrote:
        click.echo(f"{_('wrote')} {path}", err=True)


def scenario_of(options: dict[str, Any]) -> Scenario:
    """Return the scenario that the options describe."""
    from lightloom.core.event import parse_fault
    from lightloom.core.units import parse_bytes
    from lightloom.simulate.imbalance import parse_skew
    from lightloom.simulate.scenario import Scenario
    from lightloom.step.contend import Policy, PolicyKind, parse_priorities
    from lightloom.step.noise import parse_jitter

    if options["samples"] < 20:
        raise click.BadParameter("at least 20 steps for a p95", param_hint="--samples")
    priority = parse_priorities(options["priorities"])
    kind: PolicyKind = options["share"] or ("strict" if options["priorities"] else "fair")
    if options["priorities"] and kind in ("fair", "fifo") and not options["sweep"]:
        raise click.BadParameter(
            f"{kind} shares know no priorities: --share strict or weighted",
            param_hint="--priorities",
        )
    chunk = parse_bytes(options["chunk"], "--chunk")
    if not chunk >= 1.0:
        raise click.BadParameter(f"{options['chunk']}: at least one byte", param_hint="--chunk")
    return Scenario(
        schedule=options["schedule"],
        policy=Policy(kind, priority, chunk),
        overlap=not options["no_overlap"],
        rolling=options["rolling"],
        jitter=parse_jitter(options["jitter"]),
        faults=tuple(parse_fault(text) for text in options["faults"]),
        skew=parse_skew(options["imbalance"]),
        samples=options["samples"],
        seed=options["seed"],
    )


def _ranks(text: str) -> tuple[int, ...]:
    from lightloom.core.errors import InputError

    parts = [part.strip() for part in text.split(",") if part.strip()]
    bad = next((part for part in parts if not part.isdigit()), None)
    if bad is not None:
        raise InputError(f"--ranks {text!r}: {bad!r} is not a rank", out="--ranks 0,7")
    return tuple(int(part) for part in parts)


def _write(plan: Plan, outcome: Outcome, options: dict[str, Any]) -> list[str]:
    """Write the files asked for and return their names."""
    from lightloom.core.files import write_bytes
    from lightloom.core.timeline_file import write_timeline
    from lightloom.simulate.scenario import timeline
    from lightloom.simulate.trace import csv_of, write_trace

    names = [options[k] for k in ("trace", "timeline_file", "csv_file", "plot") if options[k]]
    if not names:
        return []
    spans = timeline(outcome, _ranks(options["ranks"]))
    if options["trace"]:
        write_trace(options["trace"], spans, {"plan": plan.model.name})
    if options["timeline_file"]:
        write_timeline(options["timeline_file"], spans)
    if options["csv_file"]:
        write_bytes(options["csv_file"], csv_of(spans).encode())
    if options["plot"]:
        from lightloom.core.units import show_time
        from lightloom.show.gantt import gantt_svg

        r = outcome.result
        title = f"{plan.model.name}, {r.cards:,} cards, {r.schedule}: {show_time(r.step_s)}"
        picture = gantt_svg(spans, outcome.memory, title, r.usable_bytes)
        write_bytes(options["plot"], picture.encode())
    return names


def _sweep(plan: Plan, scenario: Scenario, over: str, plot: str, as_json: bool) -> None:
    """Play every setting of a sweep and show the table."""
    from lightloom.simulate.sweep import sweep

    result = sweep(over, plan, scenario, progress(f"sweep over {over}"))
    if plot:
        from lightloom.core.files import write_bytes
        from lightloom.core.traffic import CLASSES
        from lightloom.show.gantt import bars_svg

        order = ("compute", "slowed", *CLASSES, "waiting", "bubble")
        bars = [(row.setting, [(k, row.parts[k]) for k in order if k in row.parts])
                for row in result.rows if not row.refused]  # fmt: skip
        title = f"{plan.model.name}: step of the mean card, sweep over {over}"
        write_bytes(plot, bars_svg(bars, title).encode())
        click.echo(f"{_('wrote')} {plot}", err=True)
    if as_json:
        echo_json(result)
        return
    from lightloom.show.simulate import print_view, sweep_view

    print_view(sweep_view(result))


def progress(what: str) -> Any:
    """Return a callable (done, all) that keeps one line on stderr once two seconds are over."""
    import sys
    import time

    start = time.monotonic()

    def said(done: int, every: int) -> None:
        spent = time.monotonic() - start
        if spent > 2.0 and sys.stderr.isatty():
            left = spent / done * (every - done)
            click.echo(f"\r{what}: {done}/{every}, {left:.0f} s left ", err=True, nl=False)
            if done == every:
                click.echo("", err=True)

    return said
