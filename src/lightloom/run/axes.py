"""Ranks that hold one copy of the model together: tensor, pipeline and fully sharded axes.

A *replica* is ``shards`` ranks; replicas are summed by the runtime as before, a shard only with the
same shard of the others. Inside a replica torch's own groups are used: they are made for one epoch
and made again, by the same names, in the next, so that the modules of torch never notice. When a
rank dies the others of its replica hear it from gloo, drop their groups and wait for the new epoch;
the spare that takes the slot builds the dead rank's part and gets its values from another replica.
"""

from __future__ import annotations

import errno
import math
import os
import socket
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from lightloom.core.errors import RunError

from . import axes_exchange, talk
from . import board as b
from .layout import Box
from .spec import Spec

if TYPE_CHECKING:
    from .member import Session

TIMEOUT = timedelta(seconds=20)
_BROKEN = ("gloo", "connection", "broken pipe", "timed out", "timeout", "nccl", "hccl", "aborted",
           "epoch changed")  # fmt: skip
"""Words of an error that a dead or departed member causes."""


def broken(error: BaseException | None) -> bool:
    """Return whether an error, or one it came from, says that a group broke."""
    while error is not None:
        text = str(error).lower()
        if isinstance(error, dist.DistError) or any(word in text for word in _BROKEN):
            return True
        error = error.__cause__ or error.__context__
    return False


class Part:
    """One rank's part of the model: made without communication, then bound to groups."""

    module: torch.nn.Module

    def regroup(self, mesh: Any) -> None:
        """Take new groups: `mesh` is the replica's, with the same names as at the start."""

    def compute(self, batch: Any) -> torch.Tensor | None:
        """Run forward and backward of one micro-batch; the loss, or None on ranks without one."""
        raise NotImplementedError


Build = Callable[[Any], Part]
"""Mesh of the replica -> this rank's part (equal on every replica: seed it)."""


class _Piece:
    """A tracked object whose state is that of the part held now."""

    def __init__(self, get: Callable[[], Any], put: Callable[[Any], None]) -> None:
        self.state_dict, self.load_state_dict = get, put


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values this rank has of a tensor, sharing memory."""
    return tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor.detach()


def box_of(name: str, tensor: torch.Tensor) -> Box:
    """Return where this rank's values lie in the whole tensor."""
    at: tuple[int, ...] = (0,) * tensor.dim()
    if isinstance(tensor, DTensor):
        _, at = compute_local_shape_and_global_offset(
            tensor.shape, tensor.device_mesh, tensor.placements
        )
    return Box(name, tuple(tensor.shape), tuple(at), tuple(local_of(tensor).shape))


def sockets() -> dict[int, str]:
    """Return this process's sockets: descriptor -> name that no other socket ever has."""
    found = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
        if name.startswith("socket:"):
            found[fd] = name
    return found


def shut(fd: int) -> None:
    """End both directions of a connection; one that has ended or only listens is left.

    gloo's own thread may close it at any moment: then there is nothing left to end.
    """
    try:
        with socket.socket(fileno=os.dup(fd)) as held:
            if not held.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                held.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        if error.errno not in (errno.ENOTCONN, errno.EBADF):
            raise


