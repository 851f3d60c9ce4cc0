"""Make the golden case of tests/fabric/test_light_line.py with gnpy (BSD-3), an independent model.

    python -m venv /tmp/gnpy && /tmp/gnpy/bin/pip install gnpy
    /tmp/gnpy/bin/python benchmarks/light_gnpy.py tests/data/light/gnpy_line.json

Three spans of 100 km of standard fibre, each followed by an amplifier of fixed gain; 96 channels of
32 GBaud on a 50 GHz grid at 0 dBm. Written: OSNR (ASE only), NLI and total SNR in the channel's
own bandwidth, dB, of the first, middle and last channel.
"""

import json
import sys
from pathlib import Path

import gnpy
import numpy as np
from gnpy.core.elements import Edfa, Fiber
from gnpy.core.info import create_input_spectral_information
from gnpy.core.parameters import SimParams
from gnpy.tools.json_io import load_equipments_and_configs, network_from_json

SPANS, KM, LOSS, GAIN, NOISE_FIGURE = 3, 100.0, 0.2, 20.0, 5.5
CHANNELS, BAUD, SPACING, POWER = 96, 32e9, 50e9, 1e-3
F_MIN = 191.35e12


def main(out: str) -> None:
    data = Path(gnpy.__file__).parent / "example-data"
    equipment = load_equipments_and_configs(data / "eqpt_config.json", [], [])
    SimParams.set_params(
        {"nli_params": {"method": "gn_model_analytic"}, "raman_params": {"flag": False}}
    )
    elements, joins = [], []
    for span in range(SPANS):
        elements.append({
            "uid": f"fibre{span}", "type": "Fiber", "type_variety": "SSMF",
            "params": {"length": KM, "length_units": "km", "loss_coef": LOSS, "con_in": 0.0,
                       "con_out": 0.0, "att_in": 0.0},
        })  # fmt: skip
        elements.append({
            "uid": f"amp{span}", "type": "Edfa", "type_variety": "std_fixed_gain",
            "operational": {"gain_target": GAIN, "tilt_target": 0.0, "out_voa": 0.0},
        })  # fmt: skip
        joins.append({"from_node": f"fibre{span}", "to_node": f"amp{span}"})
    net = network_from_json({"elements": elements, "connections": joins}, equipment)
    nodes = {node.uid: node for node in net.nodes()}
    light = create_input_spectral_information(
        F_MIN, F_MIN + (CHANNELS - 0.5) * SPACING, 0.0, BAUD, SPACING, 100.0, POWER
    )
    fibre = amp = None
    for span in range(SPANS):
        fibre, amp = nodes[f"fibre{span}"], nodes[f"amp{span}"]
        assert isinstance(fibre, Fiber) and isinstance(amp, Edfa)
        fibre.ref_pch_in_dbm = amp.ref_pch_in_dbm = 0.0
        amp.effective_gain, amp.tilt_target, amp.out_voa = GAIN, 0.0, 0.0
        light = amp(fibre(light))
    ratio = lambda p: (10 * np.log10(light.pch * light._signal_ratio / p)).tolist()  # noqa: E731
    pick = [0, CHANNELS // 2, CHANNELS - 1]
    ase = light.pch * light._ase_ratio
    nli = light.pch * light._nli_ratio
    rows = [ratio(x) for x in (ase, nli, ase + nli)]
    frequency = light.frequency
    golden = {
        "gnpy": gnpy.__version__ if hasattr(gnpy, "__version__") else "3.0.1",
        "spans": SPANS, "metres": KM * 1e3, "loss_db_per_km": LOSS, "gain_db": GAIN,
        "noise_figure_db": NOISE_FIGURE, "measured_nf_db": np.mean(amp.nf).item(),
        "channels": len(frequency), "baud": BAUD, "spacing_hz": SPACING, "watts": POWER,
        "first_hz": float(frequency[0]),
        "gamma": [float(x) for x in fibre.gamma(frequency)[pick]],
        "beta2": float(np.mean(fibre.beta2(frequency))),
        "rows": [
            {"channel": i, "hz": float(frequency[i]), "ase_db": rows[0][i], "nli_db": rows[1][i],
             "total_db": rows[2][i]} for i in pick
        ],
    }  # fmt: skip
    Path(out).write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
