"""Re-make the list of what torch_npu runs, from its published tables at a pinned public tag.

    python benchmarks/facts_operators.py CLONE -o src/lightloom/catalog/migrate

CLONE is a git clone of Ascend/pytorch. Only facts are taken: a name, yes or no for each product,
the number types a limit names, and whether the table says that it falls back to the host. No
sentence is kept.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
from pathlib import Path
from typing import Any

REPOSITORY = "https://github.com/Ascend/pytorch"
TAG = "v26.2.0-beta.1-pytorch2.13.0"
FOLDER = "docs/zh/api/native_api/pytorch_"
VERSIONS = ("2-7-1", "2-12-0")
PRODUCTS = (("a2", r"A2"), ("a3", r"A3"), ("950", r"950"))
TYPES = ("bf16", "fp16", "fp32", "fp64", "uint8", "int8", "int16", "int32", "int64", "bool",
         "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "hif8")  # fmt: skip
NAME = re.compile(r"^\*\*原生文档\*\*：\s*\[([^\]]+)\]", re.M)


def git(clone: Path, *words: str) -> str:
    """Return the output of a git command."""
    command = ["git", "-C", str(clone), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def entry(text: str) -> dict[str, Any] | None:
    """Return the facts of one entry: products, types of the limit, fall-back."""
    out: dict[str, Any] = {}
    for name, mark in PRODUCTS:
        row = re.search(rf"^\|[^|\n]*{mark}[^|\n]*\|\s*(\S+)\s*\|", text, re.M)
        if row:
            out[name] = row[1] in ("✔", "&#10004;", "是")
    if not out:
        return None
    limit = text.partition("限制与说明")[2]
    if "仅支持" in limit:
        first = re.split(r"[\n。]", limit.partition("仅支持")[2])[0]
        found = [t for t in TYPES if re.search(rf"(?<![a-z]){t}(?!\d)", first)]
        if found:
            out["types"] = found
    if re.search(r"回退至CPU|仅CPU", limit):
        out["host"] = True
    return out


def table(clone: Path, version: str) -> dict[str, dict[str, Any]]:
    """Return name -> facts of one version of torch."""
    folder = f"{FOLDER}{version}"
    found: dict[str, dict[str, Any]] = {}
    for path in git(clone, "ls-tree", "-r", "--name-only", TAG, folder).splitlines():
        text = git(clone, "show", f"{TAG}:{path}")
        marks = list(NAME.finditer(text))
        ends = [m.start() for m in marks[1:]] + [len(text)]
        for here, end in zip(marks, ends, strict=False):
            facts = entry(text[here.end() : end])
            name = here[1].split("(")[0].replace("\\", "").strip()
            name = f"torch.{name}" if name.startswith("Tensor.") else name
            if facts and re.fullmatch(r"[A-Za-z_][\w.]*", name):
                found[name] = facts
    return dict(sorted(found.items()))


def main() -> None:
    """Write the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clone", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    said = parser.parse_args()
    commit = git(said.clone, "rev-parse", f"{TAG}^{{commit}}").strip()
    origins = [{"repository": REPOSITORY, "tag": TAG, "commit": commit, "path": FOLDER}]
    versions = {v.replace("-", "."): table(said.clone, v) for v in VERSIONS}
    raw = json.dumps({"origins": origins, "versions": versions}, separators=(",", ":")).encode()
    path = said.out / "operators.json.gz"
    path.write_bytes(gzip.compress(raw, mtime=0))
    counts = {v: len(t) for v, t in versions.items()}
    print(f"{path}: {counts}, {len(raw):,} bytes, {path.stat().st_size:,} packed")


if __name__ == "__main__":
    main()
