"""``lightloom advise compare A B``: two runs, two stacks, operator by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lightloom.core.errors import InputError

from .options import echo_json, json_option

if TYPE_CHECKING:
    from lightloom.advise.compare import Run


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@json_option
def compare(a: str, b: str, as_json: bool) -> None:
    """Say what takes longer in run B than in run A, and why."""
    from lightloom.advise.compare import compare as compare_runs

    result = compare_runs(_run(a), _run(b))
    if as_json:
        echo_json(result)
    else:
        from lightloom.show.advise import show_comparison

        show_comparison(result)


def _run(path: str) -> Run:
    from lightloom.advise.analyse import Questions, analyse
    from lightloom.advise.compare import Run
    from lightloom.advise.read import find, load

    sources = find([path])
    if not sources.profiles:
        raise InputError(f"{path}: logs only; a comparison needs profiles")
    profiles = load(sources, lambda text: click.echo(text, err=True))
    return Run(path, profiles, analyse(profiles, Questions()))
