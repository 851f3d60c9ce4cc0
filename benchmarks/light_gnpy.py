"""Make the golden case of tests/fabric/test_light.py with gnpy (BSD-3), an independent model.

    pip install "lightloom[optics]"
    python benchmarks/light_gnpy.py tests/data/light/gnpy_line.json

Three spans of 100 km of standard fibre, each followed by an amplifier of fixed gain; 96 channels of
32 GBaud on a 50 GHz grid at 0 dBm. Written: OSNR (ASE only), NLI and total SNR in the channel's
own bandwidth, dB, of the first, middle and last channel.
"""

import json
import sys
from pathlib import Path

import numpy as np

from lightloom.fabric.light_gnpy import peer
from lightloom.fabric.light_line import Line

CHANNELS, BAUD, SPACING, WATTS, FIRST = 96, 32e9, 50e9, 1e-3, 191.35e12


def main(out: str) -> None:
    line = Line(spans=3, metres=100e3)
    made, gamma, beta2 = peer(line, FIRST + SPACING * np.arange(CHANNELS), BAUD, WATTS)
    pick = [0, CHANNELS // 2, CHANNELS - 1]
    golden = {
        "gnpy": "3.0.1", "spans": line.spans, "metres": line.metres,
        "loss_db_per_km": line.loss_db_per_km, "noise_figure_db": line.noise_figure_db,
        "channels": CHANNELS, "baud": BAUD, "spacing_hz": SPACING, "watts": WATTS,
        "first_hz": FIRST, "gamma": [float(gamma[i]) for i in pick], "beta2": beta2,
        "rows": [
            {"channel": i, "ase_db": float(made.ase_db_C[i]), "nli_db": float(made.nli_db_C[i]),
             "total_db": float(made.total_db_C[i])} for i in pick
        ],
    }  # fmt: skip
    Path(out).write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
