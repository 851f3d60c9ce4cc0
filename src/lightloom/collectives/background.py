"""Another job's steady traffic beside a collective: flows that never end."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lightloom.core.errors import InputError
from lightloom.fabric.network import Ints, Network

KINDS = ("ring", "shuffle", "all-to-all")


def steady_flows(net: Network, texts: Iterable[str], seed: int) -> tuple[Ints, Ints]:
    """Return (source, target) of flows written ``KIND:FIRST-LAST``: ring (each card to the next),
    shuffle (each card to one at random), all-to-all (every pair)."""
    rng = np.random.default_rng(seed)
    sources, targets = [], []
    for text in texts:
        kind, _, span = text.partition(":")
        first, dash, last = span.partition("-")
        if kind not in KINDS or not dash or not first.isdigit() or not last.isdigit():
            raise InputError(
                f"background {text!r} cannot be read", out=f"{'|'.join(KINDS)}:FIRST-LAST"
            )
        if not int(first) < int(last) < net.cards:
            raise InputError(f"background {text!r}: cards are 0..{net.cards - 1}, first < last")
        card = np.arange(int(first), int(last) + 1)
        card = card[~np.isin(card, np.fromiter(net.dead, np.int64, len(net.dead)))]
        if kind == "all-to-all":
            source, target = np.repeat(card, len(card)), np.tile(card, len(card))
        else:
            source = card
            target = np.roll(card, -1) if kind == "ring" else rng.permutation(card)
        keep = source != target
        sources.append(source[keep])
        targets.append(target[keep])
    return np.concatenate(sources), np.concatenate(targets)
