"""Where ranks meet to make their groups: a store whose waits end when the epoch changes.

torch waits in its store for addresses of ranks that may have died; only a time-out would end that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

LOOK_S = 0.002
"""Pause between two looks at the file."""


class Meeting(dist.Store):  # type: ignore[misc]
    """A file store of one epoch; `changed` says whether a newer epoch has come."""

    def __init__(self, path: Path, count: int, changed: Callable[[], bool]) -> None:
        super().__init__()
        self.inner, self.changed = dist.FileStore(str(path), count), changed

    def wait(self, keys: list[str], timeout: timedelta = timedelta(seconds=20)) -> None:
        """Wait until all keys are there; raises RuntimeError when nobody will bring them."""
        end = time.monotonic() + timeout.total_seconds()
        while not self.inner.check(keys):
            if self.changed():
                raise RuntimeError("the epoch changed before its groups were made")
            if time.monotonic() > end:
                raise RuntimeError(f"timed out waiting for {', '.join(keys)}")
            time.sleep(LOOK_S)

    def get(self, key: str) -> bytes:
        """Return the value of a key once it is there."""
        self.wait([key])
        return bytes(self.inner.get(key))

    def set(self, key: str, value: bytes) -> None:
        """Store a value."""
        self.inner.set(key, value)

    def add(self, key: str, amount: int) -> int:
        """Add to a counter; returns its value."""
        return int(self.inner.add(key, amount))

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys are there."""
        return bool(self.inner.check(keys))

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Store a value if the present one is as expected; returns the value then."""
        return bytes(self.inner.compare_set(key, expected, desired))

    def delete_key(self, key: str) -> bool:
        """Forget a key."""
        return bool(self.inner.delete_key(key))

    def num_keys(self) -> int:
        """Return how many keys there are."""
        return int(self.inner.num_keys())

    def clone(self) -> Meeting:
        """Return this store: it is used by one thread at a time."""
        return self
