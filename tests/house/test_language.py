"""Every sentence that goes through gettext has a Chinese translation with the same placeholders."""

from __future__ import annotations

import ast
import json
import string
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src" / "lightloom"


def sentences() -> dict[str, str]:
    """Return every literal passed to ``_`` with where it stands."""
    out: dict[str, str] = {}
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            first = node.args[0] if node.args else None
            said = first.value if isinstance(first, ast.Constant) else None
            if node.func.id == "_" and isinstance(said, str):
                out[said] = f"{path.relative_to(SRC)}:{node.lineno}"
    return out


def fields(text: str) -> list[str]:
    """Return the placeholders of a format string, sorted."""
    return sorted(f"{name}:{spec}" for _, name, spec, _ in string.Formatter().parse(text)
                  if name is not None)  # fmt: skip


def test_every_sentence_is_translated() -> None:
    chinese = json.loads((SRC / "locale" / "zh.json").read_text(encoding="utf-8"))
    missing = [f"{where} {text!r}" for text, where in sentences().items() if text not in chinese]
    assert not missing, "\n".join(missing)


def test_placeholders_survive_translation() -> None:
    chinese = json.loads((SRC / "locale" / "zh.json").read_text(encoding="utf-8"))
    wrong = []
    for text, translated in chinese.items():
        try:
            same = {f.split(":")[0] for f in fields(text)} == {
                f.split(":")[0] for f in fields(translated)}  # fmt: skip
        except ValueError:
            same = text.count("{") == translated.count("{")
        if not same:
            wrong.append(f"{text!r} -> {translated!r}")
    assert not wrong, "\n".join(wrong)
