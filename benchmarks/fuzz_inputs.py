"""Hostile input for the readers: mutated configurations and cluster files, 0 tracebacks.

    python benchmarks/fuzz_inputs.py [COUNT]      # default 10,000; writes benchmarks/fuzz_inputs.md

Every mutation must give a noun or an InputError; anything else is a finding.
"""

from __future__ import annotations

import copy
import json
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightloom.core.catalog import CATALOG, cluster_of
from lightloom.core.catalog import _toml as parse_toml
from lightloom.core.errors import LightloomError
from lightloom.core.hf import model_of, parse
from lightloom.core.params import parameters

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 10**6, 10**9, 10**18, 10**30, -(10**30), 0.0, 0.5, -0.5,
    1e308, float("inf"), float("nan"), "", "0", "abc", "5 GB", "-3 GB/s", "1e400 B", "\x00",
    "é" * 50, [], [1], [0], [None], [[1]], ["full_attention"], {}, {"a": 1},
    {"model_type": "llama"}, "M" * 5, [1.5] * 3,
)  # fmt: skip


def mutate_tree(rng: random.Random, tree: Any, times: int) -> Any:
    """Return a copy of `tree` with `times` random changes: values, keys, types, nesting."""
    tree = json.loads(json.dumps(tree))
    for _ in range(times):
        at = tree
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(at[key], dict | list) and at[key] and rng.random() < 0.7:
                at = at[key]
                continue
            change(rng, at, key)
            break
    return tree


def change(rng: random.Random, at: Any, key: Any) -> None:
    """Change one entry of a dict or list in place."""
    kind = rng.randrange(6)
    if kind == 0:
        del at[key]
    elif kind == 1 and isinstance(at, dict):
        at[rng.choice((str(key) + "x", str(key).upper(), "zzz", ""))] = at[key]
    elif kind == 2 and isinstance(at[key], int | float) and not isinstance(at[key], bool):
        at[key] = at[key] * rng.choice((-1, 0, 2, 0.5, 1e9, 1e-9))
    elif kind == 3 and isinstance(at[key], list):
        at[key] = at[key] * rng.choice((0, 2)) + [copy.deepcopy(rng.choice(VALUES))]
    else:
        at[key] = copy.deepcopy(rng.choice(VALUES))


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return `data` cut, doubled or with bytes changed."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            out[at:at] = bytes([rng.randrange(256)])
        elif kind == 1:
            del out[at : at + rng.randrange(40)]
        elif kind == 2:
            out = out[:at]
        else:
            out[at:at] = rng.choice(
                (b"[" * 3000, b"{", b'"', b"\xff\xfe", b"9" * 5000, b"nan", b"\n")
            )
    return bytes(out)


def cases(count: int, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield (kind, input): half configurations, half clusters; trees and raw bytes."""
    rng = random.Random(seed)
    models = [p.read_bytes() for p in sorted((CATALOG / "models").glob("*.json"))]
    clusters = [p.read_bytes() for p in sorted((CATALOG / "clusters").glob("*.toml"))]
    for i in range(count):
        kind = ("model tree", "cluster tree", "model bytes", "cluster bytes")[i % 4]
        data = rng.choice(models if kind.startswith("model") else clusters)
        if kind == "model tree":
            yield kind, mutate_tree(rng, json.loads(data), rng.randrange(1, 6))
        elif kind == "cluster tree":
            yield kind, mutate_tree(rng, parse_toml(data, "seed"), rng.randrange(1, 6))
        else:
            yield kind, mutate_bytes(rng, data)


def read(kind: str, given: Any) -> None:
    """Read one hostile input as its kind."""
    if kind == "model tree":
        parameters(model_of(given, "fuzz", "fuzz"))
    elif kind == "model bytes":
        parameters(model_of(parse(given, "fuzz"), "fuzz", "fuzz"))
    elif kind == "cluster tree":
        cluster_of(given, "fuzz")
    else:
        cluster_of(parse_toml(given, "fuzz"), "fuzz")


def run(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Return how inputs ended, and the tracebacks that should not be."""
    ends: Counter[str] = Counter()
    bad: list[str] = []
    for kind, given in cases(count, seed):
        try:
            read(kind, given)
            ends[f"{kind}: read"] += 1
        except LightloomError as error:
            ends[f"{kind}: answered"] += 1
            if not str(error).strip():
                bad.append(f"{kind}: empty answer")
        except Exception:
            bad.append(f"{kind}: {str(given)[:300]}\n{traceback.format_exc()}")
    return ends, bad


def main() -> None:
    """Run the campaign and write its page."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    start = time.process_time()
    ends, bad = run(count, seed=2026)
    spent = time.process_time() - start
    lines = [
        "# Hostile input", "",
        f"{count:,} mutated files (seed 2026), {spent:.0f} s of CPU: **{len(bad)} tracebacks** "
        "(goal 0).", "", "| input and how it ended | count |", "|---|---|",
        *(f"| {name} | {n:,} |" for name, n in sorted(ends.items())), "",
        "Command: `python benchmarks/fuzz_inputs.py`", "",
    ]  # fmt: skip
    print("\n".join(lines + bad[:20]))
    if count >= 10_000 and not bad:
        Path(__file__).with_suffix(".md").write_text("\n".join(lines), encoding="utf-8")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
