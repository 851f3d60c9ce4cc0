"""Gradients through torch.distributed: gloo, NCCL or HCCL, whichever the device has.

A process group lives for one epoch. A dead member breaks the connection (gloo) or is aborted
(NCCL, HCCL); the survivors drop the group and make the next epoch's: 1-3 ms for local gloo ranks.
NCCL and HCCL have never been executed by us.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from lightloom.core.errors import RunError

TIMEOUT = timedelta(seconds=30)


def kind_of(fabric: str, device: torch.device) -> str:
    """Return ``shm``, ``gloo``, ``nccl`` or ``hccl`` for what was asked and what is there."""
    if fabric != "auto":
        return fabric
    return {"cuda": "nccl", "npu": "hccl"}.get(device.type, "shm")


class Group:
    """The process group of the epoch in force."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.number = -1
        self.group: Any = None

    def form(self, number: int, index: int, count: int) -> None:
        """Make the group of an epoch; all its members call this together."""
        if self.number == number:
            return
        self.drop()
        store = dist.PrefixStore(
            f"epoch-{number}", dist.FileStore(str(self.folder / f"group-{number}"), count)
        )
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

    def sum(self, flat: torch.Tensor) -> bool:
        """Sum a flat gradient over all members in place; False if the group broke."""
        try:
            self.group.allreduce([flat]).wait()
        except RuntimeError:
            self.drop()
            return False
        return True

    def drop(self) -> None:
        """Abandon the group."""
        if self.group is not None and self.kind != "gloo":
            self.group.abort()
        self.group, self.number = None, -1
