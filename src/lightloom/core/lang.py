"""Text for people: gettext with an English key, ``--lang en|zh``, default from LANG.

Catalogues are JSON (English sentence -> translation) in ``locale/``, read when first needed.
"""

from __future__ import annotations

import gettext
import json
import os
from pathlib import Path

LOCALES = Path(__file__).resolve().parent.parent / "locale"
_state: dict[str, gettext.NullTranslations] = {}
_chosen: dict[str, str] = {}


class Catalogue(gettext.NullTranslations):
    """Translations held in a dictionary; a sentence without one stays English."""

    def __init__(self, sentences: dict[str, str]) -> None:
        """Hold English sentence -> translation."""
        super().__init__()
        self.sentences = sentences

    def gettext(self, message: str) -> str:
        """Return the translation of `message`."""
        return self.sentences.get(message, message)


def set_language(lang: str | None) -> None:
    """Choose the language of all text for people; None reads LC_ALL, LC_MESSAGES, LANG."""
    if lang is None:
        names = ("LC_ALL", "LC_MESSAGES", "LANG")
        said = next((os.environ[name] for name in names if os.environ.get(name)), "")
        lang = "zh" if said.startswith("zh") else "en"
    path = LOCALES / f"{lang}.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    _state["now"] = Catalogue(found)
    _chosen["now"] = lang


def language() -> str:
    """Return the chosen language: ``en`` or ``zh``."""
    if "now" not in _chosen:
        set_language(None)
    return _chosen["now"]


def _(text: str) -> str:
    """Return `text` in the chosen language."""
    if "now" not in _state:
        set_language(None)
    return _state["now"].gettext(text)
