"""The door of migration: says what each input is, moves it, checks what came out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from lightloom.core.errors import InputError
from lightloom.core.files import read_bytes
from lightloom.core.finding import Finding
from lightloom.core.migration import Change, Lacking, Migration, Operator
from lightloom.core.model import Model
from lightloom.emit.check import check_text

from .migrate_checks import groups_of, settings_of, steps_of, value
from .migrate_docker import TORCH, move_dockerfile, versions_for
from .migrate_ops import PRODUCTS, judge, nearest_version, of_model
from .migrate_python import Used, move_python
from .migrate_report import report_text
from .migrate_shell import move_script
from .recorder import RECORDER

TARGETS = {"ascend": "a3", "ascend-a2": "a2", "ascend-a3": "a3", "ascend-950": "950"}
LARGEST = 4 * 2**20


class Source(NamedTuple):
    """One input file."""

    name: str
    kind: str
    """python, script, env or dockerfile."""
    text: str


class Result(NamedTuple):
    """What a migration says, and the files to write."""

    migration: Migration
    files: dict[str, str]


def read_source(path: str) -> Source:
    """Return one input with its kind, or say what is read."""
    data = read_bytes(path, "migrate")
    if len(data) > LARGEST:
        raise InputError(f"{path}: larger than {LARGEST // 2**20} MiB; not a script")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not text: {error}", out="nothing was written") from error
    if "\0" in text:
        raise InputError(f"{path}: holds zero bytes, not a script", out="nothing was written")
    return Source(Path(path).name, kind_of(path, text), text)


def kind_of(path: str, text: str) -> str:
    """Return python, script, env or dockerfile."""
    name = Path(path).name
    if name.endswith(".py"):
        return "python"
    if name.startswith(("Dockerfile", "Containerfile")) or name.endswith(".dockerfile"):
        return "dockerfile"
    if name.endswith(".env") or name == ".env":
        return "env"
    if name.endswith((".sh", ".bash", ".sbatch", ".slurm")) or text.startswith("#!"):
        return "python" if text.startswith("#!") and "python" in text.split("\n")[0] else "script"
    if re.search(r"^FROM \S+", text, re.M):
        return "dockerfile"
    if re.search(r"^\s*(export )?[A-Z_]+=", text, re.M):
        return "env"
    raise InputError(
        f"{path}: neither a script, an environment, a container file nor a model",
        out="it reads .py, .sh, .sbatch, .env, Dockerfile, a model's name or config.json",
    )


def migrate(sources: Sequence[Source], models: Sequence[Model], target: str) -> Result:
    """Return what changes, what is lacking, operators, versions, settings, baseline and files."""
    if not sources and not models:
        raise InputError("nothing to migrate", out="lightloom migrate train.py run.sh --to ascend")
    product = TARGETS[target]
    changes: list[Change] = []
    lacking: list[Lacking] = []
    files: dict[str, str] = {}
    used: list[tuple[str, Used]] = []
    for source in sources:
        text = moved(source, product, changes, lacking, used)
        files[unique(source.name, files)] = text
    torch = next((m[1] for s in sources if (m := TORCH.search(s.text))), None)
    operators = operators_of(used, models, product, torch)
    group_s = next((u.group_s for _, u in used if u.group_s), None)
    whole = "\n".join(files.values())
    shell_group = re.search(r"--distributed-timeout-minutes[= ]+(\d+)", whole)
    if shell_group:
        group_s = 60.0 * int(shell_group[1])
    groups = groups_of(whole, sum(u.groups for _, u in used))
    buffer_mb = value(whole, "HCCL_BUFFSIZE") or 200
    settings = [*settings_of(whole, groups, group_s, buffer_mb), *checked(files, sources)]
    lacking += [
        Lacking(where=", ".join(o.where[:3]), what=o.name, why="absent on Ascend", nearest=o.why)
        for o in operators
        if o.state == "absent" and not any(x.what.endswith(o.name) for x in lacking)
    ]
    migration = Migration(
        target=f"{target} ({PRODUCTS[product]})",
        inputs=(*(s.name for s in sources), *(m.name for m in models)),
        kinds=(*(s.kind for s in sources), *("model" for _ in models)),
        changes=tuple(changes),
        lacking=tuple(lacking),
        operators=tuple(operators),
        versions=versions_for(torch),
        settings=tuple(settings),
        steps=steps_of(product),
        notes=notes_of(models, product, used),
    )
    files["layers.py"] = RECORDER
    files["MIGRATION.md"] = report_text(migration)
    return Result(migration, files)


def unique(name: str, files: dict[str, str]) -> str:
    """Return the name, refused where two inputs share it."""
    if name in files or name in ("layers.py", "MIGRATION.md"):
        raise InputError(f"two files would be written as {name}", out="migrate them one by one")
    return name


def moved(
    source: Source,
    product: str,
    changes: list[Change],
    lacking: list[Lacking],
    used: list[tuple[str, Used]],
) -> str:
    """Return the migrated text, noting changes, losses and what is used."""
    if source.kind == "python":
        python = move_python(source.name, source.text)
        used.append((source.name, python.used))
        changes += python.changes
        lacking += python.lacking
        return python.text
    if source.kind == "dockerfile":
        found = move_dockerfile(source.name, source.text, product)
    else:
        found = move_script(source.name, source.text, product, env_file=source.kind == "env")
    changes += found.changes
    lacking += found.lacking
    return found.text


def operators_of(
    used: Sequence[tuple[str, Used]], models: Sequence[Model], product: str, torch: str | None
) -> list[Operator]:
    """Return every operator with its state, the worst first."""
    version = nearest_version(torch)
    where: dict[str, list[str]] = {}
    for name, one in used:
        for operator, lines in one.operators.items():
            where.setdefault(operator, []).extend(f"{name}:{line}" for line in lines)
    found = [judge(name, lines, product, version) for name, lines in where.items()]
    by_name: dict[str, Operator] = {}
    for model in models:
        for op in of_model(model, product, version):
            before = by_name[op.name].where if op.name in by_name else ()
            marked = tuple(f"{model.name} {w}" for w in op.where)
            by_name[op.name] = msgspec.structs.replace(op, where=(*before, *marked))
    found += [o for o in by_name.values() if o.name not in where]
    order = {"absent": 0, "slow": 1, "unknown": 2, "supported": 3}
    return sorted(found, key=lambda o: (order[o.state], o.name))


def checked(files: dict[str, str], sources: Sequence[Source]) -> list[Finding]:
    """Return what the checkers of ``emit check`` say of the files that come out."""
    out: list[Finding] = []
    for source in sources:
        if source.kind in ("script", "dockerfile", "env"):
            name = source.name
            known = name.endswith((".sh", ".bash", ".sbatch", ".env")) or name.startswith("Docker")
            if known:
                out += check_text(name, files[name])[1]
    return out


def notes_of(
    models: Sequence[Model], product: str, used: Sequence[tuple[str, Used]]
) -> tuple[str, ...]:
    """Return what only a person can decide."""
    out = []
    for name, one in used:
        if not one.torch:
            out.append(f"{name} does not import torch: only texts were looked at")
    out += [
        f"next: lightloom plan {model.name} --cluster atlas-900-a3 -o plan.json; "
        "lightloom emit plan.json --for mindspeed"
        for model in models
    ]
    if models and product != "950":
        out.append(
            "910B and 910C have no FP8 arithmetic: weights published in FP8 are read as BF16"
        )
    if product == "a3":
        out.append(
            "A3: one package is two dies = two devices = two ranks; 384 packages are 768 ranks"
        )
    return tuple(out)
