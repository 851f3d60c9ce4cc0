"""``lightloom topo``, ``wavelengths`` and ``light`` as a user types them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from lightloom.cli.main import main

JOB = ("--cluster", "supernode-8192", "--tp", "8", "--pp", "8", "--dp", "128", "--ep", "64")


class Run:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *args: str) -> tuple[int, str, str]:
        try:
            main(list(args))
            code = 0
        except SystemExit as error:
            code = int(error.code or 0)
        out = self.capsys.readouterr()
        return code, out.out, out.err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


def test_topo_from_generation_to_difference(run: Run, tmp_path: Path) -> None:
    a, b = str(tmp_path / "a.topo"), str(tmp_path / "b.topo")
    code, out, err = run("topo", "gen", *JOB, "-o", a)
    assert code == 0 and "C+L" in out and a in err
    assert run("topo", "gen", *JOB, "--no-ring-path", "-o", b)[0] == 0
    code, out, _ = run("topo", "check", a, "--cluster", "supernode-8192")
    assert code == 0 and "one owner" in out
    rows = json.loads(run("topo", "diff", a, b, "--json")[1])
    assert sum(r["removed"] for r in rows) > 0 and rows[0]["level"] == "module"
    cards = json.loads(run("topo", "card", a, "--number", "9", "--json")[1])
    assert {r["level"] for r in cards} == {"module", "board", "spine"}
    assert run("topo", "card", a, "--number", "8192")[0] == 3


def test_topo_check_exits_1_and_names_the_owners(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.topo"
    run("topo", "gen", *JOB, "-o", str(path))
    data = json.loads(path.read_text())
    first = next(c for c in data["circuits"] if c["level"] == "spine")
    data["circuits"].append(first | {"axis": "tp", "cls": "tensor", "count": 1})
    path.write_text(json.dumps(data))
    code, out, _ = run("topo", "check", str(path), "--json")
    found = json.loads(out)
    assert code == 1 and found[0]["code"] == "conflict"
    assert "tensor" in found[0]["what"] and first["cls"] in found[0]["what"]


def test_topo_reads_a_plan_and_draws_its_heat(run: Run, tmp_path: Path) -> None:
    plan, topo, svg = (str(tmp_path / n) for n in ("plan.json", "p.topo", "h.svg"))
    shape = ("--tp", "8", "--pp", "8", "--ep", "64", "--cards", "8192", "--seq", "4096")
    code, _, err = run("estimate", "deepseek-v3", "--cluster", "supernode-8192", *shape,
                       "--global-batch", "8192", "-o", plan)  # fmt: skip
    assert code == 0, err
    assert run("topo", "gen", plan, "-o", topo)[0] == 0
    assert run("topo", "check", topo, "--plan", plan)[0] == 0
    code, out, _ = run("topo", "heat", plan, "--plot", svg)
    assert code == 0 and "expert" in out and "GiB" in out
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    Path(plan).write_bytes(Path(plan).read_bytes() + b"\n")
    code, out, _ = run("topo", "check", topo, "--plan", plan, "--json")
    assert code == 0 and json.loads(out)[0]["severity"] == "warning"


@pytest.mark.parametrize(
    ("args", "code", "word"),
    [
        (("topo", "gen"), 3, "which job"),
        (("topo", "gen", *JOB, "--bands", "C"), 4, "9.6 THz"),
        (("topo", "gen", "--cluster", "pcie-8", "--tp", "8"), 4, "optical"),
        (("topo", "check", "nowhere.topo"), 3, "does not exist"),
        (("topo", "heat", *JOB, "--plot", "x.png"), 2, "SVG"),
        (("light", "grid", "--bands", "C"), 4, "holds 64"),
        (("light", "grid", "--rate", "200 Gb/s"), 4, "150 GHz"),
        (("light", "age", "--fault", "dirtt=0.5"), 3, "nearest: dirt"),
        (("light", "age", "--fault", "dirt:9=0.5"), 3, "ports are 0-3"),
        (("light", "age", "--fault", "dirt=3"), 3, "at most 1"),
        (("light", "line", "--spacing", "10 GHz"), 3, "wider than baud"),
        (("light", "phase", "--offset", "0 Hz"), 3, "offset"),
        (("light", "budget", "--link", "spin"), 3, "nearest: spine"),
        (("light", "budget", "--link", "spin"), 3, "one of"),
        (("light", "budget", "--loss", "nan"), 2, "not a finite number"),
        (("light", "phase", "--density", "-1"), 3, "below 0"),
        (("wavelengths", "replay", "--setting", "nsfnet"), 3, "nearest"),
        (("wavelengths", "show", "nowhere.json"), 3, "does not exist"),
        (("wavelengths", "compare", "--cluster", "dgx-h100"), 3, "states no channels"),
        (("wavelengths", "compare", "--framing", "0"), 3, "at most 1"),
        (("wavelengths", "compare", "--expert", "-1"), 3, "bytes above 0"),
    ],
)
def test_mistakes_are_answered(run: Run, args: tuple[str, ...], code: int, word: str) -> None:
    got, _, err = run(*args)
    assert (got, word in err) == (code, True), err


def test_channels_from_assignment_to_release(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "c.json")
    ask = ("--from", "0", "--to", "3")
    new = ("wavelengths", "assign", path, "--cluster", "supernode-8192")
    assert run(*new, "--job", "A", "--class", "expert", *ask, "--count", "9")[0] == 0
    code, out, _ = run("wavelengths", "assign", path, "--job", "B", "--class", "gradient", *ask)
    assert code == 0 and "channels 9" in out
    code, _, err = run("wavelengths", "assign", path, "--job", "B", "--class", "gradient", *ask,
                       "--count", "200")  # fmt: skip
    assert code == 5 and "refused (capacity)" in err
    assert run("wavelengths", "assign", path, "--job", "C", "--class", "exprt", *ask)[0] == 3
    facts = json.loads(run("wavelengths", "show", path, "--json")[1])
    assert facts["lightpaths"] == 2 and facts["channels_lit"] == 20
    assert "E expert" in run("wavelengths", "show", path, "--boards", "0")[1]
    assert run("wavelengths", "release", path, "--job", "A")[0] == 0
    out_path = str(tmp_path / "d.json")
    code, out, _ = run("wavelengths", "defrag", path, "--goal", "1", "-o", out_path, "--json")
    report = json.loads(out)
    assert code == 0 and report["paused"] == 0 and report["after"] == 1.0
    assert report["moves"] == 1
    assert json.loads(run("wavelengths", "show", out_path, "--json")[1])["fragmentation"] == 0.0
    assert run("wavelengths", "release", path, "--job", "A")[0] == 3


def test_steps_break_a_cycle_with_a_spare_channel(run: Run, tmp_path: Path) -> None:
    files = []
    for name, channels in (("now", (0, 1)), ("then", (1, 0))):
        lit = [
            {"name": n, "owner": n, "cls": "expert", "links": [0, 3], "channels": [c]}
            for n, c in zip("ab", channels, strict=True)
        ]
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"boards": 2, "fibres": 1, "channels": 4, "lit": lit}))
        files.append(str(path))
    rows = json.loads(run("wavelengths", "steps", *files, "--json")[1])
    assert [r["parked"] for r in rows] == [True, False, False]
    assert "0 lightpaths paused" in run("wavelengths", "steps", *files)[1]
    Path(files[1]).write_text(Path(files[1]).read_text().replace('"a"', '"z"'))
    assert run("wavelengths", "steps", *files)[0] == 3


def test_replay_compares_and_repeats(run: Run) -> None:
    args = ("wavelengths", "replay", "--routes", "5", "--requests", "4000")
    one, two = run(*args)[1], run(*args)[1]
    assert one == two and "reference" in one
    assert "nsfnet-deep" in run("wavelengths", "replay", "--setting", "list")[1]


def test_compare_prints_parts(run: Run) -> None:
    rows = json.loads(run("wavelengths", "compare", "--json")[1])
    assert rows["aware"]["effective"] > 0.92 > 0.65 > rows["hashed"]["effective"]
    assert set(rows["aware"]["parts"]) >= {"framing", "fec", "contention", "skew"}


def test_light_says_what_is_shown_and_what_is_not(run: Run) -> None:
    assert "not verified" in run("light", "proof")[1]
    assert ": verified" in run("light", "proof", "--seconds", "40000")[1]
    assert "does not hold" in run("light", "lock", "--to", "80", "--seconds", "2")[1]
    assert "two quantities" in run("light", "budget")[1]
    assert "link down" in run("light", "budget", "--loss", "15")[1]
    assert json.loads(run("light", "line", "--json")[1])["lightloom"]["total_db"] == pytest.approx(
        21.1, abs=0.1
    )
    assert "3,141.6 kHz" in run("light", "phase")[1]
    parts = json.loads(run("light", "reconfigure", "--json")[1])
    assert parts["ocs-24"]["total"] == pytest.approx(80e-6)


def test_ageing_shows_on_the_port_that_is_dirty(run: Run) -> None:
    rows = json.loads(run("light", "age", "--fault", "dirt:1@20d=0.6", "--json")[1])
    ratio = [row["optical_coupling_ratio"] for row in rows]
    assert ratio[1] < 0.88 < 0.93 < min(ratio[0], ratio[2], ratio[3])
    early = json.loads(
        run("light", "age", "--days", "10", "--fault", "dirt:1@20d=0.6", "--json")[1]
    )
    assert early[1]["optical_coupling_ratio"] > 0.93
    assert "port 3" in run("light", "age")[1]


def test_a_second_opinion_needs_its_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, err = run("light", "line", "--against", "gnpy")
    assert code == 7 and "lightloom[optics]" in err
