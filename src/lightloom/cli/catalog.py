"""``lightloom catalog``: what is known, every number with source and confidence."""

from __future__ import annotations

from typing import Any

import click

from .options import echo_json, json_option
from .probe import probe


class Lists(click.Group):
    """The group, which also knows where a name given without its list belongs."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Say which list holds a name, or the nearest command."""
        word = args[0] if args else ""
        if word and not word.startswith("-") and word not in self.commands:
            from lightloom.core.catalog import names
            from lightloom.core.errors import nearest

            for kind in ("clusters", "chips", "models"):
                if word.partition(":")[0] in names(kind):
                    ctx.fail(f"{word!r} is among the {kind}: lightloom catalog {kind} {word}")
            ctx.fail(f"no list {word!r}{nearest(word, self.commands)}")
        return super().resolve_command(ctx, args)


@click.group(cls=Lists, invoke_without_command=True)
@json_option
@click.pass_context
def catalog(context: click.Context, as_json: bool) -> None:
    """What is known: chips, clusters, models, prices; every number with source and confidence."""
    if context.invoked_subcommand is not None:
        return
    from lightloom.core.catalog import names

    found = {kind: list(names(kind)) for kind in ("chips", "clusters", "models")}
    if as_json:
        echo_json(found)
        return
    for kind, entries in found.items():
        click.echo(f"{kind} ({len(entries)}): {', '.join(entries)}\n")
    click.echo("one of them: lightloom catalog clusters supernode-8192")


@catalog.command(short_help="peak, memory, links, power")
@click.argument("name", required=False)
@json_option
def chips(name: str | None, as_json: bool) -> None:
    """Chips: peak, memory, links, power; NAME shows one with the source of every number."""
    from lightloom.core.catalog import load_chip, names

    if name:
        chip = load_chip(name)
        _show(as_json, chip, "chip_view", chip)
        return
    every = [load_chip(n) for n in names("chips")]
    _show(as_json, every, "chips_view", sorted(every, key=lambda c: (c.vendor, c.year)))


@catalog.command(short_help="fabric, hosts, storage, failures")
@click.argument("name", required=False)
@json_option
def clusters(name: str | None, as_json: bool) -> None:
    """Clusters: levels of the fabric, hosts, storage, failures; NAME or a TOML file shows one."""
    from lightloom.core.catalog import load_cluster, names

    if name:
        cluster = load_cluster(name)
        _show(as_json, cluster, "cluster_view", cluster)
        return
    every = [load_cluster(n) for n in names("clusters")]
    _show(as_json, every, "clusters_view", every)


@catalog.command(short_help="layers and parameters")
@click.argument("name", required=False)
@json_option
def models(name: str | None, as_json: bool) -> None:
    """Models: layers and parameters; NAME, a config.json or a size ("70B") shows one."""
    from lightloom.core.catalog import load_model, names
    from lightloom.core.params import parameters

    if name:
        model = load_model(name)
        count = parameters(model)
        both = {"model": model, "parameters": count, "total": count.total, "active": count.active}
        _show(as_json, both, "model_view", model)
        return
    every = [load_model(n) for n in names("models")]
    counted = [(m, parameters(m)) for m in every]
    rows = [{"name": m.name, "family": m.family, "layers": m.layers, "hidden": m.hidden,
             "total": p.total, "active": p.active, "approximated": m.approximated,
             "source": m.source} for m, p in counted]  # fmt: skip
    _show(as_json, rows, "models_view", every)


@catalog.command(short_help="energy, rent and capital as ranges")
@click.option("--prices", "path", default=None, metavar="FILE", help="your own prices (TOML)")
@json_option
def prices(path: str | None, as_json: bool) -> None:
    """Prices of energy, rent and capital, each a range with its source."""
    from lightloom.core.prices import load_prices

    found = load_prices(path)
    _show(as_json, found, "prices_view", found)


def _show(as_json: bool, noun: Any, view: str, given: Any) -> None:
    if as_json:
        echo_json(noun)
        return
    from lightloom.show import catalog as views

    views.print_view(getattr(views, view)(given))


catalog.add_command(probe)
