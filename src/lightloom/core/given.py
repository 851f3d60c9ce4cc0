"""What a user's own cluster file states: these figures are not the data sheet's any more."""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]
TABLES = ("fabric", "host", "storage", "failures")


def source_given(where: str) -> Raw:
    """Return the origin of a figure that the user's file or option states."""
    return {"origin": "given", "ref": where, "confidence": "medium"}


def given(raw: Raw, where: str) -> Raw:
    """Return a file laid over a catalogue machine or chip with an origin for what it changes.

    A field whose origin the file names itself, or that stands under one it names, keeps it.
    """
    out = dict(raw)
    if isinstance(raw.get("base"), str):
        out["sources"] = _sources(raw, fields_of(raw), where)
    chip = raw.get("chip")
    if isinstance(chip, dict) and isinstance(chip.get("base"), str):
        fields = [key for key in chip if key not in ("base", "name", "title", "sources", "peak")]
        peaks = chip.get("peak")
        fields += [f"peak.{kind}" for kind in peaks] if isinstance(peaks, dict) else []
        out["chip"] = {**chip, "sources": _sources(chip, fields, where)}
    return out


def _sources(raw: Raw, fields: list[str], where: str) -> Any:
    own = raw.get("sources", {})
    if not isinstance(own, dict) or "*" in own:
        return own
    named = [field for field in fields if not any(f"{field}.".startswith(f"{k}.") for k in own)]
    return {**{field: source_given(where) for field in named}, **own}


def fields_of(raw: Raw) -> list[str]:
    """Return the dotted fields that a cluster file states; a level by its name."""
    found: list[str] = [key for key in ("cabinet_cards", "pue", "site_power_w") if key in raw]
    for table in TABLES:
        value = raw.get(table)
        if isinstance(value, dict):
            found += [f"{table}.{key}" for key in value if key not in ("levels", "sources")]
            levels = value.get("levels")
            for level in levels if isinstance(levels, list) else []:
                if isinstance(level, dict) and isinstance(level.get("name"), str):
                    name = f"fabric.{level['name']}"
                    found += [name, *(f"{name}.{key}" for key in level if key != "name")]
    return found
