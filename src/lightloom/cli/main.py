"""The door: a lazy table of verbs, one exit code per kind of error."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from lightloom import __version__
from lightloom.core.errors import LightloomError
from lightloom.core.lang import _, set_language

VERBS: dict[str, tuple[str, str]] = {
    # name: (module:attribute, short help) - kept in the order of a user's day
    "plan": ("plan:plan", "search every strategy; the best few, and why"),
    "explain": ("explain:explain", "why this plan: neighbours, what binds, what would flip it"),
    "emit": ("emit:emit", "write launch files for a plan; check files you have"),
    "estimate": ("estimate:estimate", "price one configuration, every term shown"),
    "run": ("run:run", "train on real processes that survive losses"),
    "drill": ("drill:drill", "break a real run on purpose, and report"),
    "snapshots": ("snapshots:snapshots", "list, verify, export snapshots of a run"),
    "simulate": ("simulate:simulate", "play one step: overlap, priorities, jitter, faults"),
    "replan": ("replan:replan", "measured load to a better split, and when it pays"),
    "advise": ("advise:advise", "read profiles: waiting or transfer, what to do first"),
    "fabric": ("fabric:fabric", "levels, hops, cables, borders of a fabric; claims audited"),
    "collective": ("collective:collective", "a collective on a fabric: best way, time, bound"),
    "fit": ("fit:fit", "is another machine worth it: verdict, reasons, what would flip it"),
    "roi": ("roi:roi", "what a run costs: every line a range, what moves it, break-even"),
    "migrate": ("migrate:migrate", "move a script, settings, image or model to Ascend"),
    "experiment": ("experiment:experiment", "record runs, one variable at a time; what changed"),
    "topo": ("topo:topo", "which light joins whom: generate, check, compare, see"),
    "wavelengths": ("wavelengths:wavelengths", "channels given, tidied without a pause, compared"),
    "light": ("light:light", "loss, locking, errors: what physics allows a link"),
    "catalog": ("catalog:catalog", "what is known, every number with source and confidence"),
    "quantize-check": ("quantize_check:quantize_check", "what fp8, int8, int4 do to a real model"),
    "evidence": ("evidence:evidence", "how far predictions are from what was measured"),
    "calibrate": ("calibrate:calibrate", "constants from your own runs"),
    "doctor": ("doctor:doctor", "what is installed, what an extra would add"),
}
"""Verb -> where it lives and one line of help; modules load only when called."""


class LazyGroup(click.Group):
    """A group whose verbs are imported when used, so that --help stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every verb in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the verb, importing its module now."""
        if cmd_name not in VERBS:
            return None
        module, attribute = VERBS[cmd_name][0].split(":")
        command: click.Command = getattr(
            importlib.import_module(f"lightloom.cli.{module}"), attribute
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs from the table, importing none of them."""
        with formatter.section(_("Verbs")):
            formatter.write_dl([(name, _(text)) for name, (_where, text) in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Add the nearest verb to click's own complaint."""
        from lightloom.core.errors import nearest

        if args and args[0] not in VERBS and not args[0].startswith("-"):
            ctx.fail(f"no verb {args[0]!r}{nearest(args[0], VERBS)}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lightloom")
@click.option(
    "--lang", type=click.Choice(["en", "zh"]), default=None, help="language of the text",
    is_eager=True, expose_value=False, callback=lambda _ctx, _param, lang: set_language(lang),
)  # fmt: skip
def cli() -> None:
    """Plan, simulate, run and judge training on a supernode."""


def main(args: list[str] | None = None) -> Any:
    """Run the command line; every error is an answer with its own exit code."""
    try:
        code = cli.main(args=args, prog_name="lightloom", standalone_mode=False)
        if isinstance(code, int) and code:
            sys.exit(code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        sys.exit(130)
    except LightloomError as error:
        click.echo(f"lightloom: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
