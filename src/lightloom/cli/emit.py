"""``lightloom emit``: a plan becomes files that real systems accept; or files are judged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lightloom.core.lang import _

from .options import echo_json, json_option

if TYPE_CHECKING:
    from lightloom.core.finding import Finding
    from lightloom.emit.bundle import Bundle


@click.command()
@click.argument("paths", nargs=-1, metavar="PLAN.json | check FILE...")
@click.option("--for", "target", default=None, metavar="TARGET", help="what to write (see --list)")
@click.option("-o", "--out", default=None, metavar="DIR", help="folder to write; default: show")
@click.option("--check", "judge", is_flag=True, help="check the emitted files by their own rules")
@click.option("--list", "listing", is_flag=True, help="targets, and what each can express")
@json_option
def emit(
    paths: tuple[str, ...],
    target: str | None,
    out: str | None,
    judge: bool,
    listing: bool,
    as_json: bool,
) -> None:
    """Write launch files for a plan, or check files that you already have.

    \b
    lightloom emit plan.json --for megatron -o job/
    lightloom emit plan.json --list
    lightloom emit check ranktable.json job.yaml train.sh
    """
    if paths[:1] == ("check",):
        check_files(paths[1:], as_json)
    elif listing:
        show_targets(paths[0] if paths else None, as_json)
    else:
        write_target(paths, target, out, judge, as_json)


def read_plan(path: str):  # type: ignore[no-untyped-def]
    """Return the plan of a file."""
    from lightloom.core.files import read_json
    from lightloom.core.plan import Plan

    return read_json(path, Plan, "plan")


def write_target(
    paths: tuple[str, ...], target: str | None, out: str | None, judge: bool, as_json: bool
) -> None:
    """Write the files of one target."""
    from lightloom.emit.targets import TARGETS, emit

    if len(paths) != 1:
        raise click.UsageError("one plan file is needed: lightloom emit plan.json --for TARGET")
    if target is None:
        raise click.UsageError(f"--for is needed: {', '.join(TARGETS)}")
    bundle = emit(read_plan(paths[0]), target)
    findings = [*bundle.findings, *(judged(bundle) if judge or out else [])]
    errors = [f for f in findings if f.severity == "error"]
    if out and not errors:
        write_files(bundle, Path(out))
    report(bundle, findings, out if not errors else None, as_json)
    if errors:
        sys.exit(1)


def judged(bundle: Bundle) -> list[Finding]:
    """Return findings of our own checkers about emitted files."""
    from lightloom.core.errors import InputError
    from lightloom.emit.check import check_bytes, kind_of

    found: list[Finding] = []
    for file in bundle.files:
        if file.path.endswith((".md", ".py", ".txt")):
            continue
        if not file.raw:
            try:
                kind_of(file.path, file.text)
            except InputError:
                continue
        found += check_bytes(file.path, file.data)[1]
    return found


def write_files(bundle: Bundle, folder: Path) -> None:
    """Write every file, each whole or not at all."""
    from lightloom.core.files import write_bytes

    for file in bundle.files:
        write_bytes(folder / file.path, file.data)
        if file.executable:
            (folder / file.path).chmod(0o755)


def report(bundle: Bundle, findings: list[Finding], out: str | None, as_json: bool) -> None:
    """Print what was written, or the files themselves where no folder was given."""
    if as_json:
        files = [{"path": f.path, "text": f.text, "bytes": len(f.data)} for f in bundle.files]
        echo_json({"target": bundle.target, "out": out, "files": files, "findings": findings})
        return
    for file in bundle.files:
        if out:
            size = _("{n:,} bytes").format(n=len(file.data))
            click.echo(f"{_('wrote')} {Path(out) / file.path}  {size}")
        elif file.raw:
            click.echo(f"==> {file.path}: {len(file.raw):,} bytes, binary; use -o DIR")
        else:
            click.echo(f"==> {file.path}")
            click.echo(file.text)
    print_findings(findings)


def print_findings(findings: list[Finding]) -> None:
    """Print findings, one or two lines each, on stderr."""
    from lightloom.core.told import told

    for finding in findings:
        severity, what = told(finding.severity), told(finding.what)
        click.echo(f"{severity} {finding.subject} {what}", err=True)
        if finding.remedy:
            click.echo(f"      {told(finding.remedy)}", err=True)


def show_targets(path: str | None, as_json: bool) -> None:
    """List targets; with a plan, what each framework cannot express of it."""
    from lightloom.core.told import told
    from lightloom.emit.targets import TARGETS, capability_table, gaps_of

    missing = gaps_of(read_plan(path)) if path else {}
    if as_json:
        echo_json({
            "targets": {name: target.what for name, target in TARGETS.items()},
            "can": capability_table(),
            "cannot": missing,
        })  # fmt: skip
        return
    for name, target in TARGETS.items():
        gap = missing.get(name)
        note = f"  {_('cannot')}: {', '.join(gap)}" if gap else ""
        if gap is not None and not gap:
            note = f"  {_('can express the plan')}"
        click.echo(f"{name:14} {told(target.what)}{note}")
    if path:
        return
    click.echo("")
    for name, table in capability_table().items():
        lacks = [what for what, can in table.items() if not can]
        click.echo(f"{name:14} {_('cannot express')}: {', '.join(lacks)}")


def check_files(paths: tuple[str, ...], as_json: bool) -> None:
    """Check files; exit 1 where any has an error."""
    from lightloom.core.files import read_bytes
    from lightloom.core.finding import exit_code
    from lightloom.core.told import told
    from lightloom.emit.check import KINDS, check_bytes

    if not paths:
        raise click.UsageError("a file is needed: lightloom emit check FILE...")
    results = [(path, *check_bytes(path, read_bytes(path, "file"))) for path in paths]
    everything = [finding for _path, _kind, found in results for finding in found]
    if as_json:
        files = [{"path": p, "kind": k, "findings": f} for p, k, f in results]
        echo_json({"files": files})
    else:
        for path, kind, found in results:
            errors = sum(f.severity == "error" for f in found)
            counted = _("{a} errors, {b} warnings").format(a=errors, b=len(found) - errors)
            click.echo(f"{path}: {told(KINDS[kind])}: {counted}")
            print_findings(found)
    sys.exit(exit_code(everything))
