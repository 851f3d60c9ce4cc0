"""The door's figures: start-up, one estimate, many estimates, size, memory formulas.

    python benchmarks/start.py        # about a minute; writes benchmarks/start.md

CPU seconds (user + system), best of several runs; byte-code compiled once before.
"""

from __future__ import annotations

import importlib.metadata
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from lightloom.core.catalog import load_cluster, load_model
from lightloom.core.model import Attention, Block, Mlp, Model
from lightloom.core.params import parameters
from lightloom.core.strategy import Strategy
from lightloom.cost.calibration import default_calibration
from lightloom.cost.columns import Columns, columns_of, make_columns, strategy_of
from lightloom.cost.evaluate import evaluate
from lightloom.cost.job import Job, legal
from lightloom.cost.layer_table import layer_table
from lightloom.cost.precision import parse_precision
from lightloom.cost.predict import predict, stage_memories

HERE = Path(__file__).resolve().parent
ESTIMATE = ["estimate", "llama-3.1-405b", "--cluster", "dgx-h100", "--cards", "1024", "--tp", "8",
            "--pp", "8", "--recompute", "full"]  # fmt: skip


def process_seconds(arguments: list[str], times: int = 9) -> float:
    """Return the least CPU seconds of a whole process, byte-code warm."""
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        best = np.inf
        for turn in range(times + 1):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-m", "lightloom", *arguments], check=True, env=env,
                           capture_output=True)  # fmt: skip
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
            best = min(best, used) if turn else best
    return float(best)


def space(job: Job) -> Columns:
    """Return every legal candidate of a plain grid over ten columns."""
    powers = [2**i for i in range(7)]
    moe = job.model.is_moe
    axes = [powers[:6], powers[:6], powers[:5], [*powers, 128] if moe else [1], [1, 2, 4],
            [1, 2, 4, 8], [0, 1, 2], [1, 2, 3], [0, 1], [0, 1]]  # fmt: skip
    tp, pp, cp, ep, vpp, mb, recompute, zero, over_tp, over_ep = (
        x.ravel() for x in np.meshgrid(*(np.array(a) for a in axes), indexing="ij")
    )
    dp = job.cards // (tp * pp * cp)
    columns = make_columns(
        len(tp), tp=tp, pp=pp, cp=cp, ep=ep, vpp=vpp, micro_batch=mb, recompute=recompute,
        zero=zero, overlap_tp=over_tp, overlap_ep=over_ep, dp=np.maximum(dp, 1),
        global_batch=job.global_batch, seq=job.seq, schedule=np.where(vpp > 1, 2, 1),
    )  # fmt: skip
    return columns.take(np.flatnonzero(legal(job, columns) & (dp > 0)))


def best_of(times: int, run: object) -> float:
    """Return the least CPU seconds of calling `run`."""
    best = np.inf
    for _ in range(times):
        start = time.process_time()
        run()  # type: ignore[operator]
        best = min(best, time.process_time() - start)
    return float(best)


def rates() -> list[tuple[str, str, str, str]]:
    """Return rows about many estimates and one warm estimate."""
    rows = []
    jobs = [("gpt3-175b", "dgx-a100", 4096, 2048, 4096),
            ("deepseek-v3", "supernode-8192", 8192, 4096, 16384)]  # fmt: skip
    for model, cluster, cards, seq, batch in jobs:
        job = Job(model=load_model(model), cluster=load_cluster(cluster), cards=cards, seq=seq,
                  global_batch=batch)  # fmt: skip
        columns = space(job)
        seconds = best_of(5, lambda j=job, c=columns: evaluate(j, c))
        rows.append((f"full estimates per CPU second, arrays: {model} on {cards:,} cards, "
                     f"{len(columns):,} candidates", "calculon 435, SimuMax 22, llm-analysis 3,300",
                     ">= 800,000", f"{len(columns) / seconds:,.0f}"))  # fmt: skip
        some = [strategy_of(columns, int(i)) for i in np.linspace(0, len(columns) - 1, 64)]
        predict(job, some[0])
        same = best_of(20, lambda j=job, s=some[0]: [predict(j, s) for _ in range(20)]) / 20
        other = best_of(5, lambda j=job, s=some: [predict(j, x) for x in s]) / len(some)

        def first(j: Job = job, s: list[Strategy] = some) -> None:
            for x in s:  # a job nobody has priced: nothing is remembered
                predict(replace(j), x)

        fresh = best_of(3, first) / len(some)
        rows.append((f"one warm in-process estimate, every stage itemised ({model})",
                     "calculon 2.3 ms, SimuMax 39 ms", "<= 1 ms", f"{1e3 * same:.2f} ms repeated, "
                     f"{1e3 * other:.2f} ms over 64 that differ, {1e3 * fresh:.2f} ms where no "
                     "shape was priced before"))  # fmt: skip
    return rows


