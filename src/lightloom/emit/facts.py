"""Facts that emit/ ships: option lists, schemas, versions; each with repository, tag, commit."""

from __future__ import annotations

import csv
import functools
import gzip
from typing import Any

import msgspec

from lightloom.core.files import CATALOG, read_bytes


@functools.cache
def load(name: str) -> dict[str, Any]:
    """Return one list of ``catalog/emit`` (megatron, mindspeed, torchtitan, torch_npu, crd-...)."""
    data = gzip.decompress(read_bytes(CATALOG / "emit" / f"{name}.json.gz"))
    return msgspec.json.decode(data, type=dict[str, Any])


@functools.cache
def hccl_variables() -> dict[str, dict[str, str]]:
    """Return HCCL and torch_npu variables: default, range, meaning, nccl_counterpart, source."""
    text = read_bytes(CATALOG / "emit" / "hccl_env.csv").decode()
    rows = csv.DictReader(text.splitlines())
    return {name: row for row in rows for name in row["name"].split(" / ")}


def origin_line(name: str) -> str:
    """Return where a list comes from, for a comment or a finding."""
    origins = load(name)["origins"]
    return "; ".join(f"{o['repository']} {o['tag']} ({o['commit'][:10]})" for o in origins)


@functools.cache
def nccl_names() -> frozenset[str]:
    """Return the names of documented NCCL variables."""
    text = read_bytes(CATALOG / "emit" / "nccl_names.txt").decode()
    return frozenset(line for line in text.splitlines() if line and line[0] != "#")
