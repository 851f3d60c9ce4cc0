"""Scores: what a summary counts, folds that are whole, intervals, the commands."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from lightloom.cli.main import cli
from lightloom.core.errors import InputError
from lightloom.cost.calibration import default_calibration, read_calibration
from lightloom.cost.calibration_file import calibration_toml
from lightloom.cost.calibration_fit import fit
from lightloom.cost.calibration_step import fit_scale, step_table
from lightloom.cost.comm_fit import curve_seconds
from lightloom.cost.evidence import Scored, summary_of
from lightloom.cost.evidence_live import spearman
from lightloom.cost.evidence_pack import shipped_curves
from lightloom.cost.evidence_rows import SHIPPED, Row, shipped_rows
from lightloom.cost.evidence_steps import folds_of, score_out_of_fold
from lightloom.cost.interval import fit_spread, interval_of, width_keys


def core(step: int = 1) -> list[Row]:
    return [r for r in shipped_rows() if r.core][::step]


def scored(measured: float | None, predicted: float | None, why: str = "") -> Scored:
    p = predicted
    return Scored(
        id="x", measured=measured, predicted=p, low=p * 0.9 if p else None,
        high=p * 1.1 if p else None, unit="s", extrapolated=False, assumptions=(),
        refused_why=why,
    )  # fmt: skip


def test_a_refusal_counts_as_all_wrong_and_a_blank_counts_nothing() -> None:
    rows = (scored(1.0, 1.05), scored(1.0, 1.30), scored(1.0, None, "no"), scored(None, 3.0))
    s = summary_of(rows)
    assert (s.rows, s.refused, s.unmeasured) == (4, 1, 1)
    assert s.median_abs_error == pytest.approx(0.30)
    assert s.mape == pytest.approx((0.05 + 0.30 + 1.0) / 3)
    assert s.coverage == pytest.approx(0.5)
    assert s.median_half_width == pytest.approx(0.1)


def test_folds_keep_groups_whole_and_use_every_number() -> None:
    keys = [f"g{i // 3}" for i in range(60)]
    folds = folds_of(keys, 4)
    assert {int(f) for f in folds} == {0, 1, 2, 3}
    for name in set(keys):
        assert len({int(f) for f, k in zip(folds, keys, strict=True) if k == name}) == 1
    assert len(set(folds_of(keys, 0).tolist())) == 20


def test_the_optimiser_finds_a_robust_minimum() -> None:
    x = np.linspace(0, 4, 60)
    y = np.log(2.0 * np.exp(0.5 * x))
    y[::10] += 3.0
    best = fit(lambda v: v[0] + v[1] * x - y, np.zeros(2), np.full(2, 1e-6), 0.05)
    np.testing.assert_allclose(best, [np.log(2.0), 0.5], atol=0.02)


def test_step_error_out_of_fold_stays_where_it_was_measured() -> None:
    """Every fourth core row: looser than benchmarks/accuracy.md, which uses all of them."""
    rows = core(4)
    report = score_out_of_fold(rows, default_calibration(), folds_of([r.fold for r in rows], 5),
                               "prefix")  # fmt: skip
    s = report.summary
    assert s.rows == len(rows) and s.refused == 0
    assert s.median_abs_error is not None and s.median_abs_error < 0.09
    assert s.p90_abs_error is not None and s.p90_abs_error < 0.27
    assert s.coverage is not None and 0.80 <= s.coverage <= 0.98


def test_factors_are_found_again() -> None:
    rows = core(8)
    table = step_table(rows, default_calibration())
    scale = fit_scale(table)
    assert 0.7 < scale["soft"]["*"] < 1.6
    assert fit_scale(table) == scale
    assert all(np.isfinite(v) and v > 0 for part in scale.values() for v in part.values())


def test_spread_is_wider_for_what_varies_more() -> None:
    rng = np.random.default_rng(0)
    keys = [("calm",)] * 200 + [("wild",)] * 200
    residual = np.concatenate([rng.normal(0, 0.05, 200), rng.normal(0, 0.3, 200)])
    spread = fit_spread(keys, residual)
    assert spread["wild"] > 2.5 * spread["calm"]


def test_outside_the_evidence_the_interval_is_wider() -> None:
    row = next(r for r in core() if r.job and r.job.cards == 64)
    assert row.job is not None
    cal = default_calibration()
    near, far = (interval_of(cal, row.job, "bf16", out) for out in (False, True))
    assert far[0] < near[0] < 0.0 < near[1] < far[1]
    assert "dense" in width_keys(row.job, "bf16") or row.job.model.is_moe


def test_calibration_survives_its_file(tmp_path: Path) -> None:
    cal = default_calibration()
    path = tmp_path / "c.toml"
    path.write_text(calibration_toml(cal))
    back = read_calibration(path)
    assert back.scale.keys() == cal.scale.keys()
    assert back.kernels.gemm.share == pytest.approx(cal.kernels.gemm.share, rel=1e-4)
    path.write_text("version = 1\nnonsense = 3\n")
    with pytest.raises(InputError, match="nonsense"):
        read_calibration(path)


def test_collectives_follow_measured_curves() -> None:
    rows = shipped_curves()
    large = rows.take(rows.large)
    errors = np.abs(curve_seconds(large, default_calibration().comm) / large.seconds_N - 1.0)
    assert np.median(errors) < 0.08


def test_rank_correlation() -> None:
    assert spearman(np.array([1.0, 2, 3]), np.array([10.0, 20, 30])) == pytest.approx(1.0)
    assert spearman(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])) == pytest.approx(-1.0)


def some_rows(path: Path, count: int = 6) -> Path:
    with gzip.open(SHIPPED / "training.csv.gz", "rt", encoding="utf-8") as stream:
        rows = [r for r in csv.DictReader(stream) if r["validation_set"] == "core"][::90][:count]
    rows[0]["num_accel"] = ""
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_rows_of_a_file_are_scored_with_every_field(tmp_path: Path) -> None:
    path = some_rows(tmp_path / "rows.csv")
    result = CliRunner().invoke(cli, ["evidence", "--rows", str(path), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    first, second = report["rows"][0], report["rows"][1]
    assert first["predicted"] is None and "cards" in first["refused_why"]
    assert second["low"] < second["predicted"] < second["high"]
    assert second["unit"] == "s" and isinstance(second["assumptions"], list)
    assert set(report["summary"]) >= {
        "rows", "refused", "median_abs_error", "p90_abs_error", "mape", "coverage",
        "median_half_width",
    }  # fmt: skip
    assert report["summary"]["refused"] == 1
    shown = CliRunner().invoke(cli, ["evidence", "--rows", str(path)])
    assert "refused 1" in shown.output


def test_kernels_and_curves_of_files_are_scored(tmp_path: Path) -> None:
    (tmp_path / "gemm.csv").write_text(
        "system,dtype,m,n,k,best_ms\nh200_sxm,bfloat16,4096,4096,4096,0.2\n"
        "abacus,bfloat16,1,1,1,1\nh100_sxm,fp8,8192,8192,8192,0.9\n"
    )
    result = CliRunner().invoke(cli, ["evidence", "--kernels", str(tmp_path), "--json"])
    report = json.loads(result.stdout)
    assert report["summary"]["rows"] == 3 and report["summary"]["refused"] == 1
    assert 0.1e-3 < report["rows"][0]["predicted"] < 0.4e-3
    curves = tmp_path / "curves.csv"
    curves.write_text("system,library,collective,nccl_dtype,num_gpus,bytes,latency_us\n"
                      "h200_sxm,nccl,all_reduce,half,8,536870912,2100\n")  # fmt: skip
    result = CliRunner().invoke(cli, ["evidence", "--collectives", str(curves), "--json"])
    assert json.loads(result.stdout)["summary"]["median_abs_error"] < 0.2


def test_bad_requests_are_answered(tmp_path: Path) -> None:
    from lightloom.cli.main import main

    for args in (["--kernels", str(tmp_path / "no")], ["--rows", str(tmp_path / "no.csv")],
                 ["--rows", "a", "--memory", "b"], ["--kernels", str(tmp_path)]):  # fmt: skip
        with pytest.raises(SystemExit) as stopped:
            main(["evidence", *args])
        assert stopped.value.code == 3


def test_own_runs_make_a_calibration(tmp_path: Path) -> None:
    path = some_rows(tmp_path / "mine.csv", 8)
    out = tmp_path / "mine.toml"
    result = CliRunner().invoke(
        cli, ["calibrate", "--from", str(path), "-o", str(out), "--alone", "--json"]
    )
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["rows"] >= 5 and answer["refused"] == 1
    assert "mine.csv" in read_calibration(out).made_from
