"""Schedule: the order in which every pipeline rank works, as data."""

from __future__ import annotations

from typing import Literal, NamedTuple

OpKind = Literal["F", "B", "I", "W"]
"""Forward, whole backward, input-gradient half, weight-gradient half."""


class Op(NamedTuple):
    """One piece of work of a pipeline rank."""

    kind: OpKind
    chunk: int
    """Model chunk on this rank (0 .. vpp-1)."""
    micro_batch: int
    paired: bool = False
    """Runs together with the operation after it, each hiding the other's communication."""


class Schedule(NamedTuple):
    """Ordered operations of every pipeline rank."""

    name: str
    ops: tuple[tuple[Op, ...], ...]
    """One tuple per pipeline rank."""
    stage_of: tuple[tuple[int, ...], ...]
    """Model stage of (rank, chunk): which part of the model the chunk holds."""

    @property
    def ranks(self) -> int:
        """Pipeline ranks."""
        return len(self.ops)

    @property
    def stages(self) -> int:
        """Model stages: chunks of the whole pipeline, a stage held twice counted once."""
        return 1 + max(stage for row in self.stage_of for stage in row)

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one replica."""
        return 1 + max(op.micro_batch for op in self.ops[0])
