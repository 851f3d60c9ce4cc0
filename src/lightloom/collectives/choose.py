"""Which algorithm for which size: estimates for all, at most two played, the better one taken."""

from __future__ import annotations

import msgspec

from lightloom.core.errors import InputError, nearest

from . import schedule as sch
from .bound import lower_bound
from .schedule import KINDS, Schedule
from .stage import Player

LARGEST_FLAT = 65_536
MOST_PLAYED = 2
MOST_BYTES = 1e18
SAME = 1e-3
"""Two answers this close are one: the plainer algorithm is taken."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One collective: what was chosen, how long it takes, how far that is from the bound."""

    kind: str
    algorithm: str
    bytes: float
    cards: int
    group: int
    groups: int
    seconds: float
    algbw: float
    """Bytes over seconds."""
    busbw: float
    """algbw times the factor of nccl-tests: what each card's links see."""
    bound_s: float
    """No schedule is quicker (cut bound, without latency)."""
    chunks: int
    stages: tuple[str, ...]
    estimates: dict[str, float]
    """Seconds by the load of the worst link, every candidate."""
    played: dict[str, float]
    """Seconds of the candidates played on the fabric."""
    origin: str = "derived"
    hccl: str = ""
    nccl: str = ""


def bus_factor(kind: str, size: int) -> float:
    """Return busbw over algbw as nccl-tests defines it."""
    if size < 2:
        return 1.0
    share = (size - 1) / size
    return {"all-reduce": 2 * share, "broadcast": 1.0, "send-recv": 1.0}.get(kind, share)


def candidates(player: Player, kind: str) -> list[str]:
    """Return the algorithms worth asking about, by name."""
    g = player.group.size
    if kind == "send-recv":
        return ["direct"]
    if kind == "broadcast":
        return ["hierarchical", "chain"]
    if kind == "all-to-all":
        return ["direct", "hierarchical"] + (["pairwise"] if g <= 128 else [])
    names = (
        ["hierarchical", "balanced", "bucket"] if len(player.group.axes) > 1 else ["hierarchical"]
    )
    if g <= LARGEST_FLAT:
        names += ["ring"] + (["tree"] if kind == "all-reduce" else [])
        names += ["halving-doubling", "swing"] if g & (g - 1) == 0 else []
    if g <= 256:
        names.append("direct")
    return names


def make(player: Player, kind: str, algorithm: str, total_bytes: float) -> Schedule:
    """Return the schedule of one named algorithm."""
    if kind not in KINDS:
        raise InputError(f"unknown collective {kind!r}{nearest(kind, KINDS)}")
    if kind == "all-to-all":
        return sch.all_to_all(player, algorithm)
    if kind == "broadcast":
        return sch.broadcast(player, total_bytes) if algorithm == "hierarchical" else sch.flat(
            player, kind, algorithm
        )  # fmt: skip
    if kind == "send-recv":
        return sch.flat(player, kind, "direct-neighbour")
    if algorithm in ("hierarchical", "balanced", "bucket", "in-network"):
        return sch.hierarchical(player, kind, total_bytes, algorithm)
    return sch.flat(player, kind, algorithm)


def collective(player: Player, kind: str, total_bytes: float, algorithm: str = "auto") -> Outcome:
    """Return the outcome of one collective; ``auto`` plays the two best estimates and takes the
    quicker one."""
    if not 1.0 <= total_bytes <= MOST_BYTES:
        raise InputError(
            f"bytes = {total_bytes:g}: a collective moves at least one byte, at most an exabyte"
        )
    known = candidates(player, kind)
    if algorithm not in ("auto", "in-network", *known):
        raise InputError(
            f"{algorithm!r} is no algorithm for {kind} on {player.group.size} cards"
            f"{nearest(algorithm, known)}",
            out=f"auto, {', '.join(known)}",
        )
    names = known if algorithm == "auto" and player.group.size > 1 else [known[0]]
    names = names if algorithm == "auto" else [algorithm]
    plans = {name: make(player, kind, name, total_bytes) for name in names}
    if len(plans) > 1:
        estimates = {
            name: sch.seconds(player, plan, total_bytes, estimate=True)
            for name, plan in plans.items()
        }
    else:
        estimates = {}
    if estimates.get("balanced") == estimates.get("hierarchical", -1.0):
        del plans["balanced"]  # no mixture of orders is better: it is the same schedule
    order = sorted(plans, key=lambda name: (estimates.get(name, 0.0), names.index(name)))
    order = sorted(order[:MOST_PLAYED], key=names.index)
    played = {name: sch.seconds(player, plans[name], total_bytes) for name in order}
    best = order[0]
    for name in order[1:]:
        if played[name] < played[best] * (1 - SAME):
            best = name
    return _outcome(player, plans[best], best, total_bytes, estimates, played)


def _outcome(
    player: Player, plan: Schedule, name: str, total_bytes: float,
    estimates: dict[str, float], played: dict[str, float],
) -> Outcome:  # fmt: skip
    from .hints import hccl_algo, nccl_hints

    g, seconds = player.group, played[name]
    algbw = total_bytes / seconds if seconds > 0 else 0.0
    longest = max((chain for _, chain in plan.chains), key=len, default=())
    return Outcome(
        kind=plan.kind, algorithm=name, bytes=total_bytes, cards=g.cards, group=g.size,
        groups=g.groups, seconds=seconds, algbw=algbw, busbw=algbw * bus_factor(plan.kind, g.size),
        bound_s=lower_bound(player.net, g, plan.kind, total_bytes), chunks=plan.chunks,
        stages=tuple(f"{s.axis.name}({s.axis.members}):{s.algorithm}" for s in longest),
        estimates=estimates, played=played,
        hccl=hccl_algo(player.net.fabric, plan), nccl=nccl_hints(plan),
    )  # fmt: skip
