"""Ranks that hold one copy of the model together: tensor, pipeline and fully sharded axes.

A *replica* is ``shards`` ranks; replicas are summed by the runtime as before, a shard only with the
same shard of the others. Inside a replica torch's own groups are used: they are made for one epoch
and made again, by the same names, in the next, so that the modules of torch never notice. When a
rank dies the others of its replica hear it from gloo, drop their groups and wait for the new epoch;
the spare that takes the slot builds the dead rank's part and gets its values from another replica.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, _redistribute, debug
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from lightloom.core.errors import RunError

from . import axes_exchange, handover, recut, sockets
from . import board as b
from .layout import Box
from .meeting import Meeting
from .mesh import first_of, parse_layout
from .spec import Spec

if TYPE_CHECKING:
    from lightloom.recover.record import Epoch

    from .exchange import Exchange
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


def count_groups_anew() -> None:
    """Have torch name the next groups from 0: one that could not be made has used up a name.

    Ranks meet under these names. torch 2.13 counts on only where no group is left to destroy.
    """
    dist.distributed_c10d._world.group_count = 0


def forget_meshes() -> None:
    """Clear what DTensor remembers of meshes: one like another by its ranks may have other groups.

    torch 2.13 offers no public way.
    """
    debug._clear_sharding_prop_cache()
    _redistribute._gen_transform_infos.cache_clear()


class Axes:
    """This rank's part of the model, its optimiser and the groups of its replica."""

    def __init__(self, session: Session, build: Build,
                 optimizer: Callable[[Iterable[torch.nn.Parameter]], Any], largest: int,
                 degrees: dict[str, int]) -> None:  # fmt: skip
        self.session, self.build, self.make, self.largest = session, build, optimizer, largest
        self.degrees = {k: v for k, v in degrees.items() if v > 1} or {[*degrees, "tp"][0]: 1}
        self.layouts = self._layouts(session.spec.layouts)
        self.shards = math.prod(self.degrees.values())
        self.layout, self.shard, self.formed = 0, -1, -1
        self.given = (-1, -1, -1)
        """Layout, step and life of the part that lies in `exchange.offered` for a new cut."""
        self.cut = ""
        self.broken = ""
        """What broke the groups in this micro-batch."""
        self.mesh: Any = None
        """torch's mesh of this replica, while its groups stand."""
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
        if self.session.replay is not None:  # only the update of this step is made again
            return None
        try:
            self._form(ex)
            assert self.part is not None
            for p in self.shared:  # a pass that broke off may have left some
                p.grad = None
            loss = self.part.compute(batch)
            arena.take(self.shared)
        except RuntimeError as error:
            if not broken(error):
                raise
            self.broken = str(error).splitlines()[0][:200]
            self.drop()
            return None
        return loss

    def reduce(self, loss: torch.Tensor | None) -> bool:
        """End a micro-batch; True when the step is committed."""
        ex = self.exchange
        if self.broken and ex is not None:
            why, self.broken = self.broken, ""
            ex.wait_change(self.session, self.session.step, why)
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

    def _layouts(self, texts: tuple[str, ...]) -> list[dict[str, int]]:
        """Return the degrees of every layout; all have the axes the job begins with."""
        found = [self.degrees]
        for text in texts[1:]:
            named = parse_layout(text)
            strange = [axis for axis, n in named.items() if n > 1 and axis not in self.degrees]
            if strange:
                raise RunError(
                    f"layout {text}: this job has no axis {strange[0]}",
                    out=f"--replan with {', '.join(self.degrees)} only",
                )
            found.append({axis: named.get(axis, 1) for axis in self.degrees})
        return found

    def take_layout(self, layout: int) -> None:
        """Be cut by another layout from now on; `bind` builds the part."""
        if layout != self.layout:
            self.drop()
            self.layout, self.degrees = layout, self.layouts[layout]
            self.shards, self.shard = math.prod(self.degrees.values()), -1

    def give_part(self, session: Session, ex: Exchange, epoch: Epoch) -> None:
        """Lay the own part out for a new cut; one laid out for a cut that failed stays."""
        tag = (epoch.source_layout, epoch.base, epoch.life)
        if self.layout == epoch.source_layout and session.applied == epoch.base:
            handover.offer(ex.link, ex.offered, session.tracked, epoch.number, epoch.base,
                           epoch.cursor, os.getpid())  # fmt: skip
            self.given = tag
        elif self.given == tag:
            ex.link.board.write(ex.offered.path(os.getpid()))
            ex.link.board.set(b.OFFER, epoch.number)
        else:
            raise RunError(f"epoch {epoch.number}: this rank has not the part it should give")
        ex.ring(list(epoch.uids))

    def take_part(self, session: Session, ex: Exchange, epoch: Epoch) -> bool:
        """Cut the own part out of the old ones; False when a newer epoch comes first."""
        return recut.take(self, session, ex, epoch)

    def bind(self, shard: int) -> None:
        """Become a shard: build its part without the others, on a group that only pretends."""
        self.drop()
        if shard == self.shard:
            return
        from torch.testing._internal.distributed.fake_pg import FakeStore

        forget_meshes()
        count_groups_anew()
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
        before = sockets.own()
        name = f"axes-{ex.epoch.number}-{ex.slot // self.shards}"
        store = Meeting(ex.folder / name, self.shards, ex.changed)
        count_groups_anew()
        try:
            dist.init_process_group(
                "gloo", store=store, rank=self.shard, world_size=self.shards, timeout=TIMEOUT
            )
            self.mesh = self._mesh()
        finally:
            self.opened = sockets.since(before)
        assert self.part is not None
        self.part.regroup(self.mesh)
        self.formed = ex.epoch.number
        if self.cut:
            self.cut_links(self.cut)
        ex.link.mark(b.COMPUTING)

    def cut_links(self, how: str) -> None:
        """End the connections of this rank's groups, as a drill asks: once, or each time anew."""
        self.cut = how if how == "dead" or not self.opened else ""
        sockets.shut(self.opened)

    def group(self, axis: str) -> Any:
        """Return torch's process group of this replica along an axis, in the epoch in force."""
        if self.mesh is None:
            raise RunError(
                f"the group along {axis} is not made yet",
                out="ask inside the part's compute, or after job.compute of the same micro-batch",
            )
        return self.mesh.get_group(axis)

    def drop(self) -> None:
        """Abandon the groups at once: who waits in one of them hears it.

        gloo has no abort that reaches its peers, and modules still refer to the groups: their
        sockets are shut down instead.
        """
        self.formed, self.mesh = -1, None
        opened, self.opened = self.opened, {}
        sockets.shut(opened)
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
    exceeds, for example those of the whole model. Without degrees those of the run's first layout
    are taken (``--shards plan``).
    """
    if session.link is None:
        raise RunError(
            f"axes {degrees}: this script runs alone",
            out=f"lightloom run --shards {math.prod(degrees.values())} --ranks N -- train.py",
        )
    found = degrees or first_of(session.spec.layouts)
    return Axes(session, build, optimizer, largest, found)
