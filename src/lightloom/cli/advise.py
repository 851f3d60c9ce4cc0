"""``lightloom advise``: what a profile says, and the verbs beside it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from lightloom.core.errors import InputError

from .options import cluster_option, echo_json, json_option

if TYPE_CHECKING:
    from lightloom.core.advice import Advice
    from lightloom.core.cluster import Cluster

OTHERS: dict[str, tuple[str, str]] = {
    # name: (module:attribute, short help)
    "compare": ("advise_compare:compare", "two runs or two stacks, operator by operator"),
}
"""Verbs under ``advise`` beside reading a profile -> where they live; loaded when called."""


class _AdviseGroup(click.Group):
    """``advise TRACE...`` reads profiles; ``advise compare A B`` and others are sub-verbs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the sub-verbs."""
        return list(OTHERS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a sub-verb, importing it now; any other word is a path of ``profile``."""
        if cmd_name not in OTHERS:
            return profile if cmd_name == "profile" else None
        module, attribute = OTHERS[cmd_name][0].split(":")
        command: click.Command = getattr(
            importlib.import_module(f"lightloom.cli.{module}"), attribute
        )
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Send everything that is not a sub-verb to the reading of profiles."""
        first = next((a for a in args if not a.startswith("-")), None)
        helps = any(a in ("-h", "--help") for a in args) and first is None
        if args and not helps and (first not in OTHERS or args[0] != first):
            args = ["profile", *args]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of reading profiles and the sub-verbs, importing none of them."""
        with formatter.section("Options of advise PATH"):
            rows = [p.get_help_record(ctx) for p in profile.params]
            formatter.write_dl([row for row in rows if row])
        with formatter.section("Other verbs"):
            formatter.write_dl([(name, text) for name, (_, text) in OTHERS.items()])


@click.group(cls=_AdviseGroup, subcommand_metavar="PATH... | VERB ARGS...")
def advise() -> None:
    """Read profiles: where time goes, waiting against transfer, what to do first.

    PATH: Kineto or torch_npu traces (.json, .json.gz), one per rank; torch_npu folders and
    databases; msprof-analyze results; Nsight Systems SQLite; profiler tables; lightloom
    timelines; NCCL or HCCL logs of a job that hung. Folders are searched.
    """


@click.command(name="advise")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@cluster_option
@click.option("--against", default=None, metavar="NAME|FILE", help="another machine to move to")
@click.option(
    "--what-if", "what_if", multiple=True, metavar="CHANGE,...",
    help="bandwidth=2x (or inf), skew=0, overlap=1, host=0; + joins changes",
)  # fmt: skip
@click.option("--steps", default=None, metavar="FIRST-LAST", help="training steps to keep")
@click.option("--html", type=click.Path(dir_okay=False), default=None, help="write a report")
@click.option("--timeline", type=click.Path(dir_okay=False), default=None,
              help="write all ranks as one Timeline (.json, .json.gz)")  # fmt: skip
@json_option
def profile(
    paths: tuple[str, ...],
    cluster: str | None,
    against: str | None,
    what_if: tuple[str, ...],
    steps: str | None,
    html: str | None,
    timeline: str | None,
    as_json: bool,
) -> None:
    """Read profiles and logs, print what they say."""
    from lightloom.advise.analyse import Questions, analyse, timeline_of_job
    from lightloom.advise.logs import read_logs
    from lightloom.advise.read import find, load
    from lightloom.core.timeline_file import write_timeline

    ask = Questions(
        changes=tuple(c.strip() for text in what_if for c in text.split(",") if c.strip()),
        steps=_range(steps),
        cluster=_cluster(cluster),
        other=_cluster(against),
    )
    sources = find(paths)
    stop = read_logs(sources.logs) if sources.logs else None
    if not sources.profiles:
        if stop is None:
            raise InputError("nothing to read")
        if as_json:
            echo_json(stop)
        else:
            from lightloom.show.advise import show_stop

            show_stop(stop)
        return
    profiles = load(sources, lambda text: click.echo(text, err=True))
    advice = analyse(profiles, ask, stop)
    if timeline:
        write_timeline(timeline, timeline_of_job(profiles))
    _print(advice, html, as_json)


def _print(advice: Advice, html: str | None, as_json: bool) -> None:
    from lightloom.core.files import write_bytes
    from lightloom.show.advise import show_advice
    from lightloom.show.advise_report import report

    if html:
        write_bytes(html, report(advice).encode())
    if as_json:
        echo_json(advice)
    else:
        show_advice(advice, html)


def _cluster(name: str | None) -> Cluster | None:
    from lightloom.core.catalog import load_cluster

    return load_cluster(name) if name else None


def _range(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, _, last = text.partition("-")
    last = last or first
    if not (first.isdigit() and last.isdigit() and len(first) < 10 and len(last) < 10):
        raise InputError(f"--steps {text!r} is not a range", out="--steps 10-12")
    return int(first), int(last)
