"""Faults: one vocabulary, ``KIND[:WHERE][@WHEN][=HOW MUCH]`` (law 11)."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from .errors import InputError, nearest
from .units import parse_time

FaultKind = Literal["rank", "card", "link", "board", "host", "agent", "hang", "snapshot", "disk",
                    "plane", "channel", "store", "nan", "slow"]  # fmt: skip
KINDS: tuple[str, ...] = (
    "rank", "card", "link", "board", "host", "agent", "hang", "snapshot", "disk", "plane",
    "channel", "store", "nan", "slow",
)  # fmt: skip
_FAULT = re.compile(
    r"(?P<kind>[a-z]+)(?::(?P<where>[^@=]+))?(?:@(?P<when>[^=]+))?(?:=(?P<much>.+))?"
)


class Fault(NamedTuple):
    """One thing that breaks or slows down."""

    kind: str
    where: str
    """What it touches, ``3`` or ``b3-b7`` or ``rank:1``; empty where the kind says it all."""
    step: int | None
    """Training step at which it happens."""
    at_s: float | None
    """Seconds from the start at which it happens."""
    much: str
    """``1.2x``, ``full``, ``flip``; empty for a clean break."""

    @property
    def text(self) -> str:
        """The fault as the user wrote it."""
        when = f"@step{self.step}" if self.step is not None else ""
        when = f"@{self.at_s:g}s" if self.at_s is not None else when
        where = f":{self.where}" if self.where else ""
        return f"{self.kind}{where}{when}" + (f"={self.much}" if self.much else "")

    @property
    def factor(self) -> float:
        """How much slower: ``1.2x`` gives 1.2; infinite for a clean break."""
        if not self.much:
            return float("inf")
        try:
            return float(self.much.removesuffix("x"))
        except ValueError:
            raise InputError(f"fault {self.text!r}: {self.much!r} is not a factor such as 1.2x")


def parse_fault(text: str) -> Fault:
    """Return the fault named by `text`, or say what is wrong with it."""
    match = _FAULT.fullmatch(text.strip())
    if not match:
        raise InputError(f"fault {text!r} cannot be read", out="KIND[:WHERE][@WHEN][=HOW MUCH]")
    kind = match["kind"]
    if kind not in KINDS:
        raise InputError(
            f"fault {text!r}: unknown kind {kind!r}{nearest(kind, KINDS)}",
            out=f"one of {', '.join(KINDS)}",
        )
    when, step, at_s = match["when"], None, None
    if when and when.startswith("step"):
        if not when[4:].isdigit():
            raise InputError(f"fault {text!r}: {when!r} is not a step", out="@step40")
        step = int(when[4:])
    elif when:
        at_s = parse_time(when, f"fault {text!r}")
    return Fault(kind, match["where"] or "", step, at_s, match["much"] or "")
