"""What a real run costs and survives, beside its peers: writes benchmarks/run.md.

    python benchmarks/run.py               every row
    python benchmarks/run.py kill spare    some rows (their lines in run.md are replaced)

Peers (torchrun, torchft, nvidia-resiliency-ext) live in a venv of their own under the temporary
folder. All run the job of benchmarks/peers/model.py: 3 ranks, 3.1 M parameters, 37 MB of state.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
WORK = Path(tempfile.mkdtemp(prefix="ll-bench-"))
os.environ["LIGHTLOOM_HOME"] = str(WORK / "runs")
import run_peers  # noqa: E402

from lightloom.core.runs import RunReport  # noqa: E402
from lightloom.run import launch, sharded, snapshot  # noqa: E402
from lightloom.run.report import report  # noqa: E402
from lightloom.run.spec import Spec  # noqa: E402

TRIALS = int(os.environ.get("TRIALS", "10"))
LINES = HERE / "run.json"
_count = 0


def train(
    see: Callable[[Path], None] | None = None, limit_s: float = 900, **fields: Any
) -> RunReport:
    """Run the benchmark's job with lightloom and return its report."""
    global _count
    _count += 1
    base: dict[str, Any] = {
        "name": f"b{_count}", "script": str(HERE / "peers" / "job_ours.py"), "ranks": 3,
        "agents": 2, "steps": 40, "snapshot_every": 0, "cwd": str(WORK),
    }  # fmt: skip
    folder = launch.start(Spec(**(base | fields)))
    end = time.monotonic() + limit_s

    def watch() -> None:
        if time.monotonic() > end:
            launch.stop(folder, hard=True)
        if see:
            see(folder)

    launch.follow(folder, watch)
    found = report(folder)
    if found.state != "done":
        print("  not done:", found.state, found.why[-300:], "step", found.steps)
    return found


def spread(values: list[float]) -> str:
    """Return median, worst and n of seconds."""
    if not values:
        return "-"
    return f"{median(values):.3f} s, worst {max(values):.3f} s (n {len(values)})"


def row(name: str, what: str, ours: str, peer: str, goal: str, reached: bool | None) -> None:
    """Keep one line of run.md."""
    rows = json.loads(LINES.read_text()) if LINES.exists() else {}
    mark = {True: "yes", False: "no", None: "-"}[reached]
    load = f"{os.getloadavg()[0]:.1f}"
    rows[name] = [what, ours, peer, goal, mark, load]
    LINES.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    print(f"{name}: {ours} | peer {peer} | goal {goal} | {mark} (load {load})", flush=True)
    write()


