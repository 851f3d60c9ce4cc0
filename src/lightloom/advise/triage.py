"""Evidence in, ordered causes out, each with the measurement that separates it from the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lightloom.core.advice import Cause, Clocks, RankSplit, Sync, WhatIf
from lightloom.core.timeline import COMPUTE, Timeline

from .split import NS, device_rows, gaps, union
from .sync import EXPLAINED
from .verdict import REACHABLE

TINY = 10_000
"""Nanoseconds: kernels shorter than this cost more to launch than to run."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """All that the causes are read from."""

    timelines: dict[int, Timeline]
    splits: tuple[RankSplit, ...]
    sync: Sync
    clocks: Clocks
    what_ifs: dict[str, WhatIf]
    steps: dict[int, tuple[tuple[int, int, int], ...]]
    host: tuple[tuple[str, float], ...] = ()
    """(name, seconds) of what the late rank's host did before it arrived."""
    ascend: bool = False


def causes_of(e: Evidence) -> tuple[Cause, ...]:
    """Return the causes that the evidence supports, heaviest first."""
    rules: tuple[Callable[[Evidence], Cause | None], ...] = (
        _late_rank, _outside, _imbalance, _slow_card, _host, _launch, _transfer, _latency,
        _overlap, _copies, _bubble, _slow_down, _first_step,
    )  # fmt: skip
    found = [cause for rule in rules if (cause := rule(e)) is not None]
    return tuple(sorted(found, key=lambda c: -c.weight))


def _share(e: Evidence, field: str) -> float:
    """Return a part of the window, mean over ranks."""
    parts = [float(getattr(s, field)) / s.span_s for s in e.splits if s.span_s > 0]
    return sum(parts) / len(parts) if parts else 0.0


def _gain(e: Evidence, change: str) -> float:
    what = e.what_ifs.get(change)
    return 0.0 if what is None else what.high if what.saved is None else what.saved


def _late_rank(e: Evidence) -> Cause | None:
    if not e.sync.late_same or _gain(e, "skew=0") < 0.01:
        return None
    rank, times = e.sync.late_rank, e.sync.last.get(e.sync.late_rank, 0)
    total = sum(e.sync.last.values())
    host = f"; its host spent {e.host[0][1] * 1e3:,.1f} ms in {e.host[0][0]}" if e.host else ""
    return Cause(
        code="late-rank",
        what=f"rank {rank} arrives last in {times} of {total} collectives{host}",
        weight=_gain(e, "skew=0"),
        evidence={"times_last": times, "collectives": total,
                  "others_waited_s": e.sync.blame.get(rank, 0.0)},
        where=f"rank {rank}",
        next=f"move rank {rank} to another host: if the lateness stays with the rank it is its "
        "data or code, if it stays with the card compare clock and temperature with its neighbours",
    )  # fmt: skip


def _imbalance(e: Evidence) -> Cause | None:
    total = sum(e.sync.last.values())
    if e.sync.late_same or total < 4 or _gain(e, "skew=0") < 0.03 or _outside(e) is not None:
        return None
    return Cause(
        code="imbalance",
        what="another rank is late each time: the work is uneven, no card is bad",
        weight=_gain(e, "skew=0"),
        evidence={"late_ranks": len(e.sync.last), "collectives": total},
        next="log tokens (or experts' tokens, sequence lengths) per rank and step: they should "
        "vary as the arrivals do",
    )


def _outside(e: Evidence) -> Cause | None:
    """The library waits, and the arrivals of the ranks at hand do not explain it."""
    waited, explained = e.sync.waiting_s * len(e.splits), sum(e.sync.blame.values())
    if e.sync.how != "library" or waited <= 0 or explained >= EXPLAINED * waited:
        return None
    return Cause(
        code="waits-elsewhere",
        what=f"the library waits, but these ranks' arrivals explain {explained / waited:.0%} of it",
        weight=_gain(e, "skew=0"),
        evidence={"waited_s": waited, "explained_s": explained},
        next="profile every rank of the group in the same step: the late one is not among these, "
        "or the operation waits for its own launch (HCCL_OP_EXPANSION_MODE, host affinity)",
    )


def _slow_card(e: Evidence) -> Cause | None:
    """Ranks whose computing differs by more than 5 %: msprof's own rule for a slow card."""
    work = {s.rank: s.compute_s for s in e.splits if s.compute_s > 0}
    if len(work) < 3:
        return None
    middle = float(np.median(list(work.values())))
    rank = max(work, key=lambda r: work[r])
    excess = work[rank] / middle - 1
    if excess < 0.05:
        return None
    span = sum(s.span_s for s in e.splits) / len(e.splits)
    return Cause(
        code="slow-card",
        what=f"rank {rank} computes {excess:.0%} longer than the median rank",
        weight=min((work[rank] - middle) / span, 1.0),
        evidence={"compute_s": work[rank], "median_compute_s": middle},
        where=f"rank {rank}",
        next="same kernels on that card alone (matrix product of one size): slow there too "
        "means clock or heat (npu-smi info -t common, nvidia-smi -q -d PERFORMANCE); equal "
        "means more work",
    )


def _host(e: Evidence) -> Cause | None:
    idle = _share(e, "idle_s")
    if idle < 0.10:
        return None
    longest, share = _longest_gaps(e.timelines)
    return Cause(
        code="host-bound",
        what=f"the device has nothing to do {idle:.0%} of the time"
        + (f"; its ten longest gaps hold {share:.0%} of that" if longest else ""),
        weight=REACHABLE * min(_gain(e, "host=0"), idle),
        evidence={"idle_share": idle, "longest_gap_s": longest},
        next="few long gaps: a data loader or a save (run with synthetic data); many short ones: "
        "launch or .item() (profile with_stack=True)",
    )


