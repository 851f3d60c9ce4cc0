"""Errors are answers: what, where, the number, the way out.

LightloomError
├── InputError         3  what the user gave cannot be read or makes no sense
├── InfeasibleError    4  it makes sense, but nothing fits (says the smallest change that would)
├── FabricError        5  the fabric cannot carry it (cut off, over capacity, unknown link)
├── RunError           6  a real job could not start, go on or be recovered
└── MissingExtraError  7  an optional part is not installed (says the pip line)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


class LightloomError(Exception):
    """Base of every error shown to a user: `what` happened, the numbers, the way `out`."""

    exit_code = 1

    def __init__(self, what: str, *, out: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.out = out

    def __str__(self) -> str:
        return f"{self.what}\n{self.out}" if self.out else self.what


class InputError(LightloomError):
    """What the user gave cannot be read or makes no sense."""

    exit_code = 3


class InfeasibleError(LightloomError):
    """The request makes sense, but nothing fits."""

    exit_code = 4


class FabricError(LightloomError):
    """The fabric cannot carry what was asked."""

    exit_code = 5


class RunError(LightloomError):
    """A real job could not start, go on or be recovered."""

    exit_code = 6


class MissingExtraError(LightloomError):
    """An optional part is not installed."""

    exit_code = 7

    def __init__(self, needs: str, extra: str) -> None:
        super().__init__(
            f"{needs} is not installed", out=f'install it: pip install "lightloom[{extra}]"'
        )


def pick(known: Mapping[str, T], name: str, what: str) -> T:
    """Return the entry called `name`, or say which names of `what` there are."""
    if name not in known:
        raise InputError(f"no {what} {name!r}{nearest(name, known)}",
                         out=f"one of {', '.join(known)}")  # fmt: skip
    return known[name]


def nearest(word: str, known: Iterable[str], n: int = 3) -> str:
    """Return ``; nearest: a, b`` for a misspelt `word`, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=n, cutoff=0.4)
    return f"; nearest: {', '.join(close)}" if close else ""
