"""``lightloom catalog probe``: describe the machine one has, live or from pasted output."""

from __future__ import annotations

from pathlib import Path

import click

from .options import echo_json, json_option

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("nvidia-smi",), ("nvidia-smi", "-q"), ("nvidia-smi", "topo", "-m"),
    ("nvidia-smi", "nvlink", "-s"), ("rocm-smi", "--showproductname", "--showmeminfo", "vram"),
    ("npu-smi", "info"), ("npu-smi", "info", "-t", "topo"), ("lspci",), ("lscpu",),
    ("numactl", "-H"), ("ip", "-j", "addr"), ("ibstat",), ("lldpctl",),
)  # fmt: skip
"""What a live probe runs, where installed; nothing is changed on the host."""
PORTS = 16
WAIT_S = 30.0


def run_tools() -> tuple[str, list[str]]:
    """Return the output of every tool that is installed, and the names of those that are not."""
    import shutil

    out, absent = [], []
    for command in COMMANDS:
        if shutil.which(command[0]) is None:
            absent.append(command[0])
            continue
        click.echo(f"probe: {' '.join(command)}", err=True)
        out.append(_output(command))
    if shutil.which("hccn_tool") is not None:
        for port in range(PORTS):
            asked = [("hccn_tool", "-i", str(port), w, "-g") for w in ("-ip", "-link", "-speed")]
            out.extend(map(_output, asked))
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        out.append(meminfo.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(out), list(dict.fromkeys(absent))


def _output(command: tuple[str, ...]) -> str:
    import subprocess

    try:
        done = subprocess.run(command, capture_output=True, timeout=WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        click.echo(f"probe: {' '.join(command)}: {error}", err=True)
        return ""
    return done.stdout.decode("utf-8", errors="replace")


def read_files(paths: tuple[str, ...]) -> str:
    """Return the text of pasted outputs; ``-`` is standard input."""
    import sys

    from lightloom.core.files import read_bytes

    texts = []
    for path in paths:
        data = sys.stdin.buffer.read() if path == "-" else read_bytes(path, "probe")
        texts.append(data.decode("utf-8", errors="replace"))
    return "\n".join(texts)


@click.command(short_help="describe the machine one has as a cluster file")
@click.option("-o", "--output", default=None, metavar="FILE", help="cluster file to write")
@click.option("--from", "sources", multiple=True, metavar="FILE",
              help="pasted output of tools instead of this host; - is standard input")  # fmt: skip
@click.argument("more", nargs=-1, metavar="[FILE]...")
@click.option("--hosts", type=click.IntRange(1, 10**6), default=1, show_default=True,
              help="hosts like this one, joined by their network ports")  # fmt: skip
@click.option("--name", default="my-cluster", show_default=True, help="name of the cluster")
@json_option
def probe(
    output: str | None, sources: tuple[str, ...], more: tuple[str, ...], hosts: int, name: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Describe a host as a cluster file, from its own tools or from pasted output."""
    from lightloom.core.files import write_bytes
    from lightloom.core.probe.describe import describe
    from lightloom.core.probe.facts import read_facts

    given = sources + more
    text, absent = (read_files(given), []) if given else run_tools()
    facts = read_facts(text)
    told = describe(facts, name=name, hosts=hosts)
    if output:
        write_bytes(output, told.toml.encode())
    if as_json:
        echo_json({"facts": facts, "chip": told.chip, "missing": told.missing,
                   "problems": told.problems, "toml": told.toml})  # fmt: skip
        return
    if not output:
        click.echo(told.toml, nl=False)
    click.echo(f"{len(facts.cards)} cards of {told.chip}; read: {', '.join(facts.seen)}", err=True)
    for problem in told.problems:
        click.echo(f"problem: {problem}", err=True)
    for field in told.missing:
        click.echo(f"missing: {field}", err=True)
    if absent:
        click.echo(f"not installed here: {', '.join(absent)}", err=True)
    if output:
        click.echo(f"next: lightloom catalog clusters {output}", err=True)
