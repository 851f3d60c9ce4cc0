"""``lightloom migrate``: scripts, settings, images and models to Ascend."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import echo_json, json_option

if TYPE_CHECKING:
    from lightloom.advise.migrate import Source
    from lightloom.core.model import Model

TARGETS = ("ascend", "ascend-a2", "ascend-a3", "ascend-950")


@click.command()
@click.argument("inputs", nargs=-1, metavar="SCRIPT|ENV|Dockerfile|MODEL...")
@click.option(
    "--to",
    "target",
    type=click.Choice(TARGETS),
    default="ascend",
    show_default=True,
    help="stack; ascend is the A3 (910C)",
)
@click.option("-o", "--output", default=None, metavar="DIR", help="write the new files there")
@click.option(
    "--compare",
    nargs=2,
    default=None,
    metavar="A B",
    help="two recordings of layers.py, or two run reports, layer by layer",
)
@click.option("--tolerance", type=float, default=None, help="k of k x eps x sqrt(layer); 8")
@json_option
def migrate(
    inputs: tuple[str, ...],
    target: str,
    output: str | None,
    compare: tuple[str, str] | None,
    tolerance: float | None,
    as_json: bool,
) -> None:
    """Move work to Ascend: what changes, what has no counterpart, how to prove it is right.

    \b
    lightloom migrate train.py run.sh Dockerfile --to ascend -o moved/
    lightloom migrate deepseek-v3 --to ascend-a2 -o moved/
    lightloom migrate --compare old.jsonl new.jsonl
    """
    from lightloom.core.errors import InputError

    if compare:
        if inputs or output:
            raise InputError("--compare takes two recordings and nothing else")
        _compare(compare, tolerance, as_json)
        return
    if not inputs:
        raise InputError("nothing to migrate", out="lightloom migrate train.py run.sh --to ascend")
    from lightloom.advise.migrate import migrate as move

    sources, models = split(inputs)
    result = move(sources, models, target)
    written = write(output, result.files, {Path(p).resolve() for p in inputs}) if output else []
    import msgspec

    migration = msgspec.structs.replace(result.migration, files=tuple(written))
    if as_json:
        echo_json(migration)
        return
    from lightloom.show.migrate import show_migration

    show_migration(migration)
    if not output:
        click.echo("next: add -o DIR to write the files", err=True)


def split(inputs: tuple[str, ...]) -> tuple[list[Source], list[Model]]:
    """Return files to move and models to look at."""
    from lightloom.advise.migrate import read_source
    from lightloom.core.catalog import load_model
    from lightloom.core.errors import InputError, LightloomError

    sources, models = [], []
    for text in inputs:
        path = Path(text)
        if path.suffix == ".json" or not path.exists():
            looks = path.suffix in (".py", ".sh", ".env", ".sbatch") or "/" in text
            if looks and path.suffix != ".json":
                raise InputError(f"{text} does not exist")
            try:
                models.append(load_model(text))
            except LightloomError as error:
                raise InputError(
                    f"{text}: neither a file nor a model: {error.what}", out=error.out
                ) from error
        else:
            sources.append(read_source(text))
    return sources, models


def write(folder: str, files: dict[str, str], inputs: set[Path]) -> list[str]:
    """Write all files; nothing where one of them would replace an input or a file of a user."""
    from lightloom.core.errors import InputError
    from lightloom.core.files import write_bytes

    root = Path(folder)
    if root.exists() and not root.is_dir():
        raise InputError(f"-o {folder}: is a file, not a folder")
    clash = [name for name in files if (root / name).resolve() in inputs]
    if clash:
        raise InputError(
            f"-o {folder}: would replace the input {clash[0]}",
            out="-o another folder; nothing was written",
        )
    for name, text in files.items():
        write_bytes(root / name, text.encode())
        if text.startswith("#!"):
            (root / name).chmod(0o755)
    return [str(root / name) for name in files]


def _compare(pair: tuple[str, str], tolerance: float | None, as_json: bool) -> None:
    """Compare two recordings; exit 1 where a layer is outside."""
    from lightloom.advise.precision import TOLERANCE, compare, read

    result = compare(read(pair[0]), read(pair[1]), TOLERANCE if tolerance is None else tolerance)
    if as_json:
        echo_json(result)
    else:
        from lightloom.show.migrate import show_precision

        show_precision(result)
    if not result.passes:
        sys.exit(1)
