"""The smallest change that would make a strategy fit, found with the same engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from lightloom.core.strategy import Strategy

from .calibration import Calibration
from .columns import columns_of
from .evaluate import evaluate
from .job import Job, legal

MOST = 3
"""Changes tried together."""
KEPT = 60
"""Candidates carried from one number of changes to the next."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A strategy that fits, and how it differs."""

    change: str
    """Options to type."""
    strategy: Strategy
    cards: int
    changes: int
    step_s: float
    peak_bytes: float


def _moves(job: Job, s: Strategy) -> list[tuple[str, dict[str, Any], int]]:
    """Return single changes as (options, fields, cards); dp follows so that all cards work."""
    moves: list[tuple[str, dict[str, Any], int]] = []
    if s.recompute == "none":
        moves.append(("--recompute selective", {"recompute": "selective"}, job.cards))
    if s.recompute != "full" or s.recompute_layers:
        moves.append(("--recompute full", {"recompute": "full", "recompute_layers": 0}, job.cards))
    if s.micro_batch > 1:
        moves += [(f"--micro-batch {m}", {"micro_batch": m}, job.cards)
                  for m in {s.micro_batch // 2, 1} if m]  # fmt: skip
    if s.zero == "0":
        moves.append(("--zero 1", {"zero": "1"}, job.cards))
    if s.zero in ("0", "1") and s.pp == 1:
        moves.append(("--zero 2", {"zero": "2"}, job.cards))
    if s.zero in ("0", "1", "2", "hsdp"):
        full = "fsdp" if s.framework in ("fsdp", "torchtitan") else "3"
        moves.append((f"--zero {full}", {"zero": full}, job.cards))
    for axis in ("tp", "pp", "cp", "ep"):
        if axis == "ep" and not job.model.is_moe:
            continue
        for factor in (2**i for i in range(1, 8)):
            degree = getattr(s, axis) * factor
            change: dict[str, Any] = {axis: degree}
            if axis == "tp" and s.framework not in ("fsdp", "deepspeed"):
                change["sequence_parallel"] = True
            moves.append((f"--{axis} {degree}", change, job.cards))
    if not s.offload_optimizer:
        moves.append(("--offload-optimizer", {"offload_optimizer": True}, job.cards))
    for factor in (2**i for i in range(1, 11)):
        if job.cards * factor <= job.cluster.cards:
            moves.append((f"--cards {job.cards * factor}", {}, job.cards * factor))
    return moves


def _apply(s: Strategy, change: dict[str, Any], cards: int) -> Strategy | None:
    changed = msgspec.structs.replace(s, **change)
    most = cards // (changed.tp * changed.pp * changed.cp)
    rows = changed.global_batch // changed.micro_batch
    if most < 1 or changed.global_batch % changed.micro_batch:
        return None
    dp = max(d for d in range(1, min(most, rows) + 1) if rows % d == 0)
    return msgspec.structs.replace(changed, dp=dp)


def fitting_neighbours(
    job: Job, strategy: Strategy, calibration: Calibration | None = None, most: int = 2
) -> list[Neighbour]:
    """Return strategies that fit with the fewest changes, quickest first; different options each.

    The batch stays as it is; data parallelism follows the other axes as far as it divides it.
    """
    reach: list[tuple[str, Strategy, int]] = [("", strategy, job.cards)]
    moves = _moves(job, strategy)
    for changes in range(1, MOST + 1):
        tried: dict[str, tuple[Strategy, int]] = {}
        for text, base, cards in reach:
            for option, change, asked in moves:
                name = option.split()[0]
                if name in text:
                    continue
                other = _apply(base, change, max(asked, cards))
                if other is not None:
                    key = f"{text} {option}".strip()
                    tried.setdefault(key, (other, max(asked, cards)))
        found = _those_that_fit(job, tried, changes, calibration)
        if found:
            return _different(found, most)
        reach = _closest(job, tried, calibration)
    return []


def _closest(
    job: Job, tried: dict[str, tuple[Strategy, int]], cal: Calibration | None
) -> list[tuple[str, Strategy, int]]:
    """Return the KEPT changes that come nearest to fitting, to be changed further."""
    keys = list(tried)
    columns = columns_of([tried[key][0] for key in keys])
    widest = replace(job, cards=max(cards for _, cards in tried.values()))
    peaks = np.where(legal(widest, columns), evaluate(widest, columns, cal).peak_bytes, np.inf)
    order = np.argsort(peaks, kind="stable")[:KEPT]
    return [(keys[i], *tried[keys[i]]) for i in order if np.isfinite(peaks[i])]


def _those_that_fit(
    job: Job, tried: dict[str, tuple[Strategy, int]], changes: int, cal: Calibration | None
) -> list[Neighbour]:
    found: list[Neighbour] = []
    for cards in sorted({cards for _, cards in tried.values()}):
        some = {key: s for key, (s, n) in tried.items() if n == cards}
        wider = replace(job, cards=cards)
        columns = columns_of(list(some.values()))
        fine = legal(wider, columns)
        if not fine.any():
            continue
        rows = np.flatnonzero(fine)
        costs = evaluate(wider, columns.take(rows), cal)
        keys = list(some)
        for i in np.flatnonzero(costs.fits):
            key = keys[int(rows[i])]
            asked, name = some[key], key
            if asked.dp != cards // (asked.tp * asked.pp * asked.cp):
                name = f"{key} --dp {asked.dp}"
            found.append(Neighbour(name, asked, cards, changes, float(costs.step_s[i]),
                                   float(costs.peak_bytes[i])))  # fmt: skip
    return sorted(found, key=lambda n: (n.cards, -n.strategy.world_size, n.step_s))


def _different(found: list[Neighbour], most: int) -> list[Neighbour]:
    chosen: list[Neighbour] = []
    seen: set[str] = set()
    for n in found:
        names = " ".join(sorted(w for w in n.change.split() if w.startswith("--")))
        if names not in seen:
            seen.add(names)
            chosen.append(n)
        if len(chosen) == most:
            break
    return chosen
