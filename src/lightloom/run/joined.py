"""Parts of a state into whole tensors, and whole tensors into other parts: by where each lies.

A part's table of contents says for every parameter which box of the whole parameter it is
(`Layout.boxes`) and in which order the optimiser counts them, so that parts can be joined by name
whatever the axes were that made them: rows, columns, stages, both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from lightloom.core.errors import RunError

from . import sharded, snapshot
from . import state as st
from .layout import Box

OUT = "go on with the --shards and axes it was saved with"


class Given:
    """One part of a state: its table of contents now, its tensors when they are asked for."""

    def __init__(self, name: str, layout: st.Layout, read: Callable[[], Any]) -> None:
        self.name, self.layout, self._read = name, layout, read
        self.boxes = {box.name: box for box in layout.boxes or _wholes(layout)}
        self.index = {name: i for i, name in enumerate(layout.order)}

    @cached_property
    def state(self) -> dict[str, Any]:
        """The nested state of this part."""
        memory = self._read()
        built = st.build(self.layout.tree, [st.view(memory, p) for p in self.layout.pieces])
        return dict(built)

    def updates(self, name: str) -> dict[str, Any]:
        """Return the optimiser's state of a parameter; empty without one."""
        entries = self.state.get("optimizer", {}).get("state", {})
        return dict(entries.get(self.index[name], {})) if name in self.index else {}


def _wholes(layout: st.Layout) -> Iterator[Box]:
    """Yield boxes of a state that nobody cut."""
    for piece in layout.pieces:
        if piece.name.startswith("model."):
            name = piece.name.removeprefix("model.")
            yield Box(name, piece.shape, (0,) * len(piece.shape), piece.shape)


def given(path: Path) -> list[Given]:
    """Return the parts of a snapshot; their bytes are read, and checked, when used."""
    paths = sharded.parts(path)
    return [
        Given(f"shard {i} of {len(paths)}", snapshot.layout(p), partial(_bytes, p))
        for i, p in enumerate(paths)
    ]


def _bytes(path: Path) -> Any:
    return snapshot.read(path)[1]


def _weight(name: str, part: Given) -> torch.Tensor:
    return part.state["model"][name]


def _update(name: str, key: str, part: Given) -> torch.Tensor:
    return part.updates(name)[key]


def _overlap(a: Box, b: Box) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
    """Return what two boxes share, as slices of each; None if they do not touch."""
    mine, theirs = [], []
    for x, n, y, m in zip(a.at, a.shape, b.at, b.shape, strict=True):
        lo, hi = max(x, y), min(x + n, y + m)
        if lo >= hi:
            return None
        mine.append(slice(lo - x, hi - x))
        theirs.append(slice(lo - y, hi - y))
    return tuple(mine), tuple(theirs)


def _fill(box: Box, what: str, parts: list[Given], get: Callable[[Given], torch.Tensor]
          ) -> torch.Tensor:  # fmt: skip
    """Return the values of a box out of all parts that touch it; copies must be equal."""
    out: torch.Tensor | None = None
    seen = torch.zeros(box.shape, dtype=torch.bool)
    if not seen.numel():
        return torch.empty(box.shape)
    for part in parts:
        other = part.boxes.get(box.name)
        if other is None:
            continue
        if other.whole != box.whole:
            raise RunError(
                f"{what} is {list(other.whole)} in {part.name} and {list(box.whole)} elsewhere",
                out="stages must keep the names of the whole model; or it is another model",
            )
        common = _overlap(box, other)
        if common is None:
            continue
        here, there = common
        values = get(part)[there]
        out = torch.empty(box.shape, dtype=values.dtype) if out is None else out
        known = seen[here]
        if not torch.equal(out[here][known], values[known]):
            raise RunError(
                f"{what}: {part.name} has other values than the shards before it "
                f"({int((out[here][known] != values[known]).sum())} of {int(known.sum())}, largest "
                f"difference {float((out[here] - values)[known].abs().max()):.3g})",
                out="copies of one name must be equal: stages keep the names of the whole model",
            )
        out[here] = values
        seen[here] = True
    if out is None or not bool(seen.all()):
        raise RunError(
            f"the state is of another model: {what} is absent there, or not all of it",
            out="start without --resume, or give the model it was made with",
        )
    return out


def _updates(box: Box, parts: list[Given]) -> dict[str, Any]:
    """Return the optimiser's state of a box: what is shaped like the parameter is cut like it."""
    holder = next((p for p in parts if box.name in p.index), None)
    found: dict[str, Any] = {}
    if holder is None:
        return found
    inside = holder.boxes[box.name]
    for key, value in holder.updates(box.name).items():
        alike = isinstance(value, torch.Tensor) and tuple(value.shape) == inside.shape
        if alike and inside.shape:
            what = f"the optimiser's {key} of {box.name}"
            found[key] = _fill(box, what, parts, partial(_update, box.name, key))
        elif not isinstance(value, torch.Tensor):
            found[key] = value
        elif value.numel() == 1 or inside.shape == inside.whole == box.shape:
            found[key] = value.clone()
        else:
            raise RunError(
                f"the optimiser's {key} of {box.name} is {list(value.shape)}, the parameter "
                f"{list(inside.shape)}: how it is cut is not known", out=OUT,
            )  # fmt: skip
    return found


