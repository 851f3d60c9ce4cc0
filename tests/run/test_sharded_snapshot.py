"""Snapshots of sharded state: a step counts when all shards have it; joined and cut anew."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as hs
from run_jobs import Train, finish
from safetensors.torch import load_file

from lightloom.cli.snapshots import snapshots
from lightloom.core.errors import RunError
from lightloom.run import convert, joined, launch, sharded, snapshot, spec
from lightloom.run import state as st
from lightloom.run.layout import Box
from lightloom.run.reshard import bounds

pytestmark = pytest.mark.torch

SIZE = ("--width", "32", "--layers", "2", "--context", "16", "--batch", "4")
JOB = {"script": "example:axes", "deterministic": True, "micro_batches": 2, "snapshot_every": 5,
       "agents": 2}  # fmt: skip
ORDER = ("w", "n", "v")
Cuts = dict[str, int | None]


def tensors(step: float) -> dict[str, torch.Tensor]:
    """Return a whole model: two matrices that are cut and a vector that is not."""
    made = {"w": torch.arange(42.0).reshape(7, 6), "n": torch.arange(5.0), "v": torch.ones(4, 9)}
    return {name: t + step for name, t in made.items()}


def box(name: str, whole: torch.Tensor, dim: int | None, shard: int, shards: int) -> Box:
    """Return where a shard's part of a tensor lies."""
    at, shape = [0] * whole.dim(), list(whole.shape)
    if dim is not None:
        lo, hi = bounds(whole.shape[dim], shards, shard)
        at[dim], shape[dim] = lo, hi - lo
    return Box(name, tuple(whole.shape), tuple(at), tuple(shape))


def within(whole: torch.Tensor, b: Box) -> torch.Tensor:
    return whole[tuple(slice(a, a + n) for a, n in zip(b.at, b.shape, strict=True))].clone()


def part(step: int, cuts: Cuts, shard: int, shards: int) -> tuple[dict[str, Any], tuple[Box, ...]]:
    """Return (state, boxes) of one shard; the optimiser's average is ten times the weight."""
    whole = tensors(step)
    boxes = tuple(box(n, whole[n], cuts[n], shard, shards) for n in ORDER)
    model = {b.name: within(whole[b.name], b) for b in boxes}
    updates = {i: {"step": torch.tensor(float(step)), "avg": 10 * model[n]}
               for i, n in enumerate(ORDER)}  # fmt: skip
    groups = [{"lr": 0.5, "params": [0, 1, 2]}]
    return {"model": model, "optimizer": {"state": updates, "param_groups": groups}}, boxes


CUTS: Cuts = {"w": 0, "n": None, "v": 1}


def save(folder: Path, step: int, shard: int, shards: int = 2, *, keep: int = 3, mark: str = "0.0",
         cuts: Cuts = CUTS, spoil: str = "") -> Path:  # fmt: skip
    """Write one shard's snapshot as the writer does."""
    state, boxes = part(step, cuts, shard, shards)
    if spoil:
        state["model"][spoil] += shard
    tree, named = st.flatten(state)
    pieces, total = st.plan(named)
    layout = st.Layout(step=step, cursor=step * 4, pieces=pieces, tree=tree, total=total,
                       boxes=boxes, order=ORDER, mark=mark)  # fmt: skip
    memory = bytearray(total)
    st.copy_in(layout, [t for _, t in named], memory, 0)
    where = sharded.place(shard, shards)
    toc = st.encode(layout)
    path = snapshot.write(folder / where, step, layout.cursor, toc, memoryview(memory))
    sharded.prune(folder, where, step, keep)
    return path


def steps(folder: Path, shard: int) -> list[int]:
    return [int(p.name[5:]) for p in snapshot.folders(folder / sharded.place(shard, 2))]


