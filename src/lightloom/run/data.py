"""Exact data position: micro-batch k of the job is the same samples whoever computes it.

The cursor counts micro-batches consumed by committed steps; it is part of the record, so no sample
is lost or seen twice, before or after a failure, a resume or a change of ranks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from lightloom.core.errors import InputError


class Source:
    """Random access to micro-batches over endless epochs of the data."""

    def __init__(self, loader: Any, seed: int) -> None:
        self.loader, self.seed = loader, seed
        self._order: tuple[int, list[int]] = (-1, [])
        self._iterator: Iterator[Any] | None = None
        self._passed, self._kept = 0, OrderedDict[int, Any]()
        self.kind = self._kind()

    def _kind(self) -> str:
        loader = self.loader
        if callable(getattr(loader, "batch", None)):
            return "batch"
        dataset = getattr(loader, "dataset", None)
        sized = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        if sized and getattr(loader, "batch_size", None):
            return "map"
        if hasattr(loader, "__getitem__") and hasattr(loader, "__len__"):
            return "list"
        if isinstance(loader, Iterable):
            return "stream"
        raise InputError(
            f"steps() cannot read a {type(loader).__name__}",
            out="give a DataLoader, a list of batches, an iterable, or an object with batch(index)",
        )

    def __len__(self) -> int:
        """Micro-batches of one pass over the data; 0 where that is unknown."""
        if self.kind == "map":
            return len(self.loader.dataset) // int(self.loader.batch_size)
        if self.kind == "list" or hasattr(self.loader, "__len__"):
            return len(self.loader)
        return 0

    def get(self, index: int) -> Any:
        """Return micro-batch `index`, counted from the start of the job."""
        if self.kind == "batch":
            return self.loader.batch(index)
        if self.kind == "stream":
            return self._from_stream(index)
        size = len(self)
        if size == 0:
            raise InputError("the data holds not one whole micro-batch")
        epoch, inside = divmod(index, size)
        if self.kind == "list":
            return self.loader[inside]
        order = self._permutation(epoch)
        width = int(self.loader.batch_size)
        picked = order[inside * width : (inside + 1) * width]
        return self.loader.collate_fn([self.loader.dataset[i] for i in picked])

    def _permutation(self, epoch: int) -> list[int]:
        if self._order[0] != epoch:
            count = len(self.loader.dataset)
            if _shuffled(self.loader.sampler):
                generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
                self._order = (epoch, torch.randperm(count, generator=generator).tolist())
            else:
                self._order = (epoch, list(range(count)))
        return self._order[1]

    def _from_stream(self, index: int) -> Any:
        """Read an iterable forward; what one step may need again is kept."""
        if index in self._kept:
            return self._kept[index]
        if self._iterator is None or index < self._passed:
            self._iterator, self._passed = iter(self.loader), 0
            self._kept.clear()
        while self._passed <= index:
            try:
                item = next(self._iterator)
            except StopIteration:
                raise InputError(f"the data ended at micro-batch {self._passed}")
            self._kept[self._passed] = item
            self._passed += 1
            if len(self._kept) > 512:
                self._kept.popitem(last=False)
        return self._kept[index]


def _shuffled(sampler: Any) -> bool:
    return "Random" in type(sampler).__name__ or bool(getattr(sampler, "shuffle", False))


def mix(seed: int, index: int) -> int:
    """Return the seed of micro-batch `index`: dropout does not depend on who computes it."""
    value = (seed * 0x9E3779B97F4A7C15 + (index + 1) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    value ^= value >> 31
    value = (value * 0x94D049BB133111EB) & (2**64 - 1)
    return (value ^ (value >> 29)) & (2**63 - 1)