def _touching(boxes: tuple[Box, ...], parts: list[Given]) -> list[Given]:
    """Return the parts that hold anything of some boxes: the others need not be read."""
    return [
        p
        for p in parts
        if any(
            b.name in p.boxes and (p.boxes[b.name].whole != b.whole or _overlap(b, p.boxes[b.name]))
            for b in boxes
        )
    ]


def whole(parts: list[Given]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the nested state of the whole model, and the order of its optimiser."""
    boxes = {
        name: Box(name, box.whole, (0,) * len(box.whole), box.whole)
        for part in parts
        for name, box in part.boxes.items()
    }
    state = dict(parts[0].state)
    model = {n: _fill(b, n, parts, partial(_weight, n)) for n, b in boxes.items()}
    for part in parts:
        model |= {n: t for n, t in part.state["model"].items() if n not in model}
    state["model"] = model
    if not state.get("optimizer"):
        return state, ()
    groups = [dict(g) for g in state["optimizer"]["param_groups"]]
    order: list[str] = []
    for index, group in enumerate(groups):
        found = list(dict.fromkeys(n for p in parts for n in _group(p, index)))
        group["params"] = list(range(len(order), len(order) + len(found)))
        order += found
    updates = {i: _updates(boxes[n], parts) for i, n in enumerate(order)}
    state["optimizer"] = {"state": {i: u for i, u in updates.items() if u}, "param_groups": groups}
    return state, tuple(order)


def _group(part: Given, index: int) -> list[str]:
    """Return the names of the parameters in one of the optimiser's groups."""
    groups = part.state["optimizer"]["param_groups"]
    return [part.layout.order[i] for i in (groups[index]["params"] if index < len(groups) else ())]


def cut(parts: list[Given], boxes: tuple[Box, ...], order: tuple[str, ...],
        own: dict[str, Any]) -> dict[str, Any]:  # fmt: skip
    """Return the nested state of another part: its boxes, `own` is the state it has now."""
    known = {name for part in parts for name in part.boxes}
    boxes = tuple(b for b in boxes if b.name in known)
    near = _touching(boxes, parts)
    if not near:
        mine, theirs = next(iter(own["model"]), "none"), next(iter(sorted(known)), "none")
        raise RunError(
            f"the state is of another model: a parameter is {mine} here, one is {theirs} there",
            out="parameters are joined by name: track the model itself, not a wrapper of it",
        )
    if any(p.state.get("optimizer", {}).get("state") and not p.layout.order for p in near):
        raise RunError("the snapshot does not say which parameter the optimiser's entries belong "
                       "to", out=OUT)  # fmt: skip
    state = dict(near[0].state)
    model = {b.name: _fill(b, b.name, near, partial(_weight, b.name)) for b in boxes}
    for name in own["model"]:
        if name not in model:
            holder = next((p for p in parts if name in p.state["model"]), None)
            if holder is None:
                raise RunError(f"the state is of another model: {name} is absent there", out=OUT)
            model[name] = holder.state["model"][name]
    state["model"] = model
    if own.get("optimizer"):
        named = {b.name: b for b in boxes}
        updates = {i: _updates(named[n], near) for i, n in enumerate(order)}
        groups, theirs = own["optimizer"]["param_groups"], state["optimizer"]["param_groups"]
        if len(groups) != len(theirs):
            raise RunError(f"the optimiser has {len(groups)} groups of parameters, the snapshot "
                           f"{len(theirs)}", out=OUT)  # fmt: skip
        state["optimizer"] = {
            "state": {i: u for i, u in updates.items() if u},
            "param_groups": [{**t, "params": g["params"]}
                             for g, t in zip(groups, theirs, strict=True)],
        }  # fmt: skip
    return state


def load(tracked: st.Tracked, where: Path, shard: int, shards: int) -> str:
    """Load a rank's part of a snapshot, cut anew if other parts were saved; returns its course."""
    parts = given(where)
    if len(parts) == shards and tracked.boxes in ((), parts[shard].layout.boxes):
        layout, memory = snapshot.read(sharded.parts(where)[shard])
        tracked.unpack(layout, memory, 0)
        return layout.mark
    layout, tensors = tracked.pack(0, 0)
    boxes = layout.boxes or tuple(_wholes(layout))
    tracked.load(cut(parts, boxes, layout.order, dict(st.build(layout.tree, tensors))))
    return parts[0].layout.mark
