"""``lightloom doctor``: what is installed, what an extra would add, with size and pip line."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import sys
from typing import NamedTuple

import click

from lightloom.core.lang import _

from .options import echo_json, json_option


class Extra(NamedTuple):
    """One optional part."""

    packages: tuple[str, ...]
    size_mb: int
    gives: str


CORE = ("numpy", "msgspec", "click", "rich", "pyyaml")
EXTRAS = {
    "plot": Extra(("matplotlib",), 75, "--plot pictures as PNG and SVG"),
    "run": Extra(("torch", "safetensors", "psutil"), 760, "real training: run, drill, snapshots"),
    "optics": Extra(("gnpy",), 220, "amplified lines checked against gnpy"),
    "ray": Extra(("ray",), 246, "run --on ray"),
}
TOOLS = {
    "nvidia-smi": "catalog probe on NVIDIA", "npu-smi": "catalog probe on Ascend",
    "hccn_tool": "catalog probe on Ascend", "lspci": "catalog probe", "lscpu": "catalog probe",
    "ip": "catalog probe", "lldpctl": "catalog probe: who is at the other end of a cable",
}  # fmt: skip


def version_of(package: str) -> str:
    """Return the installed version, or an empty string."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def look() -> dict[str, object]:
    """Return everything the report says, as plain data."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "executable": sys.executable,
        "core": {name: version_of(name) for name in CORE},
        "extras": {
            name: {
                "installed": all(version_of(p) for p in extra.packages),
                "packages": {p: version_of(p) for p in extra.packages},
                "size_mb": extra.size_mb,
                "gives": extra.gives,
                "install": f'pip install "lightloom[{name}]"',
            }
            for name, extra in EXTRAS.items()
        },
        "tools": {name: shutil.which(name) or "" for name in TOOLS},
    }


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Say what is installed here and what each extra would add."""
    seen = look()
    if as_json:
        echo_json(seen)
        return
    from lightloom.core.told import told

    click.echo(_("Python {v} on {p}").format(v=seen["python"], p=seen["platform"]))
    core = {name: version_of(name) for name in CORE}
    click.echo("core     " + " · ".join(f"{n} {v or _('MISSING')}" for n, v in core.items()))
    for name, extra in EXTRAS.items():
        versions = {p: version_of(p) for p in extra.packages}
        if all(versions.values()):
            click.echo(f"[{name}]".ljust(9) + " · ".join(f"{p} {v}" for p, v in versions.items()))
        else:
            click.echo(f"[{name}]".ljust(9) + f"{_('not installed')}: {told(extra.gives)} "
                       f'({extra.size_mb} MB: pip install "lightloom[{name}]")')  # fmt: skip
    absent = [n for n in TOOLS if not shutil.which(n)]
    found = [n for n in TOOLS if shutil.which(n)]
    click.echo("tools    " + (", ".join(found) or _("none of those that catalog probe reads")))
    if absent:
        out = _("catalog probe --from FILE reads their pasted output")
        click.echo(f"         {_('not here')}: {', '.join(absent)} ({out})")
