"""Gradients through torch.distributed: gloo, NCCL or HCCL, whichever the device has.

A process group lives for one epoch. A dead member breaks the connection (gloo) or is aborted
(NCCL, HCCL); the survivors drop the group and make the next epoch's: 1-3 ms for local gloo ranks.
NCCL and HCCL have never been executed by us.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from lightloom.core.errors import RunError

from . import sockets
from .meeting import Meeting

TIMEOUT = timedelta(seconds=30)


def kind_of(fabric: str, device: torch.device) -> str:
    """Return ``shm``, ``gloo``, ``nccl`` or ``hccl`` for what was asked and what is there."""
    if fabric != "auto":
        return fabric
    return {"cuda": "nccl", "npu": "hccl"}.get(device.type, "shm")


class Group:
    """The process group of the epoch in force."""

    def __init__(self, kind: str, folder: Path, changed: Callable[[], bool]) -> None:
        self.kind, self.folder, self.changed = kind, folder, changed
        self.number = -1
        self.group: Any = None
        self.why, self.cut = "", ""
        """What broke the group last; whether a drill breaks its links."""
        self.opened: dict[int, str] = {}

    def form(self, number: int, index: int, count: int) -> None:
        """Make the group of an epoch; all its members call this together."""
        if self.number == number:
            return
        self.drop()
        before = sockets.own()
        store = Meeting(self.folder / f"group-{number}", count, self.changed)
        if self.kind == "gloo":
            self.group = dist.ProcessGroupGloo(store, index, count, TIMEOUT)
        elif self.kind == "nccl":
            self.group = dist.ProcessGroupNCCL(store, index, count, dist.ProcessGroupNCCL.Options())
        elif self.kind == "hccl":
            import torch_npu  # type: ignore[import-not-found]

            options = torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options()
            self.group = torch_npu._C._distributed_c10d.ProcessGroupHCCL(
                store, index, count, options
            )
        else:
            raise RunError(f"fabric {self.kind!r} is not shm, gloo, nccl or hccl")
        self.number = number
        self.opened = sockets.since(before)
        if self.cut:
            self.cut_links(self.cut)

    def cut_links(self, how: str) -> None:
        """End the connections of this rank's group, as a drill asks: once, or each time anew."""
        self.cut = how if how == "dead" or not self.opened else ""
        sockets.shut(self.opened)

    def sum(self, flat: torch.Tensor) -> bool:
        """Sum a flat gradient over all members in place; False if the group broke."""
        try:
            self.group.allreduce([flat]).wait()
        except RuntimeError as error:
            self.why = str(error).splitlines()[0][:200]
            self.drop()
            return False
        return True

    def drop(self) -> None:
        """Abandon the group."""
        if self.group is not None and self.kind != "gloo":
            self.group.abort()
        sockets.shut(self.opened)
        self.group, self.number, self.opened = None, -1, {}
