"""Placement: which card carries which rank.

Ranks are numbered with the axes of `order` from fastest to slowest, as Megatron does
(``tp-cp-ep-dp-pp``); `cards` maps a rank to a card, empty meaning rank i on card i. Card numbers
count through the fabric innermost level first.
"""

from __future__ import annotations

import msgspec


class Placement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Axis order, and optionally an explicit rank -> card map."""

    order: tuple[str, ...] = ("tp", "cp", "dp", "pp")
    """Axes from neighbours to strangers; ep (and etp) lie inside the dp x cp x tp ranks."""
    cards: tuple[int, ...] = ()
    why: str = ""
