"""The commands as a user types them: screens, JSON, pictures, answers to mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lightloom.cli.main import cli
from lightloom.core.catalog import names
from lightloom.core.errors import LightloomError


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, list(args))


@pytest.mark.parametrize("cluster", names("clusters"))
def test_every_cluster(cluster: str) -> None:
    shown = run("fabric", "show", cluster, "--json")
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.output)["cards"] > 0
    if cluster != "tpu-v5p":
        found = run(
            "collective",
            "all-reduce",
            "--cluster",
            cluster,
            "--json",
            "--bytes",
            "64MiB",
            "--algorithm",
            "hierarchical",
        )
        assert found.exit_code == 0, found.output
        answer = json.loads(found.output)
        assert answer["seconds"] >= answer["bound_s"] > 0
    assert run("fabric", "audit", cluster).exit_code in (0, 1)


def test_screens() -> None:
    assert "410 active 200G cables" in run("fabric", "show", "supernode-8192").output
    hops = run("fabric", "hops", "supernode-8192").output
    assert "worst pair: c0 - c7, 4 links" in hops
    assert "board0" in run("fabric", "cut", "supernode-8192").output
    assert "card0:0" in run("fabric", "cables", "supernode-8192", "--limit", "3").output
    audit = run("fabric", "audit", "articles")
    assert audit.exit_code == 1
    assert "12 impossible" in audit.output


def test_cables_to_a_file(tmp_path: Path) -> None:
    out = tmp_path / "cables.csv"
    assert run("fabric", "cables", "atlas-900-a3", "--out", str(out)).exit_code == 0
    lines = out.read_text().splitlines()
    assert lines[0].startswith("level,end_a,port_a,end_b")
    assert len(lines) == 1 + 336


def test_sweep_picture_and_json(tmp_path: Path) -> None:
    picture = tmp_path / "sweep.svg"
    found = run(
        "collective", "all-gather", "--cluster", "dgx-h100", "--cards", "64", "--sweep",
        "64KiB:1MiB", "--plot", str(picture), "--json",
    )  # fmt: skip
    assert found.exit_code == 0, found.output
    assert [r["bytes"] for r in json.loads(found.output)] == [2.0**k for k in range(16, 21)]
    assert picture.read_text().startswith("<?xml")


def test_faults_and_background_on_the_command_line() -> None:
    base = ("collective", "all-reduce", "--cluster", "dgx-h100", "--cards", "64", "--json")
    healthy = json.loads(run(*base).output)["seconds"]
    hurt = json.loads(run(*base, "--fail", "link:c3-rail", "--fail", "card:9").output)["seconds"]
    busy = json.loads(run(*base, "--background", "shuffle:0-63").output)["seconds"]
    mixed = json.loads(run(*base, "--placement", "random").output)["seconds"]
    assert hurt > healthy and busy > healthy and mixed > healthy


def test_a_users_fabric(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'base = "dgx-h100"\nname = "mine"\ntitle = "mine"\n[fabric]\ndomain = "rack"\n'
        '[[fabric.levels]]\nname = "rack"\nkind = "full-mesh"\nshape = [8, 8]\n'
        'link = "50 GB/s"\nlatency = "0.4 us"\ntier = "ub"\n'
    )
    shown = run("fabric", "show", str(file))
    assert shown.exit_code == 0, shown.output
    assert "8 x 8" in shown.output


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ("fabric show nosuch", 3, "no cluster"),
        ("fabric hops dgx-h100 --fail link:c0-c99999", 5, "cards are"),
        ("fabric hops supernode-8192 --fail link:c0-c9", 5, "nearest: card0-card1"),
        ("collective all-reduce --cluster dgx-h100 --cards 100", 3, "nearest: 96, 104"),
        ("collective all-reduce --cluster dgx-h100 --bytes 0", 3, "at least one byte"),
        ("collective all-reduce --cluster dgx-h100 --bytes -5", 3, "at least one byte"),
        ("collective all-reduce --cluster dgx-h100 --group eight", 3, "SIZE"),
        ("collective all-reduce --cluster dgx-h100 --sweep 1MiB", 3, "LOW:HIGH"),
        ("collective all-reduce --cluster dgx-h100 --sweep 2MiB:1MiB", 3, "grow"),
        ("collective all-reduce", 3, "no machine"),
        ("collective all-to-all --cluster atlas-950 --fail link:c3-cabinet", 5, "cut off: card3"),
        ("collective all-reduce --cluster dgx-h100 --plot x.gif", 3, ".png"),
    ],
)
def test_mistakes_are_answered(args: str, code: int, says: str) -> None:
    result = run(*args.split())
    assert isinstance(result.exception, LightloomError), result.output
    assert result.exception.exit_code == code
    assert says in str(result.exception)
