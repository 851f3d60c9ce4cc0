"""The same amplified line by gnpy (BSD-3), an independent model.

Extra: ``pip install "lightloom[optics]"``. Used to check `light_line`; nothing else needs it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from lightloom.core.errors import InputError, MissingExtraError

from .light_line import F64, Line, Quality

AMPLIFIER_GAIN = (20.0, 21.0)
"""dB that gnpy's `std_fixed_gain` amplifier gives; its noise figure is 5.5 dB."""


def peer(line: Line, frequency_C: F64, baud: float, watts: float) -> tuple[Quality, F64, float]:
    """Return quality by gnpy, the nonlinearity per channel and the dispersion that it used.

    Flat channels on an even grid, Raman off, `gn_model_analytic`; standard fibre of the length and
    loss of `line`, amplifiers of fixed gain that make up the loss exactly.
    """
    if importlib.util.find_spec("gnpy") is None:
        raise MissingExtraError("gnpy", "optics")
    from gnpy.core.info import create_input_spectral_information
    from gnpy.core.parameters import SimParams

    gain = line.loss_db_per_km * line.metres / 1e3
    if not AMPLIFIER_GAIN[0] <= gain <= AMPLIFIER_GAIN[1] or line.noise_figure_db != 5.5:
        raise InputError(
            f"a span of {gain:g} dB with {line.noise_figure_db:g} dB noise figure: the comparison "
            "uses gnpy's fixed amplifier",
            out="spans of 20 to 21 dB (100 km at 0.2 dB/km), noise figure 5.5 dB",
        )
    SimParams.set_params(
        {"nli_params": {"method": "gn_model_analytic"}, "raman_params": {"flag": False}}
    )
    step = float(np.diff(frequency_C).mean())
    light = create_input_spectral_information(
        frequency_C[0], frequency_C[-1] + step / 2, 0.0, baud, step, 100.0, watts
    )
    nodes = _nodes(line, gain)
    for span in range(line.spans):
        fibre, amplifier = nodes[f"fibre{span}"], nodes[f"amp{span}"]
        fibre.ref_pch_in_dbm = amplifier.ref_pch_in_dbm = 10 * np.log10(watts * 1e3)
        amplifier.effective_gain, amplifier.tilt_target, amplifier.out_voa = gain, 0.0, 0.0
        light = amplifier(fibre(light))
    signal = light.pch * light._signal_ratio
    ase, nli = light.pch * light._ase_ratio, light.pch * light._nli_ratio
    parts = (10 * np.log10(signal / noise) for noise in (ase, nli, ase + nli))
    fibre = nodes["fibre0"]
    return Quality(*parts), fibre.gamma(frequency_C), float(np.mean(fibre.beta2(frequency_C)))


def _nodes(line: Line, gain: float) -> dict[str, Any]:
    import gnpy
    from gnpy.tools.json_io import load_equipments_and_configs, network_from_json

    data = Path(gnpy.__file__).parent / "example-data"
    equipment = load_equipments_and_configs(data / "eqpt_config.json", [], [])
    elements: list[dict[str, object]] = []
    for span in range(line.spans):
        elements.append({
            "uid": f"fibre{span}", "type": "Fiber", "type_variety": "SSMF",
            "params": {"length": line.metres / 1e3, "length_units": "km",
                       "loss_coef": line.loss_db_per_km, "con_in": 0.0, "con_out": 0.0,
                       "att_in": 0.0},
        })  # fmt: skip
        elements.append({
            "uid": f"amp{span}", "type": "Edfa", "type_variety": "std_fixed_gain",
            "operational": {"gain_target": gain, "tilt_target": 0.0, "out_voa": 0.0},
        })  # fmt: skip
    joins = [{"from_node": f"fibre{span}", "to_node": f"amp{span}"} for span in range(line.spans)]
    net = network_from_json({"elements": elements, "connections": joins}, equipment)
    return {node.uid: node for node in net.nodes()}
