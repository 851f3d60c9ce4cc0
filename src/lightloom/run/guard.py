"""Semantic guards: mismatched collectives named before they hang, wrong operators within a step.

(a) Each collective's operator, dtype, shape and root are compared across ranks first; a difference
names both call sites. (b) A collective that is wrong on all ranks alike (SUM for MAX) breaks an
invariant of what it is for: a maximum is one of its inputs, an overflow flag is 0 or 1, a mean
lies between its inputs. What it is for is declared (`intent=`) or read from the calling line.
"""

from __future__ import annotations

import linecache
import re
import struct
import sys
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from lightloom.core.errors import RunError

from . import board as b
from . import talk

if TYPE_CHECKING:
    from .exchange import Exchange

_HEAD = struct.Struct("<QIHH")
BOX = b.MAIL + 4352
BOX_SIZE = (b.SIZE - BOX) // 2
LARGEST = 256
"""Elements of a tensor that travel through the mailbox and can be tested."""
INTENTS = ("max", "flag", "mean", "sum")
_INFER = (
    ("flag", re.compile(r"found_inf|overflow|has_nan|any_nan|is_inf|found_nan", re.I)),
    ("max", re.compile(r"max_norm|norm_max|max_grad|global_max|_max\b|\bmax_|inf_norm", re.I)),
    ("mean", re.compile(r"\bmean_|_mean\b|\bavg_|_avg\b|average", re.I)),
)


class Call(NamedTuple):
    """One collective as a rank calls it."""

    kind: str
    op: str
    dtype: str
    shape: tuple[int, ...]
    root: int
    site: str
    line: str

    @property
    def signature(self) -> str:
        """What must be equal on all ranks."""
        root = f" root {self.root}" if self.root >= 0 else ""
        op = f" {self.op}" if self.op else ""
        return f"{self.kind}{op} {self.dtype}{list(self.shape)}{root}"


def call_of(kind: str, op: str, tensor: torch.Tensor, root: int = -1) -> Call:
    """Return the collective the calling line of the script makes."""
    frame = sys._getframe(1)
    skip = ("lightloom/run/guard", "lightloom/run/member", "lightloom/run/collective", "/torch/")
    while frame.f_back and any(s in frame.f_code.co_filename for s in skip):
        frame = frame.f_back
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    dtype = str(tensor.dtype).removeprefix("torch.")
    site = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return Call(kind, op, dtype, tuple(tensor.shape), root, site, line)


def intent_of(call: Call, declared: str | None) -> str:
    """Return what a collective is for; empty when neither declared nor readable."""
    if declared:
        if declared not in INTENTS:
            raise RunError(f"intent={declared!r} is not one of {', '.join(INTENTS)}")
        return declared
    return next((name for name, pattern in _INFER if pattern.search(call.line)), "")


def broken(intent: str, inputs: list[torch.Tensor], result: torch.Tensor) -> str:
    """Return which invariant of `intent` a result breaks, an empty string if none."""
    if not intent or intent == "sum" or len(inputs) < 2 or result.numel() == 0:
        return ""
    stack = torch.stack([x.double().reshape(-1) for x in inputs])
    out = result.double().reshape(-1)
    high, low = stack.max(0).values, stack.min(0).values
    width = torch.finfo(result.dtype).eps if result.dtype.is_floating_point else 0.0
    slack = 8 * width * stack.abs().sum(0)
    if intent == "max":
        bad = ((out - high).abs() > slack).nonzero()
        text = "a maximum is the largest of its inputs"
    elif intent == "flag":
        bad = ((out != 0) & (out != 1)).nonzero()
        text = "a flag is 0 or 1"
    else:
        bad = ((out > high + slack) | (out < low - slack)).nonzero()
        text = "a mean lies between its inputs"
    if not len(bad):
        return ""
    at = int(bad[0])
    shown = ", ".join(f"{float(x):.6g}" for x in stack[:, at])
    return f"{text}; inputs {shown} gave {float(out[at]):.6g}"