class Axes:
    """This rank's part of the model, its optimiser and the groups of its replica."""

    def __init__(self, session: Session, build: Build,
                 optimizer: Callable[[Iterable[torch.nn.Parameter]], Any], largest: int,
                 degrees: dict[str, int]) -> None:  # fmt: skip
        self.session, self.build, self.make, self.largest = session, build, optimizer, largest
        self.degrees = {k: v for k, v in degrees.items() if v > 1} or {"tp": 1}
        self.shards = math.prod(self.degrees.values())
        self.shard, self.formed = -1, -1
        self.broken = False
        self.opened: dict[int, str] = {}
        """Sockets of the groups in force: descriptor -> name in /proc."""
        self.part: Part | None = None
        self.optimizer: Any = None
        self.names: list[str] = []
        self.shared: list[torch.nn.Parameter] = []
        """The module's parameters; `own` are this rank's values of them, in the same memory."""
        self.own: list[torch.nn.Parameter] = []
        self.arena: axes_exchange.ShardArena | None = None
        self.exchange: axes_exchange.AxesExchange | None = None
        session.wrap = self
        session.tracked.add("model", _Piece(self._weights, self._load_weights))
        session.tracked.add("optimizer", _Piece(self._updates, self._load_updates))

    # ---- the script's loop ---------------------------------------------------------------------

    def compute(self, batch: Any) -> torch.Tensor | None:
        """Run forward and backward of a micro-batch on this rank's part; returns the loss.

        None on ranks that have no loss, and when a rank of this replica was lost meanwhile: then
        `reduce` waits for the others' decision and the micro-batch comes again.
        """
        ex, arena = self.exchange, self.arena
        if ex is None or arena is None:
            raise RunError("axes: compute() belongs inside `for batch in session.steps(...)`")
        try:
            self._form(ex)
            assert self.part is not None
            loss = self.part.compute(batch)
            arena.take(self.shared)
        except RuntimeError as error:
            if not broken(error):
                raise
            self.broken = True
            self.drop()
            return None
        return loss

    def reduce(self, loss: torch.Tensor | None) -> bool:
        """End a micro-batch; True when the step is committed."""
        ex = self.exchange
        if self.broken and ex is not None:
            self.broken = False
            ex.wait_change(self.session, self.session.step)
            return False
        return self.session.reduce_gradients(None, loss)

    def step(self) -> None:
        """Let the optimiser update this rank's part, after a commit."""
        if self.session.committed and not self.session.skip:
            self.optimizer.step()

    # ---- parts and groups ----------------------------------------------------------------------

    def make_exchange(self, link: Any, spec: Spec, folder: Path) -> axes_exchange.AxesExchange:
        """Return the members' part of a step, by shards (called once by the session)."""
        if spec.shards != self.shards:
            raise RunError(
                f"the run has --shards {spec.shards}, the axes {self.degrees} make {self.shards}",
                out=f"lightloom run --shards {self.shards} --ranks N x {self.shards}",
            )
        slots = spec.micro if spec.deterministic else 1
        self.arena = axes_exchange.ShardArena(self.largest, slots)
        self.exchange = axes_exchange.AxesExchange(self, link, self.arena, spec, folder)
        return self.exchange

    def bind(self, shard: int) -> None:
        """Become a shard: build its part without the others, on a group that only pretends."""
        self.drop()
        if shard == self.shard:
            return
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=shard, world_size=self.shards)
        self.part = self.build(self._mesh())
        named = [(n, p) for n, p in self.part.module.named_parameters() if p.requires_grad]
        self.names, self.shared = [n for n, _ in named], [p for _, p in named]
        self.own = [torch.nn.Parameter(local_of(p)) for p in self.shared]
        self.optimizer = self.make(self.own)
        self.session.parameters = self.own
        assert self.arena is not None
        self.arena.bind(self.own)
        self._say_where(named)
        self.shard = shard
        self.drop()

    def _say_where(self, named: list[tuple[str, torch.nn.Parameter]]) -> None:
        """Tell snapshots which part of the whole model this is."""
        tracked = self.session.tracked
        names = {id(own): name for own, (name, _) in zip(self.own, named, strict=True)}
        tracked.boxes = tuple(box_of(name, p) for name, p in named)
        tracked.order = tuple(
            names[id(p)] for group in self.optimizer.param_groups for p in group["params"]
        )

    def _mesh(self) -> Any:
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(
            "cpu", tuple(self.degrees.values()), mesh_dim_names=tuple(self.degrees)
        )

    def _form(self, ex: axes_exchange.AxesExchange) -> None:
        """Make this replica's groups for the epoch in force, if they are not made yet."""
        assert ex.epoch is not None
        if self.formed == ex.epoch.number:
            return
        self.drop()
        ex.link.mark(b.JOINING)
        before = sockets()
        name = f"axes-{ex.epoch.number}-{ex.slot // self.shards}"
        store = dist.FileStore(str(ex.folder / name), self.shards)
        store.set(f"here-{self.shard}", "1")
        while not store.check([f"here-{i}" for i in range(self.shards)]):
            heard = ex.link.messages(0.005)
            ex.held += heard
            if any(isinstance(x, talk.NewEpoch | talk.Finish) for x in heard):
                raise RuntimeError("the epoch changed before its groups were made")
        dist.init_process_group(
            "gloo", store=store, rank=self.shard, world_size=self.shards, timeout=TIMEOUT
        )
        assert self.part is not None
        mesh = self._mesh()
        self.opened = {fd: name for fd, name in sockets().items() if before.get(fd) != name}
        self.part.regroup(mesh)
        self.formed = ex.epoch.number
        ex.link.mark(b.COMPUTING)

    def drop(self) -> None:
        """Abandon the groups at once: who waits in one of them hears it.

        gloo has no abort that reaches its peers, and modules still refer to the groups: their
        sockets are shut down instead.
        """
        self.formed = -1
        opened, self.opened = self.opened, {}
        now = sockets()
        for fd, name in opened.items():
            if now.get(fd) == name:
                shut(fd)
        if dist.is_initialized():
            dist.destroy_process_group()

    # ---- state ---------------------------------------------------------------------------------

    def _weights(self) -> dict[str, Any]:
        if self.part is None:
            return {}
        kept = {n: local_of(t) for n, t in self.part.module.named_buffers()}
        return dict(zip(self.names, (p.detach() for p in self.own), strict=True)) | kept

    def _load_weights(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            for name, value in self._weights().items():
                value.copy_(state[name])

    def _updates(self) -> dict[str, Any]:
        return self.optimizer.state_dict() if self.optimizer is not None else {}

    def _load_updates(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state)


def axes(session: Session, build: Build,
         optimizer: Callable[[Iterable[torch.nn.Parameter]], Any], *, largest: int,
         **degrees: int) -> Axes:  # fmt: skip
    """Return this rank's part of a model cut along axes, for example ``pp=2, tp=2``.

    `build(mesh)` makes a `Part` (see wrap_tensor, wrap_pipeline, wrap_fsdp, wrap_product);
    `optimizer(parameters)` its optimiser; `largest` is the number of elements that no part
    exceeds, for example those of the whole model.
    """
    if session.link is None:
        raise RunError(
            f"axes {degrees}: this script runs alone",
            out=f"lightloom run --shards {math.prod(degrees.values())} --ranks N -- train.py",
        )
    return Axes(session, build, optimizer, largest, degrees)
