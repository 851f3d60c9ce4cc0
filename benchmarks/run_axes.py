"""A rank lost inside a tensor, pipeline or sharded group: ``python benchmarks/run_axes.py``.

Each axis: 2 replicas and one spare, a rank killed three times in 60 steps, from the SIGKILL to the
first committed step. Prints the rows of run_axes.md.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from statistics import median

WORK = Path(tempfile.mkdtemp(prefix="ll-bench-"))
os.environ["LIGHTLOOM_HOME"] = str(WORK / "runs")

from lightloom.run import launch, traces  # noqa: E402
from lightloom.run.report import report  # noqa: E402
from lightloom.run.spec import Spec  # noqa: E402

SIZES = {"ddp": 1, "fsdp": 2, "tp": 2, "pp": 2, "pp,tp": 4}
NAMES = {
    "ddp": "DDP", "fsdp": "FSDP2 2", "tp": "tp 2", "pp": "pp 2", "pp,tp": "dp 2 x pp 2 x tp 2",
}  # fmt: skip


def main(chosen: list[str]) -> None:
    """Print one row an axis."""
    for axis in chosen or list(SIZES):
        shards = SIZES[axis]
        ranks = 2 * shards
        faults = tuple(f"rank:{slot}@step{20 * (i + 1)}" for i, slot in
                       enumerate((ranks - 1, 0, ranks // 2)))  # fmt: skip
        folder = launch.start(Spec(
            name=axis.replace(",", "-"), script="example:axes", args=("--axes", axis), ranks=ranks,
            shards=shards, spares=1, agents=2, steps=80, snapshot_every=0, faults=faults,
            cwd=str(WORK),
        ))  # fmt: skip
        launch.follow(folder)
        traces.write(folder)
        found = report(folder)
        times = [r.recovery_s for r in found.recoveries if r.recovery_s is not None]
        step = found.step_s or 0.0
        mid = median(times) if times else float("nan")
        good = times and found.lost_steps == 0 and (mid <= 1.0 or mid <= 5 * step)
        how = ", ".join(r.decision for r in found.recoveries)
        print(f"| {NAMES[axis]}, {ranks} ranks + 1 spare | {mid:.3f} s, worst {max(times):.3f} s "
              f"(n {len(times)}: {how}); {mid / step:.1f} steps of {step * 1e3:.0f} ms; "
              f"{found.lost_steps} lost, other PIDs {'kept' if found.pids_kept else 'changed'} | "
              f"<= 1 s or 5 steps, 0 lost | {'yes' if good else 'no'} | "
              f"{os.getloadavg()[0]:.1f} |")  # fmt: skip
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
