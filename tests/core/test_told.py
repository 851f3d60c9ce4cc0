"""Sentences out of data: English stays as it is, Chinese keeps every figure, nothing raises."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightloom.core.lang import LOCALES, language, set_language
from lightloom.core.told import told

TEMPLATES: dict[str, str] = json.loads((LOCALES / "zh-told.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Put the language back after each test."""
    before = language()
    yield
    set_language(before)


def names(text: str) -> list[str]:
    """Return the placeholders of a template, sorted."""
    return sorted(name for _lit, name, _spec, _conv in string.Formatter().parse(text) if name)


def test_placeholders_survive_translation() -> None:
    wrong = [key for key, value in TEMPLATES.items() if names(key) != names(value)]
    assert not wrong, "\n".join(wrong)


@given(st.text(max_size=60))
def test_english_is_returned_as_it_is(text: str) -> None:
    set_language("en")
    assert told(text) == text


@given(st.text(alphabet="ab; :,{}1%\n", max_size=40))
def test_any_text_survives(text: str) -> None:
    set_language("zh")
    assert isinstance(told(text), str)


def test_every_template_matches_itself() -> None:
    set_language("zh")
    for key, value in TEMPLATES.items():
        filled = {name: str(70 + i) for i, name in enumerate(names(key))}
        figures = sorted(re.findall(r"7\d", told(key.format(**filled))))
        assert figures == sorted(re.findall(r"7\d", value.format(**filled))), key


def test_clauses_and_lists_are_translated_apart() -> None:
    set_language("zh")
    assert told("nothing is recomputed; bubble 1.4%") == "无重计算；气泡 1.4%"
    assert told("+1.6%: pipeline bubble, recomputation") == "+1.6%：流水线气泡，重计算"
    assert told("weights, of a thing nobody translated") == "weights, of a thing nobody translated"
