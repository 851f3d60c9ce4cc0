"""The catalogue: chips, clusters and models by name, and users' files of the same schema.

Files are TOML (chips, clusters) or a Hugging Face ``config.json`` (models). Quantities are text
with a unit (``"450 GB/s"``) or plain SI numbers. A cluster file names its chip (``chip = "h100"``)
or holds one, may start from another (``base = "dgx-h100"``), and every answer to a mistake says
file and field.
"""

from __future__ import annotations

import functools
import math
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from . import units
from .chip import Chip
from .cluster import Cluster
from .errors import InputError, nearest
from .files import CATALOG, read_bytes
from .given import given, source_given
from .model import Model

Kind = Literal["chips", "clusters", "models"]
T = TypeVar("T")
Raw = dict[str, Any]
LARGEST_NUMBER = 1e24
DEEPEST_BASE = 4
DEEPEST_TABLE = 12

_RATE: tuple[str, ...] = (
    "hbm_bandwidth", "scaleup_bandwidth", "scaleout_bandwidth", "link", "channel_rate",
    "dram_bandwidth", "pcie_bandwidth", "nic_bandwidth", "local_write", "local_read",
    "shared_write", "shared_read",
)  # fmt: skip
_PARSERS: dict[str, Callable[[Any, str], float]] = {
    **dict.fromkeys(_RATE, units.parse_rate),
    **dict.fromkeys(("hbm_bytes", "hbm_usable", "l2_bytes", "dram_bytes"), units.parse_bytes),
    **dict.fromkeys(("latency", "reconfigure_s", "restart_s"), units.parse_time),
    **dict.fromkeys(("tdp_w", "idle_w", "power_w", "site_power_w"), units.parse_watts),
    **dict.fromkeys(("clock_hz", "spacing_hz"), units.parse_hertz),
    **dict.fromkeys(("card_hours", "low", "high"), units.parse_count),
}
"""Reader of text per field name; a field means the same in every noun."""


def names(kind: Kind) -> tuple[str, ...]:
    """Return every name the catalogue knows of `kind`, sorted."""
    suffix = ".json" if kind == "models" else ".toml"
    return tuple(sorted(p.stem for p in (CATALOG / kind).glob(f"*{suffix}")))


def load_chip(name: str) -> Chip:
    """Return the chip called `name`, or the one in a TOML file."""
    return _load_chip(str(name))


@functools.lru_cache(maxsize=256)
def _load_chip(name: str) -> Chip:
    raw, where = _read(name, "chips")
    return _chip(raw, where)


def load_cluster(name: str | Path) -> Cluster:
    """Return the cluster called `name`, or the one in a TOML file.

    ``NAME:PATH=VALUE,...`` changes single fields (``traditional-8192:spine.oversubscription=4``,
    ``supernode-8192:chip=ascend-910b``): PATH is a field of the file, or LEVEL.FIELD.
    """
    text = str(name)
    if is_file(text):
        return cluster_of(*_read(text, "clusters"))
    return _load_cluster(text)


@functools.lru_cache(maxsize=256)
def _load_cluster(name: str) -> Cluster:
    return cluster_of(*_read(name, "clusters"))


def load_model(name: str | Path) -> Model:
    """Return a model by catalogue name, by path of a ``config.json``, or by size (``"70B"``)."""
    from .hf import read_model

    return read_model(str(name))


def is_file(text: str) -> bool:
    """Return whether `text` means a file rather than a catalogue name (with or without changes)."""
    name = text.partition(":")[0]
    if name.endswith((".toml", ".json")) or os.sep in name:
        return True
    try:
        return Path(text).is_file()
    except OSError:
        return False


