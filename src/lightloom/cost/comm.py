"""Seconds of collectives over a fabric's nested levels, in closed form.

Axes: arrays over group, stride and bytes broadcast together. Every group of the job runs at the
same time, so a card has its own share of each level's bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError
from lightloom.core.fabric import Fabric, Level

from .calibration import Comm, CommLaw, default_calibration, factor

F64 = NDArray[np.float64]
Collective = Literal[
    "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "send-recv"
]
KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "send-recv")
RAMP_S = 10e-6
"""Wire time whose root scales the ramp."""
FULL_S = 3e-6
"""Wire time from which the whole ramp is paid."""


def law_of(comm: Comm, kind: str) -> CommLaw:
    """Return the law of a collective."""
    if kind == "all-reduce":
        return comm.reduce
    return comm.exchange if kind in ("all-to-all", "send-recv") else comm.gather


class _Span(NamedTuple):
    """How a group lies on one level."""

    level: Level
    first: bool
    """Innermost level: a node's own switch."""
    inside: F64
    """Members inside one child of the level."""
    reach: F64
    """Members inside one unit of it."""
    rate: F64
    """Bytes/s of one card into the level, as reached."""
    used: NDArray[np.bool_]
    chain: F64
    """Members whose traffic uses this level's ports: those of the levels above that leave through
    them too (a leaf's uplinks), not of levels with ports of their own (a NIC beside NVLink)."""


def _spans(fabric: Fabric, group: F64, stride: F64, law: CommLaw, comm: Comm) -> Iterator[_Span]:
    """Yield every level with how the group lies on it, innermost first."""
    inside = np.ones_like(group)
    below = 1
    outer = len(fabric.levels) - 1
    for index, level in enumerate(fabric.levels):
        through = below * level.units
        reach = group if index == outer else np.clip(through / stride, 1.0, group)
        members = np.maximum(reach / inside, 1.0)
        used = members > 1.0 + 1e-9
        if not used.any():  # no group reaches into this level
            below = through
            continue
        rate = level.child_bandwidth / max(level.oversubscription, 1.0) / max(below, 1)
        if level.kind == "mesh":  # its corner cards have one neighbour a dimension
            rate *= sum(n > 1 for n in level.shape) * level.links / max(level.ports, 1)
        if level.kind == "full-mesh":  # only the links between members carry anything
            usable = np.minimum(1.0, (members - 1.0) / max(level.units - 1, 1))
        else:
            usable = np.ones_like(members)
        if index == 0:
            share = np.maximum(law.share - law.edge / np.maximum(members, 2.0), 0.05)
            share = share * comm.efficiency.get(level.tier, 1.0)
        else:
            share = np.full_like(members, comm.of(level.tier))
        rate_ = rate * share * np.maximum(usable, 1e-9)
        chain = _chain_reach(fabric, index, group, stride)
        yield _Span(level, index == 0, inside, reach, rate_, used, np.maximum(chain, reach))
        inside, below = np.where(used, reach, inside), through


def _chain_reach(fabric: Fabric, index: int, group: F64, stride: F64) -> F64:
    """Return the members inside one unit of the highest level that shares this level's ports."""
    last = index
    while last + 1 < len(fabric.levels) and fabric.levels[last + 1].through(fabric.levels[last]):
        last += 1
    if last == len(fabric.levels) - 1:
        return group
    return np.clip(fabric.cards_below(last) / stride, 1.0, group)


def _scatter(span: _Span, group: F64) -> F64:
    """Return how much longer an all-to-all takes on a mesh or torus than its ports would need:
    half of the pairs cross the middle of the longest dimension."""
    level = span.level
    if level.kind not in ("mesh", "torus", "ring"):
        return np.ones_like(group)
    longest = max(level.shape)
    lines = 2.0 if level.kind != "mesh" and longest > 2 else 1.0
    middle = level.units / longest * lines * level.link * level.links
    members = np.minimum(span.reach / span.inside, level.units)
    share = level.child_bandwidth if level.kind != "mesh" else level.child_bandwidth * (
        sum(n > 1 for n in level.shape) * level.links / max(level.ports, 1)
    )  # fmt: skip
    crossing = members**2 / 4.0 / middle
    through_ports = np.maximum(members - 1.0, 1e-9) / share
    whole = members > level.units - 0.5
    return np.where(whole, np.maximum(1.0, crossing / through_ports), 1.0)


