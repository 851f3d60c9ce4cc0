"""Finding: what a check says; severity, subject, numbers, remedy."""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["info", "warning", "error"]


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer of a checker. Any `error` makes the command exit 1."""

    severity: Severity
    code: str
    """Short stable name, for example ``late-rank`` or ``hccl-timeout-unknown``."""
    subject: str
    """What it is about: ``rank 7``, ``link b3-b7``, ``job.yaml:12``."""
    what: str
    numbers: dict[str, float] = {}
    """Evidence in SI base units."""
    remedy: str = ""
    source: str = ""


def exit_code(findings: list[Finding]) -> int:
    """Return 1 if any finding is an error, else 0."""
    return int(any(finding.severity == "error" for finding in findings))
