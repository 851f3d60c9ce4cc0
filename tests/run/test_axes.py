"""A rank inside a tensor, pipeline or fully sharded group dies and the replica goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from run_jobs import Train, script

from lightloom.cli.run import run
from lightloom.run import axes_exchange

pytestmark = pytest.mark.torch

SIZE = ("--width", "32", "--layers", "2", "--context", "16", "--batch", "4")


_calm: dict[str, list[float]] = {}
JOB = {"script": "example:axes", "deterministic": True, "steps": 12, "micro_batches": 2}
SHARDS = {"fsdp": 2, "tp": 2, "pp": 2, "pp,tp": 4}


def calm_losses(train: Train) -> list[float]:
    """Return the losses of one rank that nothing happens to."""
    if not _calm:
        found = train(**JOB, args=("--axes", "ddp", *SIZE), ranks=1)
        _calm["losses"] = found.losses
    return _calm["losses"]


def test_ddp_as_it_stands_loses_a_rank(train: Train) -> None:
    hurt = train(**JOB, args=("--axes", "ddp", *SIZE), ranks=2, faults=("rank:1@step6",))
    assert hurt.state == "done" and hurt.lost_steps == 0
    assert hurt.losses == pytest.approx(calm_losses(train), rel=1e-4)


@pytest.mark.parametrize("axis", list(SHARDS))
def test_a_spare_takes_the_shard_of_a_lost_rank_from_the_other_replica(
    train: Train, axis: str
) -> None:
    """The product is 2 replicas x 2 stages x 2 tensor parallel ranks and a spare: 9 processes."""
    shards = SHARDS[axis]
    hurt = train(**JOB, args=("--axes", axis, *SIZE), ranks=2 * shards, shards=shards, spares=1,
                 wait=True, faults=(f"rank:{2 * shards - 1}@step6",))  # fmt: skip
    assert (hurt.state, hurt.steps, hurt.lost_steps) == ("done", 12, 0)
    assert hurt.pids_kept and hurt.world == 2 * shards
    assert (hurt.recoveries[0].decision, hurt.recoveries[0].step) == ("spare", 6)
    assert hurt.losses == pytest.approx(calm_losses(train), rel=1e-4), "as one rank without a loss"


def test_without_a_spare_the_replica_is_dropped_and_its_work_moves(train: Train) -> None:
    job = {"script": "example:axes", "args": ("--axes", "tp", *SIZE), "ranks": 4, "shards": 2,
           "micro_batches": 4, "deterministic": True, "steps": 12}  # fmt: skip
    calm = train(**job)
    hurt = train(**job, respawn=False, faults=("rank:0@step6",))
    assert hurt.state == "done" and hurt.lost_steps == 0 and hurt.world == 2
    assert hurt.recoveries[0].decision == "shrink"
    assert hurt.losses == calm.losses, "equal bit for bit"


def test_an_error_of_the_script_is_not_taken_for_a_lost_rank(train: Train, tmp_path: Path) -> None:
    body = """
import torch
import lightloom.run as ll
from lightloom.run.axes import axes
from lightloom.run.wrap_tensor import tensor
with ll.session() as s:
    job = axes(s, tensor(lambda: torch.nn.Linear(4, 4), {}, lambda m, x: m(x).sum()),
               lambda own: torch.optim.SGD(own, 0.1), largest=20, tp=2)
    for x in s.steps([torch.ones(2, 5)] * 8, steps=4):
        job.reduce(job.compute(x))
"""
    found = train(script=script(tmp_path, body), args=(), ranks=2, shards=2, respawn=False)
    assert found.state == "failed"
    log = "".join(p.read_text() for p in Path(found.folder).glob("rank-*.log"))
    assert "shapes cannot be multiplied" in log, "raised, not waited for"


def test_shards_must_divide_the_ranks() -> None:
    found = CliRunner().invoke(run, ["start", "--example", "axes", "--ranks", "3", "--shards", "2"])
    assert found.exception is not None and "3 ranks" in str(found.exception)


def test_an_arena_refuses_a_part_larger_than_said() -> None:
    arena = axes_exchange.ShardArena(10, 1)
    with pytest.raises(Exception, match="11 elements"):
        arena.bind([torch.nn.Parameter(torch.zeros(11))])
