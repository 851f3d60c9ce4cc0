"""What a job asks of every level of a fabric: groups, their patterns, their bytes.

Axes: G groups of one axis, S ranks of a group.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError
from lightloom.core.fabric import Fabric
from lightloom.core.model import Block, Model
from lightloom.core.placement import Placement
from lightloom.core.strategy import Strategy
from lightloom.core.topo import fold

I64 = NDArray[np.int64]
PATTERN = {"tp": "ring", "cp": "ring", "dp": "ring", "ep": "all-to-all", "pp": "chain"}
RELATIVE = {"tp": 8.0, "ep": 4.0, "cp": 2.0, "dp": 2.0, "pp": 1.0}
"""Bytes per rank without a plan: assumed proportions, for laying out channels only."""


def axis_bytes(model: Model, strategy: Strategy) -> dict[str, float]:
    """Return bytes that a rank puts into collectives of each axis in one step (payload M).

    tp: 4 all-reduce equivalents a layer and micro-batch, tokens x hidden (Narayanan 2021, 3.2);
    cp: keys and values once forward, twice backward; pp: activations and their gradients;
    ep: dispatch and combine, forward and backward, top-k copies of every token;
    dp: gradients in their type plus the parameters gathered once (ZeRO, Rajbhandari 2020).
    """
    s = strategy
    width = 1.0 if s.precision in ("fp8", "int8") else 2.0
    tokens = s.micro_batch * s.seq / s.cp
    layers = model.layers / s.pp
    activations = tokens * model.hidden * width
    out = dict.fromkeys(PATTERN, 0.0)
    if s.tp > 1:
        out["tp"] = 4 * layers * s.micro_batches * activations
    if s.cp > 1:
        kv = _mean(model, lambda b: 2.0 * b.attention.kv_heads * b.attention.head_dim)
        out["cp"] = 3 * layers * s.micro_batches * tokens * kv / s.tp * width
    if s.pp > 1:
        share = s.tp if s.sequence_parallel else 1
        out["pp"] = 2 * s.micro_batches * s.vpp * activations / share
    if s.ep > 1:
        share = s.tp if s.sequence_parallel else 1
        copies = _mean(model, lambda b: float(b.mlp.topk if b.mlp.is_moe else 0))
        out["ep"] = 4 * layers * s.micro_batches * activations * copies / share
    if s.dp * s.cp > 1:
        grad = 2.0 if s.gradient_dtype == "bf16" else 4.0
        out["dp"] = _parameters_of_rank(model, s) * (grad + 2.0) / 2
    return out


def _mean(model: Model, value: Callable[[Block], float]) -> float:
    total = sum(block.count * value(block) for block in model.blocks)
    return float(total) / max(model.layers, 1)


def _parameters_of_rank(model: Model, s: Strategy) -> float:
    """Return parameters of one rank: projections and experts, embeddings left out."""
    h, total = model.hidden, 0.0
    for block in model.blocks:
        a, m = block.attention, block.mlp
        gates = 3 if m.gated else 2
        dense = h * (2 * a.heads * a.head_dim + 2 * a.kv_heads * a.head_dim)
        dense += gates * h * (m.hidden + m.shared_hidden)
        experts = gates * h * m.expert_hidden * m.experts
        total += block.count * (dense / s.tp + experts / (s.ep * s.etp))
    return total / s.pp


def axis_groups(axes: dict[str, int], placement: Placement) -> dict[str, I64]:
    """Return the cards of every group of every axis larger than one, (G, S).

    Ranks count through `placement.order`, fastest first; ep lies inside dp x cp x tp.
    """
    order = [axis for axis in placement.order if axis in ("tp", "cp", "dp", "pp")]
    sizes = [axes.get(axis, 1) for axis in order]
    world = int(np.prod(sizes))
    grid = np.arange(world).reshape(sizes[::-1])
    out = {}
    for position, axis in enumerate(order):
        if axes.get(axis, 1) > 1:
            last = np.moveaxis(grid, len(order) - 1 - position, -1)
            out[axis] = last.reshape(-1, axes[axis])
    ep, etp = axes.get("ep", 1), axes.get("etp", 1)
    if ep > 1:
        inner = world // axes.get("pp", 1)
        if inner % (ep * etp):
            raise InputError(f"ep {ep} x etp {etp} does not divide tp x cp x dp = {inner}")
        pipeline = len(order) - 1 - order.index("pp") if "pp" in order else 0
        stages = np.moveaxis(grid, pipeline, 0) if "pp" in order else grid[None]
        shaped = stages.reshape(axes.get("pp", 1), -1, ep, etp)
        out["ep"] = np.moveaxis(shaped, 2, -1).reshape(-1, ep)
    if placement.cards:
        cards = np.asarray(placement.cards, np.int64)
        if len(cards) < world:
            raise InputError(f"placement names {len(cards)} cards for {world} ranks")
        out = {axis: cards[ranks] for axis, ranks in out.items()}
    return out


@dataclass(frozen=True, slots=True)
class Demand:
    """Routes that one pattern of units of a level must have."""

    level: int
    units: tuple[tuple[int, int], ...]
    routes: tuple[tuple[str, tuple[int, ...], int], ...]
    """(axis, children in ring order, groups that share them)."""


def demands(fabric: Fabric, groups: dict[str, I64]) -> list[Demand]:
    """Return the demand of every level, units with equal demand folded into one."""
    out: list[Demand] = []
    below = 1
    for index, level in enumerate(fabric.levels):
        per_unit: dict[int, Counter[tuple[str, tuple[int, ...]]]] = {}
        for axis, cards_GS in groups.items():
            for row in (cards_GS // below).tolist():
                parts: dict[int, list[int]] = {}
                for node in dict.fromkeys(row):
                    parts.setdefault(node // level.units, []).append(node % level.units)
                for unit, members in parts.items():
                    if len(members) > 1:
                        counter = per_unit.setdefault(unit, Counter())
                        counter[axis, tuple(members)] += 1
        same: dict[tuple[tuple[str, tuple[int, ...], int], ...], list[int]] = {}
        for unit, counter in per_unit.items():
            key = tuple(sorted((axis, members, n) for (axis, members), n in counter.items()))
            same.setdefault(key, []).append(unit)
        out.extend(Demand(index, fold(units), key) for key, units in same.items())
        below *= level.units
    return out


def edges(pattern: str, members: tuple[int, ...], closed: bool) -> dict[tuple[int, int], float]:
    """Return (from, to) -> share of a group's payload M that crosses it in one direction.

    ring: both directions carry half of 2 (m-1)/m M; closing the ring joins last and first.
    chain: M each way between neighbours. all-to-all: M/m to every other.
    """
    m = len(members)
    if pattern == "all-to-all":
        return {(a, b): 1.0 / m for a in members for b in members if a != b}
    share = (m - 1) / m if pattern == "ring" else 1.0
    pairs = list(itertools.pairwise(members))
    if pattern == "ring" and closed and m > 2:
        pairs.append((members[-1], members[0]))
    out = {}
    for a, b in pairs:
        out[a, b] = out[b, a] = share
    return out


def ring_order(shape: tuple[int, ...], kind: str, members: tuple[int, ...]) -> tuple[int, ...]:
    """Return members so that ring neighbours are physical neighbours, where the level allows it.

    On a full two-dimensional mesh: down the first column of every row pair, back by snake; the
    Hamiltonian cycle exists when a side is even. Elsewhere the rank order stands.
    """
    if kind not in ("mesh", "torus") or len(shape) != 2 or len(members) != shape[0] * shape[1]:
        return members
    rows, columns = shape
    flip = rows % 2 == 1
    if flip:
        rows, columns = columns, rows
    if rows % 2 or columns < 2:
        return members
    walk = [(0, 0)]
    for r in range(rows):
        span = range(1, columns)
        walk += [(r, c) for c in (span if r % 2 == 0 else reversed(span))]
    walk += [(r, 0) for r in range(rows - 1, 0, -1)]
    return tuple((c * shape[1] + r) if flip else (r * shape[1] + c) for r, c in walk)
