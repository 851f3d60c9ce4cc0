"""A rank lost inside a tensor, pipeline or sharded group: ``python benchmarks/run_axes.py``.

Each case: a rank killed TRIALS times, 20 steps apart, at the beginning of a step, from the SIGKILL
to the first committed step; last torchrun with the network cut by tp 2. Writes run_axes.json and
the first table of run_axes.md; ``python benchmarks/run_axes.py tp torchrun`` some rows only.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
WORK = Path(tempfile.mkdtemp(prefix="ll-bench-"))
os.environ["LIGHTLOOM_HOME"] = str(WORK / "runs")

import run_peers  # noqa: E402

from lightloom.core.runs import RunReport  # noqa: E402
from lightloom.run import launch, traces  # noqa: E402
from lightloom.run.report import report  # noqa: E402
from lightloom.run.spec import Spec  # noqa: E402

TRIALS = int(os.environ.get("TRIALS", "10"))
ROWS = HERE / "run_axes.json"


class Case(NamedTuple):
    """What is trained and lost."""

    what: str
    axes: str
    shards: int
    more: dict[str, Any]


TWO = {"spares": 1}
FALL = {"layouts": ("pp=2,tp=2", "tp=2", "tp=1")}
CASES = {
    "ddp": Case("DDP, 2 ranks + 1 spare", "ddp", 1, TWO),
    "fsdp": Case("FSDP2 2, 4 ranks + 1 spare", "fsdp", 2, TWO),
    "tp": Case("tp 2, 4 ranks + 1 spare", "tp", 2, TWO),
    "pp": Case("pp 2, 4 ranks + 1 spare", "pp", 2, TWO),
    "product": Case("dp 2 x pp 2 x tp 2, 8 ranks + 1 spare", "pp,tp", 4, TWO),
    "tp-alone": Case("tp 2, the only replica, 1 spare", "tp", 2, {"spares": 1, "ranks": 2}),
    "fsdp-alone": Case("FSDP2 2, the only replica, 1 spare", "fsdp", 2, {"spares": 1, "ranks": 2}),
    "product-alone": Case(
        "pp 2 x tp 2, the only replica, 1 spare", "pp,tp", 4, {"spares": 1, "ranks": 4}
    ),
    "re-plan": Case("pp 2 x tp 2, the only replica, no spare, back when replaced", "pp,tp", 4,
                    {"ranks": 4, **FALL}),
}  # fmt: skip


def train(case: Case) -> RunReport:
    """Run a case and return its report."""
    ranks = case.more.get("ranks", 2 * case.shards)
    gap = 40 if "layouts" in case.more else 20
    faults = tuple(f"rank:{(ranks - 1 - i) % ranks}@step{gap * (i + 1)}" for i in range(TRIALS))
    base: dict[str, Any] = {
        "name": f"a{len(list(WORK.glob('runs/*')))}", "script": "example:axes",
        "args": ("--axes", case.axes), "ranks": ranks, "shards": case.shards, "agents": 2,
        "steps": gap * (TRIALS + 1), "snapshot_every": 0, "faults": faults, "cwd": str(WORK),
    }  # fmt: skip
    folder = launch.start(Spec(**(base | case.more)))
    launch.follow(folder)
    traces.write(folder)
    return report(folder)


def ours(name: str) -> list[str]:
    """Return the row of a case."""
    found = train(CASES[name])
    times = [r.recovery_s for r in found.recoveries if r.recovery_s is not None]
    step = found.step_s or 0.0
    mid = median(times) if times else float("nan")
    good = bool(times) and found.lost_steps == 0 and (mid <= 1.0 or mid <= 5 * step)
    done = [r.decision for r in found.recoveries]
    how = ", ".join(f"{done.count(d)} {d}" for d in dict.fromkeys(done))
    kept = "kept" if found.pids_kept else "changed"
    return [
        CASES[name].what,
        f"{mid:.3f} s, worst {max(times, default=0.0):.3f} s (n {len(times)}: {how}); "
        f"{mid / step:.1f} steps of {step * 1e3:.0f} ms; {found.lost_steps} lost, "
        f"other PIDs {kept}",
        "<= 1 s or 5 steps, 0 lost", "yes" if good and found.state == "done" else "no",
    ]  # fmt: skip


def torchrun() -> list[str]:
    """Return the row of the peer."""
    python = run_peers.venv()
    seen = [run_peers.trial("torchrun-tp", python) for _ in range(TRIALS)]
    good = [t for t in seen if t]
    times, lost = [t for t, _ in good], [s for _, s in good]
    what = "torchrun, tp 2, the only replica: all processes restart from the last checkpoint"
    if not good:
        return [what, "did not go on", "-", "-"]
    return [
        what,
        f"{median(times):.3f} s, worst {max(times):.3f} s (n {len(times)}); "
        f"{median(lost):.0f} steps redone, all PIDs changed", "-", "-",
    ]  # fmt: skip


def write(rows: dict[str, list[str]]) -> None:
    """Put the kept rows into the first table of run_axes.md."""
    page = HERE / "run_axes.md"
    text = page.read_text()
    names = ("axes", "SIGKILL -> first committed step", "goal", "reached", "load")
    head = f"| {' | '.join(names)} |\n|{'---|' * len(names)}\n"
    begin = text.index(head) + len(head)
    end = text.index("\n\n", begin)
    order = [*CASES, "torchrun"]
    lines = ["| " + " | ".join(rows[name]) + " |" for name in order if name in rows]
    page.write_text(text[:begin] + "\n".join(lines) + text[end:])


def main(chosen: list[str]) -> None:
    """Measure rows, one after another, and keep each."""
    rows = json.loads(ROWS.read_text()) if ROWS.exists() else {}
    for name in chosen or [*CASES, "torchrun"]:
        rows[name] = [*(torchrun() if name == "torchrun" else ours(name)),
                      f"{os.getloadavg()[0]:.1f}"]  # fmt: skip
        print("| " + " | ".join(rows[name]) + " |", flush=True)
        ROWS.write_text(json.dumps(rows, indent=1) + "\n")
        write(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
