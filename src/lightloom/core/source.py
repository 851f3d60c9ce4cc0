"""Where a number comes from: law 8 of the house."""

from __future__ import annotations

from typing import Literal

import msgspec

Origin = Literal["measured", "published", "data sheet", "derived", "assumed", "given"]
"""`given`: stated by the user's own file or option."""


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one number, or a group of them, comes from."""

    origin: Origin
    ref: str = ""
    """Address, paper or reasoning; never empty unless `assumed` explains itself in `note`."""
    note: str = ""
    confidence: Literal["high", "medium", "low"] = "medium"
