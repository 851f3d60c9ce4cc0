"""Pipeline: which stage holds which layers, what is in flight, how large the bubble is.

Axes: U distinct layouts, K stages kept (those that no other stage dominates, or all), B kinds of
layer, N candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightloom.core.model import Model

from .anatomy import anatomy_of
from .columns import SCHEDULES, Columns, unique_rows
from .memo import per_object

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE, ZB_V, DUALPIPE, DUALPIPE_V = range(len(SCHEDULES))


def even_layers(layers: int, chunks: int) -> tuple[int, ...]:
    """Return layers of each of `chunks` stages, as even as possible.

    Where it does not divide, the last, then the first, then the stages before the last hold one
    fewer: they carry the head, multi-token prediction and the embedding (Llama 3 does the same).
    """
    most = -(-layers // chunks)
    spread = [most] * chunks
    order = [chunks - 1, 0, *range(chunks - 2, 0, -1)]
    for index in order[: most * chunks - layers]:
        spread[index] -= 1
    return tuple(spread)


def rank_of_chunk(chunk: int, pp: int, schedule: int) -> int:
    """Return the pipeline rank that holds model chunk `chunk`."""
    if schedule in (ZB_V, DUALPIPE_V):
        return chunk if chunk < pp else 2 * pp - 1 - chunk
    return chunk % pp


@per_object(4096)
def stage_table(
    model: Model, pp: int, vpp: int, layout: tuple[int, ...], schedule: int
) -> tuple[F64, F64, F64]:
    """Return (layers of each kind per rank, embedding per rank, head per rank) of all pp ranks.

    Shapes (pp, B), (pp,), (pp,). Multi-token-prediction layers count with the head's rank.
    """
    a = anatomy_of(model)
    spread = layout or even_layers(model.layers, pp * vpp)
    counts = np.zeros((pp, len(model.blocks)))
    first, last = np.zeros(pp), np.zeros(pp)
    done = 0
    for chunk, size in enumerate(spread):
        rank = rank_of_chunk(chunk, pp, schedule)
        np.add.at(counts[rank], a.blocks_L[done : done + size], 1.0)
        done += size
    first[rank_of_chunk(0, pp, schedule)] = 1.0
    last[rank_of_chunk(pp * vpp - 1, pp, schedule)] = 1.0
    counts[:, int(a.blocks_L[-1])] += last * a.mtp
    if schedule == DUALPIPE:  # every rank works half its time on the mirrored stage
        counts, first, last = (0.5 * (x + x[::-1]) for x in (counts, first, last))
    return counts, first, last


@per_object(4096)
def _undominated(
    model: Model, pp: int, vpp: int, layout: tuple[int, ...], schedule: int
) -> tuple[int, ...]:
    """Return ranks that no other rank equals or exceeds in every load and in micro-batches held."""
    counts, first, last = stage_table(model, pp, vpp, layout, schedule)
    load = np.column_stack([counts, first, last, -np.arange(pp)])
    kept: list[int] = []
    for rank in range(pp):
        others = [r for r in range(pp) if r != rank]
        if not any((load[r] >= load[rank]).all() for r in others):
            kept.append(rank)
    return tuple(kept)


@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    """Stages of each distinct layout; padding repeats the first stage kept."""

    rank_KU: I64
    counts_BKU: F64
    first_KU: F64
    last_KU: F64
    whole_XU: F64
    """Layers of each kind, heads and embeddings of all stages together."""
    inverse_N: I64
    """Layout of each candidate."""


def stages_of(model: Model, c: Columns, every: bool = False) -> Stages:
    """Return the stages of all candidates: `every` one of them, or only those that may bind."""
    chosen, inverse = unique_rows(c.pp, c.vpp, c.layout, c.schedule)
    keys = [
        (int(c.pp[i]), int(c.vpp[i]), c.layouts[int(c.layout[i])], int(c.schedule[i]))
        for i in chosen
    ]
    kept = [tuple(range(k[0])) if every else _undominated(model, *k) for k in keys]
    most = max(len(k) for k in kept)
    rank = np.zeros((most, len(keys)), np.int64)
    whole = np.zeros((len(model.blocks) + 2, len(keys)))
    counts = np.zeros((len(model.blocks), most, len(keys)))
    first, last = np.zeros((most, len(keys))), np.zeros((most, len(keys)))
    for u, (key, ranks) in enumerate(zip(keys, kept, strict=True)):
        table = stage_table(model, *key)
        padded = [*ranks, *[ranks[0]] * (most - len(ranks))]
        rank[:, u] = padded
        whole[:, u] = [*table[0].sum(axis=0), table[2].sum(), table[1].sum()]
        counts[:, :, u] = table[0][padded].T
        first[:, u], last[:, u] = table[1][padded], table[2][padded]
    return Stages(rank, counts, first, last, whole, inverse)


def in_flight(schedule: I64, pp: I64, vpp: I64, micro_batches: I64, rank: I64) -> F64:
    """Return micro-batches whose activations a rank holds at worst, in whole-rank units.

    1F1B holds pp - rank; interleaved 2 (pp - rank - 1) + (vpp - 1) pp + 1 chunks (Korthikanti
    et al., section 4.2.3); V-shaped schedules pp, DualPipe pp + 1 (zero-bubble and DeepSeek-V3
    papers, table 2 of the latter).
    """
    plain = schedule < INTERLEAVED
    held: F64 = np.minimum(micro_batches, pp - rank).astype(np.float64)
    if plain.all() and (schedule != GPIPE).all():
        return held
    chunks = np.minimum(2 * (pp - rank - 1) + (vpp - 1) * pp + 1, micro_batches * vpp)
    held = np.where((schedule == INTERLEAVED) & (pp > 1), chunks / np.maximum(vpp, 1), held)
    held = np.where(schedule == GPIPE, micro_batches, held)
    held = np.where(schedule == ZB_V, np.minimum(micro_batches, pp), held)
    double = (schedule == DUALPIPE) | (schedule == DUALPIPE_V)
    answer: F64 = np.where(double, np.minimum(micro_batches, pp + 1), held)
    return answer


def bubble_share(schedule: I64, pp: I64, vpp: I64, forward: F64, weight: F64) -> F64:
    """Return the fill and drain of a pipeline over that of plain 1F1B with the same stages.

    `forward` and `weight` are shares of forward and of weight-gradient work in a stage's time.
    1F1B and GPipe 1; interleaved 1/vpp (Narayanan et al. 2021); zero-bubble H1 (F + B - W);
    ZB-V (F + B - 2 W) (Qi et al. 2024); DualPipe (pp/2 - 1)(FB + B - 3 W) over (pp - 1)(F + B)
    (DeepSeek-V3 report, table 2), where B is the input-gradient half.
    """
    one = np.ones(np.broadcast_shapes(schedule.shape, forward.shape))
    if (schedule <= ONE_F_ONE_B).all():
        return one
    answer = np.where(schedule == INTERLEAVED, 1.0 / np.maximum(vpp, 1), one)
    answer = np.where(schedule == ZERO_BUBBLE, np.maximum(1.0 - 2.0 * weight, 0.0), answer)
    answer = np.where(schedule == ZB_V, np.maximum(1.0 - 3.0 * weight, 0.0), answer)
    double = (schedule == DUALPIPE) | (schedule == DUALPIPE_V)
    per = np.maximum(2.0 - forward - 3.0 * weight, 0.0)
    halves = np.maximum(pp / 2.0 - 1.0, 0.0) / np.maximum(pp - 1.0, 1.0)
    share: F64 = np.where(double, per * halves, answer)
    return share
