"""Gradients in shared memory: each rank publishes, each reduces a slice, all read all slices.

A rank's arena is anonymous memory of (slots + 1) flat gradients: its slots (one, or one per
micro-batch when the order of sums is fixed) and the result, of which it writes its own slice.
Parameters' ``.grad`` are views of a slot, so backward accumulates in place: no copy in.
"""

from __future__ import annotations

import mmap
from typing import Any

import msgspec
import torch

from lightloom.core.errors import RunError

from . import board as b
from . import system

CHUNK = 1 << 16
"""Elements summed at a time: all operands of a chunk stay in the second-level cache."""


class Peer:
    """Another rank's board and arena, mapped."""

    def __init__(self, uid: int, info: b.Info, board: b.Board, arena: mmap.mmap) -> None:
        self.uid, self.info, self.board, self.memory = uid, info, board, arena
        self.address = bytes.fromhex(info.address)
        flat = torch.frombuffer(arena, dtype=torch.float32)
        self.slots = [flat[i * info.numel : (i + 1) * info.numel] for i in range(info.slots)]
        self.result = flat[info.slots * info.numel : (info.slots + 1) * info.numel]


def meet(uid: int, text: str) -> Peer | None:
    """Return the rank described by `text`, mapped; None if it has died meanwhile."""
    info = msgspec.json.decode(text, type=b.Info)
    memory = system.attach(f"/proc/{info.pid}/fd/{info.board_fd}")
    arena = system.attach(f"/proc/{info.pid}/fd/{info.arena_fd}")
    if memory is None or arena is None:
        return None
    return Peer(uid, info, b.Board(memory), arena)


class Arena:
    """The own slots and result, and the parameters whose gradients lie in them."""

    def __init__(self, parameters: list[torch.nn.Parameter], slots: int) -> None:
        if not parameters:
            raise RunError("track(model=...): the model has no parameter that requires a gradient")
        devices = {p.device for p in parameters}
        if len(devices) > 1:
            raise RunError(f"the model's parameters lie on {len(devices)} devices; one per rank")
        self.device = devices.pop()
        self.parameters = parameters
        self.numel = sum(p.numel() for p in parameters)
        self.slots = slots
        here = self.device.type == "cpu"
        size = (slots + 1) * self.numel
        self.fd, self.memory = system.shared("ll-arena", size * 4 if here else 0)
        flat = (
            torch.frombuffer(self.memory, dtype=torch.float32)
            if here
            else torch.zeros(size, device=self.device)
        )
        self.views: list[list[torch.Tensor]] = []
        self.flat = [flat[i * self.numel : (i + 1) * self.numel] for i in range(slots + 1)]
        for index in range(slots):
            self.views.append(self._cut(self.flat[index]))

    def _cut(self, flat: torch.Tensor) -> list[torch.Tensor]:
        out, at = [], 0
        for p in self.parameters:
            out.append(flat[at : at + p.numel()].view(p.shape))
            at += p.numel()
        return out

    def aim(self, slot: int, clear: bool) -> None:
        """Let backward accumulate into a slot."""
        if clear:
            self.flat[slot].zero_()
        for p, grad in zip(self.parameters, self.views[slot], strict=True):
            p.grad = grad if p.dtype == torch.float32 else None

    def publish(self, slot: int) -> None:
        """Bring gradients that backward put elsewhere into the slot."""
        for p, place in zip(self.parameters, self.views[slot], strict=True):
            if p.grad is not None and p.grad.data_ptr() != place.data_ptr():
                place.add_(p.grad)
                p.grad = place if p.dtype == torch.float32 else None

    def deliver(self, slot: int) -> None:
        """Set ``.grad`` to the reduced gradients that `collect` put into a slot."""
        for p, place in zip(self.parameters, self.views[slot], strict=True):
            p.grad = place if p.dtype == torch.float32 else place.to(p.dtype)


def slice_of(numel: int, index: int, count: int) -> tuple[int, int]:
    """Return the elements that member `index` of `count` reduces."""
    return numel * index // count, numel * (index + 1) // count


def reduce_slice(terms: list[torch.Tensor], result: torch.Tensor, lo: int, hi: int, scale: float
                 ) -> float:  # fmt: skip
    """Sum a slice of all terms in their order, times `scale`; returns the sum of squares."""
    squares = 0.0
    for start in range(lo, hi, CHUNK):
        end = min(start + CHUNK, hi)
        out = result[start:end]
        if len(terms) == 1:
            out.copy_(terms[0][start:end])
        else:
            torch.add(terms[0][start:end], terms[1][start:end], out=out)
            for term in terms[2:]:
                out.add_(term[start:end])
        out.mul_(scale)
        squares += float(torch.dot(out, out))
    return squares


def collect(peers: list[Any], into: torch.Tensor) -> None:
    """Copy every member's reduced slice into a flat gradient."""
    count, numel = len(peers), into.numel()
    for index, peer in enumerate(peers):
        lo, hi = slice_of(numel, index, count)
        into[lo:hi].copy_(peer.result[lo:hi])
