"""Correctness first: non-finite numbers, loss spikes, replicas that differ."""

from __future__ import annotations

import math
import zlib
from collections import deque
from statistics import median

import torch

EVERY = 50
"""Steps between comparisons of the replicas' parameters."""


class LossWatch:
    """Judges each step's loss against the recent past."""

    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=50)
        self.bad = 0

    def judge(self, loss: float | None, norm: float) -> tuple[str, str]:
        """Return (code, sentence) of what is wrong with a step; empty when nothing is.

        A spike is a loss above the median of 50 steps by more than 8 median absolute deviations
        and more than 20 %.
        """
        if not math.isfinite(norm) or (loss is not None and not math.isfinite(loss)):
            self.bad += 1
            return "nan-step", f"loss {loss}, gradient norm {norm}: the update is not finite"
        self.bad = 0
        if loss is None:
            return "", ""
        found = ("", "")
        if len(self.recent) >= 20:
            middle = median(self.recent)
            spread = median(abs(x - middle) for x in self.recent)
            if loss - middle > max(8 * spread, 0.2 * abs(middle)):
                found = ("loss-spike", f"loss {loss:.4g}, the median of 50 steps is {middle:.4g}")
        self.recent.append(loss)
        return found


def fingerprint(parameters: list[torch.nn.Parameter]) -> int:
    """Return a 32-bit checksum of all parameters: equal exactly when the bits are equal."""
    value = 1
    with torch.no_grad():
        for p in parameters:
            flat = p.detach().contiguous().view(-1).view(torch.uint8)
            value = zlib.crc32(memoryview(flat.numpy()), value)
    return value


def minority(prints: dict[int, int], me: int) -> str:
    """Return ``odd`` if this slot differs from a majority, ``split`` without one, else empty."""
    values = list(prints.values())
    if len(set(values)) <= 1:
        return ""
    best = max(set(values), key=values.count)
    if 2 * values.count(best) <= len(values):
        return "split"
    return "odd" if prints[me] != best else ""
