"""Collectives of many machines (columns as in collectives_measured.csv): predicted beside."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import numpy as np

from lightloom.core.catalog import load_chip, load_cluster
from lightloom.core.cluster import Cluster
from lightloom.core.errors import InputError
from lightloom.core.fabric import Fabric, Level

from .calibration import Calibration
from .comm import collective_seconds, dispatch_seconds
from .evidence import Report, Scored, number_or_none, refused, report_of
from .evidence_model import number, whole
from .evidence_rows import read_cells

MACHINES = (
    ("gb300", "gb300-nvl72"), ("gb200", "gb200-nvl72"), ("h800", "dgx-h100"),
    ("h100", "dgx-h100"), ("h200", "hgx-h200"), ("b200", "dgx-b200"), ("b300", "dgx-b200"),
    ("sm100", "dgx-b200"), ("sm90", "dgx-h100"), ("a100", "dgx-a100"), ("mi300", "mi300x"),
    ("a3", "atlas-900-a3"), ("910c", "atlas-900-a3"), ("cloudmatrix", "atlas-900-a3"),
    ("910b", "atlas-800t-a2"), ("a2", "atlas-800t-a2"), ("v100", "dgx-a100"),
    ("pcie", "pcie-8"),
)  # fmt: skip
"""Word of the hardware column -> machine of the catalogue, first hit."""
SAME = {"h800": "h800", "v100": "v100-32g", "b300": "b300"}
"""Words whose chip is not the machine's own."""
KINDS = {"all_reduce": "all-reduce", "all_gather": "all-gather", "alltoall": "all-to-all",
         "reduce_scatter": "reduce-scatter", "broadcast": "broadcast",
         "all_to_all": "all-to-all", "send_recv": "send-recv"}  # fmt: skip
LARGE = 1e9
"""Bytes assumed where a row states a rate and no size: peak rates are of large messages."""
SPREAD = 0.5


def is_curves(path: Path) -> bool:
    """Return whether a file has the columns of measured curves of one node."""
    return "num_gpus" in read_cells(path, "collective")[0]


def machine_of(text: str, per_node: int, ranks: int) -> tuple[Cluster, tuple[str, ...]]:
    """Return the machine that a hardware column means, its node cut to `per_node` cards."""
    low = text.lower()
    hit = next(((w, m) for w, m in MACHINES if re.search(rf"(?:^|[^a-z0-9]|\dx){w}", low)), None)
    if hit is None:
        raise InputError(f"hardware not known: {text[:60]!r}")
    word, name = hit
    cluster = load_cluster(name)
    chip = load_chip(SAME[word]) if word in SAME else cluster.chip
    said: list[str] = []
    levels = list(cluster.fabric.levels)
    if name in ("dgx-h100", "dgx-a100", "dgx-b200", "hgx-h200"):
        node = msgspec.structs.replace(
            levels[0], shape=(per_node,), reduces=levels[0].reduces and "nvls=0" not in low,
            link=(chip.scaleup_bandwidth or levels[0].child_bandwidth) / levels[0].links,
        )  # fmt: skip
        rate = chip.scaleout_bandwidth or 50e9
        if stated := re.search(r"(\d+)x(\d+) ?gb", low.replace(" ", "")):
            rate = float(stated.group(1)) * float(stated.group(2)) * 1e9 / 8.0 / per_node
        elif card := re.search(r"(\d{3}) ?gb/s ib per gpu", low):
            rate = float(card.group(1)) * 1e9 / 8.0
        else:
            said.append(f"network: {rate * 8 / 1e9:.0f} Gb/s per card")
        levels = [node]
        if ranks > per_node:
            nodes = -(-ranks // per_node)
            levels.append(Level(name="net", kind="fat-tree", shape=(nodes,), link=rate,
                                links=per_node, latency=2e-6, tier="infiniband"))  # fmt: skip
    fabric = Fabric(levels=tuple(levels), domain=levels[0].name)
    return msgspec.structs.replace(cluster, chip=chip, fabric=fabric), tuple(said)


def _tokens(notes: str) -> tuple[float, float, float, float]:
    """Return (tokens per rank, hidden, top-k, bytes an element) that notes state."""
    low = notes.lower()
    tokens = re.search(r"num_tokens?=(\d+)|(\d+)(k?) tokens", low)
    hidden = re.search(r"hidden (\d+)", low)
    topk = re.search(r"top-?(\d+) (?:of|experts)|top-(\d+)[,;]", low)
    if not tokens or not hidden or not topk:
        raise InputError("tokens, hidden size or top-k not stated in notes")
    count = float(tokens.group(1) or tokens.group(2)) * (1024.0 if tokens.group(3) else 1.0)
    return count, float(hidden.group(1)), float(topk.group(1) or topk.group(2)), 2.0


def score_table(path: Path, cal: Calibration) -> Report:
    """Return every row of a file of collectives, its time or its bus rate, predicted by `cal`."""
    scored = []
    for index, cells in enumerate(read_cells(path, "collective")):
        kind = cells["collective"]
        name = cells.get("id") or f"{index}:{kind}:{cells.get('hardware', '')[:40]}"
        step = number(cells.get("time_us"), float("nan")) * 1e-6
        rate = number(cells.get("busbw_GBps"), float("nan")) * 1e9
        unit, measured = ("s", step) if np.isfinite(step) else ("B/s", rate)
        try:
            seconds, busbw, said = _predict(cells, cal)
        except InputError as error:
            scored.append(refused(name, error.what, unit, measured, kind))
            continue
        value = seconds if unit == "s" else busbw
        scored.append(Scored(
            id=name, measured=number_or_none(measured), predicted=value,
            low=value * float(np.exp(-SPREAD)), high=value * float(np.exp(SPREAD)), unit=unit,
            extrapolated=False, assumptions=said, refused_why="", group=kind,
        ))  # fmt: skip
    return report_of(f"collectives, {path.name}", scored)


def _predict(cells: dict[str, str], cal: Calibration) -> tuple[float, float, tuple[str, ...]]:
    """Return (seconds, bus rate, assumptions) of one row."""
    per_node = whole(cells.get("ranks_per_node"), 8) or 8
    ranks = whole(cells.get("ranks"), per_node) or per_node
    cluster, said = machine_of(cells.get("hardware", ""), per_node, ranks)
    arch = cluster.chip.arch
    if not cells.get("ranks"):
        said = (*said, f"ranks not stated: {ranks}")
    kind = cells["collective"]
    if kind.startswith("moe_"):
        tokens, hidden, topk, width = _tokens(cells.get("notes", ""))
        if "dispatch" in kind and re.search(r"fp8|int8", cells.get("notes", "").lower()):
            width = 1.0
        size = tokens * hidden * width
        seconds = float(dispatch_seconds(cluster.fabric, ranks, 1, size, topk, comm=cal.comm,
                                         arch=arch))  # fmt: skip
        return seconds, size * topk / seconds, said
    if kind not in KINDS:
        raise InputError(f"collective {kind!r} not understood")
    size = number(cells.get("bytes"))
    if not size:
        size, said = LARGE, (*said, "size not stated: 1 GB")
    seconds = float(collective_seconds(cluster.fabric, KINDS[kind], ranks, 1, size, comm=cal.comm,
                                       arch=arch))  # fmt: skip
    turns = 2.0 if kind == "all_reduce" else 1.0
    return seconds, size / seconds * turns * (ranks - 1.0) / ranks, said
