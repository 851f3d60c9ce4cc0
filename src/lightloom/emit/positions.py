"""JSON and YAML with the line of every value, so that a finding can name it."""

from __future__ import annotations

import json
from typing import Any

import yaml

from lightloom.core.errors import InputError

Path = tuple[str | int, ...]
DEPTH = 100


class Positions:
    """A value and the line of each of its parts."""

    def __init__(self, value: Any, line_of: dict[Path, int]) -> None:
        """Hold `value`; `line_of` maps a path to a line, counted from 1."""
        self.value = value
        self.line_of = line_of

    def line(self, *path: str | int) -> int:
        """Return the line of a part, or of its nearest ancestor that has one."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.line_of:
                return self.line_of[path[:end]]
        return 1


class _Json:
    """A reader of JSON text that remembers lines."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.lines = text, 0, {}  # type: tuple[str, int, dict[Path, int]]
        self.counted, self.line = 0, 1

    def here(self) -> int:
        """Return the line of the current place."""
        self.line += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.line

    def skip(self) -> str:
        """Move over white space; return the next character or an empty string."""
        while self.at < len(self.text) and self.text[self.at] in " \t\r\n":
            self.at += 1
        return self.text[self.at : self.at + 1]

    def take(self, mark: str) -> None:
        """Move over `mark` or complain."""
        if self.skip() != mark:
            raise InputError(f"line {self.here()}: expected {mark!r}")
        self.at += 1

    def value(self, path: Path) -> Any:
        """Return the value here, remembering its line."""
        mark = self.skip()
        if len(path) > DEPTH:
            raise InputError(f"line {self.here()}: nested deeper than {DEPTH}")
        self.lines[path] = self.here()
        if mark == "{":
            return self.object(path)
        if mark == "[":
            return self.array(path)
        if mark == '"':
            return self.string()
        try:
            value, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
        except ValueError as error:
            raise InputError(f"line {self.here()}: not JSON: {error}") from error
        return value

    def string(self) -> str:
        """Return the string here."""
        value, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
        return str(value)

    def object(self, path: Path) -> dict[str, Any]:
        """Return an object; a key given twice is named."""
        out: dict[str, Any] = {}
        self.take("{")
        while self.skip() != "}":
            if out:
                self.take(",")
            if self.skip() != '"':
                raise InputError(f"line {self.here()}: expected a key in quotes")
            key = self.string()
            if key in out:
                raise InputError(f"line {self.here()}: key {key!r} stands twice")
            self.take(":")
            out[key] = self.value((*path, key))
        self.at += 1
        return out

    def array(self, path: Path) -> list[Any]:
        """Return an array."""
        out: list[Any] = []
        self.take("[")
        while self.skip() != "]":
            if out:
                self.take(",")
            out.append(self.value((*path, len(out))))
        self.at += 1
        return out


def read_json(text: str) -> Positions:
    """Return JSON with lines, or say which line is wrong."""
    reader = _Json(text)
    try:
        value = reader.value(())
    except ValueError as error:
        raise InputError(f"line {reader.here()}: not JSON: {error}") from error
    if reader.skip():
        raise InputError(f"line {reader.here()}: text after the end of the JSON value")
    return Positions(value, reader.lines)


def read_yaml(text: str) -> list[Positions]:
    """Return every document of a YAML stream with lines."""
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise InputError(f"{where}not YAML: {getattr(error, 'problem', error)}") from error
    out = []
    for node in nodes:
        if node is not None:
            lines: dict[Path, int] = {}
            out.append(Positions(_plain(node, (), lines), lines))
    return out


def _plain(node: yaml.Node, path: Path, lines: dict[Path, int]) -> Any:
    """Return plain data of a YAML node, remembering lines."""
    if len(path) > DEPTH:
        raise InputError(f"line {node.start_mark.line + 1}: nested deeper than {DEPTH}")
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        out = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            out[key] = _plain(value_node, (*path, key), lines)
            lines[(*path, key)] = key_node.start_mark.line + 1
        return out
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, i), lines) for i, item in enumerate(node.value)]
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"line {node.start_mark.line + 1}: {error}") from error
