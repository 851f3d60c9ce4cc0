"""Container files: base image, versions from the published matrix, packages of CUDA kernels."""

from __future__ import annotations

import re

from lightloom.core.migration import Action, Change, Lacking, VersionSet
from lightloom.emit.dockerfile import STACKS
from lightloom.emit.facts import load, origin_line

from .migrate_env import answer, ours
from .migrate_ops import PACKAGES
from .migrate_shell import MARK, Moved

BASE = re.compile(r"^(FROM\s+(?:--platform=\S+\s+)?)(\S+)(.*)$")
TORCH = re.compile(r"(?<![\w-])torch(?:==|~=|>=)(\d+\.\d+(?:\.\d+)?)(\+\S+)?")
CUDA_BASE = re.compile(r"nvcr\.io|nvidia/cuda|pytorch/pytorch|cuda|rocm", re.IGNORECASE)
SPELLING = {
    "flash-attn": "flash_attn",
    "transformer-engine": "transformer_engine",
    "mamba-ssm": "mamba_ssm",
    "causal-conv1d": "causal_conv1d",
    "nvidia-ml-py": "pynvml",
}


def versions_for(torch: str | None) -> tuple[VersionSet, ...]:
    """Return published sets for a torch version, newest first; the nearest where none is exact."""
    rows = [r for r in load("torch_npu")["rows"] if "beta" not in r["torch_npu"]]
    source = f"published: compatibility table of {origin_line('torch_npu')}"
    if torch is None:
        stack = STACKS["ascend"]
        rows = [r for r in rows if r["torch_npu"] == stack.torch_npu]
        why = "no torch version found: the set that emit uses"
    else:
        same = [r for r in rows if r["torch"] == torch or r["torch"].startswith(f"{torch}.")]
        why = f"torch {torch} as before" if same else f"torch {torch} is not in the table: nearest"
        rows = same or sorted(rows, key=lambda r: distance(r["torch"], torch))[:3]
    return tuple(
        VersionSet(
            torch=r["torch"],
            torch_npu=r["torch_npu"],
            cann=r["cann"],
            branch=r["branch"],
            why=why,
            source=source,
        )
        for r in rows[:4]
    )


def distance(a: str, b: str) -> float:
    """Return how far two versions are apart."""
    left, right = ([int(x) for x in re.findall(r"\d+", v)[:3]] + [0, 0] for v in (a, b))
    return abs(left[0] - right[0]) * 1e4 + abs(left[1] - right[1]) * 1e2 + abs(left[2] - right[2])


def image_of(chosen: VersionSet, product: str) -> str:
    """Return the CANN image of a version set and product."""
    kind = {"a2": "910b", "a3": "a3", "950": "950"}[product]
    return f"quay.io/ascend/cann:{chosen.cann.lower()}-{kind}-ubuntu22.04-py3.11"


def move_dockerfile(name: str, text: str, product: str) -> Moved:
    """Return a container file for Ascend."""
    found = TORCH.search(text)
    chosen = versions_for(found[1] if found else None)[0]
    pair = f"torch=={chosen.torch} torch_npu=={chosen.torch_npu}"
    changes: list[Change] = []
    lacking: list[Lacking] = []
    out: list[str] = []
    installed = False
    for number, raw in enumerate(text.splitlines(), start=1):
        where, new = f"{name}:{number}", raw
        base = BASE.match(raw)
        if base and CUDA_BASE.search(base[2]):
            new = f"{base[1]}{image_of(chosen, product)}{base[3]}"
            why = f"CANN {chosen.cann} for torch_npu {chosen.torch_npu}; check that the tag exists"
            changes.append(change(where, base[2], image_of(chosen, product), why, chosen.source))
        elif TORCH.search(raw):
            new = TORCH.sub(pair, raw, count=1)
            new = re.sub(r"\s--(extra-)?index-url[= ]\S*(cu\d+|rocm)\S*", "", new)
            installed = True
            changes.append(change(where, TORCH.search(raw)[0], pair, chosen.why, chosen.source))  # type: ignore[index]
        new = move_packages(where, new, changes, lacking)
        new = move_env_line(where, new, changes, lacking)
        out.append(new)
    if not installed:
        line = f"RUN pip install {pair}"
        at = next((i for i, t in enumerate(out) if t.startswith("FROM")), -1) + 1
        out.insert(at, line)
        changes.append(
            Change(
                where=name,
                action="added",
                before="",
                after=line,
                why=chosen.why,
                source=chosen.source,
            )
        )
    return Moved("\n".join(out) + "\n", tuple(changes), tuple(lacking))


def change(where: str, before: str, after: str, why: str, source: str) -> Change:
    """Return one replacement."""
    return Change(
        where=where, action="replaced", before=before, after=after, why=why, source=source
    )


def move_packages(where: str, raw: str, changes: list[Change], lacking: list[Lacking]) -> str:
    """Return the line without packages of CUDA kernels; each is listed with its nearest."""
    if "pip" not in raw and "apt" not in raw and not raw.startswith((" ", "\t")):
        return raw
    new = raw
    for m in reversed(
        list(re.finditer(r"(?<![\w/.-])([A-Za-z][\w-]*)(?:[=~<>]=?[\w.*+]+)?(?=\s|$)", raw))
    ):
        package = SPELLING.get(m[1].lower(), m[1].lower().replace("-", "_"))
        cuda = package in PACKAGES or re.fullmatch(
            r"(cuda|libnccl|libcudnn|cudnn)\S*", m[1].lower()
        )
        if not cuda or m[1].lower() in ("nvidia",):
            continue
        nearest = PACKAGES.get(package, "CANN brings its own libraries")
        lacking.append(Lacking(where=where, what=m[0], why="CUDA only", nearest=nearest))
        changes.append(
            Change(
                where=where,
                action="removed",
                before=m[0],
                after="",
                why="CUDA only",
                source="derived: CUDA kernels",
            )
        )
        new = new[: m.start()] + new[m.end() :]
    if new != raw and re.fullmatch(r"\s*RUN\s+(python3? -m )?pip3? install(\s+--?[\w-]+)*\s*", new):
        return f"{MARK} no counterpart: {raw.strip()}"
    return re.sub(r"(?<=\S)[ \t]{2,}(?=\S)", " ", new) if new != raw else raw


def move_env_line(where: str, raw: str, changes: list[Change], lacking: list[Lacking]) -> str:
    """Return an ENV line with its variables moved."""
    if not raw.startswith("ENV "):
        return raw
    pairs = re.findall(r"(\w+)(?:=|\s+)(\"[^\"]*\"|\S+)", raw[4:])
    kept: list[str] = []
    for name, value in pairs:
        found = answer(name, value) if ours(name) else None
        if found is None:
            kept.append(f"{name}={value}")
            continue
        after = [f"{k}={v}" for k, v in found.pairs]
        action: Action = "removed" if found.lacking else "kept" if found.kept else "replaced"
        changes.append(
            Change(
                where=where,
                action=action,
                before=f"{name}={value}",
                after=" ".join(after),
                why=found.why,
                source=found.source,
            )
        )
        if found.lacking:
            lacking.append(
                Lacking(where=where, what=f"{name}={value}", why=found.why, nearest=found.nearest)
            )
        kept += after
    if not any(ours(name) for name, _ in pairs):
        return raw
    return f"ENV {' '.join(kept)}" if kept else f"{MARK} no counterpart: {raw}"