class Post:
    """Mailboxes of the collectives: two in turn on each rank's board."""

    def __init__(self, ex: Exchange) -> None:
        self.ex, self.count, self.number = ex, 0, -1

    def swap(self, call: Call, tensor: torch.Tensor | None) -> list[tuple[int, torch.Tensor]]:
        """Compare a collective across ranks; returns (slot, tensor) of all where it is small.

        Raises RunError naming both call sites where they differ.
        """
        ex = self.ex
        assert ex.epoch is not None
        if self.number != ex.epoch.number:
            self.number, self.count = ex.epoch.number, 0
        self.count += 1
        key = self.number << 32 | self.count
        text = f"{call.signature}\n{call.site}".encode()[:700]
        body = b""
        if tensor is not None and tensor.numel() <= LARGEST:
            body = tensor.detach().double().contiguous().numpy().tobytes()
        self._write(key, zlib.crc32(call.signature.encode()), text, body)
        ex.link.mark(b.WAITING)
        ex.ring()
        peers = self._wait(call, key)
        ex.link.mark(b.COMPUTING)
        self._compare(call, peers)
        return [(p, torch.frombuffer(bytearray(x), dtype=torch.float64).clone())
                for p, (_, _, x) in peers.items() if x]  # fmt: skip

    def _write(self, key: int, crc: int, text: bytes, body: bytes) -> None:
        memory, at = self.ex.link.board.memory, BOX + (key % 2) * BOX_SIZE
        start = at + _HEAD.size
        memory[start : start + len(text) + len(body)] = text + body
        memory[at + 8 : at + _HEAD.size] = struct.pack("<IHH", crc, len(text), len(body))
        memory[at : at + 8] = key.to_bytes(8, "little")

    def _read(self, memory: Any, key: int) -> tuple[int, str, bytes] | None:
        at = BOX + (key % 2) * BOX_SIZE
        seen, crc, size, more = _HEAD.unpack_from(memory, at)
        if seen != key:
            return None
        start = at + _HEAD.size
        text = bytes(memory[start : start + size]).decode(errors="replace")
        return crc, text, bytes(memory[start + size : start + size + more])

    def _wait(self, call: Call, key: int) -> dict[int, tuple[int, str, bytes]]:
        """Return what every member posted; those an incoming epoch drops are not waited for."""
        ex, rounds = self.ex, 0
        while True:
            alive = self._alive()
            found = {p.uid: self._read(p.board.memory, key) for p in ex.peers}
            late = [u for u, x in found.items() if x is None and (alive is None or u in alive)]
            if not late:
                assert ex.epoch is not None
                slots = {m.uid: m.slot for m in ex.epoch.members}
                return {slots[u]: x for u, x in found.items() if x is not None}
            rounds += 1
            if rounds > 3:
                self._elsewhere(call, late)
            for said in ex.link.messages(0.5):
                rounds = 0
                ex.held.append(said)

    def _alive(self) -> set[int] | None:
        """Return the members of an epoch that is to come, if one is already known."""
        coming = [x.epoch for x in self.ex.held if isinstance(x, talk.NewEpoch)]
        coming += [self.ex.postponed] if self.ex.postponed is not None else []
        newest = max(coming, key=lambda epoch: epoch.number, default=None)
        return None if newest is None else set(newest.uids)

    def _elsewhere(self, call: Call, late: list[int]) -> None:
        """Raise if a rank waits at the end of its micro-batch instead of making this call."""
        ex = self.ex
        key = self.number << 32 | ex.link.board.get(b.STEP)
        for peer in (p for p in ex.peers if p.uid in late):
            if peer.board.get(b.PHASE) == b.WAITING and peer.board.get(b.READY) in (key, key + 1):
                what = (
                    f"collective {self.count} differs: rank {ex.slot} calls {call.signature} "
                    f"at {call.site}, process {peer.uid} is in reduce_gradients instead"
                )
                ex.note("collective-differs", what, fatal=True)
                raise RunError(what, out="all ranks must make the same calls in the same order")

    def _compare(self, call: Call, peers: dict[int, tuple[int, str, bytes]]) -> None:
        own = zlib.crc32(call.signature.encode())
        for slot, (crc, text, _) in sorted(peers.items()):
            if crc != own:
                theirs, _, site = text.partition("\n")
                what = (
                    f"collective {self.count & 0xFFFFFFFF} differs: rank {self.ex.slot} calls "
                    f"{call.signature} at {call.site}, rank {slot} calls {theirs} at {site}"
                )
                self.ex.note("collective-differs", what, fatal=True)
                raise RunError(what, out="all ranks must make the same call in the same order")


def judge(ex: Exchange, call: Call, intent: str, inputs: list[torch.Tensor], result: torch.Tensor
          ) -> None:  # fmt: skip
    """Raise if a result breaks what the collective is for."""
    why = broken(intent, inputs, result)
    if why:
        what = (
            f"{call.kind} {call.op} at {call.site} is wrong on all ranks alike (intent "
            f"{intent}): {why}   | {call.line}"
        )
        ex.note("wrong-operator", what, fatal=True)
        raise RunError(what, out='use the right operator, or declare intent="sum"')


def combine(op: str, inputs: list[torch.Tensor]) -> torch.Tensor:
    """Return the result of a small collective, summed in slot order: equal bits on all ranks."""
    stack = torch.stack(inputs)
    if op == "max":
        return stack.max(0).values
    if op == "min":
        return stack.min(0).values
    total = inputs[0].clone()
    for x in inputs[1:]:
        total += x
    return total / len(inputs) if op == "mean" else total


def install(ex: Exchange, post: Post, even: Callable[[], bool]) -> Callable[[], None]:
    """Guard torch.distributed's collectives on whole-job groups; returns the way to undo it.

    `even` says whether all ranks make the same calls now: only then they can be compared.
    """
    import torch.distributed as dist

    real = {name: getattr(dist, name) for name in ("all_reduce", "broadcast", "all_gather")}

    def all_reduce(tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None,
                   async_op: bool = False) -> Any:  # fmt: skip
        if not _whole(group) or not even():
            return real["all_reduce"](tensor, op, group, async_op)
        call = call_of("all_reduce", str(op).rsplit(".", 1)[-1], tensor)
        inputs = [x for _, x in post.swap(call, tensor)]
        work = real["all_reduce"](tensor, op, group, async_op)
        if inputs and not async_op:
            shaped = [x.reshape(tensor.shape) for x in inputs]
            judge(ex, call, intent_of(call, None), shaped, tensor)
        return work

    def broadcast(tensor: Any, src: Any = None, group: Any = None, async_op: bool = False,
                  **more: Any) -> Any:  # fmt: skip
        if _whole(group) and even():
            post.swap(call_of("broadcast", "", tensor, -1 if src is None else int(src)), None)
        return real["broadcast"](tensor, src, group, async_op, **more)

    def all_gather(tensors: Any, tensor: Any, group: Any = None, async_op: bool = False) -> Any:
        if _whole(group) and even():
            post.swap(call_of("all_gather", "", tensor), None)
        return real["all_gather"](tensors, tensor, group, async_op)

    dist.all_reduce, dist.broadcast, dist.all_gather = all_reduce, broadcast, all_gather

    def undo() -> None:
        for name, function in real.items():
            setattr(dist, name, function)

    return undo


def _whole(group: Any) -> bool:
    import torch.distributed as dist

    return group is None or group is dist.group.WORLD
