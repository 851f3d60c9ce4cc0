"""Trial: one recorded run of an experiment: configuration, environment, figures with noise."""

from __future__ import annotations

from typing import Literal

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One measured figure of a run."""

    mean: float
    std: float | None = None
    """Standard deviation of one sample; None: a single value, its noise is unknown."""
    n: int = 1
    unit: str = ""
    source: str = "measured"


class Trial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run."""

    version: int = 1
    id: int = 0
    name: str
    study: str
    config: dict[str, str]
    """Every variable of the configuration by name."""
    environment: dict[str, str]
    """Software, machine and library settings by name."""
    digest: str
    """SHA-256 of the environment, first 12 digits."""
    figures: dict[str, Figure]
    note: str = ""


class Difference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure in two runs."""

    figure: str
    a: float
    b: float
    change: float
    """B over A, minus one."""
    low: float | None
    """95 % interval of the change; None: the noise is not known."""
    high: float | None
    real: bool | None
    """Whether the interval excludes no change; None: the noise is not known."""
    unit: str = ""


class Attribution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one variable did."""

    version: int = 1
    kind: Literal["attribution"] = "attribution"
    a: str
    b: str
    variable: str
    before: str
    after: str
    differences: tuple[Difference, ...]
    text: str
