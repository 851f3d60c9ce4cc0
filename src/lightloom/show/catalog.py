"""Views of the catalogue: lists, and one page per entry with the source of every number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lightloom.core.chip import Chip
from lightloom.core.cluster import Cluster
from lightloom.core.fabric import Level
from lightloom.core.lang import _
from lightloom.core.model import Attention, Mlp, Model
from lightloom.core.params import Parameters, parameters
from lightloom.core.prices import Price, Prices
from lightloom.core.source import Source
from lightloom.core.told import told
from lightloom.core.units import (
    show_bytes,
    show_count,
    show_flops,
    show_rate,
    show_time,
    show_watts,
)  # fmt: skip


def _hertz(value: float) -> str:
    return f"{value / 1e9:.3g} GHz"


_SHOW: dict[str, Callable[[float], str]] = {
    "hbm_bytes": show_bytes, "hbm_usable": show_bytes, "l2_bytes": show_bytes,
    "dram_bytes": show_bytes, "hbm_bandwidth": show_rate, "scaleup_bandwidth": show_rate,
    "scaleout_bandwidth": show_rate, "dram_bandwidth": show_rate, "pcie_bandwidth": show_rate,
    "nic_bandwidth": show_rate, "local_write": show_rate, "local_read": show_rate,
    "shared_write": show_rate, "shared_read": show_rate, "link": show_rate, "latency": show_time,
    "tdp_w": show_watts, "idle_w": show_watts, "power_w": show_watts, "site_power_w": show_watts,
    "clock_hz": _hertz, "restart_s": show_time, "card_hours": show_count, "low": show_count,
    "high": show_count,
}  # fmt: skip
_QUIET = {"version", "name", "title", "sources", "notes", "chip", "fabric", "host", "storage",
          "failures", "peak", "vendor", "year", "arch"}  # fmt: skip


def print_view(view: RenderableType) -> None:
    """Print a view as wide as the screen, at most 100 columns."""
    console = Console(highlight=False)
    console.width = min(100, console.width)
    console.print(view)


def _table(*columns: str, right: Iterable[int] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    places = set(right)
    for i, name in enumerate(columns):
        table.add_column(told(name), justify="right" if i in places else "left",
                         overflow="fold", no_wrap=i in places)  # fmt: skip
    return table


def chips_view(chips: Iterable[Chip]) -> RenderableType:
    """Return the list of chips; rates per rank, dense, one direction."""
    table = _table("chip", "bf16", "fp8", "memory", "bandwidth", "inside", "power", "sure",
                   right=(1, 2, 3, 4, 5, 6))  # fmt: skip
    for chip in chips:
        table.add_row(
            chip.name, show_flops(chip.peak_of("bf16")).removesuffix("FLOP/s"),
            show_flops(chip.peak["fp8"]).removesuffix("FLOP/s") if "fp8" in chip.peak else "-",
            show_bytes(chip.hbm_bytes), show_rate(chip.hbm_bandwidth),
            show_rate(chip.scaleup_bandwidth), show_watts(chip.tdp_w),
            chip.source_of("peak").confidence,
        )  # fmt: skip
    note = _("FLOP/s dense, per rank (a die where a package has two); inside: one direction")
    return Group(table, Text(note, style="dim"))


def _mark(source: Source | None) -> tuple[str, str]:
    """Return origin with confidence, and the reference with its note."""
    if source is None:
        return "-", "-"
    note = f" ({source.note})" if source.note else ""
    return f"{_(source.origin)}, {_(source.confidence)}", source.ref + note


class _Sources:
    """Prints each reference once, as a numbered footnote."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def cells(self, source: Source | None) -> tuple[str, str]:
        """Return origin and the number of the footnote."""
        origin, ref = _mark(source)
        number = self.seen.setdefault(ref, len(self.seen) + 1)
        return origin, f"[{number}]"

    def view(self) -> RenderableType:
        """Return the footnotes."""
        lines = [f"[{n}] {told(ref)}" for ref, n in self.seen.items()]
        return Text("\n".join(lines), style="dim")


