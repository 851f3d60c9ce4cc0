"""MIGRATION.md: everything a migration says, for the people who carry on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lightloom.core.migration import Migration


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table; bars inside cells are escaped."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        cells = [cell.replace("|", "\\|").replace("\n", " ") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return lines if len(lines) > 2 else ["none"]


def report_text(m: Migration) -> str:
    """Return the report as Markdown."""
    lines = [f"# Migration of {', '.join(m.inputs)} to {m.target}", ""]
    lines += ["## Has no counterpart: decide", ""]
    lines += table(
        ("where", "what", "why", "nearest"),
        ((x.where, x.what, x.why, x.nearest) for x in m.lacking),
    )
    lines += ["", "## Operators that are not plainly supported", ""]
    bad = [o for o in m.operators if o.state != "supported"]
    lines += table(
        ("operator", "state", "where", "why", "source"),
        ((o.name, o.state, ", ".join(o.where[:4]), o.why, o.source) for o in bad),
    )
    good = [o.name for o in m.operators if o.state == "supported"]
    lines += ["", f"Supported ({len(good)}): {', '.join(good) or 'none'}", ""]
    lines += ["## Changed", ""]
    lines += table(
        ("where", "what", "before", "after", "why", "source"),
        (
            (c.where, c.action, c.before, c.after, c.why, c.source)
            for c in m.changes
            if c.action != "kept"
        ),
    )
    lines += ["", "## Settings", ""]
    lines += table(
        ("severity", "where", "what", "do", "source"),
        ((f.severity, f.subject, f.what, f.remedy, f.source) for f in m.settings),
    )
    lines += ["", "## Versions that belong together", ""]
    lines += table(
        ("torch", "torch_npu", "CANN", "branch", "why", "source"),
        ((v.torch, v.torch_npu, v.cann, v.branch, v.why, v.source) for v in m.versions),
    )
    lines += [
        "",
        "Driver and firmware follow CANN: take the pair that its release notes name; "
        "this list has no published machine-readable source.",
        "",
    ]
    lines += ["## Baseline: small, save, restore, compare, then larger", ""]
    lines += table(("step", "do", "passes when"), ((s.name, s.do, s.passes) for s in m.steps))
    lines += ["", *(f"- {note}" for note in m.notes)]
    return "\n".join(lines) + "\n"
