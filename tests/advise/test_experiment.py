"""Experiments: what one variable did, with noise; nothing attributed where two changed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from lightloom.advise import experiments as e
from lightloom.cli.main import cli
from lightloom.core.errors import InfeasibleError, InputError
from lightloom.core.trial import Figure, Trial


def trial(name: str, samples: list[float], env: dict[str, str] | None = None, **config) -> Trial:
    environment = env or {"torch": "2.9.0"}
    return Trial(name=name, study="s", config={k: str(v) for k, v in config.items()},
                 environment=environment, digest=e.digest(environment),
                 figures={"step_s": e.figure_of(samples)})  # fmt: skip


def test_one_variable_is_attributed() -> None:
    a, b = trial("a", [4.2, 4.21, 4.19], tp=8), trial("b", [4.0, 4.01, 3.99], tp=4)
    found = e.attribute([a, b], a, b)
    assert found.variable == "tp" and found.differences[0].real and "better" in found.text


def test_two_variables_are_refused_with_the_way_out() -> None:
    a, b = trial("a", [4.2, 4.3], tp=8, pp=4), trial("b", [4.0, 4.1], tp=4, pp=8)
    with pytest.raises(InfeasibleError, match="2 variables") as caught:
        e.attribute([a, b], a, b)
    assert "only" in caught.value.out
    between = trial("between", [4.1, 4.1], tp=4, pp=4)
    numbered = [a, between, b]
    numbered = [Trial(**{f: getattr(t, f) for f in t.__struct_fields__} | {"id": i})
                for i, t in enumerate(numbered, 1)]  # fmt: skip
    with pytest.raises(InfeasibleError) as caught:
        e.attribute(numbered, numbered[0], numbered[2])
    assert "between" in caught.value.out


def test_the_environment_is_a_variable() -> None:
    a = trial("a", [4.2, 4.3], tp=8)
    b = trial("b", [4.0, 4.1], {"torch": "2.10.0"}, tp=8)
    assert e.attribute([a, b], a, b).variable == "env.torch"
    assert a.digest != b.digest
    c = trial("c", [4.0, 4.1], {"torch": "2.10.0"}, tp=4)
    with pytest.raises(InfeasibleError):
        e.attribute([a, c], a, c)


def test_dp_that_fills_up_is_no_variable() -> None:
    a, b = trial("a", [4.2, 4.3], tp=8, dp=4), trial("b", [4.0, 4.1], tp=4, dp=8)
    assert e.attribute([a, b], a, b).variable == "tp"
    c = trial("c", [4.0, 4.1], tp=4, dp=16)
    with pytest.raises(InfeasibleError):
        e.attribute([a, c], a, c)


def test_noise_is_not_an_effect() -> None:
    wrong, rng = 0, random.Random(7)
    for _ in range(200):
        a, b = ([rng.gauss(4.0, 0.1) for _ in range(5)] for _ in range(2))
        found = e.difference("step_s", e.figure_of(a), e.figure_of(b))
        wrong += bool(found.real)
    assert wrong <= 20, "5 % of false alarms, at most twice that by chance"


def test_a_real_effect_is_found() -> None:
    seen, rng = 0, random.Random(9)
    for _ in range(100):
        a = [rng.gauss(4.0, 0.1) for _ in range(5)]
        b = [rng.gauss(3.6, 0.1) for _ in range(5)]
        found = e.difference("step_s", e.figure_of(a), e.figure_of(b))
        seen += bool(found.real and found.change < 0)
    assert seen >= 95


def test_single_values_have_no_noise() -> None:
    found = e.difference("step_s", Figure(mean=4.0), Figure(mean=2.0))
    assert found.real is None and found.low is None


def test_predicted_and_measured_are_not_mixed() -> None:
    a = trial("a", [4.2, 4.3], tp=8)
    b = Trial(name="b", study="s", config={"tp": "4"}, environment=a.environment, digest=a.digest,
              figures={"step_s": Figure(mean=4.0, source="predicted")})  # fmt: skip
    with pytest.raises(InfeasibleError, match="no figure of one kind"):
        e.attribute([a, b], a, b)


def test_records_are_kept_and_never_changed(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sqlite")
    first = e.record(path, trial("a", [1.0, 1.1], tp=8))
    assert first.id == 1 and e.trials(path, "s")[0].figures == first.figures
    with pytest.raises(InputError, match="already"):
        e.record(path, trial("a", [2.0], tp=8))
    assert len(e.trials(path, "s")) == 1


@pytest.mark.parametrize("text", ["step_s", "step_s=fast", "=1", "step_s=nan", "step_s=1,,2"])
def test_bad_figures(text: str) -> None:
    with pytest.raises(InputError):
        e.parse_figure(text)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"kind": "plan"', b'"x"'])
def test_bad_files(data: bytes) -> None:
    with pytest.raises(InputError):
        e.read_file(data, "f")


def run(db: Path, *words: str):
    return CliRunner().invoke(cli, ["experiment", *words, "--db", str(db)])


def test_command_line_from_record_to_attribution(tmp_path: Path) -> None:
    db = tmp_path / "e.sqlite"
    for name, tp, samples in (("base", 8, "4.21,4.19,4.25"), ("tp4", 4, "4.01,4.03,3.98")):
        done = run(db, "record", "--name", name, "--set", f"tp={tp}", "--figure",
                   f"step_s={samples}", "--env", "driver=25.2")  # fmt: skip
        assert done.exit_code == 0, done.output
    screen = run(db, "table").stdout
    assert "tp 8 -> 4" in screen and "±" in screen
    told = json.loads(run(db, "attribute", "base", "tp4", "--json").stdout)
    assert told["variable"] == "tp" and told["differences"][0]["real"] is True
    assert json.loads(run(db, "table", "--json").stdout)["trials"][0]["environment"]["driver"]


def test_a_plan_is_a_configuration(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    done = CliRunner().invoke(cli, ["estimate", "llama-3.1-8b", "--cluster", "dgx-h100", "--cards",
                                    "8", "--zero", "fsdp", "-o", str(plan)])  # fmt: skip
    assert done.exit_code == 0, done.output
    db = tmp_path / "e.sqlite"
    done = run(db, "record", str(plan), "--name", "p", "--no-host", "--json")
    told = json.loads(done.stdout)
    assert told["config"]["zero"] == "fsdp" and told["figures"]["step_s"]["source"] == "predicted"


def test_bad_input(tmp_path: Path) -> None:
    db = tmp_path / "none.sqlite"
    for words in (("table",), ("attribute", "a", "b"), ("record", "--name", "x")):
        assert isinstance(run(db, *words).exception, InputError)
    text = tmp_path / "text.sqlite"
    text.write_text("not a database at all, only words\n" * 40)
    assert isinstance(run(text, "table").exception, InputError)


def said(folder: Path, *words: str) -> tuple[int, str]:
    found = CliRunner().invoke(cli, ["experiment", *words, "--db", str(folder / "e.sqlite")])
    return found.exit_code, found.output + str(found.exception or "")


def test_a_run_like_another_changes_one_variable(tmp_path: Path) -> None:
    said(tmp_path, "record", "--name", "a", "--set", "tp=8", "--set", "pp=4", "--figure",
         "step_s=4.2,4.3")  # fmt: skip
    code, text = said(tmp_path, "record", "--name", "b", "--like", "a", "--set", "tp=4",
                      "--figure", "step_s=4,4.1", "--json")  # fmt: skip
    assert code == 0 and json.loads(text)["config"] == {"tp": "4", "pp": "4"}
    assert "tp 8 -> 4" in said(tmp_path, "attribute", "a", "b")[1]
    assert "no run 'c'" in said(tmp_path, "record", "--name", "d", "--like", "c")[1]


def test_a_misspelt_variable_is_refused_and_may_be_meant(tmp_path: Path) -> None:
    words = ("record", "--name", "a", "--figure", "step_s=4")
    assert "nearest: tp" in said(tmp_path, *words, "--set", "tpp=8")[1]
    assert said(tmp_path, *words, "--new", "tpp=8")[0] == 0


def test_a_run_between_has_the_values_of_the_other_end() -> None:
    a, b = trial("a", [4.2, 4.3], tp=4, pp=4), trial("b", [4.0, 4.1], tp=8, pp=2)
    other = trial("other", [4.1, 4.1], tp=2, pp=4)
    rows = [Trial(**{f: getattr(t, f) for f in t.__struct_fields__} | {"id": i})
            for i, t in enumerate((a, other, b), 1)]  # fmt: skip
    with pytest.raises(InfeasibleError) as caught:
        e.attribute(rows, rows[0], rows[2])
    assert "other" not in caught.value.out


def test_seconds_are_not_below_zero() -> None:
    with pytest.raises(InputError, match="never below 0"):
        e.parse_figure("step_s=4.2,-1")
