"""``lightloom roi``: what a training run costs, on which machine, and what moves it."""

from __future__ import annotations

import click

from .options import echo_json, json_option


@click.command()
@click.argument("model", metavar="CONFIG.json|NAME|SIZE")
@click.option("--tokens", required=True, metavar="15T", help="tokens of the whole run")
@click.option("--options", required=True, metavar="C1,C2", help="machines, names or TOML files")
@click.option("--now", default=None, metavar="NAME|FILE", help="today's machine, for migration")
@click.option("--cards", type=int, default=None, help="cards of the run on every machine")
@click.option("--seq", type=int, default=None, help="tokens of a sequence")
@click.option("--global-batch", default=None, help="sequences of one step, or tokens: 4Mtok")
@click.option("--precision", default="bf16", help="bf16, fp8, ...")
@click.option("--price", default=None, metavar="FILE", help="your prices, with currency and source")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=V|LOW..HIGH",
    help="one figure: electricity_kwh=0.06..0.09, rent.h100=2.1, utilisation=0.4",
)
@click.option(
    "--basis",
    type=click.Choice(["auto", "own", "rent"]),
    default="auto",
    help="owned or rented; auto owns where every chip has a capital price",
)
@click.option("--plot", default=None, metavar="F.png|svg|pdf", help="picture of the tornado")
@json_option
def roi(
    model: str,
    tokens: str,
    options: str,
    now: str | None,
    cards: int | None,
    seq: int | None,
    global_batch: str | None,
    precision: str,
    price: str | None,
    settings: tuple[str, ...],
    basis: str,
    plot: str | None,
    as_json: bool,
) -> None:
    """Price a training run: per run and per million tokens, every line with range and source.

    \b
    lightloom roi llama-3.1-70b --tokens 2T --options dgx-h100,hgx-h200
    lightloom roi deepseek-v3 --tokens 15T --options traditional-8192,supernode-8192 --plot t.svg
    """
    from lightloom.advise.money import check_chips, load_money
    from lightloom.advise.roi_compare import roi as decide
    from lightloom.core.catalog import load_cluster, load_model
    from lightloom.core.errors import InputError
    from lightloom.core.units import parse_count

    from .desk import cards_of, desk

    names = list(dict.fromkeys(name.strip() for name in options.split(",") if name.strip()))
    if not names:
        raise InputError("--options: no machine", out="--options dgx-h100,supernode-8192")
    money = load_money(price, settings)
    count = parse_count(tokens, "--tokens")
    if count <= 0:
        raise InputError(f"--tokens {tokens}: must be above 0", out="--tokens 15T")
    machines = [load_cluster(name) for name in names]
    check_chips(settings, (machine.chip for machine in machines))
    number, note = cards_of(cards, machines)
    planner = desk(number, seq, global_batch, precision)
    network = load_model(model)
    plans = [planner.plan(network, machine) for machine in machines]
    today = load_cluster(now) if now else None
    result = decide(plans, count, money, planner, basis=basis, now=today)
    if plot:
        from .roi_plot import draw

        draw(plot, result)
    if as_json:
        echo_json(result)
        return
    from lightloom.show.roi import show_roi

    show_roi(result, note)
    if plot:
        click.echo(f"wrote {plot}", err=True)
