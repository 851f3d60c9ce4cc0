"""``lightloom estimate`` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from lightloom.cli.main import main
from lightloom.core.plan import Plan

CLUSTERS = ("supernode-8192", "traditional-8192", "atlas-950", "atlas-960", "atlas-900-a3",
            "atlas-800t-a2", "dgx-a100", "dgx-h100", "hgx-h200", "dgx-b200", "gb200-nvl72",
            "mi300x", "tpu-v5p")  # fmt: skip
MODELS = ("llama-3.1-8b", "llama-3.1-70b", "gpt3-175b", "deepseek-v3", "qwen3-235b-a22b",
          "mixtral-8x7b-v0.1", "gpt-oss-20b", "gemma-3-27b", "kimi-k2-instruct",
          "qwen3-next-80b-a3b")  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    try:
        main(["estimate", *args])
        code = 0
    except SystemExit as error:
        code = int(error.code or 0)
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_thirteen_clusters_answer_for_ten_models(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for model in MODELS:
        code, out, err = run(
            capsys,
            model,
            "--cluster",
            cluster,
            "--zero",
            "3",
            "--recompute",
            "full",
            "--cards",
            "256",
            "--seq",
            "4096",
            "--json",
        )
        assert code in (0, 4), err
        if code == 4:
            assert "does not fit" in err
            continue
        plan = json.loads(out)
        assert plan["prediction"]["step_s"] > 0
        assert plan["details"]["six_n_d"] > 0


def test_the_screen_says_everything(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(
        capsys,
        "llama-3.1-70b",
        "--cluster",
        "dgx-h100",
        "--cards",
        "256",
        "--tp",
        "8",
        "--pp",
        "4",
        "--global-batch",
        "4Mtok",
        "--dp",
        "4",
    )
    assert code == 0, err
    flat = " ".join(out.split())
    for word in (
        "matrix products",
        "tensor parallel",
        "pipeline bubble",
        "optimiser",
        "MFU",
        "HFU",
        "tok/s/card",
        "wall",
        "6ND",
        "goodput",
        "at the site",
        "while loading",
        "trust",
        "128 cards idle",
        "causal attention counted half",
        "sequences x 8,192",
    ):
        assert word in flat, word
    assert max(len(line) for line in out.splitlines()) <= 100


def test_a_plan_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    code, _, err = run(
        capsys,
        "llama-3.1-8b",
        "--cluster",
        "dgx-h100",
        "--cards",
        "8",
        "--tp",
        "2",
        "-o",
        str(path),
    )
    assert code == 0
    assert "lightloom simulate" in err
    plan = msgspec.json.decode(path.read_bytes(), type=Plan)
    assert plan.strategy.tp == 2


def test_what_does_not_fit_says_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(
        capsys,
        "llama-3.1-405b",
        "--cluster",
        "dgx-h100",
        "--cards",
        "128",
        "--zero",
        "fsdp",
        "--recompute",
        "full",
        "--micro-batch",
        "2",
        "--global-batch",
        "512",
    )
    assert code == 4
    assert not out
    assert "needed" in err
    assert "weights" in err
    assert "smallest change that fits: --" in err
    change = err.split("fits: ")[1].split(" (")[0].split()
    again = [
        "llama-3.1-405b",
        "--cluster",
        "dgx-h100",
        "--zero",
        "fsdp",
        "--recompute",
        "full",
        "--global-batch",
        "512",
    ]
    for option, value in (("--cards", "128"), ("--micro-batch", "2")):
        if option not in change:
            again += [option, value]
    assert run(capsys, *again, *change)[0] == 0


@pytest.mark.parametrize(("args", "code", "words"), [
    (["llama-3.1-8b"], 3, "which machine"),
    (["llama-3.1-9b", "--cluster", "dgx-h100"], 3, "nearest"),
    (["llama-3.1-8b", "--cluster", "dgx-h10"], 3, "nearest"),
    (["llama-3.1-8b", "--cluster", "dgx-h100", "--cards", "64", "--global-batch", "100"], 3,
     "64 or 128"),
    (["llama-3.1-8b", "--cluster", "dgx-h100", "--cards", "sixty"], 2, "not a valid integer"),
    (["/nonexistent/config.json", "--cluster", "dgx-h100"], 3, ""),
])  # fmt: skip
def test_bad_input_is_answered(
    args: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    got, _, err = run(capsys, *args)
    assert got == code, err
    assert words in err
    assert "Traceback" not in err
