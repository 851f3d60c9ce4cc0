"""How far apart cards are: every ordered pair counted, none listed."""

from __future__ import annotations

import msgspec
import numpy as np

from lightloom.core.errors import InfeasibleError
from lightloom.fabric.network import Network
from lightloom.fabric.route import route

from .fold import all_pairs, fold_machine

LARGEST = 6_000_000


class Distance(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs that are equally far apart."""

    hops: int
    """Links crossed (mean over equal paths, rounded)."""
    latency: float
    """Seconds on the links, without serialisation and software."""
    pairs: float
    share: float
    source: int
    """One such pair."""
    target: int


def distances(net: Network) -> list[Distance]:
    """Return the histogram of hops and latency over all ordered pairs of live cards, nearest
    first; the last one is the worst."""
    fold = fold_machine(net)
    if not fold.transitive and fold.classes**2 > LARGEST:
        raise InfeasibleError(
            f"{fold.classes:,} different cards are too many pairs to look at",
            out="fewer --fail, or a smaller fabric",
        )
    source, target, size = all_pairs(net, fold)
    routes = route(net, source, target)
    flow_E = np.repeat(np.arange(len(source)), np.diff(routes.start_F))
    hops = np.rint(np.bincount(flow_E, routes.share_E, minlength=len(source))).astype(np.int64)
    delay = np.round(routes.latency_F, 12)
    key = np.stack([delay, hops.astype(np.float64)], axis=1)
    rows, first, inverse = np.unique(key, axis=0, return_index=True, return_inverse=True)
    count = np.bincount(inverse.ravel(), size)
    total = float(count.sum())
    return [
        Distance(
            hops=int(rows[i, 1]), latency=float(rows[i, 0]), pairs=float(count[i]),
            share=float(count[i]) / total, source=int(source[first[i]]),
            target=int(target[first[i]]),
        )
        for i in range(len(rows))
    ]  # fmt: skip
