"""Migration: what changes when work moves to another stack, and what has no counterpart."""

from __future__ import annotations

from typing import Literal

import msgspec

from .finding import Finding

Action = Literal["replaced", "kept", "removed", "added"]
State = Literal["supported", "slow", "absent", "unknown"]


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that was replaced, kept, removed or added, with the reason."""

    where: str
    """``train.sh:12``; a name alone where a whole file is meant."""
    action: Action
    before: str
    after: str
    why: str
    source: str


class Lacking(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something without a counterpart: listed, never dropped in silence."""

    where: str
    what: str
    why: str
    nearest: str = ""


class Operator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operator that a script or a model uses, against the published list."""

    name: str
    state: State
    where: tuple[str, ...]
    why: str = ""
    types: tuple[str, ...] = ()
    """Number types that the published table names as verified; empty: it names none."""
    source: str


class VersionSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One published set of versions that belong together."""

    torch: str
    torch_npu: str
    cann: str
    branch: str
    why: str
    source: str


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of the baseline: small, save, restore, compare, then larger."""

    name: str
    do: str
    passes: str
    """What must hold before the next step."""


class Migration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a migration of some files says."""

    version: int = 1
    kind: Literal["migration"] = "migration"
    target: str
    inputs: tuple[str, ...]
    kinds: tuple[str, ...]
    changes: tuple[Change, ...]
    lacking: tuple[Lacking, ...]
    operators: tuple[Operator, ...]
    versions: tuple[VersionSet, ...]
    settings: tuple[Finding, ...]
    """Time-outs, ports, TLS, buffer memory; and what the checkers say of the files written."""
    steps: tuple[Step, ...]
    files: tuple[str, ...] = ()
    """Files written."""
    notes: tuple[str, ...] = ()


class LayerGap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tensor of two runs."""

    step: int
    layer: str
    phase: str
    dtype: str
    error: float
    """Norm of the difference over the norm of the first run; inf where one is not finite."""
    tolerance: float
    passes: bool
    why: str = ""


class Precision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two runs compared layer by layer in the order of execution."""

    version: int = 1
    kind: Literal["precision"] = "precision"
    a: str
    b: str
    layers: int
    first: LayerGap | None
    """The first layer outside its tolerance: everything after it inherits the error."""
    worst: tuple[LayerGap, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    passes: bool
    text: str
    loss_error: float | None = None
    """Mean relative difference of the losses of the steps both have."""