def _volume(kind: str, span: _Span, group: F64, size: F64, comm: Comm, arch: str) -> F64:
    """Return bytes that one card sends into the level."""
    if kind == "all-to-all":
        crossing: F64 = size * (span.chain - span.inside) / group * _scatter(span, group)
        return crossing
    if kind == "send-recv":
        return size
    if kind == "broadcast":
        return size / span.inside
    turns = 2.0 if kind == "all-reduce" else 1.0
    # a level with ports of its own carries its own ring; switches of one technology a flat one
    own = (span.chain < group) | (not span.level.switched)
    parts = np.where(own, span.chain / span.inside, group)
    ring = turns * (parts - 1.0) / parts
    if kind == "all-reduce" and not span.first:  # a tree over units: 1 x for two, 2 x for many
        units = np.maximum(group / span.inside, 1.0)
        ring = np.minimum(ring, turns * (units - 1.0) / units)
    if span.level.reduces and kind == "all-reduce" and span.first:
        gain = comm.in_switch * factor(comm.by_arch, arch, "in_switch")
        ring = np.where(group >= 8.0, ring / gain, ring)
    answer: F64 = size * ring / span.inside
    return answer


def collective_seconds(
    fabric: Fabric,
    kind: str,
    group: Any,
    stride: Any,
    bytes_: Any,
    *,
    algorithm: str = "auto",
    comm: Comm | None = None,
    arch: str = "",
) -> F64:
    """Return seconds of one collective of `group` ranks that lie `stride` cards apart.

    `bytes_` counts as nccl-tests do: the whole buffer (all-gather: the result; reduce-scatter:
    the input; send-recv: the message to the rank `stride` cards away). Volume over the narrowest
    level spanned, pipelined over levels, plus a start-up, the steps' latency (rings or trees,
    whichever is quicker) and a ramp with the root of the wire time.
    """
    if kind not in KINDS:
        raise InputError(f"unknown collective {kind!r}", out=f"one of {', '.join(KINDS)}")
    c = comm if comm is not None else default_calibration().comm
    law = law_of(c, kind)
    g, s, size = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (group, stride, bytes_)))
    if kind == "send-recv":
        g = np.full_like(g, 2.0)
    wire = np.zeros_like(g)
    ring, tree = np.zeros_like(g), np.zeros_like(g)
    for span in _spans(fabric, g, s, law, c):
        moved = _volume(kind, span, g, size, c, arch) / span.rate
        wire = np.where(span.used, np.maximum(wire, moved), wire)
        hop = (law.step_s if span.first else c.hop_s) + (0.0 if span.first else span.level.latency)
        doublings = np.ceil(np.log2(np.maximum(span.reach / span.inside, 1.0)))
        around = span.reach - span.inside if kind != "all-to-all" else doublings
        ring = ring + np.where(span.used, around * hop, 0.0)
        tree = tree + np.where(span.used, doublings * hop, 0.0)
    double = 2.0 if kind == "all-reduce" else 1.0
    steps = {"ring": ring, "tree": 2.0 * tree}.get(
        algorithm, np.where(g <= 8.0, ring, np.minimum(ring, 2.0 * tree))
    )
    return _total(c, law, arch, g, wire, double * steps)


def _total(comm: Comm, law: CommLaw, arch: str, g: F64, wire: F64, steps: F64) -> F64:
    """Return start-up, steps, wire time and ramp; nothing for a group of one."""
    ramp = law.ramp * np.sqrt(wire * RAMP_S) * np.minimum(1.0, wire / FULL_S)
    start = law.launch_s * factor(comm.by_arch, arch, "launch_s")
    total: F64 = np.where(g > 1.0, start + steps + wire + ramp, 0.0)
    return total


def dispatch_seconds(
    fabric: Fabric,
    group: Any,
    stride: Any,
    bytes_: Any,
    topk: Any,
    *,
    comm: Comm | None = None,
    arch: str = "",
) -> F64:
    """Return seconds to send every token to its top-k experts spread over `group` ranks.

    `bytes_` one copy of all tokens of a rank. A token crosses into a level once per unit that
    holds one of its experts and fans out inside (as DeepEP does): with u units
    u (1 - (1 - 1/u)^k) copies on average, one of u stays at home.
    """
    c = comm if comm is not None else default_calibration().comm
    law = c.exchange
    g, s, size, k = np.broadcast_arrays(
        *(np.asarray(x, np.float64) for x in (group, stride, bytes_, topk))
    )
    wire, steps = np.zeros_like(g), np.zeros_like(g)
    for span in _spans(fabric, g, s, law, c):
        units = np.maximum(g / span.inside, 1.0)
        copies = units * (1.0 - (1.0 - 1.0 / units) ** k)
        better = 1.0 if span.first else c.dispatch / c.of(span.level.tier)
        moved = size * copies * (1.0 - 1.0 / units) / (span.rate * better)
        wire = np.where(span.used, np.maximum(wire, moved), wire)
        hop = (law.step_s if span.first else c.hop_s) + (0.0 if span.first else span.level.latency)
        doublings = np.ceil(np.log2(np.maximum(span.reach / span.inside, 1.0)))
        steps = steps + np.where(span.used, doublings * hop, 0.0)
    return _total(c, law, arch, g, wire, steps)
