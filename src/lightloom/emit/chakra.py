"""Chakra execution traces, one per rank, and the same step as a SimAI (AICB) workload.

Small jobs get a file per rank. Above 64 ranks, ranks of one pipeline stage do the same work, so
one file per pipeline rank is written, with a map from rank to file. Durations are the plan's own
kernel times (derived); communication carries bytes, never seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lightloom.core.plan import Plan
from lightloom.core.schedule import Op
from lightloom.cost.job import Job
from lightloom.cost.operations import Message, StageOperations, StepOperations, stage_operations
from lightloom.step.schedules import chunks_of, make
from lightloom.step.units import groups_of

from .bundle import Bundle, EmittedFile, head, lines_of
from .protobuf import attribute, data, delimited, number, packed

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
COLLECTIVES = {"all-reduce": 0, "all-gather": 2, "broadcast": 5, "all-to-all": 6,
               "reduce-scatter": 7}  # fmt: skip
EACH_RANK = 64
LARGEST = 2**63 - 1


class Node(NamedTuple):
    """One node of a trace."""

    name: str
    kind: int
    after: tuple[int, ...]
    micros: int
    attributes: tuple[tuple[str, int | bool | str], ...]


def emit(plan: Plan) -> Bundle:
    """Return ``rank.N.et`` files, ``comm_group.json``, ``ranks.json`` and ``workload.txt``."""
    job = job_of(plan)
    operations = stage_operations(job, plan.strategy)
    world, ids = plan.strategy.world_size, group_ids(plan)
    every = world <= EACH_RANK
    ranks = range(world) if every else [first_rank(plan, p) for p in range(plan.strategy.pp)]
    files = [
        EmittedFile(f"rank.{rank}.et", "", raw=trace_of(plan, operations, ids, rank))
        for rank in ranks
    ]
    names = {
        str(r): f"rank.{r if every else first_rank(plan, pipeline_rank(plan, r))}.et"
        for r in range(world)
    }
    note = lines_of(
        head(plan, "Chakra traces (schema 0.0.4) and a SimAI workload", "-"),
        "- durations: derived, the plan's kernel times; bytes: plan and model",
        "- ranks.json maps a rank to its file; above 64 ranks those of one stage share one",
    )
    files += [
        EmittedFile("comm_group.json", json.dumps(group_table(plan, ids)) + "\n"),
        EmittedFile("ranks.json", json.dumps(names) + "\n"),
        EmittedFile("workload.txt", workload_of(plan, operations)),
        EmittedFile("ORIGIN.md", note),
    ]
    return Bundle("chakra", tuple(files))


def job_of(plan: Plan) -> Job:
    """Return the job that the plan answers."""
    s = plan.strategy
    return Job(model=plan.model, cluster=plan.cluster, cards=plan.cards, seq=s.seq,
               global_batch=s.global_batch, framework=s.framework, task=s.task)  # fmt: skip


def pipeline_rank(plan: Plan, rank: int) -> int:
    """Return the pipeline rank of a rank (axis order tp, cp, dp, pp)."""
    s = plan.strategy
    return rank // (s.tp * s.cp * s.dp)


def first_rank(plan: Plan, stage: int) -> int:
    """Return the first rank of a pipeline rank."""
    s = plan.strategy
    return stage * s.tp * s.cp * s.dp


def group_ids(plan: Plan) -> dict[str, list[int]]:
    """Return axis -> number of each rank's group; numbers of different axes never meet."""
    groups = groups_of(plan.strategy)
    out, base = {}, 1
    for axis in ("tp", "cp", "ep", "dp", "edp"):
        _, index = np.unique(groups[axis], return_inverse=True)
        out[axis] = [int(i) + base for i in index.ravel()]
        base += int(index.max()) + 1
    return out


def group_table(plan: Plan, ids: dict[str, list[int]]) -> dict[str, list[int]]:
    """Return group number -> ranks for every group of more than one rank."""
    out: dict[str, list[int]] = {}
    for numbers in ids.values():
        for rank, number_ in enumerate(numbers):
            out.setdefault(str(number_), []).append(rank)
    return {name: ranks for name, ranks in out.items() if len(ranks) > 1}


def trace_of(plan: Plan, operations: StepOperations, ids: dict[str, list[int]], rank: int
             ) -> bytes:  # fmt: skip
    """Return the Chakra file of one rank."""
    nodes = list(nodes_of(plan, operations, ids, rank))
    messages = [data(1, b"0.0.4")]
    for identity, node in enumerate(nodes):
        messages.append(
            number(1, identity)
            + data(2, node.name.encode())
            + number(3, node.kind)
            + packed(5, node.after)
            + number(7, node.micros)
            + b"".join(data(10, attribute(k, v)) for k, v in node.attributes)
        )
    return delimited(messages)


def nodes_of(plan: Plan, operations: StepOperations, ids: dict[str, list[int]], rank: int
             ) -> Iterator[Node]:  # fmt: skip
    """Yield the nodes of one rank in schedule order; each waits for the one before it."""
    s = plan.strategy
    stage = pipeline_rank(plan, rank)
    name = "interleaved" if s.schedule == "1f1b" and s.vpp > 1 else s.schedule
    schedule = make(name, s.pp, s.micro_batches, chunks_of(name, s.vpp))
    builder = _Builder(plan, operations, ids, rank)
    for op in schedule.ops[stage]:
        yield from builder.operation(op, schedule.stage_of[stage][op.chunk])
    yield from builder.close()


