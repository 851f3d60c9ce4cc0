"""The command line of run, drill and snapshots: answers to good and bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from test_snapshot import save

from lightloom.core.runs import RunReport
from lightloom.run import preflight, spec, starting, wire

pytestmark = pytest.mark.torch


def lightloom(
    *args: str, code: int = 0, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "lightloom", *args], capture_output=True, text=True, cwd=cwd,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_json_of_a_run_is_the_noun_and_nothing_else(tmp_path: Path) -> None:
    done = lightloom(
        "run", "--example", "gpt", "--steps", "6", "--ranks", "2", "--agents", "1", "--json",
        "--name", "j", "--drill", "rank:1@step3", "--", "--width", "32", "--layers", "1",
        "--heads", "2", "--context", "16", "--batch", "2", cwd=tmp_path,
    )  # fmt: skip
    found = msgspec.json.decode(done.stdout, type=RunReport)
    assert (found.state, found.steps, found.lost_steps, found.world) == ("done", 6, 0, 1)
    assert found.recovery_s is not None and 0 < found.recovery_s < 60
    assert len(found.losses) == 6 and Path(found.telemetry).exists()
    assert "epoch 2 (rank 1 lost)" in done.stderr
    assert json.loads(lightloom("run", "list", "--json").stdout)[0]["name"] == "j"
    assert "6 of 6" in lightloom("run", "status", "j").stdout
    assert "loss" in lightloom("run", "logs", "j").stdout
    assert "every byte right" in lightloom("snapshots", "verify", "j").stdout
    assert "not running" in lightloom("run", "stop", "j", code=6).stderr


@pytest.mark.parametrize(("args", "code", "words"), [
    (("run",), 3, "nothing to run"),
    (("run", "--", "absent.py"), 3, "does not exist"),
    (("run", "--example", "gpt", "--drill", "rank:9@step4"), 3, "rank 9 is not one of 0 to 2"),
    (("run", "--example", "gpt", "--drill", "link:1@step4"), 3, "no link"),
    (("run", "--example", "gpt", "--drill", "hang:rank:1@step4=sleep"), 3, "=stop, =loop"),
    (("run", "--example", "gpt", "--ranks", "2", "--agents", "3"), 3, "an agent needs a rank"),
    (("run", "--example", "gpt", "--fabric", "hccl"), 6, "/dev/davinci0 is absent"),
    (("run", "--example", "gpt", "--fabric", "gloo", "--deterministic"), 3, "fixed order"),
    (("run", "status", "nothing"), 3, "no run 'nothing'"),
    (("run", "resume", "nothing"), 3, "lightloom run list"),
    (("drill", "example:gpt"), 3, "--fault or --random"),
    (("drill", "example:bert", "--fault", "rank:0@step3"), 3, "example:gpt"),
    (("snapshots", "verify", "nothing"), 3, "no run"),
])  # fmt: skip
def test_bad_input_is_answered(args: tuple[str, ...], code: int, words: str) -> None:
    assert words in lightloom(*args, code=code).stderr


def test_snapshots_are_listed_verified_and_exported(tmp_path: Path) -> None:
    good = save(tmp_path / "snapshots", 4, 1.0)
    bad = save(tmp_path / "snapshots", 8, 2.0)
    data = bytearray((bad / "state.bin").read_bytes())
    data[-100] ^= 4
    (bad / "state.bin").write_bytes(data)
    rows = json.loads(lightloom("snapshots", "list", str(tmp_path), "--json").stdout)
    assert [(r["step"], r["checked"]) for r in rows] == [(4, False), (8, False)]
    out = lightloom("snapshots", "verify", str(tmp_path), code=1).stdout
    assert "damaged" in out and "every byte right" in out
    said = lightloom("snapshots", "export", str(tmp_path), "--to", str(tmp_path / "m.st")).stdout
    assert "2 tensors of step 4" in said, "the newest that verifies"
    lightloom("snapshots", "export", str(bad), "--to", str(tmp_path / "x"), code=3)
    assert good.exists()


def test_a_name_is_taken_once(home: Path) -> None:
    made = spec.create(spec.Spec(name="a", script="x"))
    assert (made / "token").stat().st_mode & 0o077 == 0, "the token is the user's alone"
    with pytest.raises(starting.InputError, match="run a exists"):
        spec.create(spec.Spec(name="a", script="x"))
    assert wire.prove(b"t", b"n") != wire.prove(b"u", b"n")


def test_preflight_looks_at_the_host(home: Path) -> None:
    found = preflight.check(spec.Spec(name="a", script="x", ranks=2), home)
    assert {f.code for f in found} >= {"disk", "memory", "ports", "link", "versions"}
    greedy = preflight.check(spec.Spec(name="a", script="x", ranks=100_000), home)
    assert [f.code for f in greedy if f.severity == "error"] == ["memory"]
