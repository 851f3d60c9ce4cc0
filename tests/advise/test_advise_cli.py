import json

import mutations
import pytest
from click.testing import CliRunner
from profiles_kit import PROFILES, SETS

from lightloom.cli.main import cli
from lightloom.core.advice import Advice, Comparison, Stop
from lightloom.core.errors import InputError
from lightloom.core.files import decode_json


def run(*args: object) -> str:
    result = CliRunner().invoke(cli, ["--lang", "en", "advise", *map(str, args)],
                                catch_exceptions=False)  # fmt: skip
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", SETS)
def test_every_shipped_set_gets_a_verdict(name, tmp_path):
    text = run(PROFILES / name, "--html", tmp_path / "r.html")
    assert "verdict:" in text
    assert "alone would say" in text
    html = (tmp_path / "r.html").read_text()
    assert html.count("<svg") >= 2
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in html
    assert 'id="rank0"' in html


def test_json_is_the_noun():
    advice = decode_json(run(PROFILES / "kineto_dlrm_8rank", "--json").encode(), Advice, "stdout")
    assert advice.sync.late_rank == 7
    assert advice.verdict.naive_share == pytest.approx(0.376, abs=0.001)


def test_what_if_and_steps_options():
    text = run(PROFILES / "kineto_hta_2of128", "--what-if", "bandwidth=8x,skew=0+host=0", "--steps",
               "552")  # fmt: skip
    assert "bandwidth=8x" in text
    assert "skew=0+host=0" in text
    assert "1 of 2 steps kept (552), dropped 551" in text


def test_timeline_option_writes_what_advise_reads(tmp_path):
    run(PROFILES / "kineto_dlrm_8rank", "--timeline", tmp_path / "t.json.gz")
    assert "8 ranks" in run(tmp_path / "t.json.gz")


def test_compare():
    a, b = PROFILES / "kineto_mi300_resnet_ac", PROFILES / "ascend_text_2rank"
    assert "B is slower" in run("compare", a, b)
    noun = decode_json(run("compare", a, b, "--json").encode(), Comparison, "stdout")
    assert noun.b_step_s > noun.a_step_s


def test_logs_alone_and_beside_profiles(tmp_path):
    (tmp_path / "job.log").write_text(mutations.LOG)
    assert "stopped first" in run(tmp_path / "job.log")
    stop = decode_json(run(tmp_path / "job.log", "--json").encode(), Stop, "stdout")
    assert stop.ranks == (0, 1)
    both = json.loads(run(tmp_path / "job.log", PROFILES / "kineto_dlrm_8rank", "--json"))
    assert both["stop"]["ranks"] == [0, 1]


def test_help_names_every_option_and_verb():
    text = run("--help")
    for word in ("--against", "--what-if", "--steps", "--html", "--timeline", "--json", "compare"):
        assert word in text


@pytest.mark.parametrize("args", [["--what-if", "x"], ["--steps", "a"], ["--against", "dgx-h100"]])
def test_bad_options_are_answers(args):
    with pytest.raises(InputError):
        run(PROFILES / "kineto_dlrm_8rank", *args)


def test_narrow_screens_and_chinese_do_not_break(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(
        cli, ["--lang", "zh", "advise", str(PROFILES / "kineto_dlrm_8rank")], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
