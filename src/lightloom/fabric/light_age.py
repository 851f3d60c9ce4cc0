"""What changes light: reconfiguration in its parts, and ageing as an operator's probes see it.

Axes: T readings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from lightloom.core.errors import InputError, nearest
from lightloom.core.files import CATALOG, read_toml
from lightloom.core.telemetry import Telemetry
from lightloom.core.units import parse_time

from .light import Link, State, budget, drift_hz, drift_pm

DAY = 86400.0
MONTH = 30.4375 * DAY
WEAR_PER_MONTH = 0.005
"""Share of coupling lost in a month of service (S0)."""
FAULTS: dict[str, str] = {
    "drift": "the lock loop fails: detuning in kelvin of room temperature",
    "dirt": "one facet loses coupling: ratio that is left",
    "coolant": "bubbles or oxidation: every facet of the board loses coupling: ratio left",
    "vibration": "shaking in g at 60 Hz",
    "phase": "laser phase noise, rad per root Hz at 10 kHz",
    "loss": "extra loss in dB: a bent or strained fibre",
}


class Switch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One technology of circuit switch, seconds of each part."""

    title: str
    switch_s: float
    laser_s: float
    clock_s: float
    """The receiver finds the new clock."""
    control_s: float
    ref: str

    @property
    def seconds(self) -> float:
        """Dark time of one change, all parts."""
        return self.switch_s + self.laser_s + self.clock_s + self.control_s

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by part."""
        return {"switch": self.switch_s, "laser": self.laser_s, "clock recovery": self.clock_s,
                "control": self.control_s}  # fmt: skip


class _Switches(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    switches: dict[str, Switch]


def load_switches() -> dict[str, Switch]:
    """Return the switch technologies of the catalogue."""
    return read_toml(CATALOG / "optics" / "switches.toml", _Switches, "switches").switches


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens to one board's light."""

    kind: str
    amount: float
    since_s: float = 0.0
    port: int | None = None
    """Port it touches; None: every port of the board."""


def parse_light_fault(text: str) -> Fault:
    """Return the fault in ``KIND[:PORT][@WHEN]=HOW MUCH``: ``dirt:1@20d=0.6``, ``coolant=0.85``."""
    match = re.fullmatch(r"([a-z]+)(?::(\d+))?(?:@([^=]+))?=([-+.\deE]+)", text.strip())
    if match is None:
        raise InputError(f"light fault {text!r} cannot be read", out="KIND[:PORT][@WHEN]=HOW MUCH")
    kind, port, when, much = match.groups()
    if kind not in FAULTS:
        raise InputError(f"no light fault {kind!r}{nearest(kind, FAULTS)}", out=_kinds())
    try:
        amount = float(much)
    except ValueError as error:
        raise InputError(f"light fault {text!r}: {much!r} is not a number") from error
    if kind in ("dirt", "coolant") and not 0.0 < amount <= 1.0:
        raise InputError(f"light fault {text!r}: {FAULTS[kind]}, above 0 and at most 1")
    since = parse_time(when, f"light fault {text!r}") if when else 0.0
    return Fault(kind, amount, since, None if port is None else int(port))


def _kinds() -> str:
    return "; ".join(f"{kind}: {text}" for kind, text in FAULTS.items())


def aged(link: Link, faults: Sequence[Fault], at_s: float, port: int = 0) -> State:
    """Return the state of one port after `at_s` seconds of service with `faults`.

    Wear lowers every facet by 0.5 % a month; faults come on top from their start.
    """
    coupling = link.coupling - WEAR_PER_MONTH * at_s / MONTH
    state = State(coupling=coupling)
    for fault in faults:
        if fault.kind not in FAULTS:
            raise InputError(f"no light fault {fault.kind!r}{nearest(fault.kind, FAULTS)}")
        if at_s < fault.since_s or fault.port not in (None, port):
            continue
        if fault.kind == "drift":
            state = replace(state, detuning_hz=state.detuning_hz + drift_hz(fault.amount))
        elif fault.kind == "dirt":
            # one facet of `facets`: the loss of that one, spread over the mean ratio
            left = fault.amount / link.coupling
            state = replace(state, coupling=_mean(state) * left ** (1 / max(link.facets, 1)))
        elif fault.kind == "coolant":
            state = replace(state, coupling=_mean(state) * fault.amount / link.coupling)
        elif fault.kind == "vibration":
            state = replace(state, vibration_g=fault.amount, vibration_hz=60.0)
        elif fault.kind == "phase":
            state = replace(state, phase_noise=fault.amount)
        else:
            state = replace(state, extra_db=state.extra_db + fault.amount)
    return replace(state, coupling=max(_mean(state), 1e-3))


def _mean(state: State) -> float:
    assert state.coupling is not None
    return state.coupling


def readings(link: Link, state: State, seed: int = 0) -> dict[str, float]:
    """Return what probes report of a link in a state, with their noise.

    Residual of a working lock 0.3 pm rms, coupling read to 0.05 %, phase noise floor 0.01.
    """
    rng = np.random.default_rng(seed)
    b = budget(link, state)
    drift = drift_pm(state.detuning_hz) + rng.normal(0.0, 0.3)
    heater = 0.5 + abs(state.detuning_hz) / drift_hz(60.0)
    return {
        "optical_wavelength_drift_pm": drift,
        "optical_coupling_ratio": float(np.clip(_mean(state) + rng.normal(0.0, 5e-4), 0.0, 1.0)),
        "optical_phase_noise_rad_rthz": math.hypot(state.phase_noise, 0.01),
        "optical_rx_power_dbm": b.received_dbm + rng.normal(0.0, 0.05),
        "optical_prefec_ber": b.prefec_ber,
        "optical_frame_loss_ratio": b.delivery.frame_loss,
        "optical_heater_power_ratio": min(heater, 1.0),
        "optical_vibration_g": state.vibration_g + abs(rng.normal(0.0, 0.002)),
        "optical_bit_clock_jitter_seconds": link.bit_clock_jitter_s,
        "optical_effective_bandwidth_bytes": link.bits_per_s / 8 * b.delivery.efficiency,
    }


def course(
    link: Link, faults: Sequence[Fault], seconds: float, step_s: float, ports: int = 4,
    seed: int = 0,
) -> list[Telemetry]:  # fmt: skip
    """Return every probe of every port over time: the twin's side of optical diagnosis."""
    time_T = np.arange(0.0, seconds, step_s)
    out = []
    for port in range(ports):
        rows = [
            readings(link, aged(link, faults, float(t), port), seed + 7919 * port + index)
            for index, t in enumerate(time_T)
        ]
        for metric in rows[0]:
            values = np.array([row[metric] for row in rows])
            out.append(Telemetry(f"lightloom_{metric}", f"port:{port}", time_T, values))
    return out
