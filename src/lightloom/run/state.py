"""Training state as one flat run of bytes with a table of contents.

The same layout moves state between ranks, lies in the warm snapshot buffer and is written to disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from lightloom.core.errors import RunError

from .layout import ALIGN, Box, Layout, Piece, decode, encode

__all__ = ["Layout", "Piece", "Tracked", "copy_in", "decode", "encode", "flatten", "plan", "view"]


def dtype_name(dtype: torch.dtype) -> str:
    """Return ``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def flatten(tree: Any) -> tuple[Any, list[tuple[str, torch.Tensor]]]:
    """Return (tree with references, [(name, tensor)]) of a nested state."""
    tensors: list[tuple[str, torch.Tensor]] = []

    def walk(node: Any, path: str) -> Any:
        if isinstance(node, torch.Tensor):
            tensors.append((path, node.detach()))
            return ["t", len(tensors) - 1]
        if isinstance(node, dict):
            return ["d", [[k, walk(v, f"{path}.{k}" if path else str(k))] for k, v in node.items()]]
        if isinstance(node, list | tuple):
            kind = "l" if isinstance(node, list) else "u"
            return [kind, [walk(v, f"{path}.{i}") for i, v in enumerate(node)]]
        if node is None or isinstance(node, bool | int | float | str | bytes):
            return ["s", node]
        raise RunError(
            f"state {path}: a {type(node).__name__} cannot be carried over",
            out="track objects whose state_dict holds tensors, numbers and text",
        )

    return walk(tree, ""), tensors


def build(tree: Any, tensors: list[torch.Tensor]) -> Any:
    """Return the nested state again."""
    kind, body = tree
    if kind == "t":
        return tensors[body]
    if kind == "d":
        return {k: build(v, tensors) for k, v in body}
    if kind in ("l", "u"):
        items = [build(v, tensors) for v in body]
        return items if kind == "l" else tuple(items)
    return body


def plan(tensors: list[tuple[str, torch.Tensor]]) -> tuple[tuple[Piece, ...], int]:
    """Return where each tensor will lie, and the bytes of all."""
    pieces, offset = [], 0
    for name, tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        pieces.append(Piece(name, dtype_name(tensor.dtype), tuple(tensor.shape), offset, size))
        offset += -(-size // ALIGN) * ALIGN
    return tuple(pieces), offset


def view(memory: Any, piece: Piece, start: int = 0) -> torch.Tensor:
    """Return a piece in a buffer as a tensor, without a copy."""
    dtype = getattr(torch, piece.dtype)
    if piece.size == 0:
        return torch.empty(piece.shape, dtype=dtype)
    count = piece.size // torch.empty((), dtype=dtype).element_size()
    flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=start + piece.offset)
    return flat.reshape(piece.shape)


class Tracked:
    """Everything that must be equal on all replicas: model, optimiser, schedulers, more."""

    def __init__(self) -> None:
        self.things: dict[str, Any] = {}
        self.boxes: tuple[Box, ...] = ()
        """Where this rank's parameters lie in the whole model, if axes cut it ..."""
        self.order: tuple[str, ...] = ()
        """... and their names in the order of the optimiser."""

    def add(self, name: str, thing: Any) -> None:
        """Track an object with state_dict and load_state_dict."""
        if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
            raise RunError(f"track({name}=...): it has no state_dict and load_state_dict")
        self.things[name] = thing

    def pack(self, step: int, cursor: int) -> tuple[Layout, list[torch.Tensor]]:
        """Return the table of contents and the live tensors (not copies)."""
        tree, named = flatten({k: v.state_dict() for k, v in self.things.items()})
        pieces, total = plan(named)
        layout = Layout(
            step=step, cursor=cursor, pieces=pieces, tree=tree, total=total, boxes=self.boxes,
            order=self.order or self._order(),
        )  # fmt: skip
        return layout, [t for _, t in named]

    def _order(self) -> tuple[str, ...]:
        """Return the names of the parameters in the order of the optimiser, if it is known."""
        model, optimizer = self.things.get("model"), self.things.get("optimizer")
        groups = getattr(optimizer, "param_groups", ())
        names = {id(p): n for n, p in getattr(model, "named_parameters", tuple)()}
        found = [names.get(id(p)) for group in groups for p in group["params"]]
        return tuple(n for n in found if n) if all(found) else ()

    def unpack(self, layout: Layout, memory: Any, start: int) -> None:
        """Load a state that lies in `memory` from byte `start`."""
        self.check(layout)
        tensors = [view(memory, piece, start) for piece in layout.pieces]
        # optimisers keep the tensors they are given: hand them copies, never the shared memory
        kept = [
            t if p.name.startswith("model.") else t.clone()
            for p, t in zip(layout.pieces, tensors, strict=True)
        ]
        self.load(build(layout.tree, kept))

    def load(self, whole: dict[str, Any]) -> None:
        """Load a nested state."""
        with torch.no_grad():
            for name, thing in self.things.items():
                thing.load_state_dict(whole[name])

    def check(self, layout: Layout) -> None:
        """Raise if the state is of another model: names the first tensor that differs."""
        own = {p.name: p for p in self.pack(0, 0)[0].pieces if p.name.startswith("model.")}
        theirs = {p.name: p for p in layout.pieces if p.name.startswith("model.")}
        for name in [*own, *theirs]:
            a, b = own.get(name), theirs.get(name)
            if a is None or b is None or (a.shape, a.dtype) != (b.shape, b.dtype):
                raise RunError(
                    f"the state is of another model: {name.removeprefix('model.')} is "
                    f"{_say(b)} there and {_say(a)} here",
                    out="start without --resume, or give the model the snapshot was made with",
                )


def _say(piece: Piece | None) -> str:
    return "absent" if piece is None else f"{list(piece.shape)} {piece.dtype}"


def copy_in(layout: Layout, tensors: list[torch.Tensor], memory: Any, start: int) -> None:
    """Copy live tensors to their places in a buffer."""
    copy_pairs(zip(layout.pieces, tensors, strict=True), memory, start)


def copy_pairs(pairs: Iterable[tuple[Piece, torch.Tensor]], memory: Any, start: int) -> None:
    """Copy some tensors to their places in a buffer."""
    for piece, tensor in pairs:
        view(memory, piece, start).copy_(tensor)
