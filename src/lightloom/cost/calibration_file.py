"""Writing a calibration as TOML that a person can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from lightloom.core.files import write_bytes

from .calibration import Calibration


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:.5g}"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    inside = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items())
    return "{ " + inside + " }" if inside else "{}"


def _key(name: str) -> str:
    plain = name.replace("-", "").replace("_", "").isalnum() and name.isascii()
    return name if plain else msgspec.json.encode(name).decode()


def _table(path: str, table: dict[str, Any], lines: list[str]) -> None:
    """Append one table: its values, then its tables; tables of plain values stay on one line."""
    inner = {
        k: v
        for k, v in table.items()
        if isinstance(v, dict) and any(isinstance(x, dict) for x in v.values())
    }
    if path == "" or len(inner) < len(table):
        if path:
            lines.append(f"\n[{path}]")
        for name, value in table.items():
            if name not in inner:
                lines.append(f"{_key(name)} = {_value(value)}")
    for name, value in inner.items():
        _table(f"{path}.{_key(name)}" if path else _key(name), value, lines)


def calibration_toml(calibration: Calibration) -> str:
    """Return `calibration` as TOML."""
    lines = ["# Constants of the cost model; meanings in docs/truth.md and cost/calibration.py."]
    _table("", msgspec.to_builtins(calibration), lines)
    return "\n".join(lines) + "\n"


def write_calibration(path: Path | str, calibration: Calibration) -> None:
    """Write `calibration` to `path`, whole or not at all."""
    write_bytes(path, calibration_toml(calibration).encode())
