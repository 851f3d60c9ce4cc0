"""Fitting the laws of collectives to measured curves, and folds that prove them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from lightloom.core.chip import Chip
from lightloom.core.errors import InputError
from lightloom.core.fabric import Fabric, Level

from .calibration import Comm, CommLaw
from .calibration_fit import Knob, fit, turn
from .comm import collective_seconds
from .kernels_rows import chip_of, read_table

F64 = NDArray[np.float64]
KIND = {"all_gather": "all-gather", "reduce_scatter": "reduce-scatter",
        "all_reduce": "all-reduce", "alltoall": "all-to-all", "all_to_all": "all-to-all",
        "broadcast": "broadcast"}  # fmt: skip
SMALLEST = 65536.0
"""Bytes from which a curve is fitted and scored: below, only start-up is seen."""
NVLINK_SWITCH_FROM = "hopper", "blackwell"
"""Generations whose node switch adds in the network."""


@dataclass(frozen=True, slots=True, eq=False)
class CurveRows:
    """N measured collectives inside one node."""

    system_N: NDArray[np.str_]
    kind_N: NDArray[np.str_]
    ranks_N: F64
    bytes_N: F64
    seconds_N: F64
    chips: dict[str, Chip]
    refused: dict[str, str]

    def __len__(self) -> int:
        return len(self.seconds_N)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> CurveRows:
        """Return the rows chosen by a mask or an index."""
        return CurveRows(
            self.system_N[rows], self.kind_N[rows], self.ranks_N[rows], self.bytes_N[rows],
            self.seconds_N[rows], self.chips, self.refused,
        )  # fmt: skip

    @property
    def known(self) -> NDArray[np.bool_]:
        """True for rows that can be predicted."""
        fine: NDArray[np.bool_] = np.isin(self.system_N, list(self.chips)) & (self.kind_N != "")
        fine &= np.isfinite(self.bytes_N) & (self.ranks_N >= 2) & (self.seconds_N > 0)
        return fine

    @property
    def large(self) -> NDArray[np.bool_]:
        """True for rows of at least SMALLEST bytes."""
        return self.bytes_N >= SMALLEST

    @property
    def arch(self) -> NDArray[np.str_]:
        """Generation of each row's chip."""
        names = {s: c.arch for s, c in self.chips.items()}
        return np.array([names.get(s, "") for s in self.system_N.tolist()], dtype=np.str_)


def _float(text: str | None) -> float:
    try:
        return float(text) if text not in (None, "") else float("nan")
    except ValueError:
        return float("nan")


def read_curves(path: Path) -> CurveRows:
    """Return measured curves of one node, columns as in nccl_intra_node.csv."""
    rows = read_table(path)
    need = ("system", "collective", "num_gpus", "bytes", "latency_us")
    missing = [n for n in need if rows and n not in rows[0]]
    if missing:
        raise InputError(f"curves {path}: no column {', '.join(missing)}")
    system = np.array([r["system"] for r in rows], dtype=np.str_)
    chips, refused = {}, {}
    for name in np.unique(system).tolist():
        try:
            chips[name] = chip_of(name)
        except InputError as error:
            refused[name] = error.what
    return CurveRows(
        system, np.array([KIND.get(r["collective"], "") for r in rows], dtype=np.str_),
        np.array([_float(r["num_gpus"]) for r in rows]),
        np.array([_float(r["bytes"]) for r in rows]),
        np.array([_float(r["latency_us"]) * 1e-6 for r in rows]), chips, refused,
    )  # fmt: skip


def node_of(chip: Chip) -> Fabric:
    """Return one node of `chip` as its data sheet gives it: a switch at the scale-up rate."""
    peer = chip.arch not in ("ada", "turing")
    level = Level(name="node", kind="switch", shape=(8,), link=chip.scaleup_bandwidth or 32e9,
                  latency=0.5e-6, reduces=chip.arch in NVLINK_SWITCH_FROM,
                  tier="nvlink" if peer else "pcie")  # fmt: skip
    return Fabric(levels=(level,), domain="node")


def curve_seconds(rows: CurveRows, comm: Comm) -> F64:
    """Return seconds of every row."""
    total = np.zeros(len(rows))
    for system, chip in rows.chips.items():
        for kind in np.unique(rows.kind_N[rows.system_N == system]).tolist():
            z = (rows.system_N == system) & (rows.kind_N == kind)
            total[z] = collective_seconds(
                node_of(chip), kind, rows.ranks_N[z], 1, rows.bytes_N[z], comm=comm,
                arch=chip.arch,
            )  # fmt: skip
    return total


LAW_KNOBS = tuple(
    Knob(n, share=n == "share", prior=0.01) for n in ("share", "edge", "launch_s", "step_s", "ramp")
)


def fit_comm(rows: CurveRows, comm: Comm) -> Comm:
    """Return `comm` with the laws of one node fitted to `rows`, generations weighing the same."""
    arch = rows.arch
    archs = np.unique(arch).tolist()
    rng = np.random.default_rng(0)
    places = [np.flatnonzero(arch == a) for a in archs]
    picked = np.concatenate([rng.choice(z, min(1200, len(z)), replace=False) for z in places])
    small = rows.take(picked)
    log = np.log(small.seconds_N)
    families = ("gather", "reduce", "exchange")
    wide = (*[Knob("launch_s", "by_arch", a, prior=0.01) for a in archs],
            *[Knob("in_switch", "by_arch", a, prior=0.01) for a in archs
              if a in NVLINK_SWITCH_FROM],
            Knob("in_switch", prior=0.01))  # fmt: skip
    size = len(LAW_KNOBS)

    def build(v: F64) -> Comm:
        laws: dict[str, CommLaw] = {
            f: turn(CommLaw(), LAW_KNOBS, v[i * size : (i + 1) * size])
            for i, f in enumerate(families)
        }
        turned: Comm = turn(comm, wide, v[3 * size :])
        return msgspec.structs.replace(turned, **laws)

    start = np.array([k.read(CommLaw()) for k in LAW_KNOBS] * 3
                     + [k.read(Comm()) for k in wide])  # fmt: skip
    prior = np.array([k.prior for k in LAW_KNOBS] * 3 + [k.prior for k in wide])
    best = fit(lambda v: np.log(curve_seconds(small, build(v))) - log, start, prior, 0.1)
    return build(best)


def curves_out_of_fold(rows: CurveRows, fold_N: NDArray[np.generic], comm: Comm) -> F64:
    """Return seconds of every row by laws that never saw its fold."""
    seconds = np.zeros(len(rows))
    for fold in np.unique(fold_N):
        kept = fold_N == fold
        seconds[kept] = curve_seconds(rows.take(kept), fit_comm(rows.take(~kept), comm))
    return seconds
