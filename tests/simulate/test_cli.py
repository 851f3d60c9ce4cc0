"""``lightloom simulate`` and ``lightloom replan`` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lightloom.cli.main import cli, main
from lightloom.core.files import write_json
from lightloom.core.plan import Plan


@pytest.fixture
def folder(dense: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_json(tmp_path / "plan.json", dense)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(*words: str) -> str:
    result = CliRunner().invoke(cli, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_screen_answers_what_why_and_what_next(folder: Path) -> None:
    text = said("simulate", "plan.json", "--jitter", "measured")
    for word in ("step", "estimate", "p95", "compute", "bubble", "rank 48", "memory", "next"):
        assert word in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_json_has_the_nouns_fields(folder: Path) -> None:
    data = json.loads(said("simulate", "plan.json", "--json", "--fault", "card:17=1.2x"))
    assert data["kind"] == "step"
    assert data["step_s"] > 0
    assert data["faults"]
    assert {"compute", "bubble"} <= data["parts"].keys()


def test_files_are_written_and_replan_reads_them(folder: Path) -> None:
    said("simulate", "plan.json", "--trace", "t.json.gz", "--timeline", "tl.json.gz", "--csv",
         "s.csv", "--plot", "p.svg", "--ranks", "0,16,32,48")  # fmt: skip
    assert all((folder / name).stat().st_size > 500
               for name in ("t.json.gz", "tl.json.gz", "s.csv", "p.svg"))  # fmt: skip
    text = said("replan", "plan.json", "--from", "tl.json.gz", "-o", "better.json")
    assert "measured step" in text
    data = json.loads(said("replan", "plan.json", "--from", "tl.json.gz", "--json"))
    assert data["kind"] == "replan"
    assert (folder / "better.json").exists() != data["keep"]


def test_sweeps_print_a_table_and_a_picture(folder: Path) -> None:
    text = said("simulate", "plan.json", "--sweep", "schedule", "--plot", "s.svg")
    assert "dualpipe-v" in text
    assert "best" in text
    assert (folder / "s.svg").read_text().startswith("<svg")
    data = json.loads(said("simulate", "plan.json", "--sweep", "priorities", "--json"))
    assert len(data["rows"]) == 5


@pytest.mark.parametrize(
    "words",
    [
        ("--schedule", "1f2b"), ("--fault", "card:3"), ("--fault", "cart:3=1.2x"),
        ("--imbalance", "x"), ("--ranks", "99"), ("--ranks", "a"), ("--sweep", "foo"),
        ("--priorities", "expert=top"), ("--jitter", "much"), ("--chunk", "4 parsec"),
        ("--jitter", "pareto:nan:3"), ("--jitter", "pareto:1e-3:inf"), ("--imbalance", "zipf:0.5"),
        ("--fault", "card:3=nanx"), ("--fault", "card:3=0.5x"), ("--fault", "card:3=-1x"),
    ],
)  # fmt: skip
def test_bad_words_are_answered(
    folder: Path, words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["simulate", "plan.json", *words])
    assert caught.value.code == 3
    assert len(capsys.readouterr().err.strip().splitlines()) >= 1


@pytest.mark.parametrize("text", ["", "{}", "[]", "\x00\xff", '{"kind": "plan"}'])
def test_bad_plans_are_answered(folder: Path, text: str) -> None:
    (folder / "bad.json").write_text(text)
    for words in (["simulate", "bad.json"], ["replan", "bad.json", "--from", "plan.json"],
                  ["replan", "plan.json", "--from", "bad.json"]):  # fmt: skip
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 3


@pytest.mark.parametrize(
    "words",
    ["simulate plan.json --seed -1", "simulate plan.json --chunk 0",
     "simulate plan.json --priorities expert=highest --share fair",
     "simulate plan.json --sweep schedule --trace t.json", "replan plan.json --from x --top 0",
     "replan plan.json --from x --steps -1", "replan plan.json --from x --steps nan"],
)  # fmt: skip
def test_options_that_mean_nothing_are_refused(folder: Path, words: str) -> None:
    result = CliRunner().invoke(cli, words.split())
    assert result.exit_code == 2
    assert "Error" in result.output
    assert not (folder / "t.json").exists()


def test_a_sweep_over_micro_batches_names_each_once(folder: Path) -> None:
    data = json.loads(said("simulate", "plan.json", "--sweep", "micro-batches", "--json"))
    names = [row["setting"] for row in data["rows"]]
    assert len(set(names)) == len(names)