def cluster_of(raw: Raw, where: str) -> Cluster:
    """Return the checked cluster in `raw`, the content of a TOML file called `where`."""
    raw = _with_base(raw, where, 0)
    chip = raw.get("chip")
    if isinstance(chip, str):
        chip = load_chip(chip)
    elif isinstance(chip, dict):
        chip = _chip(_chip_base(chip, where), f"{where}: chip")
    rest = {k: v for k, v in raw.items() if k not in ("chip", "base")}
    if not isinstance(chip, Chip):
        raise InputError(
            f"{where}: no `chip`", out='chip = "h100" (see: lightloom catalog chips), or a table'
        )
    cluster = _convert({**_si(rest, "", where), "chip": chip}, Cluster, where)
    _check_cluster(cluster, where)
    return cluster


def _read(name: str, kind: Literal["chips", "clusters"]) -> tuple[Raw, str]:
    what = kind.removesuffix("s")
    if is_file(name):
        return given(_toml(read_bytes(name, what), f"{what} {name}"), name), f"{what} {name}"
    base, _, changes = name.partition(":")
    path = CATALOG / kind / f"{base}.toml"
    known = names(kind)
    if base not in known:
        raise InputError(
            f"no {what} {base[:80]!r}{nearest(base[:80], known)}",
            out=f"known: {', '.join(known)}; or give a TOML file",
        )
    raw, where = _toml(read_bytes(path, what), f"{what} {base}"), f"{what} {name}"
    for change in filter(None, changes.split(",")):
        raw = _changed(_with_base(raw, where, 0), change, where)
    return raw, where


def _toml(data: bytes, where: str) -> Raw:
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: {error}") from error


def _changed(raw: Raw, change: str, where: str) -> Raw:
    """Return `raw` with ``PATH=VALUE`` applied; a level is addressed by its name."""
    path, sign, value = change.partition("=")
    keys = path.strip().split(".")
    fabric = raw.get("fabric")
    levels = fabric.get("levels") if isinstance(fabric, dict) else None
    at: Any = raw
    found = [v for v in levels or [] if isinstance(v, dict) and v.get("name") == keys[0]]
    if found and len(keys) == 2:
        at, keys = found[0], keys[1:]
    for key in keys[:-1]:
        at = at.get(key) if isinstance(at, dict) else None
    if not sign or not isinstance(at, dict):
        known = [v.get("name", "?") for v in levels or [] if isinstance(v, dict)]
        raise InputError(
            f"{where}: {change!r} names nothing that can be changed",
            out=f"PATH=VALUE; levels: {', '.join(known)}; for example host.dram_bytes=2TiB",
        )
    at[keys[-1]] = _plain(value.strip())
    field = f"fabric.{found[0]['name']}.{keys[-1]}" if at in found else ".".join(keys)
    raw["sources"] = {**raw.get("sources", {}), field: source_given(where)}
    return raw


def _plain(text: str) -> Any:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)


def _with_base(raw: Raw, where: str, depth: int) -> Raw:
    """Return `raw` laid over the cluster that its ``base`` names, tables merged one level deep."""
    base = raw.get("base")
    if base is None:
        return raw
    if not isinstance(base, str) or depth >= DEEPEST_BASE:
        raise InputError(f"{where}: `base` must name a cluster, at most {DEEPEST_BASE} deep")
    below = _with_base(_read(base, "clusters")[0], where, depth + 1)
    merged = {**below}
    for key, value in raw.items():
        old = merged.get(key)
        both = isinstance(value, dict) and isinstance(old, dict)
        merged[key] = {**old, **value} if both and old is not None else value
    merged.pop("base", None)
    return merged


def _chip_base(raw: Raw, where: str) -> Raw:
    base = raw.get("base")
    if base is None:
        return raw
    if not isinstance(base, str):
        raise InputError(f"{where}: chip.base must name a chip")
    below = _read(base, "chips")[0]
    sources = raw.get("sources")
    merged = {**below, **{k: v for k, v in raw.items() if k != "base"}}
    if isinstance(sources, dict):
        merged["sources"] = {**below["sources"], **sources}
    return merged


