"""State moves between any two layouts bit for bit; also between real processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from lightloom.core.errors import RunError
from lightloom.run import handover, reshard
from lightloom.run.reshard import Whole

pytestmark = pytest.mark.torch


def cut(tensor: torch.Tensor, dim: int | None, ranks: int) -> dict[int, torch.Tensor]:
    """Return every rank's part as torch.chunk cuts it, empty where there are fewer parts."""
    if dim is None:
        return dict.fromkeys(range(ranks), tensor)
    parts = list(torch.chunk(tensor, ranks, dim))
    none = tensor.narrow(dim, 0, 0)
    return dict(enumerate(parts + [none] * (ranks - len(parts))))


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors have the same shape and bits."""
    return (
        a.shape == b.shape and a.contiguous().numpy().tobytes() == b.contiguous().numpy().tobytes()
    )


dims = some.none() | some.integers(0, 1)


@settings(max_examples=150, deadline=None)
@given(rows=some.integers(1, 9), columns=some.integers(1, 9), old=dims, new=dims,
       n=some.integers(1, 5), m=some.integers(1, 5))  # fmt: skip
def test_any_layout_becomes_any_other(
    rows: int, columns: int, old: int | None, new: int | None, n: int, m: int
) -> None:
    values = torch.arange(rows * columns, dtype=torch.float32).reshape(rows, columns) * 0.1
    whole = Whole("w", "float32", (rows, columns))
    parts, wanted = cut(values, old, n), cut(values, new, m)
    for rank in range(m):
        found = reshard.moves(whole, (old, n), (new, m), rank)
        assert same(reshard.apply(whole, (new, m), rank, found, parts), wanted[rank])


def test_a_part_that_only_a_lost_rank_had_is_named() -> None:
    whole = Whole("w", "float32", (10, 2))
    with pytest.raises(RunError, match="rows 5 to 10 were only on rank 1"):
        reshard.moves(whole, (0, 2), (0, 1), 0, alive=[0])
    assert reshard.moves(whole, (0, 2), (0, 2), 0, alive=[0])[0].rows == 5
    assert reshard.moves(whole, (None, 3), (0, 2), 1, alive=[2])[0].source == 2


WHOLES = [
    Whole("up.weight", "float32", (13, 6)), Whole("up.bias", "bfloat16", (13,)),
    Whole("down.weight", "float32", (6, 13)), Whole("step", "int64", ()),
]  # fmt: skip


def values() -> dict[str, torch.Tensor]:
    """Return the original values."""
    torch.manual_seed(3)
    return {
        w.name: torch.tensor(7) if w.dtype == "int64"
        else torch.randn(w.shape).to(getattr(torch, w.dtype)) for w in WHOLES
    }  # fmt: skip


def whole_copy(name: str, shape: tuple[int, ...]) -> int | None:
    """Every rank has everything (dp)."""
    return None


def tensor_parallel(name: str, shape: tuple[int, ...]) -> int | None:
    """Column first, row next, as Megatron cuts a feed-forward (tp)."""
    return {"up.weight": 0, "up.bias": 0, "down.weight": 1}.get(name)


def fully_sharded(name: str, shape: tuple[int, ...]) -> int | None:
    """Rows of everything (FSDP2)."""
    return 0 if shape else None


def giver(rule: reshard.Rule, ranks: int, rank: int, ready: int, done: int) -> None:
    """Be an old rank: offer the parts, say where, wait until they are taken."""
    parts = {k: cut(v, rule(k, tuple(v.shape)), ranks)[rank] for k, v in values().items()}
    buffer = handover.Buffer("ll-test")
    os.write(ready, (reshard.offer(buffer, parts, os.getpid()) + "\n").encode())
    os.read(done, 1)


@pytest.mark.parametrize(
    ("old", "n", "new", "m"),
    [(whole_copy, 2, tensor_parallel, 2), (fully_sharded, 4, fully_sharded, 2),
     (fully_sharded, 2, fully_sharded, 3), (tensor_parallel, 2, fully_sharded, 3)],
    ids=["dp2-tp2", "4-2", "2-3", "tp2-fsdp3"],
)  # fmt: skip
def test_between_real_processes(old: reshard.Rule, n: int, new: reshard.Rule, m: int) -> None:
    pids, paths = [], {}
    end_r, end_w = os.pipe()
    for rank in range(n):
        ready_r, ready_w = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                giver(old, n, rank, ready_w, end_r)
            finally:
                os._exit(0)
        pids.append(pid)
        os.close(ready_w)
        with open(ready_r, "rb") as said:
            paths[rank] = said.readline().decode().strip()
    try:
        for rank in range(m):
            found = reshard.pull(paths, WHOLES, (old, n), (new, m), rank)
            for name, value in values().items():
                assert same(found[name].view(torch.uint8) if value.dtype == torch.bfloat16
                            else found[name], _wanted(value, new, name, m, rank))  # fmt: skip
        if old is whole_copy:
            os.kill(pids[0], signal.SIGKILL)
            os.waitpid(pids.pop(0), 0)
            found = reshard.pull(paths, WHOLES, (old, n), (new, m), 0)
            assert same(found["up.weight"], cut(values()["up.weight"], 0, m)[0])
    finally:
        for _ in pids:
            os.write(end_w, b".")
        for pid in pids:
            os.waitpid(pid, 0)
        assert not list(Path("/dev/shm").glob("ll-test*"))


def _wanted(value: torch.Tensor, rule: reshard.Rule, name: str, m: int, rank: int) -> torch.Tensor:
    part = cut(value, rule(name, tuple(value.shape)), m)[rank]
    return part.contiguous().view(torch.uint8) if value.dtype == torch.bfloat16 else part
