"""Words of a shell script with their lines: enough of bash to judge launch scripts."""

from __future__ import annotations

import re
from typing import NamedTuple

_ASSIGN = re.compile(r"^\s*(?:export\s+|declare\s+(?:-\w+\s+)?)?([A-Za-z_]\w*)=(.*)$")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*):-([^}]*)\}")


class Word(NamedTuple):
    """One word and its line."""

    text: str
    line: int


class Script(NamedTuple):
    """A script as words, and its simple assignments."""

    words: tuple[Word, ...]
    assigned: dict[str, Word]
    """Every ``NAME=value`` of one word, exported or not; the last one wins."""
    exported: dict[str, Word]
    """Those that reach the environment (``export``, or an env file without it)."""


def strip_comment(line: str) -> str:
    """Return the line without a comment; a ``#`` inside quotes or a word stays."""
    quote = ""
    for i, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and (i == 0 or line[i - 1] in " \t"):
            return line[:i]
    return line


def read(text: str, *, env_file: bool = False) -> Script:
    """Return the words of a script; `env_file` counts bare assignments as exported."""
    words: list[Word] = []
    assigned: dict[str, Word] = {}
    exported: dict[str, Word] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = strip_comment(raw).rstrip().removesuffix("\\").strip()
        match = _ASSIGN.match(line)
        if match and not match[2].startswith("("):
            value = match[2].strip()
            plain = unquote(value)
            if plain is not None:
                word = Word(expand(plain, assigned), number)
                assigned[match[1]] = word
                if env_file or line.startswith(("export", "declare")):
                    exported[match[1]] = word
                continue
            line = value
        bare = line.replace('"', " ").replace("'", " ")
        words += [Word(expand(w, assigned), number) for w in bare.split() if w not in "()"]
    return Script(tuple(words), assigned, exported)


def unquote(value: str) -> str | None:
    """Return the value of a one-word assignment, None where it goes on or holds several words."""
    if len(value) >= 2 and value[0] in "'\"" and value[-1] == value[0]:
        inside = value[1:-1]
        return None if "--" in inside else inside
    if value[:1] in ("'", '"'):
        return None
    parts = value.split()
    return value if len(parts) <= 1 else parts[0] if ";" in value else None


def expand(text: str, assigned: dict[str, Word]) -> str:
    """Return the word with simple variables replaced where they are known."""
    text = _DEFAULT.sub(lambda m: assigned[m[1]].text if m[1] in assigned else m[2], text)
    return _VARIABLE.sub(lambda m: assigned[m[1]].text if m[1] in assigned else m[0], text)
