"""Light: the physics that the articles' figures must obey."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightloom.core.errors import InfeasibleError, InputError
from lightloom.fabric.light import (
    State,
    budget,
    detuning_db,
    drift_hz,
    drift_pm,
    linewidth_hz,
    load_link,
    load_links,
    margin_db,
    phase_rms,
    shaken_coupling,
    shaking_hertz,
)
from lightloom.fabric.light_age import (
    DAY,
    MONTH,
    Fault,
    aged,
    course,
    load_switches,
    readings,
)
from lightloom.fabric.light_error import (
    CODES,
    ber_of_q,
    deliver,
    error_limit,
    extrapolate,
    frame_loss,
    proof_seconds,
    proven,
    q_of_ber,
)
from lightloom.fabric.light_grid import bands_for, check_channel
from lightloom.fabric.light_line import Line, quality
from lightloom.fabric.light_lock import Loop, lock

GOLDEN = Path(__file__).parents[1] / "data" / "light" / "gnpy_line.json"


def test_drift_of_a_degree_and_of_five_picometres() -> None:
    assert drift_hz(1.0) == 10e9
    assert drift_pm(drift_hz(1.0)) == pytest.approx(80.0, rel=0.01)
    assert 5.0 / drift_pm(drift_hz(1.0)) == pytest.approx(0.0624, rel=0.01)


def test_a_proof_of_1e_15_takes_ten_hours_and_a_minute_proves_little() -> None:
    assert proof_seconds(1e-15, 80e9) / 3600 == pytest.approx(10.4, abs=0.01)
    assert proven(0, 80e9 * 60) == pytest.approx(6.24e-13, rel=0.01)
    assert proven(0, 80e9 * proof_seconds(1e-15, 80e9)) == pytest.approx(1e-15, rel=1e-6)


@given(st.integers(0, 200), st.floats(1e6, 1e15))
def test_upper_limit_is_above_the_estimate(errors: int, bits: float) -> None:
    assert proven(errors, bits) > errors / bits


def test_128_channels_of_75_ghz_do_not_fit_one_band() -> None:
    with pytest.raises(InfeasibleError, match=r"9\.6 THz.*holds 64"):
        bands_for(128, 75e9, ("C",))
    assert bands_for(128, 75e9) == ("C", "L")
    assert bands_for(128, 37.5e9) == ("C",)
    assert bands_for(64, 75e9) == ("C",)
    with pytest.raises(InputError, match="no band"):
        bands_for(4, 75e9, ("X",))


def test_a_rate_must_fit_its_slot() -> None:
    assert check_channel(80e9, "pam4", 75e9) == 60e9
    with pytest.raises(InfeasibleError, match=r"needs 60 GHz, the slot is 37\.5 GHz"):
        check_channel(80e9, "pam4", 37.5e9)
    assert check_channel(80e9, "dp-qpsk", 37.5e9) < 37.5e9
    with pytest.raises(InputError, match="no modulation"):
        check_channel(80e9, "pam5", 75e9)


@given(st.floats(1e-14, 1e-2), st.sampled_from([2, 4]))
def test_q_and_errors_are_inverse(ber: float, levels: int) -> None:
    assert ber_of_q(q_of_ber(ber, levels), levels) == pytest.approx(ber, rel=1e-6)


def test_known_q() -> None:
    assert ber_of_q(7.0) == pytest.approx(1.28e-12, rel=0.01)
    assert ber_of_q(6.0) == pytest.approx(9.87e-10, rel=0.01)


def test_fec_thresholds() -> None:
    """IEEE 802.3: RS(544,514) takes 2.4e-4 to about 1e-12 frames, RS(528,514) takes 2.1e-5."""
    assert 1e-13 < frame_loss(2.4e-4, "kp4") < 1e-11
    assert 1e-13 < frame_loss(2.1e-5, "kr4") < 1e-11
    assert error_limit("kp4") == pytest.approx(2.4e-4, rel=0.05)
    assert frame_loss(1e-9, "none") == pytest.approx(5280e-9, rel=0.01)
    assert CODES["kp4"].rate == 514 / 544


@given(st.floats(1e-8, 1e-2), st.floats(1.01, 3.0), st.sampled_from(list(CODES)))
def test_more_errors_never_help(ber: float, more: float, fec: str) -> None:
    good, bad = (deliver(b, fec, 80e9, 3e-7) for b in (ber, min(ber * more, 0.4)))
    assert bad.frame_loss >= good.frame_loss * (1 - 1e-9)
    assert bad.efficiency <= good.efficiency + 1e-12
    assert bad.tail_s >= good.tail_s


def test_retransmission_costs_a_tail_before_it_costs_bandwidth() -> None:
    d = deliver(error_limit("kp4", 1e-4), "kp4", 80e9, 3e-7)
    assert d.efficiency == pytest.approx(514 / 544, rel=2e-4)
    assert d.tail_s > 2e-6 > d.base_s


@pytest.mark.parametrize("name", sorted(load_links()))
def test_new_links_work_and_losses_add_up(name: str) -> None:
    link = load_link(name)
    b = budget(link)
    assert b.received_dbm == pytest.approx(link.laser_dbm - sum(b.losses_db.values()))
    assert sum(b.noise.values()) == pytest.approx(1.0)
    assert margin_db(link) > 3.0
    assert b.delivery.frame_loss < 1e-15


@given(st.floats(0.0, 20.0), st.floats(0.0, 20.0))
def test_more_loss_means_more_errors(one: float, two: float) -> None:
    link = load_link("spine")
    low, high = sorted((one, two))
    assert budget(link, State(extra_db=low)).q >= budget(link, State(extra_db=high)).q


def test_margin_is_where_frames_start_to_go() -> None:
    link = load_link("spine")
    spare = margin_db(link)
    fine, lost = (
        budget(link, State(extra_db=spare + d)).delivery.frame_loss for d in (-0.05, 0.05)
    )
    assert fine < 1e-12 < lost
    assert margin_db(link, State(extra_db=2.0)) == pytest.approx(spare - 2.0, abs=0.01)


def test_coupling_in_db() -> None:
    link = load_link("spine")
    new, old = (budget(link, State(coupling=c)).losses_db["facets"] for c in (1.0, 0.92))
    assert (old - new) / link.facets == pytest.approx(0.36, abs=0.005)
    with pytest.raises(InputError, match="power ratio"):
        budget(link, State(coupling=1.2))


def test_detuning_and_vibration() -> None:
    assert detuning_db(30e9, 60e9) == pytest.approx(3.01, abs=0.01)
    hertz = shaking_hertz(0.15, 0.05, 4.6e-6)
    assert shaken_coupling(0.05, hertz, 4.6e-6) == pytest.approx(0.85)
    assert shaken_coupling(0.05, 12e3, 4.6e-6) == pytest.approx(1.0, abs=1e-6)


def test_phase_noise_needs_its_offset() -> None:
    assert linewidth_hz(0.1, 10e3) == pytest.approx(math.pi * 1e6)
    assert phase_rms(0.1, 1e4, 1e3, 1e6) > 30.0
    with pytest.raises(InputError, match="offset"):
        linewidth_hz(0.1, 0.0)


def test_jitter_has_two_fields() -> None:
    link = load_link("spine")
    assert link.bit_clock_jitter_s == 0.8e-12
    assert link.packet_delay_variation_s == 0.0


def test_lock_holds_five_picometres_only_closed() -> None:
    out = lock(np.array([20.0, 70.0]), 10.0)
    assert out.worst_pm < 5.0
    assert out.open_loop_pm_T[-1] == pytest.approx(4000, rel=0.01)
    assert out.headroom > 0.05


def test_a_heater_cannot_cool() -> None:
    out = lock(np.array([20.0, 80.0]), 10.0)
    assert out.worst_pm > 100
    assert out.headroom == 0.0
    with pytest.raises(InputError, match="sample faster"):
        lock(np.array([20.0, 30.0]), 1.0, Loop(period_s=1.0))


def test_reconfiguration_is_more_than_switching() -> None:
    for switch in load_switches().values():
        assert sum(switch.parts.values()) == pytest.approx(switch.seconds)
        assert switch.clock_s > 0
    assert load_switches()["ocs-24"].seconds == pytest.approx(80e-6, rel=0.01)
    assert load_switches()["ring"].seconds > 1000 * load_switches()["ring"].switch_s


def test_extrapolation_finds_a_planted_error_rate() -> None:
    true_q, bits = 8.2, 1e12
    rng = np.random.default_rng(4)
    steps = [4.0, 3.5, 3.0, 2.5, 2.0]
    errors = [int(rng.poisson(ber_of_q(true_q * 10 ** (-a / 10)) * bits)) for a in steps]
    out = extrapolate([*steps, 0.0], [*errors, 0], [bits] * 6)
    assert out.q == pytest.approx(true_q, rel=0.02)
    assert out.ber < 1e-14 < out.verified, "predicted, and said not to be proven by the count"
    assert out.ber_high >= out.ber
    with pytest.raises(InputError, match="three are needed"):
        extrapolate([0.0, 1.0], [0, 3], [1e9, 1e9])


def test_amplified_line_agrees_with_gnpy() -> None:
    g = json.loads(GOLDEN.read_text())
    at = [row["channel"] for row in g["rows"]]
    gamma = np.interp(np.arange(g["channels"]), at, g["gamma"])
    line = Line(g["spans"], g["metres"], g["loss_db_per_km"], g["beta2"], gamma,
                g["noise_figure_db"])  # fmt: skip
    frequency = g["first_hz"] + g["spacing_hz"] * np.arange(g["channels"])
    mine = quality(line, frequency, g["baud"], g["watts"])
    for row in g["rows"]:
        c = row["channel"]
        assert mine.ase_db_C[c] == pytest.approx(row["ase_db"], abs=0.1)
        assert mine.nli_db_C[c] == pytest.approx(row["nli_db"], abs=0.1)
        assert mine.total_db_C[c] == pytest.approx(row["total_db"], abs=0.1)


WHAT = {
    "drift": ("optical_wavelength_drift_pm", 1.0), "dirt": ("optical_coupling_ratio", 0.6),
    "coolant": ("optical_coupling_ratio", 0.85), "vibration": ("optical_vibration_g", 0.05),
    "phase": ("optical_phase_noise_rad_rthz", 0.2), "loss": ("optical_rx_power_dbm", 6.0),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(WHAT))
def test_a_fault_changes_what_its_probe_reads(kind: str) -> None:
    link = load_link("spine")
    metric, amount = WHAT[kind]
    clean = readings(link, aged(link, [], DAY), 1)
    hurt = readings(link, aged(link, [Fault(kind, amount)], DAY), 1)
    assert abs(hurt[metric] - clean[metric]) > 0.03 * abs(clean[metric]) + 1e-3
    later = aged(link, [Fault(kind, amount, since_s=2 * DAY)], DAY)
    assert readings(link, later, 1) == clean


def test_common_and_single_port_faults_differ() -> None:
    link = load_link("spine")
    rows = {
        kind: [r.value_T[-1] for r in course(link, [fault], 2 * DAY, DAY, ports=3)
               if r.metric == "lightloom_optical_coupling_ratio"]
        for kind, fault in {"one": Fault("dirt", 0.5, port=1), "all": Fault("coolant", 0.8)}.items()
    }  # fmt: skip
    assert rows["one"][1] < 0.85 < min(rows["one"][0], rows["one"][2])
    assert max(rows["all"]) < 0.85


def test_wear_crosses_92_percent_in_half_a_year() -> None:
    link = load_link("spine")
    assert aged(link, [], 5.9 * MONTH).coupling > 0.92 > aged(link, [], 6.1 * MONTH).coupling
    with pytest.raises(InputError, match="no light fault"):
        aged(link, [Fault("drfit", 1.0)], 0.0)


def test_coherent_links_are_refused_by_the_direct_budget() -> None:
    link = msgspec.structs.replace(load_link("spine"), format="dp-qpsk")
    with pytest.raises(InputError, match="coherent"):
        budget(link)
