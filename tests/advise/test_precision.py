"""Two runs layer by layer: the planted error is the first named; noise of the type passes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from lightloom.advise.precision import compare, read
from lightloom.cli.main import cli
from lightloom.core.errors import InputError

LAYERS = [f"blocks.{i}.{part}" for i in range(6) for part in ("norm", "qkv", "out", "mlp")]


def write(path: Path, *, eps: float = 0.0, broken: str = "", nan: str = "", drop: str = "",
          dtype: str = "bfloat16") -> str:  # fmt: skip
    """Write a recording; `eps` relative noise, one broken layer, one that is not finite."""
    values, noise = random.Random(1), random.Random(2)
    with path.open("w") as out:
        for step in range(2):
            for layer in LAYERS:
                row = [values.gauss(0, 1) for _ in range(64)]
                row = [v * (1 + eps * noise.gauss(0, 1)) for v in row]
                if layer == broken:
                    row = [v * 1.5 for v in row]
                if layer == nan:
                    row[3] = float("nan")
                if layer != drop:
                    out.write(json.dumps({"step": step, "layer": layer, "phase": "forward",
                                          "shape": [64], "dtype": dtype, "norm": 8.0,
                                          "values": row}) + "\n")  # fmt: skip
            loss = 2.0 - 0.1 * step
            line = {"step": step, "layer": "loss", "phase": "loss", "shape": [], "norm": loss}
            out.write(json.dumps({**line, "dtype": "float32", "values": [loss]}) + "\n")
    return str(path)


def test_rounding_of_the_type_passes(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a"), write(tmp_path / "b", eps=2.0**-9)
    found = compare(read(a), read(b))
    assert found.passes and found.layers == 48 and found.loss_error == 0


@pytest.mark.parametrize("layer", [LAYERS[0], LAYERS[9], LAYERS[-1]])
def test_the_planted_error_is_named(tmp_path: Path, layer: str) -> None:
    a, b = write(tmp_path / "a"), write(tmp_path / "b", eps=2.0**-9, broken=layer)
    found = compare(read(a), read(b))
    assert not found.passes and found.first is not None and found.first.layer == layer


def test_not_a_number_is_said(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a"), write(tmp_path / "b", nan=LAYERS[4])
    found = compare(read(a), read(b))
    assert found.first is not None and "second run" in found.first.why


def test_missing_layers_are_listed(tmp_path: Path) -> None:
    found = compare(read(write(tmp_path / "a")), read(write(tmp_path / "b", drop=LAYERS[2])))
    assert found.only_a == (LAYERS[2],) and found.passes


def test_fp32_is_judged_harder(tmp_path: Path) -> None:
    a, b = (write(tmp_path / n, eps=e, dtype="float32") for n, e in (("a", 0.0), ("b", 2.0**-5)))
    assert not compare(read(a), read(b)).passes


def test_losses_of_reports(tmp_path: Path) -> None:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    a.write_text(json.dumps({"losses": [2.0, 1.9]}))
    b.write_text(json.dumps({"losses": [2.0, 1.5]}))
    found = compare(read(str(a)), read(str(b)))
    assert not found.passes and found.loss_error == pytest.approx(0.4 / 1.9 / 2)


@pytest.mark.parametrize("text", ["", "{}\n", "not json\n", '{"step": 1}\n', "[1, "])
def test_bad_recordings(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad"
    path.write_text(text)
    with pytest.raises(InputError):
        read(str(path))


def test_command_exits_1_outside(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a"), write(tmp_path / "b", broken=LAYERS[1])
    words = ["migrate", "--compare", a, b]
    assert CliRunner().invoke(cli, words).exit_code == 1
    told = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)
    assert told["first"]["layer"] == LAYERS[1]
    assert CliRunner().invoke(cli, [*words[:3], a]).exit_code == 0
    assert isinstance(CliRunner().invoke(cli, [*words, "--tolerance", "0"]).exception, InputError)