def _longest_gaps(timelines: dict[int, Timeline]) -> tuple[float, float]:
    """Return the longest idle gap in seconds, and the share of idle in the ten longest per rank."""
    longest, top, total = 0, 0, 0
    for t in timelines.values():
        rows = device_rows(t)
        a, b = gaps(union(t.start_N[rows], t.end_N[rows]))
        if len(a):
            lengths = np.sort(b - a)[::-1]
            longest = max(longest, int(lengths[0]))
            top, total = top + int(lengths[:10].sum()), total + int(lengths.sum())
    return longest * NS, top / total if total else 0.0


def _launch(e: Evidence) -> Cause | None:
    tiny, kernels, idle = 0, 0, _share(e, "idle_s")
    for t in e.timelines.values():
        took = (t.end_N - t.start_N)[t.kind_N == COMPUTE]
        tiny, kernels = tiny + int((took < TINY).sum()), kernels + len(took)
    if kernels < 50 or tiny / kernels < 0.5 or idle < 0.10:
        return None
    tool = "TASK_QUEUE_ENABLE=2 and CPU binding" if e.ascend else "CUDA graphs or torch.compile"
    return Cause(
        code="launch-bound",
        what=f"{tiny / kernels:.0%} of {kernels:,} kernels run under 10 us: launching limits",
        weight=0.8 * REACHABLE * min(_gain(e, "host=0"), idle),
        evidence={"tiny_share": tiny / kernels, "kernels": kernels},
        next=f"twice the micro-batch: if the step hardly grows, launching limits; then {tool}",
    )


def _transfer(e: Evidence) -> Cause | None:
    gain = _gain(e, "bandwidth=inf")
    if gain < 0.05:
        return None
    known = e.what_ifs["bandwidth=inf"].saved is not None
    return Cause(
        code="transfer",
        what="bytes on the wire hold the step" if known else "bytes on the wire may hold the step",
        weight=gain if known else gain / 2,
        evidence={"transfer_share": e.sync.transfer_share or e.sync.high},
        next="all_reduce_perf (or hccl_test) at the same size and ranks: as fast as there means "
        "the fabric is the limit; slower in training means contention or too few channels",
    )


def _latency(e: Evidence) -> Cause | None:
    free, kept = e.what_ifs.get("bandwidth=inf"), e.what_ifs.get("bandwidth=5x")
    if free is None or kept is None or free.saved is None or kept.saved is None:
        return None
    fixed = free.saved - free.low
    if fixed < 0.03:
        return None
    return Cause(
        code="small-messages",
        what="latency, not bandwidth: much of the transfer does not depend on size",
        weight=fixed,
        evidence={"latency_share_of_step": fixed},
        next="double the bucket (bucket_cap_mb, HCCL_BUFFSIZE): time per byte must fall",
    )


def _overlap(e: Evidence) -> Cause | None:
    comm, hidden = sum(s.comm_s for s in e.splits), sum(s.hidden_s for s in e.splits)
    gain = _gain(e, "overlap=1")
    if comm <= 0 or hidden / comm > 0.3 or gain < 0.05:
        return None
    return Cause(
        code="no-overlap",
        what=f"only {hidden / comm:.0%} of the communication runs beside computing",
        weight=0.5 * gain,
        evidence={"hidden_share": hidden / comm, "perfect_overlap_saves": gain},
        next="overlap flags of the framework (--overlap-grad-reduce, prefetch), one at a time; the "
        "hidden share must rise",
    )


def _copies(e: Evidence) -> Cause | None:
    share = _share(e, "copy_s")
    if share < 0.05:
        return None
    return Cause(
        code="copies",
        what=f"copies take {share:.0%}",
        weight=share,
        evidence={"copy_share": share},
        next="pin_memory=True, non_blocking=True; then look for .cpu() and .item() in the loop",
    )


def _bubble(e: Evidence) -> Cause | None:
    share = _share(e, "bubble_s")
    if share < 0.05:
        return None
    return Cause(
        code="pipeline-bubble",
        what=f"waiting for a pipeline neighbour takes {share:.0%}",
        weight=share,
        evidence={"bubble_share": share},
        next="more micro-batches per step, or an interleaved schedule: lightloom plan shows both",
    )


def _slow_down(e: Evidence) -> Cause | None:
    """Later steps slower than earlier ones: heat, errors on links, neighbours."""
    ratios = []
    for steps in e.steps.values():
        took = np.array([b - a for _, a, b in steps], dtype=float)
        if len(took) >= 6 and took.min() > 0:
            third = len(took) // 3
            ratios.append(float(np.median(took[-third:]) / np.median(took[:third])))
    ratio = float(np.median(ratios)) if ratios else 1.0
    if ratio < 1.15:
        return None
    return Cause(
        code="slows-down",
        what=f"the last steps take {ratio - 1:.0%} longer than the first",
        weight=1 - 1 / ratio,
        evidence={"ratio": ratio},
        next="in this order: clock and temperature over the run, error counters of links, other "
        "jobs on the same switches",
    )


def _first_step(e: Evidence) -> Cause | None:
    worst = 1.0
    for steps in e.steps.values():
        took = [b - a for _, a, b in steps]
        if len(took) >= 3 and np.median(took[1:]) > 0:
            worst = max(worst, took[0] / float(np.median(took[1:])))
    if worst < 1.5:
        return None
    return Cause(
        code="warm-up",
        what=f"the first kept step takes {worst:.1f} times the others: it warms up",
        weight=0.01,
        evidence={"ratio": worst},
        next="drop it: --steps FIRST-LAST, or schedule(warmup=...) in the profiler",
    )
