"""``lightloom experiment``: record runs, S3's tuning table, attribute a change."""

from __future__ import annotations

import itertools
import os
import platform
from typing import Any

import click

from .options import echo_json, json_option

DB = "experiments.sqlite"
PREFIXES = (
    "NCCL_",
    "HCCL_",
    "TORCH_",
    "PYTORCH_",
    "CUDA_",
    "ASCEND_",
    "OMP_",
    "UCX_",
    "NVTE_",
    "TASK_QUEUE",
    "CPU_AFFINITY",
)
PACKAGES = (
    "torch",
    "torch_npu",
    "numpy",
    "megatron-core",
    "mindspeed",
    "deepspeed",
    "transformer_engine",
    "flash_attn",
)


def db_option(function: Any) -> Any:
    """Add ``--db`` and ``--study``."""
    study = click.option(
        "--study", default="default", show_default=True, help="what belongs together"
    )
    base = click.option("--db", default=DB, show_default=True, metavar="FILE", help="SQLite file")
    return base(study(function))


@click.group()
def experiment() -> None:
    """Record runs, one variable at a time; what changed, by how much, with noise."""


@experiment.command()
@click.argument("files", nargs=-1, metavar="[PLAN.json|REPORT.json...]")
@click.option("--name", required=True, help="name of the run, once per study")
@click.option("--like", default="", metavar="RUN", help="everything as in this run, but --set")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="one variable")
@click.option("--new", "fresh", multiple=True, metavar="NAME=VALUE", help="one nobody knows yet")
@click.option(
    "--figure", "figures", multiple=True, metavar="NAME=V,V,V", help="one figure, every sample"
)
@click.option(
    "--env",
    "extra",
    multiple=True,
    metavar="NAME=VALUE",
    help="environment beyond what is read here (driver, firmware, container tag)",
)
@click.option("--no-host", is_flag=True, help="do not read this host's environment")
@click.option("--note", default="", help="a sentence for people")
@db_option
@json_option
def record(
    files: tuple[str, ...],
    name: str,
    like: str,
    settings: tuple[str, ...],
    fresh: tuple[str, ...],
    figures: tuple[str, ...],
    extra: tuple[str, ...],
    no_host: bool,
    note: str,
    db: str,
    study: str,
    as_json: bool,
) -> None:
    """Record one run: configuration, environment hash, figures with their noise.

    \b
    lightloom experiment record plan.json --name tp8 --figure step_s=4.21,4.19,4.25
    lightloom experiment record --name tp4 --like tp8 --set tp=4 --figure step_s=4.61,4.58
    """
    from lightloom.advise import experiments as e
    from lightloom.core.files import read_bytes
    from lightloom.core.trial import Trial

    before = e.known_trials(db, study)
    config: dict[str, str] = dict(e.find(before, like).config) if like else {}
    found: dict[str, Any] = {}
    for path in files:
        more, measured = e.read_file(read_bytes(path, "experiment"), path)
        config |= more
        found |= measured
    changes = dict(pair(text, "--set") for text in settings)
    for variable in changes:
        e.check_variable(variable, before, config)
    config |= changes | dict(pair(text, "--new") for text in fresh)
    found |= dict(e.parse_figure(text) for text in figures)
    environment = {} if no_host else host()
    environment |= dict(pair(text, "--env") for text in extra)
    trial = e.record(
        db,
        Trial(
            name=name,
            study=study,
            config=config,
            environment=environment,
            digest=e.digest(environment),
            figures=found,
            note=note,
        ),
    )
    if as_json:
        echo_json(trial)
    else:
        click.echo(
            f"run {trial.id} {name} of {study}: {len(config)} variables, environment "
            f"{trial.digest}, {len(found)} figures -> {db}"
        )


def pair(text: str, option: str) -> tuple[str, str]:
    """Return (name, value) of ``NAME=VALUE``."""
    from lightloom.core.errors import InputError

    name, mark, value = (part.strip() for part in text.partition("="))
    if not mark or not name:
        raise InputError(f"{option} {text!r}: not NAME=VALUE", out=f"{option} tp=8")
    return name, value


def host() -> dict[str, str]:
    """Return what of this host and its settings can change a figure."""
    from importlib import metadata

    out = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
    }
    known = {d.metadata["Name"].lower() for d in metadata.distributions() if d.metadata["Name"]}
    out |= {p: metadata.version(p) for p in PACKAGES if p.lower() in known}
    out |= {k: v for k, v in os.environ.items() if k.startswith(PREFIXES)}
    return out


@experiment.command()
@db_option
@json_option
def table(db: str, study: str, as_json: bool) -> None:
    """Print the tuning table: every run, and what changed from the one before."""
    from lightloom.advise.experiments import changed, trials

    found = trials(db, study)
    steps = [changed(a, b) for a, b in itertools.pairwise(found)]
    if as_json:
        echo_json({"study": study, "trials": found, "changed": [{}, *steps]})
        return
    from lightloom.show.experiment import show_table

    show_table(study, found, [{}, *steps])


@experiment.command()
@click.argument("a", metavar="RUN")
@click.argument("b", metavar="RUN")
@db_option
@json_option
def attribute(a: str, b: str, db: str, study: str, as_json: bool) -> None:
    """Say what the one variable between two runs did; refuse where two changed."""
    from lightloom.advise.experiments import attribute as decide
    from lightloom.advise.experiments import find, trials

    found = trials(db, study)
    result = decide(found, find(found, a), find(found, b))
    if as_json:
        echo_json(result)
        return
    from lightloom.show.experiment import show_attribution

    show_attribution(result)