def write() -> None:
    """Write run.md from the kept lines."""
    rows = json.loads(LINES.read_text())
    head = (HERE / "run.head.md").read_text()
    table = ["| figure | lightloom | peer, same machine | goal | reached | load |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    table += ["| " + " | ".join(v) + " |" for v in rows.values()]
    (HERE / "run.md").write_text(head + "\n" + "\n".join(table) + "\n")


def kill() -> None:
    """SIGKILL one of three ranks, ten times, and the peers' the same."""
    faults = tuple(f"rank:{i % 3}@step{15 + 25 * i}" for i in range(TRIALS))
    found = train(faults=faults, steps=25 * TRIALS + 25)
    ours = [r.recovery_s for r in found.recoveries]
    step_s = found.step_s or 0.0
    bound = max(0.3, 3 * step_s)
    row("kill", "SIGKILL 1 of 3 ranks -> first committed step",
        f"{spread(ours)}; {found.lost_steps} steps lost; median step {step_s * 1e3:.0f} ms", "",
        f"<= max(0.3 s, 3 steps) = {bound:.2f} s; 0 lost",
        median(ours) <= bound and not found.lost_steps)  # fmt: skip
    python = run_peers.venv()
    goals = {"torchrun": 20, "torchft": 8, "torchft-2s": 8, "nvrx": 3}
    for kind, times in goals.items():
        seen = [run_peers.trial(kind, python) for _ in range(int(os.environ.get("PEERS", TRIALS)))]
        good = [t for t in seen if t]
        if not good:
            row(f"kill-{kind}", f"the same, {kind}", "-", "did not go on", f">= {times}x", None)
            continue
        ratio = median(t for t, _ in good) / median(ours)
        lost = median(s for _, s in good)
        row(f"kill-{kind}", f"the same, {kind}", f"{ratio:.1f}x faster",
            f"{spread([t for t, _ in good])}, {lost:.0f} steps redone", f">= {times}x",
            ratio >= times)  # fmt: skip


def agent() -> None:
    """Agents killed, always the lowest of those that live."""
    agents: list[float] = []
    lost = 0
    while len(agents) < TRIALS:
        found = train(ranks=4, agents=4, steps=60, respawn=False,
                      faults=("store@step10", "store@step25", "store@step40"))  # fmt: skip
        agents += [r.recovery_s for r in found.recoveries if r.what.startswith("agent")]
        lost += found.lost_steps
        if found.state != "done":
            break
    row("agent", "an agent and its ranks killed (the lowest: there is no other coordinator)",
        f"{spread(agents)}; {lost} lost", "torchrun node loss 19.9 s (facts, n 1)",
        "<= 2 s, >= 10 times",
        len(agents) >= TRIALS and max(agents) <= 2.0 and not lost)  # fmt: skip


def survive() -> None:
    """Two failures at once, rank 0, a kill during recovery."""
    twice = tuple(f"rank:{r}@step{10 + 30 * i}" for i in range(TRIALS) for r in (1, 2))
    found = train(faults=twice, ranks=4, steps=30 * TRIALS + 30)
    both = [r.recovery_s for r in found.recoveries]
    row("two", "two ranks killed in one step", f"{spread(both)}; {found.lost_steps} lost", "-",
        ">= 10 times, 0 lost", len({r.step for r in found.recoveries}) >= TRIALS
        and not found.lost_steps)  # fmt: skip
    zero = tuple(f"rank:0@step{10 + 25 * i}" for i in range(TRIALS))
    found = train(faults=zero, steps=25 * TRIALS + 25)
    times = [r.recovery_s for r in found.recoveries]
    row("zero", "rank 0 killed", f"{spread(times)}; {found.lost_steps} lost", "-",
        ">= 10 times, 0 lost", len(times) >= TRIALS and not found.lost_steps)  # fmt: skip
    during()


def during() -> None:
    """Kill a survivor, from outside, the moment the first loss is decided."""
    hit: set[int] = set()

    def second(folder: Path) -> None:
        events = launch.events(folder)
        pids = {e["uid"]: e["pid"] for e in events if e["kind"] == "rank"}
        for e in events:
            first = e["kind"] == "epoch" and "lost" in e["why"] and len(e["members"]) == 3
            if first and e["number"] not in hit:
                hit.add(e["number"])
                os.kill(pids[e["members"][-1][1]], signal.SIGKILL)

    faults = tuple(f"rank:1@step{10 + 40 * i}" for i in range(TRIALS))
    found = train(second, faults=faults, ranks=4, steps=40 * TRIALS + 40)
    times = [r.recovery_s for r in found.recoveries]
    row("during", "a survivor killed during the recovery", f"{spread(times)}; {len(hit)} double "
        f"kills, {found.lost_steps} lost", "-", ">= 10 times, 0 lost",
        len(hit) >= TRIALS and found.state == "done" and not found.lost_steps)  # fmt: skip


def large() -> None:
    """1 GB of state: 3 layers of 5376 wide."""
    faults = tuple(f"rank:{1 + i % 2}@step{3 + 4 * i}" for i in range(TRIALS))
    found = train(faults=faults, args=("5376",), steps=4 * TRIALS + 6, respawn=True)
    times = [r.recovery_s for r in found.recoveries]
    bound = max(0.3, 3 * (found.step_s or 0))
    row("large", "1 GB of state, one rank killed", f"{spread(times)}; {found.lost_steps} lost; "
        f"median step {found.step_s:.2f} s", "-", f"<= 3 steps = {bound:.2f} s",
        bool(times) and median(times) <= bound and not found.lost_steps)  # fmt: skip


def spare() -> None:
    """A warm spare takes the slot, state included."""
    faults = tuple(f"rank:{i % 3}@step{20 + 40 * i}" for i in range(TRIALS))
    found = train(faults=faults, spares=1, steps=40 * TRIALS + 40)
    times = [r.recovery_s for r in found.recoveries if r.decision == "spare"]
    row("spare", "a warm spare takes the slot (37 MB of state)",
        f"{spread(times)}; {found.lost_steps} lost", "torchft heal 11.6-17.9 s (facts)",
        "<= 0.6 s", bool(times) and median(times) <= 0.6)  # fmt: skip


def hang() -> None:
    """SIGSTOP, loop, lock, read: from the hang to the next committed step."""
    found_all: dict[str, list[float]] = {}
    for how in os.environ.get("HANGS", "stop loop lock read").split():
        tail = "" if how == "stop" else f"={how}"
        faults = tuple(f"hang:rank:{i % 3}@step{15 + 25 * i}{tail}" for i in range(TRIALS))
        found = train(faults=faults, steps=25 * TRIALS + 25, spares=1)
        detect = [r.detect_s for r in found.recoveries if r.detect_s is not None]
        bound = 1.0 if how != "loop" else max(1.0, 3 * (found.step_s or 0))
        found_all[how] = detect
        row(f"hang-{how}", f"hang found: {how}", f"{spread(detect)}; {len(found.hangs)} named, "
            f"{found.lost_steps} lost", "torchft: collective time-out 60 s (documented)",
            f"<= {bound:.1f} s", bool(detect) and median(detect) <= bound)  # fmt: skip


def stress() -> None:
    """No false eviction with eight busy processes beside."""
    minutes = float(os.environ.get("MINUTES", "3"))
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    end = time.monotonic() + 60 * minutes

    def watch(folder: Path) -> None:
        if time.monotonic() > end:
            launch.stop(folder)

    try:
        found = train(watch, steps=1_000_000, limit_s=60 * minutes + 240)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    wrong = len(found.hangs) + len(found.recoveries)
    row("stress", f"false evictions in {minutes:g} min beside 8 busy processes",
        f"{wrong} in {found.steps} steps", "torchft flaps at short time-outs (facts)",
        "0 (asked: 30 min)", wrong == 0)  # fmt: skip


def overhead() -> None:
    """The same job with plain DDP, in turn: wall time and CPU time of a step."""
    ours, plain, cpu_ours, cpu_plain = [], [], [], []
    for _ in range(2):
        before = _cpu()
        train(steps=20)
        short, before = _cpu() - before, _cpu()
        found = train(steps=120)
        if found.steps < 120:
            raise SystemExit("overhead: a run was cut short; nothing is recorded")
        ours.append((found.step_s or 0) * 1e3)
        cpu_ours.append((_cpu() - before - short) * 10)
        before = _cpu()
        _ddp(20)
        short, before = _cpu() - before, _cpu()
        plain.append(_ddp(120))
        cpu_plain.append((_cpu() - before - short) * 10)
    gap = median(ours) - median(plain)
    row("overhead", "a step against DistributedDataParallel (gloo): wall; CPU of all processes",
        f"{median(ours):.1f} ms; {median(cpu_ours):.1f} ms",
        f"{median(plain):.1f} ms; {median(cpu_plain):.1f} ms (interleaved, 2 x 120 steps)",
        "<= +1 % or +1 ms", gap <= max(1.0, 0.01 * median(plain)))  # fmt: skip


def copies() -> None:
    """What a copy of every step in the agents' memory costs, in turn with none."""
    with_s, without = [], []
    for _ in range(3):
        with_s.append((train(steps=100, copies="on").step_s or 0) * 1e3)
        without.append((train(steps=100, copies="off").step_s or 0) * 1e3)
    row("copies", "a step while every step's state is copied (37 MB, each of 3 ranks)",
        f"{median(with_s):.1f} ms; {median(without):.1f} ms without (interleaved, 3 x 100 steps)",
        "-", "said", None)  # fmt: skip


def alone() -> None:
    """The only rank is killed: its state is nowhere but in the agents' memory."""
    faults = tuple(f"rank:0@step{20 + 40 * i}" for i in range(TRIALS))
    found = train(faults=faults, ranks=1, agents=1, spares=1, steps=40 * TRIALS + 40)
    times = [r.recovery_s for r in found.recoveries if r.decision == "copy"]
    row("alone", "the only rank killed; a spare gets the state (37 MB) from the agents' memory",
        f"{spread(times)}; {found.lost_steps} lost; median step {(found.step_s or 0) * 1e3:.0f} ms",
        "-", "0 lost", len(times) >= TRIALS and not found.lost_steps)  # fmt: skip


def _cpu() -> float:
    """Return CPU seconds of all processes started and collected so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _ddp(steps: int) -> float:
    """Return the median step of plain DDP in milliseconds."""
    job = run_peers.Job()
    port = str(run_peers.port())
    try:
        for rank in range(3):
            job.start([sys.executable, "job_ddp.py", str(steps), "-"], RANK=str(rank),
                      WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)  # fmt: skip
        for process in job.processes:
            process.wait(timeout=300)
        time.sleep(0.2)
        own = sorted((s, t) for r, s, t in job.steps if r == 0)
        return median((b - a) / 1e6 for (_, a), (_, b) in pairwise(own))
    finally:
        job.close()


def save() -> None:
    """Blocking time per GB, and compute meanwhile, against DCP async."""
    command = [sys.executable, str(HERE / "run_save.py")]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    if out.returncode:
        print(out.stdout, out.stderr)
        return
    f = json.loads(out.stdout.splitlines()[-1])
    row("block", "snapshot: trainer blocked per GB, warm (copy waited for at once / hidden)",
        f"{f['ours_block_s']:.3f} s / {f['ours_hidden_s']:.3f} s",
        f"DCP async_save {f['dcp_block_s']:.2f} s", "<= 0.2x DCP",
        f["ours_hidden_s"] <= 0.2 * f["dcp_block_s"])  # fmt: skip
    row("meanwhile", "compute step while it is written", f"{f['ours_slow']:+.1%}",
        f"DCP {f['dcp_slow']:+.1%}", "<= +10 %",
        f["ours_slow"] <= 0.10 if f["ours_slow"] > -0.1 else None)  # fmt: skip


def points() -> None:
    """500 kill points while saving; flips; truncation."""
    sys.path.insert(0, str(HERE.parent / "tests" / "run"))
    from test_snapshot import save as write_one

    wrong = none = 0
    folder = WORK / "points"
    write_one(folder, 1, 1.0)
    for seed in range(500):
        child = os.fork()
        if child == 0:
            first = sharded.newest(folder)[0]
            for step in range(first + 1, first + 200):
                write_one(folder, step, float(step), size=400_000)
            os._exit(0)
        time.sleep(random.Random(seed).uniform(0.0, 0.08))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found = snapshot.folders(folder)
        none += not any(not snapshot.verify(p) for p in found)
        wrong += sum(_mixed(p) for p in found[-1:])
    row("points", "500 kills while saving: wrong loads / nothing loadable", f"{wrong} / {none}",
        "DCP loads a mix of two steps (facts)", "0 / 0", wrong == none == 0)  # fmt: skip
    flips = _flips(found[-1])
    row("flips", "1,000 flipped bits and 100 truncations found", f"{flips} of 1100",
        "DCP 0 of the flips (facts)", "100 %", flips == 1100)  # fmt: skip


def _mixed(path: Path) -> bool:
    from lightloom.run import state as st

    layout, memory = snapshot.read(path)
    values = {float(x) for p in layout.pieces for x in st.view(memory, p).unique()}
    return values != {float(layout.step)}


def _flips(path: Path) -> int:
    rng, found = random.Random(3), 0
    for index in range(1100):
        file = path / rng.choice(("state.bin", "layout.bin", snapshot.MANIFEST))
        good = file.read_bytes()
        bad = bytearray(good)
        if index < 1000:
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        else:
            bad = bad[: rng.randrange(len(bad))]
        file.write_bytes(bad)
        found += bool(snapshot.verify(path))
        file.write_bytes(good)
    return found


def goodput() -> None:
    """A failure every 60 steps, for MINUTES; the peers that can go on the same."""
    minutes = float(os.environ.get("MINUTES", "20"))
    end = time.monotonic() + 60 * minutes
    faults = tuple(f"rank:{i % 3}@step{60 * (i + 1)}" for i in range(int(30 * minutes)))

    def watch(folder: Path) -> None:
        if time.monotonic() > end:
            launch.stop(folder)

    found = train(watch, faults=faults, steps=1_000_000, spares=1, limit_s=60 * minutes + 120)
    lost = sum(r.recovery_s for r in found.recoveries)
    python, peers = run_peers.venv(), []
    for kind in os.environ.get("GOODPUT_PEERS", "torchrun torchft torchft-2s").split():
        share, steps, failures = run_peers.goodput(kind, python, minutes)
        peers.append(f"{kind} {share:.1%} ({steps} steps, {failures} failures)")
        print(peers[-1], flush=True)
    row("goodput", f"goodput, a failure every 60 steps ({minutes:g} min each)",
        f"{found.goodput or 0:.1%} ({found.steps} steps, {len(found.recoveries)} failures, "
        f"{lost:.1f} s in recoveries, {found.lost_steps} lost)",
        "; ".join(peers) or "-", ">= 97 %", (found.goodput or 0) >= 0.97)  # fmt: skip


def schedules() -> None:
    """100,000 seeded schedules of the protocol."""
    from lightloom.recover.simulate import simulate

    count, commits, bad = int(os.environ.get("SEEDS", "100000")), 0, []
    for seed in range(10_000, 10_000 + count):
        try:
            commits += simulate(seed).commits
        except AssertionError as error:
            bad.append((seed, str(error)))
    row("schedules", f"{count:,} seeded schedules of faults, nine invariants",
        f"{len(bad)} violations, {commits:,} commits", "-", "0", not bad)  # fmt: skip


ROWS = (
    kill,
    agent,
    survive,
    large,
    spare,
    alone,
    hang,
    overhead,
    copies,
    save,
    points,
    goodput,
    stress,
    schedules,
)

if __name__ == "__main__":
    wanted = sys.argv[1:] or [r.__name__ for r in ROWS]
    table = {r.__name__: r for r in (*ROWS, during)}
    try:
        for name in wanted:
            table[name]()
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