def gpt(layers: int, hidden: int, heads: int) -> Model:
    """Return a GPT-2 like model."""
    attention = Attention(kind="full", heads=heads, kv_heads=heads, head_dim=hidden // heads,
                          v_head_dim=hidden // heads, bias=True)  # fmt: skip
    return Model(name="gpt", hidden=hidden, vocab=51200, tied=True, max_seq=2048, norm="layer",
                 learned_positions=2048, blocks=(Block(count=layers, attention=attention,
                 mlp=Mlp(hidden=4 * hidden, gated=False, bias=True)),))  # fmt: skip


def memory_checks() -> list[tuple[str, float, float]]:
    """Return (what, printed by the source, ours): bytes per the source's own unit."""
    checks = []
    for layers, hidden, heads in ((48, 6144, 64), (96, 12288, 96), (105, 20480, 128)):
        job = Job(model=gpt(layers, hidden, heads), cluster=load_cluster("dgx-a100"), cards=8,
                  seq=2048, global_batch=8, flash=False)  # fmt: skip
        for words, sp, again, factor in (
            ("tensor parallel", False, "none", 10 + 24 / 8 + 5 * heads * 2048 / hidden / 8),
            ("+ sequence parallel", True, "none", (34 + 5 * heads * 2048 / hidden) / 8),
            ("+ selective recompute", True, "selective", 34 / 8),
            ("full recompute", False, "full", 2.0),
        ):
            s = Strategy(
                tp=8,
                global_batch=8,
                seq=2048,
                precision="fp16",
                sequence_parallel=sp,
                recompute=again,
            )  # type: ignore[arg-type]
            table = layer_table(job, columns_of([s]), parse_precision("fp16"),
                                default_calibration())  # fmt: skip
            checks.append((f"activations of a layer, h {hidden}, {words}: MB "
                           "(Korthikanti et al. 2022)", factor * 2048 * hidden / 1e6,
                           float(table.saved_XU[0, 0]) / 1e6))  # fmt: skip
    job = Job(model=gpt(37, 4096, 32), cluster=load_cluster("dgx-a100"), cards=64, seq=2048,
              global_batch=64, framework="deepspeed")  # fmt: skip
    total = parameters(job.model).total
    for zero, printed in (("0", 120.0), ("1", 31.4), ("2", 16.6), ("3", 1.88)):
        s = Strategy(
            dp=64,
            global_batch=64,
            seq=2048,
            zero=zero,
            precision="fp16",
            gradient_dtype="fp16",
            framework="deepspeed",
        )  # type: ignore[arg-type]
        parts = stage_memories(job, s)[0].parts
        states = parts["weights"] + parts["gradients"] + parts["optimizer"]
        checks.append((f"model states, 7.5 B parameters, 64 ranks, ZeRO {zero}: GB (Rajbhandari "
                       "et al. 2020)", printed, states / total * 7.5))  # fmt: skip
    return checks


def installed_bytes() -> tuple[float, str]:
    """Return bytes on disk of lightloom and what the core installs, and what is in it."""
    names, seen = ["numpy", "msgspec", "click", "rich", "pyyaml", "markdown-it-py", "mdurl",
                   "pygments"], {}  # fmt: skip
    for name in names:
        files = importlib.metadata.distribution(name).files or []
        paths = (Path(str(f.locate())) for f in files)
        seen[name] = sum(p.stat().st_size for p in paths
                         if p.is_file() and p.suffix != ".pyc")  # fmt: skip
    own = sum(p.stat().st_size for p in (HERE.parent / "src" / "lightloom").rglob("*")
              if p.is_file() and p.suffix != ".pyc")  # fmt: skip
    text = ", ".join(f"{n} {v / 1e6:.1f}" for n, v in seen.items())
    return own + sum(seen.values()), f"lightloom {own / 1e6:.1f}, {text}"


def main() -> None:
    """Measure everything and write the table."""
    rows = [
        ("`lightloom --help`, whole process", "-", "<= 80 ms CPU",
         f"{1e3 * process_seconds(['--help']):.0f} ms"),
        ("`lightloom estimate --help`", "-", "<= 80 ms CPU",
         f"{1e3 * process_seconds(['estimate', '--help']):.0f} ms"),
        ("`lightloom estimate`, whole process", "calculon 0.50 s, SimuMax 1.02 s, llm-analysis "
         "0.12 s", "<= 0.35 s CPU", f"{process_seconds(ESTIMATE):.2f} s"),
        *rates(),
    ]  # fmt: skip
    size, inside = installed_bytes()
    rows.append(("size of the core on disk", "-", "-", f"{size / 1e6:.0f} MB"))
    lines = ["# Start: one estimate, many estimates, memory formulas", "",
             "| figure | peer | goal | reached |", "|---|---|---|---|",
             *(f"| {' | '.join(row)} |" for row in rows), "",
             f"Core, MB: {inside}.", "",
             "Hostile JSON and TOML: [fuzz_inputs.md](fuzz_inputs.md).", "",
             "## Memory against what papers print", "", "| what | printed | ours | error |",
             "|---|---|---|---|"]  # fmt: skip
    for what, printed, ours in memory_checks():
        error = 100.0 * (ours / printed - 1.0)
        lines.append(f"| {what} | {printed:.2f} | {ours:.2f} | {error:+.2f} % |")
    lines += [
        "",
        "Ours counts one fp32 log-sum-exp per query and head beside Korthikanti's terms.",
        "",
        "Command: `python benchmarks/start.py`",
        "",
    ]
    (HERE / "start.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
