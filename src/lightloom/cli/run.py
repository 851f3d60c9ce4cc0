"""``lightloom run``: start, follow, list, stop and resume real training."""

from __future__ import annotations

import sys
from typing import Any

import click

from .options import echo_json, json_option, seed_option
from .run_replan import SHARDS


class StartOrVerb(click.Group):
    """A group whose words that are no command start a run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert ``start`` unless a command or the group's help is asked for."""
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["start", *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the options of ``start`` as the group's own."""
        self.commands["start"].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(cls=StartOrVerb, context_settings={"help_option_names": ["-h", "--help"]})
def run() -> None:
    """Train on real processes that survive the loss of ranks and agents.

    \b
    lightloom run [PLAN.json] --ranks 3 -- train.py ARGS
    lightloom run --example gpt --steps 300
    """


@run.command(context_settings={"ignore_unknown_options": False}, hidden=True)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[PLAN] -- SCRIPT [ARGS]...")
@click.option(
    "--example", type=click.Choice(["gpt", "axes"]), help="a model shipped with lightloom"
)
@click.option("--ranks", type=click.IntRange(1, 512), help="processes  [default: the plan's, or 3]")
@click.option("--spares", type=click.IntRange(0, 64), default=0, help="warm processes in reserve")
@click.option("--shards", type=SHARDS, metavar="N|plan",
              help="ranks that hold one copy of the model together "
              "(tp x pp x fsdp); plan: its pp, cp and tp  [default: 1]")  # fmt: skip
@click.option("--replan", metavar="off|auto|LAYOUTS", help="layouts for when too few ranks are left"
              ": pp=2,tp=2/tp=2  [default: auto with --shards plan]")  # fmt: skip
@click.option("--agents", type=click.IntRange(1, 64), help="failure domains  [default: 2, or 1]")
@click.option("--on", type=click.Choice(["local", "torchrun", "ray", "slurm", "kubernetes",
              "mindspore"]), default="local", show_default=True,
              help="what starts it; the last three write files of the plan")  # fmt: skip
@click.option("--out", type=click.Path(), help="folder of those files  [default: PLAN-ENGINE]")
@click.option("--steps", type=click.IntRange(1), help="optimiser steps  [example: 300]")
@click.option("--micro-batches", type=click.IntRange(1), help="of one step of the whole job")
@click.option("--deterministic", is_flag=True, help="sums in fixed order: equal bit for bit")
@click.option("--batch", type=click.Choice(["keep", "rescale"]), default="keep", show_default=True,
              help="global batch after a loss")  # fmt: skip
@click.option("--wait", is_flag=True, help="wait for a replacement instead of shrinking")
@click.option("--least", type=click.IntRange(1), default=1, help="fewest replicas to go on with")
@click.option("--no-respawn", is_flag=True, help="do not replace lost processes")
@click.option("--fabric", type=click.Choice(["auto", "shm", "gloo", "nccl", "hccl"]),
              default="auto", show_default=True, help="how gradients travel")  # fmt: skip
@click.option("--snapshot-every", type=click.IntRange(0), default=50, show_default=True,
              help="steps; 0 for none")  # fmt: skip
@click.option("--keep", type=click.IntRange(1), default=3, show_default=True,
              help="snapshots on disk")  # fmt: skip
@click.option("--copies", type=click.Choice(["auto", "on", "off"]), default="auto",
              show_default=True, help="keep each step's state in the agents' memory, too; auto: "
              "where no other replica holds it")  # fmt: skip
@click.option("--on-nan", type=click.Choice(["skip", "stop", "apply"]), default="skip",
              show_default=True, help="a step with NaN or infinity")  # fmt: skip
@click.option("--drill", multiple=True, metavar="FAULT", help="rank:1@step40, hang:rank:1@step80")
@click.option("--name", help="name of the run  [default: script and time]")
@click.option("--resume", is_flag=True, help="go on from the newest snapshot of this run")
@click.option("--from", "source", type=click.Path(), help="start from this snapshot folder")
@click.option("--detach", is_flag=True, help="do not wait for the end")
@seed_option
@json_option
def start(words: tuple[str, ...], as_json: bool, detach: bool, **options: Any) -> None:
    """Start a run and follow it."""
    from lightloom.run import engines, starting

    from .run_replan import price

    if options["on"] in engines.FILES:
        _written(engines.write(words, options), as_json)
        return
    spec, notes = starting.specify(words, options, price)
    for note in notes:
        click.echo(note, err=True)
    folder = starting.launch_run(spec, options["resume"])
    if detach:
        click.echo(spec.name if not as_json else f'{{"name": "{spec.name}"}}')
        return
    _follow(folder, as_json)


def _written(found: Any, as_json: bool) -> None:
    if as_json:
        echo_json(found._asdict())
        return
    for note in (*found.notes, found.cannot):
        click.echo(note, err=True)
    click.echo(f"wrote {', '.join(found.files)} to {found.folder}")
    click.echo(f"next: cd {found.folder} && {found.next}")


def _follow(folder: Any, as_json: bool) -> None:
    from lightloom.core.errors import RunError
    from lightloom.run import launch, traces
    from lightloom.run.progress import Progress
    from lightloom.run.report import report

    progress = Progress(folder, sys.stderr)
    launch.follow(folder, progress)
    progress.close()
    traces.write(folder)
    found = report(folder)
    _print(found, as_json)
    if found.state in ("failed", "dead"):
        raise RunError(
            f"run {found.name}: {found.why}", out=f"logs: lightloom run logs {found.name}"
        )


def _print(found: Any, as_json: bool) -> None:
    if as_json:
        echo_json(found)
    else:
        from lightloom.show.run import show_report

        show_report(found)


@run.command("list")
@json_option
def list_runs(as_json: bool) -> None:
    """List the runs of this folder and how they stand."""
    from lightloom.run.report import report
    from lightloom.run.spec import folders
    from lightloom.show.run import show_runs

    found = [report(folder) for folder in folders()]
    if as_json:
        echo_json(found)
    else:
        show_runs(found)


@run.command()
@click.argument("name", metavar="RUN")
@json_option
def status(name: str, as_json: bool) -> None:
    """Say how a run stands."""
    from lightloom.run.report import report
    from lightloom.run.spec import find

    _print(report(find(name)), as_json)


@run.command()
@click.argument("name", metavar="RUN")
@click.option("--lines", type=click.IntRange(1), default=40, show_default=True)
def logs(name: str, lines: int) -> None:
    """Print what the ranks and agents of a run wrote."""
    from lightloom.run.spec import find

    for path in sorted([*find(name).glob("rank-*.log"), *find(name).glob("agent-*.log")]):
        text = path.read_text(errors="replace").splitlines()[-lines:]
        if text:
            click.echo(f"==> {path.name} <==")
            click.echo("\n".join(text))


@run.command()
@click.argument("name", metavar="RUN")
@click.option("--now", is_flag=True, help="kill it; the newest snapshot is what remains")
def stop(name: str, now: bool) -> None:
    """Stop a run after the present step; a snapshot is taken, nothing is lost."""
    from lightloom.core.errors import RunError
    from lightloom.run import launch
    from lightloom.run.report import report
    from lightloom.run.spec import find, living

    folder = find(name)
    if not launch.stop(folder, hard=now):
        raise RunError(f"run {folder.name} is not running ({report(folder).state})")
    if not launch.wait_until(lambda: not living(folder), 60.0):
        raise RunError(f"run {folder.name} has not stopped in 60 s", out="stop it with --now")
    found = report(folder)
    click.echo(f"{found.name}: {found.state} after step {found.steps}")


@run.command()
@click.argument("name", metavar="RUN")
@click.option("--steps", type=click.IntRange(1), help="new total of optimiser steps")
@click.option("--detach", is_flag=True, help="do not wait for the end")
@json_option
def resume(name: str, steps: int | None, detach: bool, as_json: bool) -> None:
    """Start a stopped, failed or cut off run again from its newest snapshot that verifies."""
    from lightloom.run import launch
    from lightloom.run.spec import find, load

    folder = find(name)
    spec = launch.resume(folder, load(folder), steps)
    at = spec.resume.rsplit("-", 1)[-1].lstrip("0") if spec.resume else "0 (no snapshot)"
    click.echo(f"{spec.name}: from step {at}", err=True)
    if not detach:
        _follow(folder, as_json)
