"""A part of the model out of parts cut otherwise, of living ranks and of lost ones kept."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from lightloom.recover.record import Epoch

from . import board as b
from . import copies, handover, joined, joining, system
from . import state as st

if TYPE_CHECKING:
    from .axes import Axes
    from .exchange import Exchange
    from .member import Session


def take(axes: Axes, session: Session, ex: Exchange, epoch: Epoch) -> bool:
    """Load this rank's new part; False when a newer epoch comes before all old ones are there."""
    found: dict[int, joined.Given] = {}

    def ready() -> bool:
        for shard, uid in epoch.sources:
            if shard not in found:
                part = _find(axes, ex, epoch, shard, uid)
                if part is not None:
                    found[shard] = part
        return len(found) == len(epoch.sources)

    if not joining.wait_for(ex, ready):
        return False
    tracked = session.tracked
    layout, tensors = tracked.pack(0, 0)
    own = dict(st.build(layout.tree, tensors))
    # whole parts first: what is not a tensor of a parameter is taken from the first that has it
    parts = [found[s] for s in sorted(found, key=lambda s: ("state" in found[s].__dict__, s))]
    tracked.load(joined.cut(parts, tracked.boxes, tracked.order, own))
    return True


def _find(axes: Axes, ex: Exchange, epoch: Epoch, shard: int, uid: int) -> joined.Given | None:
    """Return an old part if it can be read now."""
    name = f"shard {shard}, rank {uid}"
    text = dict(epoch.infos).get(uid, "")
    if uid in epoch.kept:
        lost = copies.rebuild(text, epoch, (shard, epoch.source_layout), 0)
        return None if lost is None else _of_lost(axes, name, lost)
    giver = ex.meet(uid)
    if giver is None or giver.board.get(b.OFFER) != epoch.number:
        return None
    memory = system.attach(giver.board.read())
    if memory is None:
        return None
    layout, start = handover.read_head(memory)
    return joined.Given(name, layout, lambda: memoryview(memory)[start:])


def _of_lost(axes: Axes, name: str, lost: copies.Rebuilt) -> joined.Given:
    part = joined.Given(name, lost.layout, lambda: memoryview(lost.memory)[lost.start :])
    if lost.gradient is not None:
        part.__dict__["state"] = updated(axes, part, lost.gradient)
    return part


def updated(axes: Axes, part: joined.Given, gradient: torch.Tensor) -> dict[str, Any]:
    """Return a part's state after the update its rank was lost before or in."""
    state = dict(part.state)
    if not math.isfinite(float(torch.dot(gradient, gradient))):
        return state
    own, at = [], 0
    for box in part.layout.boxes:
        p = torch.nn.Parameter(state["model"][box.name].clone())
        p.grad = gradient[at : at + p.numel()].view(p.shape)
        at += p.numel()
        own.append(p)
    optimizer = axes.make(own)
    optimizer.load_state_dict(_cloned(state["optimizer"]))
    optimizer.step()
    values = {box.name: p.detach() for box, p in zip(part.layout.boxes, own, strict=True)}
    return {**state, "model": {**state["model"], **values}, "optimizer": optimizer.state_dict()}


def _cloned(tree: Any) -> Any:
    """Return a nested state without memory of others."""
    if isinstance(tree, torch.Tensor):
        return tree.clone()
    if isinstance(tree, dict):
        return {k: _cloned(v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_cloned(v) for v in tree)
    return tree
