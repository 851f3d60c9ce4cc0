"""Power and energy: the chip's data-sheet power, how busy it is, its host, and the site."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightloom.core.cluster import Cluster

F64 = NDArray[np.float64]
LOADS = {"matrix": 0.95, "memory": 0.65, "wire": 0.45}
"""Share of (TDP - idle) drawn in matrix kernels, memory-bound kernels, and waiting for messages;
assumed: published traces of H100 jobs lie between 0.45 and 1.0 of TDP."""


def energy_of(
    cluster: Cluster, used: F64, cards: float, step_s: F64, matrix_s: F64, memory_s: F64
) -> tuple[F64, F64]:
    """Return (watts of the whole job at the site, joules of one step). Zero where TDP is unknown.

    used x (idle + (TDP - idle) x load) + idle cards + hosts, times PUE.
    """
    chip, host = cluster.chip, cluster.host
    if not chip.tdp_w:
        nothing = np.zeros_like(step_s)
        return nothing, nothing
    matrix, memory = matrix_s / step_s, memory_s / step_s
    wire = np.maximum(1.0 - matrix - memory, 0.0)
    load = LOADS["matrix"] * matrix + LOADS["memory"] * memory + LOADS["wire"] * wire
    idle = chip.idle_w or 0.15 * chip.tdp_w
    each = idle + (chip.tdp_w - idle) * load
    hosts = cards / max(host.cards, 1) * host.power_w
    watts: F64 = (used * each + (cards - used) * idle + hosts) * cluster.pue
    return watts, watts * step_s
