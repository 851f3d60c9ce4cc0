"""Twelve pairs of real runs: the step of B foretold from A alone.

    python benchmarks/advise_pairs.py --seed 7      (root: network namespaces and tc)

Eight pairs differ in the bandwidth of the link (loopback of a namespace under a token bucket),
four in one straggler (rank 1 sleeps before every step of A). Model size, computing, ranks, rates,
factors and sleeps are drawn from the seed. The job is benchmarks/advise_job.py: real gradients
over gloo, computing padded by a sleep (``--real`` trains the example GPT instead). A step is the
median over steps from start to start; the first three steps are left out; with ``--repeat`` the
quicker run of each side is taken. Writes benchmarks/advise_pairs.json; advise.py prints the table.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from lightloom.advise.analyse import Questions, analyse
from lightloom.advise.read import find, load
from lightloom.core.timeline_file import read_timeline

SPACE = "lightloom-pairs"
STEPS, WARM = 16, 3


def sh(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=20)


def cap(megabit: float) -> None:
    """Give loopback of the namespace this rate."""
    sh("ip", "netns", "exec", SPACE, "tc", "qdisc", "replace", "dev", "lo", "root", "tbf", "rate",
       f"{megabit:.0f}mbit", "burst", "128kb", "latency", "4s")  # fmt: skip


def train(home: Path, name: str, job: dict, sleep_s: float) -> Path:
    """Train a small GPT over gloo inside the namespace; returns its timeline."""
    drill = [f"--drill=slow:rank:1@step{n}={1 + sleep_s:.4f}x" for n in range(1, STEPS + 1)]
    command = [
        "nice", "-n", "-10", "ip", "netns", "exec", SPACE, sys.executable, "-m", "lightloom", "run",
        "--ranks", str(job["ranks"]), "--agents", "1", "--steps", str(STEPS), "--fabric", "gloo",
        "--snapshot-every", "0", "--name", name, *(drill if sleep_s else []), *job["script"],
    ]  # fmt: skip
    env = os.environ | {"LIGHTLOOM_HOME": str(home), "OMP_NUM_THREADS": "1",
                        "GLOO_SOCKET_IFNAME": "lo"}  # fmt: skip
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    path = home / name / "timeline.json.gz"
    if done.returncode or not path.exists():
        raise SystemExit(f"{name}: {done.stdout[-400:]}{done.stderr[-400:]}")
    return path


def step_s(path: Path) -> float:
    """Return the median step, first start of one to first start of the next."""
    t = read_timeline(path)
    begins = [int(t.start_N[t.step_N == n].min()) for n in range(WARM + 1, STEPS + 1)]
    return float(np.median(np.diff(begins))) * 1e-9


def foretell(path: Path, change: str) -> float:
    """Return the share of the step that `change` saves, from the timeline of A alone."""
    ask = Questions(changes=(change,), steps=(WARM + 1, STEPS))
    found = {w.change: w.saved for w in analyse(load(find([path])), ask).what_ifs}
    saved = found[change]
    if saved is None:
        raise SystemExit(f"{path}: only bounds for {change}")
    return saved


def draw_job(r: random.Random, real: bool) -> dict:
    """Return a job drawn from the generator."""
    if real:
        width, layers = r.choice((128, 192, 256)), r.choice((2, 3, 4))
        script = ["--example", "gpt", "--", "--width", str(width), "--layers", str(layers)]
        return {"ranks": 2, "script": script, "label": f"GPT width {width}, {layers} layers"}
    ranks, width, compute = r.choice((2, 3)), r.choice((512, 768, 1024)), r.uniform(0.02, 0.15)
    script = ["--", str(Path(__file__).with_name("advise_job.py")), "--width", str(width),
              "--compute", f"{compute:.4f}"]  # fmt: skip
    size = 2 * width * (width + 1) * 4 / 1e6
    label = f"{ranks} ranks, {size:.1f} MB, {compute * 1e3:.0f} ms of work"
    return {"ranks": ranks, "script": script, "label": label}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--real", action="store_true")
    args = parser.parse_args()
    r = random.Random(args.seed)
    subprocess.run(["ip", "netns", "del", SPACE], capture_output=True)
    sh("ip", "netns", "add", SPACE)
    sh("ip", "netns", "exec", SPACE, "ip", "link", "set", "lo", "mtu", "9000", "up")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for i in range(args.pairs):
            job = draw_job(r, args.real)
            rate, factor, sleep = r.uniform(400, 1500), r.uniform(1.5, 4), r.uniform(0.05, 0.25)
            slow = i % 3 == 2
            change = "skew=0" if slow else f"bandwidth={factor:.3f}x"
            sides: dict[str, list[Path]] = {"a": [], "b": []}
            for again in range(args.repeat):
                for side, rate_now in (("a", rate), ("b", rate if slow else rate * factor)):
                    cap(rate_now)
                    pause = sleep if slow and side == "a" else 0.0
                    sides[side].append(train(Path(name), f"{side}{i}-{again}", job, pause))
            a, b = (min(sides[side], key=step_s) for side in ("a", "b"))
            told, truth = step_s(a) * (1 - foretell(a, change)), step_s(b)
            label = f"{job['label']}, {rate:.0f} Mb/s"
            rows.append({"pair": label + (f", sleep {sleep * 1e3:.0f} ms" if slow else ""),
                         "change": change, "a_ms": step_s(a) * 1e3, "foretold_ms": told * 1e3,
                         "b_ms": truth * 1e3, "error": told / truth - 1})  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)
            how = (f"`python benchmarks/advise_pairs.py --seed {args.seed}`: pairs of `lightloom "
                   "run --fabric gloo` in a network namespace; B is foretold from the timeline of "
                   "A alone. Computing is padded by a sleep: on the shared machine real computing "
                   "varies by a third from run to run.")  # fmt: skip
            path = Path(__file__).with_suffix(".json")
            path.write_text(json.dumps({"how": how, "pairs": rows}, indent=1) + "\n")
    sh("ip", "netns", "del", SPACE)


if __name__ == "__main__":
    main()
