"""``lightloom quantize-check``: what fp8, int8 and int4 do to a real model, measured."""

from __future__ import annotations

from typing import Any

import click

from .options import echo_json, json_option, seed_option


@click.command("quantize-check")
@click.argument("model", metavar="gpt|FILE.py:FACTORY")
@click.option("--data", default=None, metavar="FILE", help="text for gpt; .npy of inputs otherwise")
@click.option("--weights", default=None, metavar="F.safetensors", help="trained weights")
@click.option("--schemes", default="fp8,int8,int4", help="formats to try")
@click.option("--batches", type=int, default=16, help="calibration batches")
@click.option("--percentile", type=float, default=100.0,
              help="of magnitudes that the scale covers; 100 is the maximum")  # fmt: skip
@click.option(
    "--bad-data", default=None, metavar="FILE", help="a poor calibration set, for contrast"
)
@click.option("--train-steps", type=int, default=150, help="for gpt without weights")
@seed_option
@json_option
def quantize_check(model: str, as_json: bool, seed: int, **o: Any) -> None:
    """Calibrate low precision on a real model and measure what it costs in quality.

    \b
    lightloom quantize-check gpt
    lightloom quantize-check my_model.py:build --data inputs.npy --weights my.safetensors
    """
    from lightloom.core.errors import InputError, MissingExtraError

    try:
        from lightloom.run import quantize as q
        from lightloom.run.quantize_model import gpt_subject, user_subject
    except ImportError as error:
        raise MissingExtraError("torch", "run") from error
    if not 50.0 <= o["percentile"] <= 100.0:
        raise InputError(f"--percentile {o['percentile']:g}: 50 to 100")
    schemes = q.parse_schemes(o["schemes"])
    if model == "gpt":
        if not o["weights"]:
            click.echo(f"training the shipped GPT for {o['train_steps']} steps ...", err=True)
        subject = gpt_subject(o["data"], o["weights"], o["batches"], o["train_steps"], seed,
                              o["bad_data"])  # fmt: skip
    else:
        subject = user_subject(model, o["data"], o["weights"], o["batches"], o["bad_data"])
    good = q.calibrate(subject.model, subject.calibration)
    bad = q.calibrate(subject.model, subject.bad) if subject.bad else None
    stats = [r.stats(n, q.linears(subject.model)[n]) for n, r in good.layers.items()]
    results = [q.check_scheme(subject.model, s, good, bad, subject.held, subject.loss,
                              o["percentile"]) for s in schemes]  # fmt: skip
    if as_json:
        echo_json({"model": subject.name, "notes": subject.notes, "layers": stats,
                   "schemes": results, "percentile": o["percentile"]})  # fmt: skip
        return
    from lightloom.show.estimate import print_view
    from lightloom.show.quantize import quantize_view

    print_view(quantize_view(subject.name, stats, results, list(subject.notes)))
