"""What a training script sees: ``with ll.session() as s`` (see docs/run.md).

``s.steps(loader)`` yields micro-batches; the loop body runs once for each. ``reduce_gradients``
ends a micro-batch: on the last one of the step it sums over all ranks, votes, and returns True once
the commit is durable; only then do tracked optimisers and schedulers really step. A lost rank's
micro-batches simply come out of ``steps`` on a survivor, in the same step.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from lightloom.core.errors import InputError, RunError
from lightloom.recover.record import Epoch

from . import board as b
from . import checks, copies, data, exchange, faults, guard, joining, saver, system, talk
from . import state as st
from .arena import Arena
from .link import Link
from .mesh import OwnMesh, own_mesh
from .spec import Spec, load


class Session:
    """One rank of a job that survives the loss of others."""

    def __init__(self) -> None:
        folder = os.environ.get("LIGHTLOOM_RUN")
        self.folder = Path(folder) if folder else None
        self.spec: Spec = (
            load(self.folder) if self.folder else Spec(name="alone", script="", ranks=1)
        )
        self.link: Link | None = Link() if self.folder else None
        self.tracked = st.Tracked()
        self.parameters: list[torch.nn.Parameter] = []
        self.seeded = False
        self.applied = 0
        self.done: set[int] = set()
        self.current = -1
        self.shadow = self.committed = self.skip = self.finished = False
        self.stop_at = int(os.environ.get("LIGHTLOOM_STOP", "-1"))
        self.total = 0
        self.loss: float | None = None
        self.norm = 0.0
        self.exchange: exchange.Exchange | None = None
        self.saver: saver.Saver | None = None
        self.watch = checks.LossWatch()
        self.applied_in = -1
        self.replay: torch.Tensor | None = None
        """Reduced gradient of a step that the rank whose state this is had not applied."""
        self.wrap: Any = None
        """Axes that cut the model (see axes.py); None for whole replicas."""
        self._real: list[tuple[Any, Any]] = []
        self._losses: list[tuple[int, float]] = []
        if self.link is not None and self.folder is not None:
            self._arm(self.folder)

    def _arm(self, folder: Path) -> None:
        """Let the agent ask for stacks, and prepare the drill's faults."""
        assert self.link is not None
        stack = open(folder / f"rank-{self.link.uid}.stack", "w")  # noqa: SIM115
        faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
        self.injector = faults.Injector(self.spec.faults, self.link, folder)
        self.link.mark(b.STARTING, 0)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None and self.link is not None and not self.finished and self.exchange:
            self._leave(early=True)

    # ---- what the script may ask ---------------------------------------------------------------

    @property
    def rank(self) -> int:
        """Slot of this rank in the epoch in force."""
        return self.exchange.slot if self.exchange else 0

    @property
    def world(self) -> int:
        """Members of the epoch in force."""
        return len(self.exchange.epoch.members) if self.exchange and self.exchange.epoch else 1

    @property
    def mesh(self) -> OwnMesh:
        """The ranks of the epoch in force along their axes; see mesh.py."""
        return own_mesh(self.exchange, self.wrap, self.spec.order)

    @property
    def step(self) -> int:
        """The step in progress, from 1."""
        return self.applied + 1

    @property
    def last_loss(self) -> float | None:
        """Mean loss over the micro-batches of the last committed step."""
        return self.loss

    def track(self, *, rng: bool = False, data: Any = None, **things: Any) -> st.Tracked:
        """Say what must survive: model, optimizer, scheduler, anything with a state_dict.

        `rng=True` gives each micro-batch its own random stream, so that a redone one is equal.
        """
        self.seeded = self.seeded or rng
        for name, thing in things.items():
            self.tracked.add(name, thing)
            if isinstance(thing, torch.nn.Module):
                self.parameters += [p for p in thing.parameters() if p.requires_grad]
            elif hasattr(thing, "step"):
                self._gate(thing)
        return self.tracked

    def _gate(self, thing: Any) -> None:
        """Let ``step()`` act only after a commit, and ``zero_grad()`` never: we clear gradients."""
        real = thing.step

        def gated(*args: Any, **kwargs: Any) -> Any:
            if self.committed and not self.skip:
                return real(*args, **kwargs)
            return None

        gated.__dict__.update(getattr(real, "__dict__", {}))  # marks schedulers look for
        if hasattr(thing, "zero_grad"):
            thing.step, thing.zero_grad = gated, lambda set_to_none=True: None
            return
        # a scheduler's state is its __dict__: the gate goes into a class of its own
        kind = type(thing)
        thing.__class__ = type(kind.__name__, (kind,), {"step": lambda _, *a, **k: gated(*a, **k)})

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Say that this rank works on something long of its own: evaluation, writing a file.

        The hang finder leaves it alone meanwhile; the others simply wait.
        """
        link = self.link
        before = link.board.get(b.PHASE) if link else 0
        if link is not None:
            link.mark(b.SAVING)
        try:
            yield
        finally:
            if link is not None:
                link.mark(before)

    # ---- the loop ------------------------------------------------------------------------------

    def steps(self, loader: Any, steps: int = 0) -> Iterator[Any]:
        """Yield this rank's micro-batches until the job has taken its steps.

        `steps` counts optimiser steps of the whole job; 0 takes ``--steps`` or one pass.
        """
        source = data.Source(loader, self.spec.seed)
        self.total = steps or self.spec.steps or len(source) // self.spec.micro
        if self.total <= 0:
            raise InputError("steps(): the data has no length", out="give steps=N or --steps N")
        if self.link is None:
            yield from self._alone(source)
            return
        ex = self._join(self.link)
        while True:
            self._boundary(ex)
            if self._halted():
                if self._leave():
                    return
                continue
            index = self._next(ex)
            if self.seeded:
                self._seed(index)
            yield source.get(index)

    def _alone(self, source: data.Source) -> Iterator[Any]:
        """Run without agents: one rank, nothing to lose it to."""
        arena = Arena(self.parameters, 1)
        self._losses = []
        while self.applied < self.total:
            for offset in range(self.spec.micro):
                self.committed = False
                arena.aim(0, clear=offset == 0)
                index = self.applied * self.spec.micro + offset
                if self.seeded:
                    self._seed(index)
                self.current, self._arena = offset, arena
                yield source.get(index)
            self.applied += 1

    def _join(self, link: Link) -> exchange.Exchange:
        """Prepare memory, report ready and wait for the first epoch."""
        slots = self.spec.micro if self.spec.deterministic else 1
        assert self.folder is not None
        if self.wrap is not None:
            ex: exchange.Exchange = self.wrap.make_exchange(link, self.spec, self.folder)
        else:
            ex = exchange.Exchange(link, Arena(self.parameters, slots), self.spec, self.folder)
        self.exchange = ex
        ex.copies = copies.Copies(link, self.tracked, self.spec.copies)
        self.saver = saver.Saver(link, self.tracked, self.folder)
        self.post = guard.Post(ex)
        if self.wrap is None:  # with axes, torch's whole group is one replica
            guard.install(ex, self.post, self._even)
        link.mark(b.IDLE, 0)
        link.send(talk.Ready(ex.info()))
        return ex

    # ---- small collectives, guarded ------------------------------------------------------------

    def all_reduce(
        self, tensor: torch.Tensor, op: str = "sum", intent: str | None = None
    ) -> torch.Tensor:
        """Return sum, mean, max or min of a small tensor over all ranks, equal bits everywhere.

        `intent` ("max", "flag", "mean", "sum") says what it is for; the result is tested for it.
        """
        if op not in ("sum", "mean", "max", "min"):
            raise InputError(f"all_reduce: op {op!r} is not sum, mean, max or min")
        if tensor.numel() > guard.LARGEST:
            raise InputError(
                f"all_reduce: {tensor.numel()} elements; small collectives carry {guard.LARGEST}",
                out="gradients travel with reduce_gradients",
            )
        if self.exchange is None:
            return tensor.clone()
        self._whole_step("all_reduce")
        if self.replay is not None:
            return self._alone_again(tensor)
        call = guard.call_of("all_reduce", op, tensor)
        found = self.post.swap(call, tensor)
        inputs = [x.reshape(tensor.shape).to(tensor.dtype) for _, x in found]
        result = guard.combine(op, inputs)
        guard.judge(self.exchange, call, guard.intent_of(call, intent), inputs, result)
        return result

    def _whole_step(self, name: str) -> None:
        """Raise inside a micro-batch: after a loss ranks run different numbers of them."""
        if not self.committed:
            raise InputError(
                f"{name} inside a micro-batch: ranks may have different numbers of them",
                out="call it once a step: if s.reduce_gradients(model, loss): ...",
            )

    def _alone_again(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the own value: the others made this call before the rank was lost."""
        assert self.exchange is not None
        self.exchange.note("redone-alone", f"slot {self.rank}: a lost rank's step {self.step} was "
                           "applied again; a small collective gave the own value")  # fmt: skip
        return tensor.clone()

    def _even(self) -> bool:
        """Return whether all ranks make the same calls in this step."""
        ex = self.exchange
        if ex is None or ex.epoch is None or ex.idle or self.shadow:
            return False
        work = ex.epoch.work(self.step)
        return self.committed or len({work.count(uid) for uid in ex.epoch.uids}) == 1

    def broadcast(self, tensor: torch.Tensor, root: int = 0) -> torch.Tensor:
        """Return rank `root`'s small tensor on every rank."""
        if self.exchange is None:
            return tensor.clone()
        self._whole_step("broadcast")
        if self.replay is not None:
            return self._alone_again(tensor)
        found = dict(self.post.swap(guard.call_of("broadcast", "", tensor, root), tensor))
        if root not in found:
            raise RunError(f"broadcast: rank {root} is not a member")
        return found[root].reshape(tensor.shape).to(tensor.dtype)

    def _seed(self, index: int) -> None:
        seed = data.mix(self.spec.seed, index)
        torch.manual_seed(seed)
        random.seed(seed)

    def _next(self, ex: exchange.Exchange) -> int:
        """Choose the next micro-batch; without work of its own a rank shadows the first one."""
        todo = ex.todo(self.step, self.done) if self.replay is None else []
        first = not self.done and not self.shadow
        self.shadow = not todo
        self.current = todo[0] if todo else 0
        slot = self.current if self.spec.deterministic and not self.shadow else 0
        ex.arena.aim(slot, clear=first or self.spec.deterministic or self.shadow)
        if first:
            ex.marks = [system.now_ns()]
        ex.link.mark(b.COMPUTING, self.step)
        assert ex.epoch is not None
        return max(ex.epoch.position(self.step), 0) + self.current

    def reduce_gradients(self, model: Any = None, loss: Any = None) -> bool:
        """End a micro-batch; True when the step is committed and ``.grad`` is the job's mean."""
        value = float(loss.detach()) if isinstance(loss, torch.Tensor) else loss
        if self.link is None:
            return self._reduce_alone(value)
        ex = self.exchange
        assert ex is not None
        if self.replay is not None:
            joining.replay(self, ex)
            return True
        ex.link.mark(b.COMPUTING)
        self._publish(ex, value)
        while True:
            if ex.todo(self.step, self.done):
                return False
            outcome = ex.settle(self, self.step)
            if outcome == exchange.COMMITTED:
                self._on_commit(ex)
                return True
            if outcome == exchange.HALTED:
                return False

    def _publish(self, ex: exchange.Exchange, value: float | None) -> None:
        slot = self.current if self.spec.deterministic and not self.shadow else 0
        ex.arena.publish(slot)
        if self.shadow:
            ex.arena.flat[slot].zero_()
            return
        if self.injector.poison:
            ex.arena.flat[slot][0] = float("nan")
            self.injector.poison = False
        self.done.add(self.current)
        if value is not None:
            self._losses.append((self.current, value))
        ex.losses(self._losses)

    def _reduce_alone(self, value: float | None) -> bool:
        if value is not None:
            self._losses.append((self.current, value))
        if self.current + 1 < self.spec.micro:
            return False
        self._arena.publish(0)
        self._arena.flat[0].div_(self.spec.micro)
        self._arena.deliver(0)
        if self._losses:
            self.loss = sum(v for _, v in self._losses) / len(self._losses)
        self._losses = []
        self.committed = True
        return True

    def _on_commit(self, ex: exchange.Exchange) -> None:
        """Make the update possible: gradients delivered, snapshot copy whole, numbers judged."""
        assert self.saver is not None
        self.loss, self.norm = ex.loss, ex.norm()
        code, text = self.watch.judge(self.loss, self.norm)
        self.skip = code == "nan-step" and self.spec.on_nan == "skip"
        if code and self.rank == ex.lead:
            stop = code == "nan-step" and (self.spec.on_nan == "stop" or self.watch.bad >= 5)
            ex.note(code, f"step {self.step}: {text}", fatal=stop)
        self.saver.settle()
        self.committed = True
        ex.link.mark(b.APPLYING)

    def _boundary(self, ex: exchange.Exchange) -> None:
        """Between two passes of the loop body: count the applied step, take part in changes."""
        link = ex.link
        if self.committed:
            self._count(ex)
        held, ex.held = ex.held, []
        self._hear(ex, held + link.messages())
        while ex.idle and not self._halted():
            self._hear(ex, link.messages(1.0))
        if not self.done and not self.shadow and not self._halted():
            link.mark(b.COMPUTING, self.step)
            self.injector.at(self.rank, self.step)
            if self.injector.cut:
                ex.cut_links(self.injector.cut)
                self.injector.cut = ""

    def _count(self, ex: exchange.Exchange) -> None:
        assert ex.epoch is not None and self.saver is not None
        self.applied += 1
        self.committed = self.shadow = False
        self.done, self._losses = set(), []
        ex.applied(self.applied)
        if self.replay is not None:
            self.replay = None
            joining.whole(self, ex)
            return
        if ex.copies is not None:
            ex.copies.begin(self.applied)
        if self.applied_in != ex.epoch.number:
            self.applied_in = ex.epoch.number
            ex.link.send(talk.Applied(ex.epoch.number, self.applied, system.now_ns()))
        if self.applied % checks.EVERY == 0 or self.applied == ex.epoch.base + 1:
            ex.fingerprint(checks.fingerprint(self.parameters), self.applied)
        self.saver.due(self, ex)

    def _hear(self, ex: exchange.Exchange, messages: list[Any]) -> None:
        """Act on what the agent said at a point where the state is at a committed step."""
        assert self.saver is not None
        newest: Epoch | None = ex.postponed
        ex.postponed = None
        for said in messages:
            if isinstance(said, talk.NewEpoch):
                newest = said.epoch
            elif isinstance(said, talk.Halt):
                self.stop_at = said.at
            elif isinstance(said, talk.Saved):
                self.saver.saved(said)
            elif isinstance(said, talk.Finish):
                self.finished = True
                if ex.idle:
                    sys.exit(0)
        if newest is not None and (ex.epoch is None or newest.number > ex.epoch.number):
            self.enter(ex, newest)

    def enter(self, ex: exchange.Exchange, epoch: Epoch) -> None:
        """Take part in a new epoch."""
        joining.enter(self, ex, epoch)

    def _forget(self) -> None:
        self.done, self._losses, self.shadow = set(), [], False

    # ---- the end -------------------------------------------------------------------------------

    def _halted(self) -> bool:
        stopped = 0 <= self.stop_at <= self.applied
        return self.applied >= self.total or stopped or self.finished

    def _leave(self, early: bool = False) -> bool:
        """Save the last state, wait until nothing can be lost any more; False to train on."""
        ex = self.exchange
        assert ex is not None and self.saver is not None
        saved = False
        while not self.finished:
            if not early and not self._halted():
                return False
            ex.link.mark(b.ENDED)
            waiting = ex.idle and ex.slot >= 0
            if not saved and not waiting and (not ex.owner or self.saver.last(self, ex)):
                ex.link.send(talk.End(self.applied))
                saved = True
            owner = ex.owner
            self._hear(ex, ex.link.messages(0.5))
            saved = saved and owner == ex.owner
            if ex.idle and not self.finished:
                self._boundary(ex)
        return True
