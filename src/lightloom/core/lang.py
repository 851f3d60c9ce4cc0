"""Text for people: gettext with an English key, ``--lang en|zh``, default from LANG."""

from __future__ import annotations

import gettext
import os
from pathlib import Path

_LOCALES = Path(__file__).resolve().parent.parent / "locale"
_state: dict[str, gettext.NullTranslations] = {}


def set_language(lang: str | None) -> None:
    """Choose the language of all text for people; None reads LC_ALL, LC_MESSAGES, LANG."""
    if lang is None:
        env = next(
            (os.environ[k] for k in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(k)), ""
        )
        lang = "zh" if env.startswith("zh") else "en"
    _state["now"] = (
        gettext.NullTranslations()
        if lang == "en"
        else gettext.translation("lightloom", _LOCALES, languages=[lang], fallback=True)
    )


def _(text: str) -> str:
    """Return `text` in the chosen language."""
    if "now" not in _state:
        set_language(None)
    return _state["now"].gettext(text)