def _show(field: str, value: Any) -> str:
    if field in _SHOW and isinstance(value, int | float):
        return _SHOW[field](float(value)) if value else "-"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def chip_view(chip: Chip) -> RenderableType:
    """Return one chip: every number with origin, confidence and reference."""
    table = _table("field", "value", "origin", "source", right=(1,))
    notes = _Sources()
    for kind, rate in chip.peak.items():
        source = chip.sources.get(f"peak.{kind}") or chip.source_of("peak")
        table.add_row(f"peak {kind}", show_flops(rate), *notes.cells(source))
    for field in Chip.__struct_fields__:
        value = getattr(chip, field)
        if field not in _QUIET and value is not None and value != 0:
            table.add_row(field, _show(field, value), *notes.cells(chip.source_of(field)))
    head = f"{chip.title} · {chip.vendor} {chip.year} · {chip.arch}"
    return Group(Text(head, style="bold"), table, notes.view())


def clusters_view(clusters: Iterable[Cluster]) -> RenderableType:
    """Return the list of clusters."""
    table = _table("cluster", "cards", "chip", "domain", "levels (units at GB/s of a card)",
                   right=(1, 3))  # fmt: skip
    for cluster in clusters:
        table.add_row(cluster.name, f"{cluster.cards:,}", cluster.chip.name,
                      f"{cluster.fabric.domain_cards:,}", _short(cluster))  # fmt: skip
    return table


def level_words(cluster: Cluster) -> str:
    """Return levels as ``node 8 at 450 GB/s``: units, and bandwidth of one card into the level."""
    words = []
    for i, level in enumerate(cluster.fabric.levels):
        below = cluster.fabric.cards_below(i - 1) if i else 1
        rate = level.child_bandwidth / below / level.oversubscription
        words.append(
            _("{level} {n} at {r}").format(level=level.name, n=level.units, r=show_rate(rate))
        )
    return ", ".join(words)


def _short(cluster: Cluster) -> str:
    words = []
    for i, level in enumerate(cluster.fabric.levels):
        below = cluster.fabric.cards_below(i - 1) if i else 1
        rate = level.child_bandwidth / below / level.oversubscription
        words.append(
            _("{level} {n} at {r}").format(level=level.name, n=level.units, r=f"{rate / 1e9:.4g}")
        )
    return ", ".join(words)


def _level_cells(level: Level) -> str:
    shape = " x ".join(str(n) for n in level.shape)
    parts = [f"{level.kind} of {shape}", f"{level.links} x {show_rate(level.link)} a child",
             f"{show_time(level.latency)} a hop",
             f"{level.planes} planes" if level.planes > 1 else "",
             f"oversubscribed {level.oversubscription:g}" if level.oversubscription > 1 else "",
             "adds in the network" if level.reduces else "", level.tier]  # fmt: skip
    return ", ".join(part for part in parts if part)


def cluster_view(cluster: Cluster) -> RenderableType:
    """Return one cluster: levels, hosts, storage, failures; the source of each; its ambiguities."""
    table = _table("field", "value", "origin", "source")
    notes = _Sources()
    for level in cluster.fabric.levels:
        name = f"fabric.{level.name}"
        for key in sorted({name, *(k for k in cluster.sources if k.startswith(name + "."))}):
            field = key.removeprefix(name).lstrip(".")
            value = (
                told(_level_cells(level)) if not field else _show(field, getattr(level, field, ""))
            )
            table.add_row(key, value, *notes.cells(cluster.source_of(key)))
    for part in ("host", "storage", "failures"):
        noun = getattr(cluster, part)
        for field in noun.__struct_fields__:
            value = getattr(noun, field)
            if value not in (0, ""):
                source = cluster.source_of(f"{part}.{field}")
                table.add_row(f"{part}.{field}", _show(field, value), *notes.cells(source))
    for field in ("cabinet_cards", "pue", "site_power_w"):
        value = getattr(cluster, field)
        if value:
            table.add_row(field, _show(field, value), *notes.cells(cluster.source_of(field)))
    chip = cluster.chip
    head = (
        f"{cluster.title}\n{cluster.cards:,} x {chip.title} · {_('domain')} "
        f"{cluster.fabric.domain_cards:,} · {level_words(cluster)}"
    )
    said = [Text(f"! {told(note)}") for note in cluster.notes]
    return Group(Text(head, style="bold"), *said, table, notes.view())


