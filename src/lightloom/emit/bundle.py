"""What an emitter returns: files, each setting with where it comes from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from lightloom.core.finding import Finding
from lightloom.core.plan import Plan

From = Literal["plan", "model", "cluster", "default", "site"]
"""plan: the strategy; model: its configuration; cluster: the machine; default: ours, with a
reason; site: a placeholder that only the reader's site knows."""


class Setting(NamedTuple):
    """One option of a launch set."""

    name: str
    value: str | None
    """None is a bare flag."""
    origin: From
    why: str = ""
    more: tuple[str, ...] = ()
    """Further words of an option that takes several."""

    @property
    def words(self) -> list[str]:
        """The option as it stands on a command line."""
        return [self.name] if self.value is None else [self.name, self.value, *self.more]

    @property
    def note(self) -> str:
        """Where it comes from, for a comment."""
        return f"{self.origin}: {self.why}" if self.why else self.origin


class EmittedFile(NamedTuple):
    """One file to write."""

    path: str
    text: str
    executable: bool = False
    raw: bytes = b""
    """Content of a binary file; `text` is empty then."""

    @property
    def data(self) -> bytes:
        """Bytes to write."""
        return self.raw or self.text.encode()


class Bundle(NamedTuple):
    """A complete set for one target."""

    target: str
    files: tuple[EmittedFile, ...]
    findings: tuple[Finding, ...] = ()


def setting(name: str, value: object = None, origin: From = "plan", why: str = "") -> Setting:
    """Return one setting; booleans and numbers become text as the targets write them."""
    if value is None:
        return Setting(name, None, origin, why)
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, float):
        text = str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:g}"
    else:
        text = str(value)
    return Setting(name, text, origin, why)


def head(plan: Plan, what: str, mark: str = "#") -> list[str]:
    """Return the comment lines that open a file: what it is, of which plan, how far to trust it."""
    s = plan.strategy
    degrees = f"tp {s.tp} · pp {s.pp} · dp {s.dp} · cp {s.cp} · ep {s.ep}"
    return [
        f"{mark} {what}",
        f"{mark} {plan.model.name} on {s.world_size} of {plan.cards} x {plan.cluster.chip.title}"
        f" ({plan.cluster.name}) · {degrees}",
        f"{mark} predicted step {plan.prediction.step_s:.3g} s"
        f" ({plan.prediction.low_s:.3g} .. {plan.prediction.high_s:.3g} s)",
        f"{mark} origin of a setting: plan, model, cluster (the plan file), default (lightloom's"
        " choice), site (yours to fill in)",
    ]


def array_of(name: str, settings: Iterable[Setting]) -> list[str]:
    """Return a bash array, one option a line with its origin as a comment."""
    lines = [f"{name}=("]
    for item in settings:
        words = " ".join(quote(word) for word in item.words)
        lines.append(f"  {words}  # {item.note}")
    return [*lines, ")"]


def quote(word: str) -> str:
    """Return a word safe for bash; ``$NAME`` placeholders stay live inside double quotes."""
    if word and all(c.isalnum() or c in "-_./:=+@%" for c in word):
        return word
    if "$" in word:
        return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`") + '"'
    return "'" + word.replace("'", "'\\''") + "'"


def lines_of(*parts: Iterable[str] | str) -> str:
    """Return text of lines with a final newline."""
    out: list[str] = []
    for part in parts:
        out += [part] if isinstance(part, str) else list(part)
    return "\n".join(out) + "\n"
