"""``lightloom plan`` and ``explain`` as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from lightloom.core.catalog import load_cluster, load_model
from lightloom.core.placement import Placement
from lightloom.core.plan import Plan, Prediction
from lightloom.core.strategy import Strategy
from lightloom.emit.capability import gaps

COMMON = ["llama-3.1-8b", "--cluster", "dgx-h100", "--cards", "64", "--global-batch", "256"]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "100", "LANG": "C.UTF-8"}
    return subprocess.run([sys.executable, "-m", "lightloom", *words], capture_output=True,
                          text=True, check=False, env=env)  # fmt: skip


def test_table_file_report_and_picture(tmp_path: Path) -> None:
    plan, page, picture = (str(tmp_path / n) for n in ("plan.json", "plan.html", "plan.svg"))
    done = run("plan", *COMMON, "--top", "4", "--pick", "2", "-o", plan, "--html", page,
               "--plot", picture, "--compare", "dgx-a100", "--sweep", "cards=32,64")  # fmt: skip
    assert done.returncode == 0, done.stderr
    for word in ("searched", "wall", "check", "trust", "factor", "efficiency"):
        assert word in done.stdout, word
    written = msgspec.json.decode(Path(plan).read_bytes(), type=Plan)
    assert written.searched > 0
    html = Path(page).read_text()
    assert html.count("<svg") >= 3
    assert "where memory goes" in html
    assert Path(picture).read_text().lstrip().startswith("<?xml")
    told = run("explain", plan)
    assert "neighbours" in told.stdout
    assert "flip" in told.stdout


def test_json_has_every_field() -> None:
    done = run("plan", *COMMON, "--json", "--compare", "dgx-a100", "--sweep", "cards=32,64")
    data = json.loads(done.stdout)
    assert data["priced"] <= data["counted"]
    assert data["plans"][0]["rank"] == 1
    assert {"speedup", "factors"} <= set(data["compare"])
    assert len(data["sweep"]["points"]) == 2


def test_errors_by_kind(tmp_path: Path) -> None:
    out = str(tmp_path / "x.json")
    assert run("plan", "llama-3.1-8b").returncode == 3
    assert run("plan", "lama-3.1-8b", "--cluster", "dgx-h100").returncode == 3
    assert run("plan", "llama-3.1-405b", "--cluster", "dgx-h100", "--cards", "8",
               "-o", out).returncode == 4  # fmt: skip
    assert run("plan", *COMMON, "--fix", "tp=7").returncode == 4
    assert run("plan", *COMMON, "--deadline", "30d").returncode == 3
    assert run("plan", *COMMON, "--top", "2", "--pick", "5").returncode == 3
    assert run("plan", *COMMON, "--plot", str(tmp_path / "a.gif")).returncode == 3
    assert not Path(out).exists()
    for more in (
        ["--budget", "-5MUSD"],
        ["--budget", "5MUSD", "--price", "0"],
        ["--tokens", "-1T"],
        ["--memory-limit", "-1GiB"],
        ["--workload", "context=1"],
    ):
        wrong = run("plan", *COMMON, *more)
        assert wrong.returncode == 3, more
        assert more[-2] in wrong.stderr or more[0] in wrong.stderr


@pytest.mark.parametrize("framework", ["deepspeed", "fsdp", "torchtitan", "megatron"])
def test_what_is_planned_for_a_framework_can_be_emitted_for_it(framework: str) -> None:
    words = ("llama-3.1-8b", "--cluster", "dgx-h100", "--cards", "64", "--framework", framework)
    made = json.loads(run("plan", *words, "--top", "6", "--json").stdout)["plans"]
    machine, model = load_cluster("dgx-h100"), load_model("llama-3.1-8b")
    for one in made:
        strategy = msgspec.convert(one["strategy"], Strategy)
        plan = Plan(
            model=model, cluster=machine, strategy=strategy, cards=64, placement=Placement(),
            prediction=msgspec.convert(one["prediction"], Prediction), made_by="test",
        )  # fmt: skip
        assert not gaps(plan, framework), strategy


def test_cards_of_other_work_are_those_of_the_machine() -> None:
    for cards in ("0", "99999999"):
        assert run("plan", "--task", "hpc", "--cluster", "dgx-h100", "--cards", cards
                   ).returncode == 3  # fmt: skip


def test_a_batch_that_is_not_said_is_a_round_number() -> None:
    done = run("plan", "llama-3.1-8b", "--cluster", "dgx-h100", "--cards", "64", "--top", "1",
               "--json")  # fmt: skip
    assert json.loads(done.stdout)["plans"][0]["strategy"]["global_batch"] == 512


def test_bounds_and_inverse_questions() -> None:
    serve = run("plan", "llama-3.1-70b", "--cluster", "dgx-h100", "--cards", "64", "--task",
                "serve", "--workload", "context=32k,concurrency=64")  # fmt: skip
    assert "bounds, not predictions" in serve.stdout
    late = run("plan", *COMMON, "--deadline", "60d", "--tokens", "1T", "--json")
    assert json.loads(late.stdout)["cards"] <= 64
    money = run("plan", *COMMON, "--budget", "100kUSD", "--json")
    assert json.loads(money.stdout)[0]["cost"] <= 1e5