class _Builder:
    """Counts nodes and remembers the last one, so that each waits for it."""

    def __init__(self, plan: Plan, operations: StepOperations, ids: dict[str, list[int]],
                 rank: int) -> None:  # fmt: skip
        self.plan, self.operations, self.ids, self.rank = plan, operations, ids, rank
        self.count = 0
        self.last = max(s.stage for s in operations.stages)

    def node(self, name: str, kind: int, seconds: float,
             *attributes: tuple[str, int | bool | str]) -> Node:  # fmt: skip
        """Return the next node."""
        after = (self.count - 1,) if self.count else ()
        self.count += 1
        micros = max(1, round(seconds * 1e6)) if kind == COMPUTE else 0
        return Node(name, kind, after, micros, (("is_cpu_op", False), *attributes))

    def collective(self, name: str, message: Message) -> Node:
        """Return a collective node with all occurrences' bytes."""
        size = min(LARGEST, round(message.bytes * max(1.0, message.count)))
        axis = message.axis if message.axis in self.ids else "dp"
        return self.node(name, COLLECTIVE, 0.0,
                         ("comm_type", COLLECTIVES[message.kind]), ("comm_size", size),
                         ("pg_name", str(self.ids[axis][self.rank])))  # fmt: skip

    def transfer(self, kind: int, peer: int, tag: int, size: float) -> Node:
        """Return a send or receive of activations."""
        src, dst = (self.rank, peer) if kind == SEND else (peer, self.rank)
        name = "send" if kind == SEND else "receive"
        return self.node(f"{name}_{tag}", kind, 0.0, ("comm_src", src), ("comm_dst", dst),
                         ("comm_size", round(size)), ("comm_tag", tag))  # fmt: skip

    def peer(self, stage: int) -> int:
        """Return the rank of the same place that holds another model stage."""
        inner = self.plan.strategy.tp * self.plan.strategy.cp * self.plan.strategy.dp
        return self.operations.stages[stage].rank * inner + self.rank % inner

    def operation(self, op: Op, stage: int) -> Iterator[Node]:
        """Yield receive, collectives, compute and send of one operation."""
        work = self.operations.stages[stage]
        forward = op.kind == "F"
        before = stage - 1 if forward else stage + 1
        after = stage + 1 if forward else stage - 1
        size = self.operations.stages[min(stage, before) if before >= 0 else 0].send_bytes
        tag = op.micro_batch * 2 * (self.last + 2) + (0 if forward else 1)
        crosses = op.kind in ("F", "B", "I")
        if crosses and 0 <= before <= self.last and self.peer(before) != self.rank:
            yield self.transfer(RECEIVE, self.peer(before), tag + 2 * max(before, stage), size)
        label = f"{op.kind}{op.micro_batch}_stage{stage}"
        for message in work.forward_comm if forward else work.backward_comm:
            if op.kind != "W" and message.kind in COLLECTIVES and message.bytes > 0:
                yield self.collective(f"{label}_{message.axis}_{message.kind}", message)
        yield self.node(label, COMPUTE, seconds_of(op, work))
        if crosses and 0 <= after <= self.last and self.peer(after) != self.rank:
            yield self.transfer(SEND, self.peer(after), tag + 2 * max(after, stage),
                                work.send_bytes)  # fmt: skip

    def close(self) -> Iterator[Node]:
        """Yield gradient collectives and the optimiser."""
        for message in self.operations.gradients:
            if message.kind in COLLECTIVES and message.bytes > 0:
                yield self.collective(f"gradient_{message.axis}_{message.kind}", message)
        yield self.node("optimizer", COMPUTE, self.operations.optimizer_s)


def seconds_of(op: Op, work: StageOperations) -> float:
    """Return kernel seconds of one operation."""
    return {
        "F": work.forward_s, "B": work.input_grad_s + work.weight_grad_s,
        "I": work.input_grad_s, "W": work.weight_grad_s,
    }[op.kind]  # fmt: skip


def workload_of(plan: Plan, operations: StepOperations) -> str:
    """Return SimAI's text workload: one line per model chunk, times in nanoseconds.

    Columns: name, dependency, then time, communication, bytes of forward, input gradient and
    weight gradient, and the update time (SimAI's analytical reader, 12 columns).
    """
    s = plan.strategy
    first = (f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {s.tp} ep: {s.ep} "
             f"pp: {s.pp} vpp: {s.vpp} ga: {s.micro_batches} all_gpus: {s.world_size} "
             "checkpoints: 0 checkpoint_initiates: 0 pp_comm: "
             f"{round(operations.stages[0].send_bytes) if s.pp > 1 else 0}")  # fmt: skip
    lines = [first, str(len(operations.stages))]
    grads = next((m for m in operations.gradients if m.bytes > 0), None)
    for work in operations.stages:
        forward, backward = heaviest(work.forward_comm), heaviest(work.backward_comm)
        weight = (word_of(grads), round(grads.bytes)) if grads else ("NONE", 0)
        cells = [f"stage{work.stage}", "-1", round(work.forward_s * 1e9), *forward,
                 round(work.input_grad_s * 1e9), *backward, round(work.weight_grad_s * 1e9),
                 *weight, "100"]  # fmt: skip
        lines.append("\t".join(str(cell) for cell in cells))
    return lines_of(lines)


def heaviest(messages: tuple[Message, ...]) -> tuple[str, int]:
    """Return SimAI's word and the bytes of the message that moves most."""
    real = [m for m in messages if m.kind in COLLECTIVES and m.bytes > 0]
    if not real:
        return "NONE", 0
    most = max(real, key=lambda m: m.bytes * m.count)
    return word_of(most), round(most.bytes * max(1.0, most.count))


def word_of(message: Message) -> str:
    """Return SimAI's word for a collective; experts have their own suffix."""
    word = message.kind.replace("-", "").upper()
    return f"{word}_EP" if message.axis == "ep" else word
