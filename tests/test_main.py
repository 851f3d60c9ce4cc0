"""The door: exit codes by kind, whatever way a verb says them."""

from __future__ import annotations

import click
import pytest

from lightloom.cli import main as door
from lightloom.core.errors import FabricError, InfeasibleError, InputError, RunError


def leave(how: str) -> click.Command:
    @click.command()
    @click.pass_context
    def verb(ctx: click.Context) -> None:
        errors = {"input": InputError, "infeasible": InfeasibleError, "fabric": FabricError,
                  "run": RunError}  # fmt: skip
        if how in errors:
            raise errors[how]("what", out="the way out")
        if how == "interrupt":
            raise KeyboardInterrupt
        ctx.exit(1 if how == "found" else 0)

    return verb


@pytest.mark.parametrize(("how", "code"), [
    ("fine", 0), ("found", 1), ("input", 3), ("infeasible", 4), ("fabric", 5), ("run", 6),
    ("interrupt", 130),
])  # fmt: skip
def test_exit_codes(how: str, code: int, monkeypatch: pytest.MonkeyPatch,
                    capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setattr(door.LazyGroup, "get_command", lambda *_: leave(how))
    monkeypatch.setitem(door.VERBS, "verb", ("", ""))
    if code == 0:
        door.main(["verb"])
        return
    with pytest.raises(SystemExit) as error:
        door.main(["verb"])
    assert error.value.code == code
    if code in (3, 4, 5, 6):
        assert "the way out" in capsys.readouterr().err


def test_a_wrong_verb_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        door.main(["plam"])
    assert error.value.code == 2
    assert "plan" in capsys.readouterr().err


def test_json_is_english_in_every_language(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fit", "llama-3.1-8b", "--now", "dgx-a100", "--candidates", "dgx-h100", "--json"]
    texts = []
    for lang in ("en", "zh"):
        door.main(["--lang", lang, *words])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
