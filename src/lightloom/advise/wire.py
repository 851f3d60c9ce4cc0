"""A measured transfer against what a machine's fabric should give for the same bytes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from lightloom.core.advice import Cause
from lightloom.core.cluster import Cluster
from lightloom.core.errors import InputError
from lightloom.cost.comm import collective_seconds

from .match import Block
from .split import NS
from .whatif import Change

_KINDS = (
    (re.compile(r"all.?reduce", re.I), "all-reduce"),
    (re.compile(r"reduce.?scatter", re.I), "reduce-scatter"),
    (re.compile(r"all.?gather", re.I), "all-gather"),
    (re.compile(r"all.?to.?all|sendrecv", re.I), "all-to-all"),
    (re.compile(r"broadcast", re.I), "broadcast"),
    (re.compile(r"send|recv|receive|p2p", re.I), "send-recv"),
)


def kind_of(name: str) -> str:
    """Return the collective that a kernel's or operation's name means; empty if none."""
    return next((kind for pattern, kind in _KINDS if pattern.search(name)), "")


def expected_s(cluster: Cluster, blocks: list[Block]) -> tuple[float, float]:
    """Return (seconds on `cluster`, measured seconds) of the transfers whose bytes are known."""
    should, took = 0.0, 0.0
    for b in blocks:
        kind, known = kind_of(b.name), b.bytes_K > 0
        if kind and bool(known.any()):
            group, stride = _layout(b)
            size = b.bytes_K[known].astype(float)
            should += float(np.sum(collective_seconds(cluster.fabric, kind, group, stride, size)))
            took += float(b.transfer[known].sum()) * NS
    return should, took


def _layout(b: Block) -> tuple[int, int]:
    """Return (ranks, stride) of a group from ``axis:0,8,16``, else from the ranks seen."""
    listed = b.group.split(":")[-1].split(",")
    numbers = [int(n) for n in listed if n.isdigit() and len(n) < 9]
    ranks = numbers if len(numbers) >= len(b.ranks) and len(numbers) > 1 else list(b.ranks)
    return len(ranks), max(ranks[1] - ranks[0], 1)


def against(cluster: Cluster, other: Cluster, blocks: list[Block]) -> Change:
    """Return the change of moving from `cluster` to `other`: one factor over all transfers."""
    here, took = expected_s(cluster, blocks)
    there, _ = expected_s(other, blocks)
    if took <= 0 or here <= 0 or there <= 0:
        raise InputError(
            "--against needs matched collectives with sizes: these profiles hold none",
            out="profile all ranks with record_shapes=True, or ask --what-if bandwidth=2x",
        )
    return replace(Change(text=f"fabric={other.name}"), bandwidth=here / there)


def shortfall(cluster: Cluster, blocks: list[Block], share: float) -> Cause | None:
    """Return the cause *the fabric gives less than it should*, where it gives less than half."""
    should, took = expected_s(cluster, blocks)
    if took <= 0 or should <= 0 or should / took > 0.5:
        return None
    return Cause(
        code="fabric-below-its-figure",
        what=f"transfers take {took / should:.1f} times what {cluster.name} should need",
        weight=share * (1 - should / took),
        evidence={"expected_s": should, "measured_s": took},
        next="nccl-tests or hccl_test between the same ranks; then the link counters of the slow "
        "pair; host names that resolve to Ethernet and a single active NIC are the usual reasons",
    )
