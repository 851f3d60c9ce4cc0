"""``lightloom fabric``: what a machine's fabric is made of, before anything is cabled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from .options import echo_json, json_option

if TYPE_CHECKING:
    from lightloom.fabric.network import Network

F = Callable[..., Any]


@click.group()
def fabric() -> None:
    """Levels, distances, cables, borders of a fabric; claims against physics."""


def fabric_options(function: F) -> F:
    """Add CLUSTER, --fail and --json."""
    function = click.option(
        "--fail", multiple=True, metavar="FAULT",
        help="broken from the start: link:c0-c1, link:b3-b7, link:c17-spine=2x, card:3",
    )(function)  # fmt: skip
    return click.argument("cluster", metavar="CLUSTER")(json_option(function))


def network_of(cluster: str, fail: tuple[str, ...] = ()) -> Network:
    """Return the network of a cluster (name or file) with faults."""
    from lightloom.core.catalog import load_cluster
    from lightloom.fabric.faults import break_links
    from lightloom.fabric.network import build

    machine = load_cluster(cluster)
    return break_links(build(machine.fabric), fail, machine.host.cards)


def rows_of(nouns: Any) -> list[dict[str, Any]]:
    """Return nouns as plain rows for a screen."""
    import msgspec

    rows: list[dict[str, Any]] = msgspec.to_builtins(list(nouns))
    return rows


@fabric.command()
@fabric_options
def show(cluster: str, fail: tuple[str, ...], as_json: bool) -> None:
    """Count cards, links and bisection of every level."""
    from lightloom.fabric.report import levels
    from lightloom.show.fabric import fibre_lines, levels_table
    from lightloom.show.light import print_lines

    net = network_of(cluster, fail)
    found = levels(net)
    if as_json:
        echo_json({"cards": net.cards, "live": net.cards - len(net.dead), "levels": found})
        return
    rows = rows_of(found)
    print_lines(
        f"{cluster}: {net.cards:,} cards, domain of {net.fabric.domain_cards:,}"
        + (f", {len(net.dead)} dead" if net.dead else "")
        + (f", {len(net.replaced)} replaced by spares" if net.replaced else ""),
        levels_table(rows), *fibre_lines(rows),
    )  # fmt: skip


@fabric.command()
@click.option("--plot", default=None, metavar="FILE", help="histogram as .png, .svg or .pdf")
@fabric_options
def hops(cluster: str, fail: tuple[str, ...], plot: str | None, as_json: bool) -> None:
    """Show how far apart cards are: hops and latency of every pair, the worst one named."""
    from lightloom.core.units import show_time
    from lightloom.flow.hops import distances
    from lightloom.show.fabric import hops_table
    from lightloom.show.light import print_lines
    from lightloom.show.plot import picture

    found = distances(network_of(cluster, fail))
    if plot:
        with picture(plot) as axes:
            axes.bar([show_time(d.latency) for d in found], [d.share for d in found])
            axes.set_xlabel("latency on the links")
            axes.set_ylabel("share of ordered pairs")
            axes.set_title(f"{cluster}: distance between cards")
            axes.tick_params(axis="x", rotation=60 if len(found) > 8 else 0)
    if as_json:
        echo_json(found)
        return
    worst = found[-1]
    mean = sum(d.latency * d.share for d in found)
    print_lines(
        hops_table(rows_of(found)),
        f"worst pair: c{worst.source} - c{worst.target}, {worst.hops} links, "
        f"{show_time(worst.latency)}; mean {show_time(mean)}",
    )


@fabric.command()
@click.option(
    "--limit", type=click.IntRange(min=0), default=24, show_default=True, help="lines on the screen"
)
@click.option("--out", default=None, metavar="FILE.csv", help="write every cable, labels included")
@click.option("--board", is_flag=True, help="list board traces too")
@fabric_options
def cables(
    cluster: str, fail: tuple[str, ...], limit: int, out: str | None, board: bool, as_json: bool
) -> None:
    """List every cable with both of its ends and the labels to print."""
    from itertools import islice

    from lightloom.fabric.report import cables as list_cables
    from lightloom.fabric.report import levels
    from lightloom.show.fabric import cables_table, fibre_lines
    from lightloom.show.light import print_lines

    net = network_of(cluster, fail)
    found = (c for c in list_cables(net) if board or c.medium != "board")
    if as_json:
        echo_json(list(found))
        return
    if out:
        _write_cables(out, found)
        return
    listed = list(islice(found, limit + 1))
    print_lines(
        cables_table(rows_of(listed[:limit])),
        *(["... more: --limit, --out FILE.csv or --json lists all"] if len(listed) > limit else []),
        *fibre_lines(rows_of(levels(net))),
    )


def _write_cables(out: str, found: Any) -> None:
    import csv
    import io

    from lightloom.core.files import write_bytes

    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, FIELDS)
    writer.writeheader()
    count = 0
    for cable in found:
        writer.writerow({name: getattr(cable, name) for name in FIELDS})
        count += 1
    write_bytes(out, text.getvalue().encode())
    click.echo(f"{count:,} bundles written to {out}")


FIELDS = ("level", "end_a", "port_a", "end_b", "port_b", "links", "rate", "medium", "label_a",
          "label_b")  # fmt: skip


@fabric.command()
@click.option("--plot", default=None, metavar="FILE", help="bars as .png, .svg or .pdf")
@fabric_options
def cut(cluster: str, fail: tuple[str, ...], plot: str | None, as_json: bool) -> None:
    """Show what can leave each unit, and which border binds an all-to-all."""
    from lightloom.fabric.cut import egress, unit_sizes
    from lightloom.show.fabric import cut_table
    from lightloom.show.light import print_lines
    from lightloom.show.plot import picture

    net = network_of(cluster, fail)
    rows: list[dict[str, Any]] = []
    for unit in unit_sizes(net):
        room = egress(net, unit)
        need = unit * (net.cards - unit) / net.cards * 2**30
        least = float(room.min())
        rows.append({
            "unit": net.child_name(unit, 0).rstrip("0") or "card", "cards": unit,
            "count": len(room), "least": least, "mean": float(room.mean()),
            "per_card": least / unit, "all_to_all_s": need / least if least > 0 else float("inf"),
            "worst": int(room.argmin()),
        })  # fmt: skip
    if plot:
        with picture(plot) as axes:
            axes.bar([f"{r['unit']} ({r['cards']:,})" for r in rows], [r["per_card"] for r in rows])
            axes.set_yscale("log")
            axes.set_ylabel("bytes/s out of the narrowest unit, per card")
            axes.set_title(cluster)
    if as_json:
        echo_json(rows)
        return
    binds = max(rows, key=lambda r: r["all_to_all_s"])
    print_lines(
        cut_table(rows),
        f"binds an all-to-all: the border of {binds['unit']}{binds['worst']} "
        f"({binds['cards']:,} cards)",
    )


@fabric.command()
@click.argument("what", metavar="CLUSTER|CLAIMS.toml", default="articles")
@json_option
def audit(what: str, as_json: bool) -> None:
    """Judge claims against light speed, serialisation, alpha-beta, optics and materials.

    A file with [[claims]], the word `articles`, or a cluster (its own figures, and the articles'
    claims where it is the articles' machine). Exit 1 where a claim is impossible.
    """
    from lightloom.core.catalog import load_cluster
    from lightloom.core.errors import InputError
    from lightloom.fabric.audit import ARTICLES, audit_cluster, audit_file, is_claims
    from lightloom.show.fabric import audit_table
    from lightloom.show.light import print_lines

    if what == "articles":
        found = audit_file(str(ARTICLES))
    elif what.endswith(".toml") and is_claims(what):
        found = audit_file(what)
    else:
        found = audit_cluster(load_cluster(what))
        if "supernode-8192" in what:
            found += audit_file(str(ARTICLES))
    if not found:
        raise InputError(f"{what} holds no claim", out="[[claims]] with id, text, check, values")
    if as_json:
        echo_json(found)
    else:
        count = {v: sum(j.verdict == v for j in found) for v in ("holds", "impossible")}
        print_lines(
            audit_table(rows_of(found)),
            f"{len(found)} claims: {count['holds']} hold, {count['impossible']} impossible, "
            f"{len(found) - sum(count.values())} not enough data",
        )
    if any(j.verdict == "impossible" for j in found):
        raise click.exceptions.Exit(1)
