"""``lightloom snapshots``: list, verify, export."""

from __future__ import annotations

from pathlib import Path

import click

from .options import echo_json, json_option


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def snapshots() -> None:
    """List, verify and export the snapshots of a run (name or folder)."""


def _folder(name: str) -> Path:
    """Return the snapshots folder of a run's name, a run's folder or a snapshots folder."""
    from lightloom.run.spec import find

    path = Path(name)
    if path.is_dir() and not (path / "spec.json").exists():
        inside = path / "snapshots"
        return inside if inside.is_dir() else path
    return find(name) / "snapshots"


@snapshots.command("list")
@click.argument("name", metavar="RUN|DIR")
@json_option
def list_snapshots(name: str, as_json: bool) -> None:
    """List complete snapshots; their bytes are not read."""
    _show(name, as_json, check=False)


@snapshots.command()
@click.argument("name", metavar="RUN|DIR")
@json_option
@click.pass_context
def verify(ctx: click.Context, name: str, as_json: bool) -> None:
    """Read every byte; exits 1 if any snapshot is damaged."""
    if _show(name, as_json, check=True):
        ctx.exit(1)


def _show(name: str, as_json: bool, check: bool) -> bool:
    from lightloom.core.errors import InputError
    from lightloom.run.report import snapshots as rows_of
    from lightloom.run.sharded import parts
    from lightloom.run.snapshot import MANIFEST
    from lightloom.show.run import show_snapshots

    folder = _folder(name)
    if (folder / MANIFEST).exists():
        first = str(parts(folder)[0])
        rows = [r for r in rows_of(parts(folder)[0].parent, check) if r.path == first]
    else:
        rows = rows_of(folder, check)
    if check and not rows:
        raise InputError(f"no snapshot in {folder}")
    if as_json:
        echo_json(rows)
    else:
        show_snapshots(rows)
    return any(row.problem for row in rows)


@snapshots.command()
@click.argument("name", metavar="RUN|DIR")
@click.option("--to", "target", type=click.Path(), required=True, help="file or folder to write")
@click.option("--format", "kind", type=click.Choice(["safetensors", "dcp", "torch"]),
              default="safetensors", show_default=True)  # fmt: skip
@click.option("--step", type=click.IntRange(0), help="which  [default: the newest that verifies]")
@click.option("--all", "everything", is_flag=True, help="optimiser state too")
def export(name: str, target: str, kind: str, step: int | None, everything: bool) -> None:
    """Write a snapshot for other tools: safetensors, torch DCP or one torch file."""
    from lightloom.run import convert

    path = convert.pick(_folder(name), step)
    written = convert.export(path, Path(target), kind, everything)
    click.echo(f"{written} tensors of step {int(path.name.rsplit('-', 1)[-1])} -> {target}")


@snapshots.command("import")
@click.argument("source", type=click.Path(exists=True))
@click.option("--to", "target", type=click.Path(), required=True, help="snapshots folder")
@click.option("--step", type=click.IntRange(0), default=0, show_default=True)
def import_snapshot(source: str, target: str, step: int) -> None:
    """Make a snapshot of a torch DCP checkpoint (folder), to start from with --from."""
    from lightloom.run import convert

    path = convert.from_dcp(Path(source), Path(target), step)
    click.echo(str(path))
