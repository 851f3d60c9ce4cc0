"""What each pipeline rank does, step by step, ready to be played: schedule times work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lightloom.core.errors import InputError
from lightloom.core.schedule import Op

from .graph import Graph
from .work import SELF, Piece, StageWork, StepWork, Transfer, pair

Imbalance = Callable[[int, int], float]
"""(stage, micro-batch) -> tokens of the busiest expert rank over the mean."""
OPTIMIZER = "optimizer"


@dataclass(slots=True)
class Step:
    """One stop of a rank's program."""

    name: str
    kind: str
    """F, B, I, W, F+B, or `OPTIMIZER`."""
    ops: tuple[Op, ...]
    stages: tuple[int, ...]
    pieces: tuple[Piece, ...]
    needs: int = 0
    """Messages and transfers to wait for."""
    sends: list[tuple[int, int, Transfer]] = field(default_factory=list)
    """(rank, step there, message) sent when the step ends."""
    during: list[tuple[Transfer, int]] = field(default_factory=list)
    """(transfer, own step that waits for it) started when the step starts."""
    after: list[tuple[Transfer, int]] = field(default_factory=list)
    """The same, started when the step ends."""


@dataclass(slots=True)
class Program:
    """Steps of every pipeline rank."""

    graph: Graph
    work: StepWork
    rows: list[list[Step]]
    first: list[list[tuple[Transfer, int]]]
    """Per rank: transfers that start with the step (parameters gathered under first forwards)."""
    held: list[frozenset[int]]
    """Stages each rank holds."""


def compile_step(graph: Graph, work: StepWork, imbalance: Imbalance | None = None) -> Program:
    """Return the program of every pipeline rank."""
    schedule = graph.schedule
    if len(work.stages) != schedule.stages:
        raise InputError(
            f"schedule {schedule.name} has {schedule.stages} stages, the work {len(work.stages)}",
            out="cut the model into as many stages as the schedule has",
        )
    rows: list[list[Step]] = [[] for _ in range(schedule.ranks)]
    where: list[tuple[int, int]] = []
    for node in range(len(graph)):
        rank = graph.rank_N[node]
        where.append((rank, len(rows[rank])))
        rows[rank].append(_step(graph, node, work, imbalance))
    for node, needs in enumerate(graph.needs_N):
        rank, at = where[node]
        for need in needs:
            source_rank, source_at = where[need]
            sender = rows[source_rank][source_at]
            sender.sends.append((rank, at, _message(sender, rows[rank][at], work)))
        rows[rank][at].needs += len(needs)
    held = [frozenset(row) for row in schedule.stage_of]
    program = Program(graph, work, rows, [[] for _ in rows], held)
    for rank in range(schedule.ranks):
        _close(program, rank)
    return program


def _message(sender: Step, receiver: Step, work: StepWork) -> Transfer:
    """Return the message that carries sender's result to receiver; forwards go one stage up."""
    for a in sender.stages:
        for b in receiver.stages:
            if abs(a - b) == 1:
                found = work.stages[min(a, b)].send
                if found is not None:
                    name = "pipeline forward" if b > a else "pipeline backward"
                    return Transfer(name, found.traffic, SELF, found.seconds, found.bytes,
                                    found.load)  # fmt: skip
    return Transfer("pipeline", "pipeline", SELF, 0.0, 0.0, (0.0,))


def _step(graph: Graph, node: int, work: StepWork, imbalance: Imbalance | None) -> Step:
    ops, stages = graph.ops_N[node], graph.stage_N[node]
    parts = []
    for op, stage in zip(ops, stages, strict=True):
        pieces = pieces_of(work.stages[stage], op.kind)
        if imbalance is not None:
            factor = imbalance(stage, op.micro_batch)
            pieces = tuple(piece.routed(factor) for piece in pieces)
        parts.append(pieces)
    pieces = parts[0] if len(parts) == 1 else pair(parts[0], parts[1])
    kind = "+".join(op.kind for op in ops)
    return Step(graph.name(node), kind, ops, stages, pieces)


def pieces_of(stage: StageWork, kind: str) -> tuple[Piece, ...]:
    """Return the pieces of one operation of a stage."""
    table = {"F": stage.forward, "B": stage.backward, "I": stage.inputs, "W": stage.weights}
    return table[kind]


def _close(program: Program, rank: int) -> None:
    """Add gradients, the optimiser and the parameters to one rank's program."""
    row, work = program.rows[rank], program.work
    last = len(row)
    closing = Step(OPTIMIZER, OPTIMIZER, (), (), ())
    tail: list[Piece] = []
    for stage in sorted(program.held[rank]):
        gradients = work.stages[stage].gradients
        if work.overlap_grad:
            finished = next(i for i in reversed(range(last)) if _writes(row[i], stage))
            closing.needs += _in_buckets(row[finished], gradients, work.stages[stage].layers, last)
        else:
            tail += [Piece(t.name, 0.0, (t,)) for t in gradients]
    if work.norm is not None:
        tail.append(Piece("gradient norm", 0.0, (work.norm,)))
    seconds = sum(work.stages[stage].optimizer_s for stage in program.held[rank])
    tail.append(Piece("optimizer", seconds))
    for stage in sorted(program.held[rank]):
        parameters = work.stages[stage].parameters
        if work.overlap_param:
            user = next(i for i, step in enumerate(row) if stage in step.stages)
            buckets = work.stages[stage].layers
            program.first[rank] += [(t.times(1.0 / buckets), user) for t in parameters]
            row[user].needs += len(parameters)
            if buckets > 1:
                program.first[rank] += [
                    (t.times(1.0 - 1.0 / buckets), user + 1) for t in parameters
                ]
                row[user + 1].needs += len(parameters)
        else:
            tail += [Piece(t.name, 0.0, (t,)) for t in parameters]
    closing.pieces = tuple(tail)
    row.append(closing)


def _in_buckets(step: Step, transfers: tuple[Transfer, ...], buckets: int, waiter: int) -> int:
    """Start all buckets but the last under `step`, the last after it; return what to wait for."""
    if buckets > 1:
        step.during += [(t.times(1.0 - 1.0 / buckets), waiter) for t in transfers]
    step.after += [(t.times(1.0 / buckets), waiter) for t in transfers]
    return len(transfers) * (2 if buckets > 1 else 1)


def _writes(step: Step, stage: int) -> bool:
    """True where the step adds to the weight gradients of `stage`."""
    return any(s == stage and op.kind in "BW" for op, s in zip(step.ops, step.stages, strict=True))
