"""``lightloom calibrate``: constants from one's own runs, by the same code as the shipped ones."""

from __future__ import annotations

import click

from .options import json_option


@click.command()
@click.option(
    "--from",
    "sources",
    multiple=True,
    required=True,
    metavar="FILE.csv|RUN",
    help="rows as in the evidence (id, layers, hidden, ... step_time_s), or a run's folder",
)
@click.option(
    "-o", "--output", required=True, metavar="FILE.toml", help="where the constants are written"
)
@click.option("--alone", is_flag=True, help="from these rows only, not beside the shipped evidence")
@json_option
def calibrate(sources: tuple[str, ...], output: str, alone: bool, as_json: bool) -> None:
    """Fit the step's factors to your own runs and write a calibration for estimate and plan."""
    from lightloom.cost.calibration_own import calibrate_from

    def tell(text: str) -> None:
        click.echo(f"  {text}", err=True)

    answer = calibrate_from(sources, output, alone, tell)
    if as_json:
        from .options import echo_json

        echo_json(answer)
        return
    click.echo(answer.words)
