"""Snapshots: complete or absent; every flipped bit is found; other formats."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as hs

from lightloom.core.errors import InputError, RunError
from lightloom.run import convert, sharded, snapshot
from lightloom.run import state as st

pytestmark = pytest.mark.torch


def pack(step: int, value: float, size: int = 20_000) -> tuple[bytes, memoryview]:
    """Return (table, data) of a state whose every element is `value`."""
    tree, named = st.flatten(
        {"model": {"a": torch.full((size // 100, 100), value), "b": torch.full((7,), value)},
         "optimizer": {"state": {0: {"step": step, "m": torch.full((size,), value)}}}}
    )  # fmt: skip
    pieces, total = st.plan(named)
    layout = st.Layout(step=step, cursor=step * 3, pieces=pieces, tree=tree, total=total)
    memory = bytearray(total)
    st.copy_in(layout, [t for _, t in named], memory, 0)
    return st.encode(layout), memoryview(memory)


def save(folder: Path, step: int, value: float, keep: int = 3, size: int = 20_000) -> Path:
    toc, data = pack(step, value, size)
    path = snapshot.write(folder, step, step * 3, toc, data)
    sharded.prune(folder, "", step, keep)
    return path


def test_written_read_and_pruned(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40):
        save(tmp_path, step, float(step))
    assert [p.name for p in snapshot.folders(tmp_path)] == [
        "step-00000020", "step-00000030", "step-00000040",
    ]  # fmt: skip
    assert sharded.newest(tmp_path) == (40, 120)
    assert sharded.newest(tmp_path, before=40) == (30, 90)
    layout, memory = snapshot.read(tmp_path / "step-00000040")
    tensors = [st.view(memory, p) for p in layout.pieces]
    whole = st.build(layout.tree, tensors)
    assert torch.equal(whole["model"]["a"], torch.full((200, 100), 40.0))
    assert whole["optimizer"]["state"][0]["step"] == 40


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    path = save(tmp_path, 1, 1.5, size=2000)
    rng = random.Random(7)
    for name in ("state.bin", "layout.bin", snapshot.MANIFEST):
        file = path / name
        good = file.read_bytes()
        for _ in range(60):
            at, bit = rng.randrange(len(good)), rng.randrange(8)
            bad = bytearray(good)
            bad[at] ^= 1 << bit
            file.write_bytes(bad)
            assert snapshot.verify(path), f"{name} byte {at} bit {bit}"
        for cut in (0, 1, len(good) // 2, len(good) - 1):
            file.write_bytes(good[:cut])
            assert snapshot.verify(path), f"{name} cut to {cut}"
        file.write_bytes(good)
    assert not snapshot.verify(path)


@pytest.mark.parametrize("seed", range(12))
def test_a_writer_killed_at_any_moment_leaves_only_whole_snapshots(
    tmp_path: Path, seed: int
) -> None:
    save(tmp_path, 1, 1.0)
    child = os.fork()
    if child == 0:
        for step in range(2, 200):
            save(tmp_path, step, float(step), size=400_000)
        os._exit(0)
    time.sleep(random.Random(seed).uniform(0.0, 0.15))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = snapshot.folders(tmp_path)
    assert found, "always one loadable"
    for path in found:
        layout, memory = snapshot.read(path)
        values = {float(x) for p in layout.pieces for x in st.view(memory, p).unique()}
        assert values == {float(layout.step)}, "never a mix of two steps"


def test_a_full_disk_leaves_nothing_visible(tmp_path: Path) -> None:
    save(tmp_path, 1, 1.0)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        try:
            save(tmp_path, 2, 2.0)
        except OSError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000001"]


@settings(max_examples=25, deadline=None)
@given(rows=hs.integers(1, 40), parts=hs.integers(1, 7), width=hs.integers(1, 3000))
def test_any_reshard_reads_the_original_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: int, parts: int, width: int
) -> None:
    folder = tmp_path_factory.mktemp("reshard")
    tensor = torch.arange(rows * width, dtype=torch.float32).reshape(rows, width)
    tree, named = st.flatten({"model": {"w": tensor, "tail": torch.ones(3)}})
    pieces, total = st.plan(named)
    memory = bytearray(total)
    layout = st.Layout(pieces=pieces, tree=tree, total=total)
    st.copy_in(layout, [t for _, t in named], memory, 0)
    path = snapshot.write(folder, 1, 0, st.encode(layout), memoryview(memory))
    cuts = [rows * i // parts for i in range(parts + 1)]
    got = b"".join(snapshot.part(path, pieces[0], a, z) for a, z in pairwise(cuts) if z > a)
    assert got == tensor.numpy().tobytes()


def test_safetensors_and_dcp_both_ways(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file

    path = save(tmp_path / "s", 5, 2.5)
    assert convert.export(path, tmp_path / "m.safetensors", "safetensors", False) == 2
    assert torch.equal(load_file(tmp_path / "m.safetensors")["a"], torch.full((200, 100), 2.5))
    convert.export(path, tmp_path / "dcp", "dcp", True)
    state = {"model.a": torch.zeros(200, 100)}
    with convert.one_process():
        dcp.load(state, checkpoint_id=str(tmp_path / "dcp"), no_dist=True)
    assert torch.equal(state["model.a"], torch.full((200, 100), 2.5))
    back = convert.from_dcp(tmp_path / "dcp", tmp_path / "again", 0)
    assert snapshot.read(back)[0] == snapshot.read(path)[0]
    assert (back / "state.bin").read_bytes() == (path / "state.bin").read_bytes()


def test_a_foreign_dcp_checkpoint_becomes_a_snapshot(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    with convert.one_process():
        dcp.save({"weight": torch.ones(3, 2)}, checkpoint_id=str(tmp_path / "d"), no_dist=True)
    path = convert.from_dcp(tmp_path / "d", tmp_path / "s", 9)
    layout, _ = snapshot.read(path)
    assert layout.step == 9 and layout.pieces[0].name == "model.weight"
    with pytest.raises(InputError, match="not a DCP checkpoint"):
        convert.from_dcp(path, tmp_path / "x", 0)


def test_another_model_is_refused_naming_the_first_tensor() -> None:
    small, large = torch.nn.Linear(3, 2), torch.nn.Linear(4, 2)
    a, b = st.Tracked(), st.Tracked()
    a.add("model", small)
    b.add("model", large)
    layout, tensors = a.pack(1, 1)
    memory = bytearray(layout.total)
    st.copy_in(layout, tensors, memory, 0)
    with pytest.raises(RunError, match=r"weight is \[2, 3\] float32 there and \[2, 4\]"):
        b.unpack(layout, memory, 0)


@settings(max_examples=60, deadline=None)
@given(hs.recursive(
    hs.none() | hs.booleans() | hs.integers(-(2**60), 2**60) | hs.text(max_size=5)
    | hs.floats(allow_nan=False) | hs.builds(torch.ones, hs.integers(0, 4)),
    lambda inner: hs.lists(inner, max_size=3) | hs.dictionaries(hs.text(max_size=4), inner,
                                                              max_size=3)
    | hs.dictionaries(hs.integers(0, 9), inner, max_size=2) | hs.tuples(inner, inner),
    max_leaves=8,
))  # fmt: skip
def test_any_nested_state_survives_the_trip(tree: object) -> None:
    shape, named = st.flatten({"x": tree})
    pieces, total = st.plan(named)
    layout = st.Layout(pieces=pieces, tree=shape, total=total)
    memory = bytearray(max(total, 1))
    st.copy_in(layout, [t for _, t in named], memory, 0)
    again = st.decode(st.encode(layout))
    back = st.build(again.tree, [st.view(memory, p) for p in again.pieces])["x"]
    assert repr(back) == repr(tree)
