"""Sentences that live in data (plans, findings, notes) shown in the chosen language.

Data stays English whatever the language, so files and ``--json`` do not depend on who made them.
A view passes such text through `told`: templates of ``locale/LANG-told.json`` are matched, what
stood in a placeholder is translated in turn, and a sentence that nobody translated stays English.
"""

from __future__ import annotations

import json
import re
import string

from .lang import LOCALES, _, language

CLAUSES = "; "
LISTS = (": ", ", ")
WORDS = re.compile(r"[A-Za-z]{2,}.* |.* .*[A-Za-z]{2,}")
"""Words, not a name or figures: what a list must translate to be shown translated."""
SHORT = 6
"""A template of so few letters (``rank {a}``) takes one word in its place, not a sentence."""
Pattern = tuple[re.Pattern[str], str, list[str]]
_read: dict[str, tuple[dict[str, str], list[Pattern]]] = {}
_known: dict[tuple[str, str], str] = {}


def told(text: str) -> str:
    """Return a sentence out of data in the chosen language; English is returned as it is."""
    lang = language()
    path = LOCALES / f"{lang}-told.json"
    if lang not in _read:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        _read[lang] = _compile(found)
    if not _read[lang][0]:
        return text
    key = (lang, text)
    if key not in _known:
        alone = " " not in text and text not in _read[lang][0]
        _known[key] = _(text) if alone else _translate(text, *_read[lang])
    return _known[key]


def _compile(found: dict[str, str]) -> tuple[dict[str, str], list[Pattern]]:
    """Return (whole sentences, patterns of those with placeholders, the most literal first)."""
    patterns: list[tuple[int, Pattern]] = []
    for template, translation in found.items():
        parts = list(string.Formatter().parse(template))
        names = [name for _lit, name, _spec, _conv in parts if name]
        if names:
            literal = sum(len(lit) for lit, *_rest in parts)
            slot = r"(\S+)" if literal <= SHORT else "(.+?)"
            said = "".join(re.escape(lit) + (slot if name else "") for lit, name, *_rest in parts)
            patterns.append((-literal, (re.compile(said, re.DOTALL), translation, names)))
    patterns.sort(key=lambda p: p[0])
    return found, [pattern for _size, pattern in patterns]


def _translate(text: str, found: dict[str, str], patterns: list[Pattern]) -> str:
    """Return a translation of the whole, of its clauses, or the text itself.

    One word inside a sentence may be a name (a level called ``board``): only words of the file
    of told sentences are translated there.
    """
    whole = found.get(text) or (_(text) if " " in text else text)
    if whole != text or " " not in text:
        return whole
    clauses = text.split(CLAUSES)
    for pattern, translation, names in patterns:
        match = pattern.fullmatch(text)
        if match and (len(clauses) == 1 or CLAUSES in pattern.pattern.replace("\\", "")):
            values = zip(names, match.groups(), strict=True)
            return translation.format(**{n: _translate(v, found, patterns) for n, v in values})
    name, mark, rest = text.partition(LISTS[0])
    if mark and " " not in name and _translate(rest, found, patterns) != rest:
        return _join(LISTS[0], [name, rest], found, patterns)
    if len(clauses) > 1:
        return _join(CLAUSES, clauses, found, patterns)
    for mark in (mark for mark in LISTS if mark in text):
        items = text.split(mark)
        said = [_translate(item, found, patterns) for item in items]
        if all(a != b or not WORDS.match(a) for a, b in zip(items, said, strict=True)):
            return found.get(mark, mark).join(said)
    return text


def _join(mark: str, items: list[str], found: dict[str, str], patterns: list[Pattern]) -> str:
    """Return the translated items, with the language's own mark where all are translated."""
    said = [_translate(item, found, patterns) for item in items]
    whole = all(a != b or not WORDS.match(a) for a, b in zip(items, said, strict=True))
    return (found.get(mark, mark) if whole else mark).join(said)