def models_view(models: Iterable[Model]) -> RenderableType:
    """Return the list of models with their parameters."""
    table = _table("model", "total", "active", "layers", "hidden", "attention", "MLP",
                   right=(1, 2, 3, 4))  # fmt: skip
    for model in models:
        count = parameters(model)
        kinds = dict.fromkeys(b.attention.kind for b in model.blocks)
        last = model.blocks[-1].mlp
        mlp = f"{last.topk} of {last.experts}" if last.is_moe else "dense"
        table.add_row(model.name, show_count(count.total), show_count(count.active),
                      str(model.layers), f"{model.hidden:,}", "+".join(kinds), mlp)  # fmt: skip
    note = _("parameters: embedding and head in, prediction layers out, language part only")
    return Group(table, Text(note, style="dim"))


def _attention_words(a: Attention) -> str:
    if a.kind == "none":
        return "no attention"
    words = [f"{a.kind}, {a.heads} heads of {a.head_dim}", f"{a.kv_heads} key/value"]
    if a.kv_lora:
        words[1] = f"latents {a.q_lora or '-'}/{a.kv_lora}"
    words += [f"window {a.window:,}"] * bool(a.window) + [f"state {a.state}"] * bool(a.state)
    words += [f"indexer {a.index_heads} x {a.index_dim}"] * bool(a.index_heads)
    return ", ".join(words)


def _mlp_words(m: Mlp) -> str:
    words = [f"dense {m.hidden:,}"] * bool(m.hidden)
    if m.is_moe:
        words.append(f"{m.topk} of {m.experts} experts of {m.expert_hidden:,}")
        words += [f"shared {m.shared_hidden:,}"] * bool(m.shared_hidden)
    return (", ".join(words) or "no MLP") + (", gated" if m.gated else "")


def model_view(model: Model) -> RenderableType:
    """Return one model: its layers, parameters by part, what is approximated or not understood."""
    count = parameters(model)
    table = _table("layers", "attention", "MLP", right=(0,))
    for block in model.blocks:
        attention, mlp = _attention_words(block.attention), _mlp_words(block.mlp)
        table.add_row(str(block.count), told(attention), told(mlp))
    head = (
        f"{model.name} · {show_count(count.total)} parameters ({show_count(count.active)} active) "
        f"· {model.layers} layers · hidden {model.hidden:,} · vocabulary {model.vocab:,} "
        f"· sequence {model.max_seq:,}"
    )
    said = [Text(f"~ {told(text)}") for text in model.approximated]
    said += [Text(f"? {_('not understood, may change cost')}: {field}") for field in model.ignored]
    source = Text(f"{_('source')}: {model.source}", style="dim")
    return Group(Text(told(head), style="bold"), table, parts_view(count), *said, source)


def parts_view(count: Parameters) -> RenderableType:
    """Return parameters by part with the convention."""
    table = _table("part", "parameters", right=(1,))
    for field in ("embedding", "positions", "attention", "dense", "router", "experts", "shared",
                  "norms", "head"):  # fmt: skip
        value = getattr(count, field)
        if value:
            table.add_row(told(field), f"{value:,}")
    if count.mtp:
        table.add_row(told("prediction layers (not in the total)"), f"{count.mtp:,}")
    table.add_row(told(f"total ({count.convention.text})"), f"{count.total:,}")
    table.add_row(_("active"), f"{count.active:,}")
    return table


def prices_view(prices: Prices) -> RenderableType:
    """Return prices with their ranges and sources."""
    table = _table("price", "value", "range", "origin", "source", right=(1, 2))
    notes = _Sources()
    found: dict[str, Price] = {
        name: getattr(prices, name)
        for name in ("electricity_kwh", "colocation_kw_month", "network_share", "residual_share",
                     "pue")
    }  # fmt: skip
    found |= {f"rent {k} (rank-hour)": v for k, v in prices.rent.items()}
    found |= {f"capital {k} (rank)": v for k, v in prices.capital.items()}
    for name, price in found.items():
        table.add_row(name, f"{price.value:,.2f}", f"{price.low:,.2f} - {price.high:,.2f}",
                      *notes.cells(price.source))  # fmt: skip
    return Group(Text(prices.title, style="bold"), table, notes.view())
