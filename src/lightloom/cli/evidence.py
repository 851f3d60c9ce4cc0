"""``lightloom evidence``: how far predictions are from what was really measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import echo_json, json_option

if TYPE_CHECKING:
    from lightloom.cost.calibration import Calibration
    from lightloom.cost.evidence import Report


@click.command()
@click.option(
    "--by",
    type=click.Choice(["prefix", "chip", "axis", "size"]),
    default="prefix",
    show_default=True,
    help="what rows are grouped by",
)
@click.option("--rows", metavar="FILE.csv", help="score training rows of a file; nothing is fitted")
@click.option("--kernels", metavar="DIR", help="score tables of kernels in a folder")
@click.option("--collectives", metavar="FILE.csv", help="score measured collectives")
@click.option("--memory", metavar="FILE.csv", help="score peak memory of training rows")
@click.option("--calibration", default=None, metavar="FILE", help="constants of your own runs")
@click.option("--steps-only", is_flag=True, help="live: leave kernels and collectives out")
@json_option
def evidence(
    by: str,
    rows: str | None,
    kernels: str | None,
    collectives: str | None,
    memory: str | None,
    calibration: str | None,
    steps_only: bool,
    as_json: bool,
) -> None:
    """Score predictions: live, on folds that calibration never saw, or on a file of yours."""
    from lightloom.core.errors import InputError
    from lightloom.cost.calibration import default_calibration, read_calibration

    cal = read_calibration(calibration) if calibration else default_calibration()
    given = [x for x in (rows, kernels, collectives, memory) if x is not None]
    if len(given) > 1:
        raise InputError("one of --rows, --kernels, --collectives, --memory at a time")
    reports = (
        [_scored(cal, by, rows, kernels, collectives, memory)]
        if given
        else _live(cal, by, steps_only)
    )
    if as_json:
        echo_json(reports[0] if given else {"version": 1, "kind": "evidence", "reports": reports})
        return
    from rich.console import Console

    from lightloom.show.evidence import evidence_view

    console = Console(width=min(Console().width, 100))
    for report in reports:
        console.print(evidence_view(report))


def _scored(
    cal: Calibration,
    by: str,
    rows: str | None,
    kernels: str | None,
    collectives: str | None,
    memory: str | None,
) -> Report:
    """Return the report of the one file that was given."""
    from lightloom.cost import evidence_kernels, evidence_steps, evidence_table

    if rows is not None:
        return evidence_steps.score_rows(Path(rows), cal, by)
    if kernels is not None:
        return evidence_kernels.score_kernels(Path(kernels), cal)
    if memory is not None:
        return evidence_steps.score_memory(Path(memory), cal)
    assert collectives is not None
    path = Path(collectives)
    if evidence_table.is_curves(path):
        return evidence_kernels.score_curves(path, cal)
    return evidence_table.score_table(path, cal)


def _live(cal: Calibration, by: str, steps_only: bool) -> list[Report]:
    """Return reports on folds that calibration never saw, told on stderr as they come."""
    from lightloom.cost.evidence_live import live_reports

    def tell(text: str) -> None:
        click.echo(f"  {text}", err=True)

    return live_reports(cal, by, steps_only, tell)
