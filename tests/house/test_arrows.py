"""The house: who may import whom, how big a file or function may be."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "lightloom"
MECHANISMS = ["fabric", "flow", "collectives", "cost", "step", "recover", "emit"]
VERBS = ["plan", "simulate", "run", "advise"]
FILES = sorted(SRC.rglob("*.py"))
HEAVY = {"torch": "run", "ray": "run", "starlette": "operate", "safetensors": "run"}


def allowed(room: str) -> set[str]:
    """Return the rooms that `room` may import."""
    if room == "cli":
        return {*VERBS, *MECHANISMS, "core", "show", "cli"}
    if room == "show":
        return {"core", "show"}
    if room in VERBS:
        return {*MECHANISMS, "core", room}
    if room in MECHANISMS:
        return {*MECHANISMS[: MECHANISMS.index(room) + 1], "core"}
    return {"core"}


def imports(path: Path) -> list[tuple[int, str]]:
    """Return (line, absolute module) of every import, at any depth."""
    package = ["lightloom", *path.relative_to(SRC).parts[:-1]]
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.append((node.lineno, module))
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return found


def test_imports_follow_the_arrows() -> None:
    wrong = []
    for path in FILES:
        parts = path.relative_to(SRC).parts
        room = parts[0] if len(parts) > 1 else ""
        if not room:
            continue
        for line, module in imports(path):
            names = module.split(".")
            if names[0] != "lightloom" or len(names) < 2 or not (SRC / names[1]).is_dir():
                continue
            if names[1] not in allowed(room):
                wrong.append(f"{path.relative_to(ROOT)}:{line} {room} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_heavy_libraries_stay_in_their_room() -> None:
    wrong = []
    for path in FILES:
        room = path.relative_to(SRC).parts[0]
        for line, module in imports(path):
            owner = HEAVY.get(module.split(".")[0])
            if owner and room != owner:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {module}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("limit", [500])
def test_files_fit_a_reader(limit: int) -> None:
    big = [f"{p.relative_to(ROOT)}: {n} lines" for p in FILES
           if (n := p.read_text().count("\n")) > limit]  # fmt: skip
    assert not big, "\n".join(big)


def test_functions_fit_a_screen() -> None:
    long = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno
                if size > 60:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {size}")
    assert not long, "\n".join(long)


def test_no_silent_except() -> None:
    wrong = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler):
                silent = len(node.body) == 1 and isinstance(node.body[0], ast.Pass)
                if node.type is None or silent:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


def test_every_room_says_what_it_is() -> None:
    rooms = [p for p in SRC.rglob("__init__.py") if "static" not in p.parts]
    silent = [
        str(p.relative_to(ROOT)) for p in rooms if not ast.get_docstring(ast.parse(p.read_text()))
    ]
    assert not silent, "\n".join(silent)
