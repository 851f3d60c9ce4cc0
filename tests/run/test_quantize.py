"""Low precision on real models: statistics, scales, errors, and what is not claimed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the run extra is not installed")

from lightloom.core.errors import InputError  # noqa: E402
from lightloom.run import quantize as q  # noqa: E402
from lightloom.run.quantize_model import gpt_subject, user_subject  # noqa: E402

pytestmark = pytest.mark.torch
FACTORY = """
import torch
def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
def loss(model, batch):
    y = model(batch)
    return float((y ** 2).mean()), y.argmax(dim=-1)
"""


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    layers = (torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 16))
    return torch.nn.Sequential(*layers)


def batches(count: int, scale: float = 1.0) -> list[torch.Tensor]:
    torch.manual_seed(2)
    return [scale * torch.randn(32, 64) for _ in range(count)]


def test_statistics_are_those_of_the_data() -> None:
    data = batches(8)
    stats = q.calibrate(model(), data).layers["0"].stats("0", model()[0])
    flat = torch.cat(data)
    assert stats.absmax == pytest.approx(float(flat.abs().max()))
    assert stats.std == pytest.approx(float(flat.std()), rel=1e-3)
    exact = float(flat.abs().reshape(-1).quantile(0.999))
    assert stats.p999 == pytest.approx(exact, rel=0.02)
    assert stats.samples == 256


@pytest.mark.parametrize("scheme", ["fp8", "int8"])
def test_rounding_is_idempotent_and_bounded(scheme: str) -> None:
    x = torch.randn(1000)
    scale = float(x.abs().max()) / q.LIMITS[scheme]
    once = q.rounded(x, scheme, scale)
    assert torch.equal(q.rounded(once, scheme, scale), once)
    step = scale if scheme == "int8" else 32 * scale  # e4m3: 3 bits after the point in 256..448
    assert float((once - x).abs().max()) <= step / 2 * 1.001


def test_more_bits_err_less() -> None:
    good = q.calibrate(model(), batches(8))
    error = {}
    for scheme in ("fp8", "int8", "int4"):
        scales = q.scales_of(good, scheme, 100.0)
        error[scheme] = max(e.output_error for e in
                            q.layer_errors(model(), scheme, scales, batches(9)[-1]))  # fmt: skip
    assert error["int8"] < error["fp8"] < error["int4"] < 0.2


def test_a_bad_calibration_set_clips_and_errs() -> None:
    good, bad = q.calibrate(model(), batches(8)), q.calibrate(model(), batches(4, 0.05))
    result = q.check_scheme(model(), "int8", good, bad, batches(2), None, 100.0)
    assert result.loss is None
    assert result.bad_layer is not None
    by_name = {e.name: e for e in result.layers}
    assert result.bad_layer.clipped > 0.5
    assert result.bad_layer.output_error > 10 * by_name[result.bad_layer.name].output_error


def test_the_model_is_unchanged_afterwards() -> None:
    net, x = model(), batches(1)[0]
    before = net(x)
    scales = q.scales_of(q.calibrate(net, batches(4)), "int8", 100.0)
    with q.Replaced(net, "int8", scales):
        assert not torch.equal(net(x), before)
    assert torch.equal(net(x), before)


def test_one_batch_is_refused() -> None:
    with pytest.raises(InputError, match="representative"):
        q.calibrate(model(), batches(1))
    with pytest.raises(InputError, match="nothing to calibrate"):
        q.calibrate(torch.nn.Sequential(torch.nn.ReLU()), batches(2))
    with pytest.raises(InputError, match="int16"):
        q.parse_schemes("fp8,int16")


def test_user_model_and_what_is_not_claimed(tmp_path: Path) -> None:
    script, data = tmp_path / "net.py", tmp_path / "inputs.npy"
    script.write_text(FACTORY.split("def loss")[0])
    np.save(data, np.random.default_rng(0).normal(size=(8, 16, 64)).astype(np.float32))
    subject = user_subject(f"{script}:build", str(data), None, 4, None)
    assert subject.loss is None
    assert "not measured" in " ".join(subject.notes)
    done = subprocess.run(
        [sys.executable, "-m", "lightloom", "quantize-check", f"{script}:build", "--data",
         str(data), "--json"], capture_output=True, text=True, check=True)  # fmt: skip
    assert all(s["loss"] is None for s in json.loads(done.stdout)["schemes"])


def test_wrong_inputs_are_answered(tmp_path: Path) -> None:
    script, data = tmp_path / "net.py", tmp_path / "inputs.npy"
    script.write_text(FACTORY)
    data.write_bytes(b"not numpy")
    for spec, file in ((f"{script}:nothing", str(data)), (f"{script}:build", str(data)),
                       ("absent.py:build", None), (f"{script}:build", None)):  # fmt: skip
        with pytest.raises(InputError):
            user_subject(spec, file, None, 4, None)


def test_the_shipped_gpt_on_held_out_text() -> None:
    subject = gpt_subject(None, None, 4, 20, 0, None)
    good = q.calibrate(subject.model, subject.calibration)
    assert subject.bad is not None
    bad = q.calibrate(subject.model, subject.bad)
    result = q.check_scheme(subject.model, "int8", good, bad, subject.held[:2], subject.loss, 100.0)
    assert result.loss is not None
    assert abs(result.loss_change or 0.0) < 0.02
    assert (result.agreement or 0.0) > 0.9