def said(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(snapshots, list(words), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def flip(path: Path) -> None:
    data = bytearray((path / "state.bin").read_bytes())
    data[-100] ^= 4
    (path / "state.bin").write_bytes(data)


def test_a_step_counts_when_all_shards_have_it_and_stays_while_a_writer_fails(
    tmp_path: Path,
) -> None:
    for shard in (0, 1):
        save(tmp_path, 10, shard, keep=1)
    for step in range(20, 220, 10):  # the other shard's disk is full
        save(tmp_path, step, 0, keep=1)
    assert sharded.newest(tmp_path) == (10, 40)
    assert 10 in steps(tmp_path, 0), "the newest that all have is never pruned"
    assert len(steps(tmp_path, 0)) == 1 + 1 + sharded.LAG, "what waits for the others is bounded"
    save(tmp_path, 210, 1, keep=1)
    assert sharded.newest(tmp_path) == (210, 840) and steps(tmp_path, 1) == [210]
    save(tmp_path, 220, 0, keep=1)
    save(tmp_path, 220, 1, keep=1)
    assert steps(tmp_path, 0) == [210, 220], "until the slower one had it"
    shutil.rmtree(tmp_path / "shard-1-of-2" / "step-00000220")
    assert sharded.newest(tmp_path) == (-1, 0)


def test_shards_of_different_courses_are_never_mixed(tmp_path: Path) -> None:
    for step in (10, 20):
        for shard in (0, 1):
            save(tmp_path, step, shard)
    save(tmp_path, 20, 0, mark="0.1")  # rewound, and the step made again
    assert sharded.newest(tmp_path) == (10, 40)
    save(tmp_path, 20, 1, mark="0.1")
    assert sharded.newest(tmp_path) == (20, 80)
    save(tmp_path, 15, 0, keep=1, mark="1.0")
    assert steps(tmp_path, 0) == [10, 15, 20], "a later step of the course left prunes nothing"


def test_an_agent_passes_over_what_did_not_verify_until_it_is_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    for step in (10, 20, 30):
        for shard in (0, 1):
            save(folder, step, shard)
    shelf = sharded.Shelf(tmp_path)
    assert shelf.newest(25) == (20, 80)
    flip(folder / "shard-1-of-2" / "step-00000030")
    assert shelf.newest(30) == (30, 120), "bytes are not read"
    assert shelf.older(30) == (20, 80)
    assert shelf.newest(30) == (20, 80)
    for shard in (0, 1):
        save(folder, 30, shard, mark="0.1")
    assert shelf.newest(30) == (30, 120)


def test_listed_in_one_line_and_verified_naming_shard_and_chunk(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    for step in (4, 8):
        for shard in (0, 1):
            save(folder, step, shard)
    flip(folder / "shard-1-of-2" / "step-00000008")
    rows = json.loads(said("list", str(tmp_path), "--json"))
    assert [(r["step"], r["shards"]) for r in rows] == [(4, 2), (8, 2)]
    rows = json.loads(said("verify", str(tmp_path), "--json", code=1))
    assert rows[0]["problem"] == ""
    assert rows[1]["problem"].startswith("shard 1 of 2: state.bin: chunk 0 of 1 is damaged")
    one = folder / "shard-1-of-2" / "step-00000008"
    assert "shard 1 of 2" in said("verify", str(one), code=1)
    target = tmp_path / "m.safetensors"
    assert "3 tensors of step 4" in said("export", str(tmp_path), "--to", str(target))
    found = load_file(target)
    assert all(torch.equal(found[n], t) for n, t in tensors(4).items())


def test_export_joins_the_optimiser_too_and_refuses_copies_that_differ(tmp_path: Path) -> None:
    for shard in (0, 1):
        save(tmp_path / "a", 3, shard)
        save(tmp_path / "b", 3, shard, spoil="n")
    path = convert.pick(tmp_path / "a", 3)
    convert.export(path, tmp_path / "dcp", "dcp", True)
    back = convert.from_dcp(tmp_path / "dcp", tmp_path / "again", 0)
    layout, found = convert.load(back)
    assert layout.order == ORDER and layout.step == 3
    assert torch.equal(found["optimizer.state.0.avg"], 10 * tensors(3)["w"])
    with pytest.raises(RunError, match="n: shard 1 of 2 has other values"):
        convert.load(convert.pick(tmp_path / "b", 3))


@settings(max_examples=40, deadline=None)
@given(old=hs.integers(1, 5), new=hs.integers(1, 5),
       cuts=hs.tuples(*[hs.sampled_from([None, 0, 1])] * 4))  # fmt: skip
def test_any_cut_is_loaded_as_any_other(
    tmp_path_factory: pytest.TempPathFactory, old: int, new: int, cuts: tuple[int | None, ...]
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    before: Cuts = {"w": cuts[0], "n": None, "v": cuts[1]}
    after: Cuts = {"w": cuts[2], "n": None, "v": cuts[3]}
    paths = [save(folder, 6, shard, old, cuts=before) for shard in range(old)]
    for shard in range(new):
        own, boxes = part(0, after, shard, new)
        wanted, _ = part(6, after, shard, new)
        found = joined.cut(joined.given(paths[0]), boxes, ORDER, own)
        assert all(torch.equal(found["model"][n], wanted["model"][n]) for n in ORDER)
        for i, entry in wanted["optimizer"]["state"].items():
            assert all(torch.equal(found["optimizer"]["state"][i][k], v) for k, v in entry.items())
        assert found["optimizer"]["param_groups"] == wanted["optimizer"]["param_groups"]


def test_one_replica_rewinds_to_the_newest_snapshot_that_all_shards_have(train: Train) -> None:
    job = {**JOB, "args": ("--axes", "tp", *SIZE), "ranks": 2, "shards": 2, "steps": 16,
           "copies": "off"}  # fmt: skip
    calm = train(**job)
    hurt = train(**job, faults=("rank:1@step13",))
    assert (hurt.state, hurt.steps, hurt.lost_steps) == ("done", 16, 2)
    assert (hurt.recoveries[0].decision, hurt.recoveries[0].step) == ("rewind", 11)
    assert hurt.losses == calm.losses, "equal bit for bit"
    assert [(s.step, s.shards) for s in hurt.snapshots] == [(10, 2), (15, 2), (16, 2)]


def test_resumed_with_the_same_losses_and_with_other_axes(train: Train) -> None:
    """Two stages of two tensor parallel ranks, stopped, go on as they were, then as two ranks."""
    job = {**JOB, "args": ("--axes", "pp,tp", *SIZE), "ranks": 4, "shards": 4}
    calm = train(**job, steps=15)
    first = train(**job, steps=5)
    folder = Path(first.folder)
    again = launch.resume(folder, spec.load(folder), 10)
    assert again.resume.endswith("shard-0-of-4/step-00000005")
    second = finish(folder)
    assert first.losses + second.losses == calm.losses[:10], "equal bit for bit"
    fewer = {"args": ("--axes", "tp", *SIZE), "ranks": 2, "shards": 2, "steps": 15}
    third = train(**{**JOB, **fewer}, resume=str(sharded.newest_path(folder / "snapshots")))
    assert (third.state, third.first_step) == ("done", 10)
    assert third.losses == pytest.approx(calm.losses[10:], rel=1e-4)
