"""``lightloom drill``: break a real run on purpose, and say what happened."""

from __future__ import annotations

import click

from .options import echo_json, json_option, seed_option


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("target", metavar="RUN|PLAN|example:gpt")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- SCRIPT ARGS]")
@click.option("--fault", "faults", multiple=True, metavar="FAULT",
              help="rank:2@step40, hang:rank:1@step80=loop, agent:1@step9, snapshot:3=flip, "
                   "disk@step50=full, nan:rank:0@step7")  # fmt: skip
@click.option("--random", "count", type=click.IntRange(0, 500), default=0,
              help="so many random faults, seeded")  # fmt: skip
@click.option("--ranks", type=click.IntRange(1, 64), help="processes  [default: the run's, or 3]")
@click.option("--spares", type=click.IntRange(0, 16), default=0)
@click.option("--agents", type=click.IntRange(1, 16), default=2, show_default=True)
@click.option("--steps", type=click.IntRange(4), help="steps of the drill  [default: 100]")
@click.option("--compare/--no-compare", default=True, help="train the same without faults after it")
@seed_option
@json_option
@click.pass_context
def drill(ctx: click.Context, /, target: str, words: tuple[str, ...], as_json: bool,
          **options: object) -> None:  # fmt: skip
    """Drill a copy of a run, a plan with a script, or the example, on real processes.

    Exits 1 when anything was lost that should not be.
    """
    from lightloom.run.drill import make

    found = make(target, words, options, lambda text: click.echo(text, err=True))
    if as_json:
        echo_json(found)
    else:
        from lightloom.show.run import show_drill

        show_drill(found)
    ctx.exit(0 if found.passed else 1)
