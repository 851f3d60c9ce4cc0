"""Seconds of collectives over a fabric's nested levels, in closed form.

Axes: arrays over group, stride and bytes broadcast together. Every group of the job runs at the
same time, so a card has its own share of each level's bandwidth.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError
from lightloom.core.fabric import Fabric, Level

from .calibration import Comm, default_calibration

F64 = NDArray[np.float64]
Collective = Literal[
    "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "send-recv"
]
KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "send-recv")


def _share(level: Level, below: int, members: F64, comm: Comm) -> F64:
    """Return bytes/s of one card into `level` when `members` children take part.

    A full mesh offers only the links between the members; other kinds their whole child rate.
    """
    rate = level.child_bandwidth / max(level.oversubscription, 1.0) / max(below, 1)
    if level.kind == "full-mesh":
        usable = np.minimum(1.0, (members - 1.0) / max(level.units - 1, 1))
    else:
        usable = np.ones_like(members)
    reached: F64 = rate * comm.of(level.tier) * np.maximum(usable, 1e-9)
    return reached


def collective_seconds(
    fabric: Fabric,
    kind: str,
    group: Any,
    stride: Any,
    bytes_: Any,
    *,
    algorithm: str = "auto",
    comm: Comm | None = None,
) -> F64:
    """Return seconds of one collective of `group` ranks that lie `stride` cards apart.

    `bytes_` counts as nccl-tests do: the whole buffer (all-gather: the result; reduce-scatter:
    the input; send-recv: the message to the rank `stride` cards away). Volume over the narrowest
    level spanned, pipelined over levels (ring), plus one start-up and the steps' latency, rings
    or trees, whichever is quicker.
    """
    if kind not in KINDS:
        raise InputError(f"unknown collective {kind!r}", out=f"one of {', '.join(KINDS)}")
    c = comm if comm is not None else default_calibration().comm
    g, s, size = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (group, stride, bytes_)))
    if kind == "send-recv":
        g = np.full_like(g, 2.0)
    inside = np.ones_like(g)  # members inside one child of the level
    seconds = np.zeros_like(g)
    ring_s, tree_s = np.zeros_like(g), np.zeros_like(g)
    below = 1
    outer = len(fabric.levels) - 1
    for index, level in enumerate(fabric.levels):
        through = below * level.units
        reach = g if index == outer else np.clip(through / s, 1.0, g)
        members = np.maximum(reach / inside, 1.0)
        used = members > 1.0 + 1e-9
        share = _share(level, below, members, c)
        if kind == "all-to-all":
            volume = size * (g - inside) / g
        elif kind == "send-recv":
            volume = size
        else:
            turns = 2.0 if kind == "all-reduce" else 1.0
            ring = turns * (g - 1.0) / g
            if level.reduces and kind == "all-reduce":
                ring = np.minimum(ring, 1.0 + 1.0 / g)
            volume = size * (1.0 if kind == "broadcast" else ring) / inside
        seconds = np.where(used, np.maximum(seconds, volume / share), seconds)
        hop = level.latency + c.hop_s
        ring_s = ring_s + np.where(used, (reach - inside) * hop, 0.0)
        tree_s = tree_s + np.where(used, np.ceil(np.log2(members)) * hop, 0.0)
        inside, below = np.where(used, reach, inside), through
    double = 2.0 if kind == "all-reduce" else 1.0
    steps = {"ring": double * ring_s, "tree": double * tree_s}.get(
        algorithm, double * np.minimum(ring_s, tree_s)
    )
    total: F64 = np.where(g > 1.0, seconds + steps + c.launch_s, 0.0)
    return total