def _chip(raw: Raw, where: str) -> Chip:
    chip = _convert(_si(raw, "", where), Chip, where)
    for field in ("hbm_bytes", "hbm_bandwidth"):
        if getattr(chip, field) <= 0:
            raise InputError(f"{where}: {field} must be above 0")
    if not chip.peak or min(chip.peak.values()) <= 0:
        raise InputError(f"{where}: peak needs at least one type, each above 0 FLOP/s")
    if "*" not in chip.sources:
        raise InputError(f'{where}: sources has no "*" (the origin of all fields not named)')
    if chip.ranks < 1 or (chip.hbm_usable or 0) > chip.hbm_bytes:
        raise InputError(f"{where}: ranks below 1, or more hbm_usable than hbm_bytes")
    return chip


def _si(value: Any, key: str, path: str) -> Any:
    """Return `value` with every quantity as a float in SI units; numbers finite, none negative."""
    if key.count(".") + key.count("[") > DEEPEST_TABLE:
        raise InputError(f"{path}: {key[:60]} nests deeper than {DEEPEST_TABLE} levels")
    parse = _PARSERS.get(key.rpartition(".")[2])
    if key.startswith("peak."):
        parse = units.parse_flops
    if isinstance(value, dict):
        return {
            k: v if k == "sources" else _si(v, f"{key}.{k}" if key else str(k), path)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [_si(v, f"{key}[{i}]", path) for i, v in enumerate(value)]
    if isinstance(value, str) and parse is not None:
        value = parse(value, f"{path}: {key}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not -LARGEST_NUMBER < value < LARGEST_NUMBER or math.isnan(value):
            raise InputError(f"{path}: {key} is {str(value)[:20]}, not a finite size")
        if value < 0:
            raise InputError(f"{path}: {key} is {value:g}, below 0")
        if key.endswith(".shape"):
            return [value]
    return value


def _convert(raw: Raw, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(raw, kind, strict=True)
    except msgspec.ValidationError as error:
        text = str(error)
        field = text.partition("unknown field `")[2].partition("`")[0]
        hint = nearest(field, _fields(kind)) if field else ""
        raise InputError(f"{where}: {text.replace('`$.', '`')}{hint}") from error


def _fields(kind: Any) -> list[str]:
    from .cluster import Failures, Host, Storage
    from .fabric import Fabric, Level, Optics

    structs = (kind, Fabric, Level, Optics, Host, Storage, Failures)
    return list(dict.fromkeys(n for struct in structs for n in struct.__struct_fields__))


def _check_cluster(cluster: Cluster, where: str) -> None:
    """Say what makes no sense in a cluster that has the right fields."""
    levels, problem = cluster.fabric.levels, ""
    labels = [level.name for level in levels]
    for level in levels:
        if not level.shape or min(level.shape) < 1 or level.links < 1 or level.planes < 1:
            problem = f"level {level.name}: shape, links and planes must be at least 1"
        elif level.link <= 0:
            problem = f"level {level.name}: link must be above 0"
        elif level.oversubscription < 1:
            problem = f"level {level.name}: oversubscription is below 1"
    if not levels:
        problem = "fabric.levels is empty"
    elif len(set(labels)) != len(labels):
        problem = f"two levels share a name: {', '.join(labels)}"
    elif cluster.fabric.domain and cluster.fabric.domain not in labels:
        problem = f"fabric.domain {cluster.fabric.domain!r} is no level ({', '.join(labels)})"
    elif not problem and cluster.cards > 10**8:
        problem = f"{cluster.cards} cards are beyond what is modelled (1e8)"
    elif cluster.host.cards < 1 or (not problem and cluster.cards % cluster.host.cards):
        problem = f"host.cards {cluster.host.cards} does not divide {cluster.cards} cards"
    elif not 0 < cluster.failures.low <= cluster.failures.card_hours <= cluster.failures.high:
        problem = "failures: 0 < low <= card_hours <= high does not hold"
    elif cluster.pue < 1:
        problem = f"pue {cluster.pue:g} is below 1"
    if problem:
        raise InputError(f"{where}: {problem}")
