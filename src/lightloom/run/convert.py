"""Snapshots to and from other formats: safetensors, torch.distributed.checkpoint, torch.save."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch

from lightloom.core.errors import InputError, MissingExtraError

from . import joined, sharded, snapshot
from . import state as st


@contextmanager
def one_process() -> Iterator[None]:
    """Let DCP work without a process group; that it says so is expected."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield


def pick(folder: Path, step: int | None) -> Path:
    """Return the snapshot of a step, or the newest that verifies."""
    if (folder / snapshot.MANIFEST).exists():
        return folder
    if step is not None:
        known = {p.name: p for p in sharded.folders(folder)}
        if snapshot.name_of(step) not in known:
            there = ", ".join(str(int(name[5:])) for name in known) or "none"
            raise InputError(f"no snapshot of step {step}; there are: {there}")
        return known[snapshot.name_of(step)]
    found = sharded.newest_path(folder)
    if found is None:
        raise InputError(f"no snapshot in {folder} verifies", out="lightloom snapshots verify")
    return found


def load(path: Path) -> tuple[st.Layout, dict[str, torch.Tensor]]:
    """Return (table of contents, name -> tensor) of one snapshot, every byte checked.

    The parts of shards are joined to whole tensors.
    """
    if len(sharded.parts(path)) == 1:
        layout, memory = snapshot.read(path)
        return layout, {p.name: st.view(memory, p) for p in layout.pieces}
    parts = joined.given(path)
    state, order = joined.whole(parts)
    first = parts[0].layout
    tree, named = st.flatten(state)
    pieces, total = st.plan(named)
    layout = msgspec.structs.replace(
        first, pieces=pieces, tree=tree, total=total, boxes=(), order=order
    )
    return layout, dict(named)


def export(path: Path, target: Path, kind: str, everything: bool) -> int:
    """Write a snapshot in another format; returns the number of tensors."""
    layout, tensors = load(path)
    if not everything:
        tensors = {
            name.removeprefix("model."): t
            for name, t in tensors.items()
            if name.startswith("model.")
        }
    target.parent.mkdir(parents=True, exist_ok=True)
    if kind == "safetensors":
        try:
            from safetensors.torch import save_file
        except ImportError as error:
            raise MissingExtraError("safetensors", "run") from error
        whole = {k: v.contiguous().clone() for k, v in tensors.items()}
        save_file(whole, str(target), metadata={"step": str(layout.step), "format": "pt"})
    elif kind == "dcp":
        import torch.distributed.checkpoint as dcp

        state: dict[str, Any] = dict(tensors)
        if everything:
            state["lightloom.tree"] = torch.frombuffer(
                bytearray(st.encode(layout)), dtype=torch.uint8
            )
        with one_process():
            dcp.save(state, checkpoint_id=str(target), no_dist=True)
    else:
        state = {k: v.clone() for k, v in tensors.items()}
        torch.save(state, target)
    return len(tensors)


def from_dcp(source: Path, target: Path, step: int) -> Path:
    """Make a snapshot of a DCP folder that `export --format dcp --all` or torch wrote.

    Without lightloom's own table the tensors are taken as the model's.
    """
    import torch.distributed.checkpoint as dcp

    reader = dcp.FileSystemReader(str(source))
    try:
        metadata = reader.read_metadata()
    except (OSError, RuntimeError) as error:
        raise InputError(f"{source} is not a DCP checkpoint: {error}") from error
    state: dict[str, Any] = {
        name: torch.empty(tuple(entry.size), dtype=entry.properties.dtype)
        for name, entry in metadata.state_dict_metadata.items()
        if hasattr(entry, "size")
    }
    with one_process():
        dcp.load(state, storage_reader=reader, no_dist=True)
    own = state.pop("lightloom.tree", None)
    if own is not None:
        layout = st.decode(own.numpy().tobytes())
        named = [(p.name, state[p.name]) for p in layout.pieces]
        step = layout.step
        cursor, tree, order = layout.cursor, layout.tree, layout.order
    else:
        nested = {"model": {k.removeprefix("model."): v for k, v in state.items()}}
        tree, named = st.flatten(nested)
        cursor, order = 0, ()
    pieces, total = st.plan(named)
    layout = st.Layout(step=step, cursor=cursor, pieces=pieces, tree=tree, total=total, order=order)
    memory = bytearray(max(total, 1))
    st.copy_in(layout, [t for _, t in named], memory, 0)
    return snapshot.write(target, step, cursor, st.encode(layout), memoryview(memory)[:total])
