"""Options that many verbs share, spelt once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Finite(click.types.FloatParamType):
    """A number; nan and infinity are wrong usage."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


FINITE = Finite()


def english(_context: click.Context, _option: click.Parameter, value: bool) -> bool:
    """Return the flag; JSON is for programs and speaks English whatever the language chosen."""
    if value:
        from lightloom.core.lang import set_language

        set_language("en")
    return value


def json_option(function: F) -> F:
    """Add ``--json``."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        callback=english,
        help="print JSON, field names as in the nouns",
    )(function)


def cluster_option(function: F) -> F:
    """Add ``--cluster``."""
    return click.option(
        "--cluster",
        default=None,
        metavar="NAME|FILE",
        help="machine: a catalogue name or a TOML file",
    )(function)


def seed_option(function: F) -> F:
    """Add ``--seed``."""
    return click.option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="seed of every random draw",
    )(function)


def say(text: str, *, err: bool = False) -> None:
    """Print a sentence in the chosen language."""
    from lightloom.core.told import told

    click.echo(told(text), err=err)


def echo_json(noun: Any) -> None:
    """Print a noun (or a dict of nouns) as indented JSON."""
    from lightloom.core.files import encode_json

    click.echo(encode_json(noun).decode(), nl=False)
