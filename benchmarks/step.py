"""Figures of ``lightloom simulate``: speed, bubbles, users' cases, evidence, jitter, priorities.

    python benchmarks/step.py [--evidence] [--every N]     # writes benchmarks/step.md

CPU seconds of one process, best of three. `--evidence` plays the published rows with pp > 1
(minutes of CPU); `--every N` takes every N-th of them.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import resource
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from lightloom.core.catalog import load_chip, load_cluster, load_model
from lightloom.core.errors import LightloomError
from lightloom.core.event import parse_fault
from lightloom.core.model import Attention, Block, Mlp, Model
from lightloom.core.plan import Plan
from lightloom.core.strategy import Strategy
from lightloom.cost.calibration import Calibration, default_calibration
from lightloom.cost.calibration_step import fit_scale, step_table, with_scale
from lightloom.cost.columns import columns_of
from lightloom.cost.evaluate import evaluate
from lightloom.cost.evidence_rows import Row, shipped_rows
from lightloom.cost.evidence_steps import FOLDS, folds_of
from lightloom.cost.job import Job
from lightloom.cost.predict import make_plan
from lightloom.simulate.replan import played
from lightloom.simulate.scenario import CORRECTIONS, Scenario, simulate
from lightloom.simulate.sweep import sweep
from lightloom.step.noise import fit
from lightloom.step.schedules import NAMES, Times, bubble_of, make, published_bubble

HERE = Path(__file__).parent
JITTER = HERE.parent / "tests" / "step" / "step_jitter.csv.gz"


def best_of(times: int, what: Callable[[], object]) -> float:
    """Return the least CPU seconds of `what`."""
    spent = []
    for _ in range(times):
        start = time.process_time()
        what()
        spent.append(time.process_time() - start)
    return min(spent)


def deepseek() -> Plan:
    """61 layers + MTP + embedding + head = 64 stages: MTP as one more layer of its own."""
    model = load_model("deepseek-v3")
    blocks = list(model.blocks)
    blocks[-1] = msgspec.structs.replace(blocks[-1], count=blocks[-1].count + 1)
    model = msgspec.structs.replace(model, blocks=tuple(blocks), mtp_layers=0)
    s = Strategy(tp=1, pp=16, dp=968, ep=8, vpp=4, global_batch=968 * 128, seq=4096,
                 schedule="interleaved", stage_layers=(0, *(1,) * 62, 0))  # fmt: skip
    job = Job(model=model, cluster=load_cluster("atlas-960"), cards=15488, seq=4096,
              global_batch=s.global_batch)  # fmt: skip
    return make_plan(job, s, allow_misfit=True)


def speed() -> list[str]:
    plan = deepseek()
    quiet = best_of(3, lambda: simulate(plan))
    fault = Scenario(faults=(parse_fault("card:5000=1.2x"),))
    late = best_of(3, lambda: simulate(plan, fault))
    a, b = simulate(plan).result, simulate(plan, fault).result
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        "| 15,488 cards, DeepSeek-V3, PP 16 x VPP 4, 128 micro-batches | goal | reached |",
        "|---|---|---|",
        f"| folded, CPU s | <= 1 | {quiet:.2f} ({a.units} units, {a.events:,} events) |",
        f"| one straggler (card 5000, 1.2x), CPU s | <= 10 | {late:.2f} ({b.units} units, "
        f"{b.events:,} events; step +{100 * (b.step_s / a.step_s - 1):.1f} %) |",
        f"| memory of the process, MiB | <= 1,024 | {mib:.0f} |",
    ]


def bubbles() -> list[str]:
    rows = ["| schedule | F, I, W | ranks x micro-batches (x chunks) | published | played |",
            "|---|---|---|---|---|"]  # fmt: skip
    for name in NAMES:
        chunks = 3 if name == "interleaved" else 2
        general = name in ("gpipe", "1f1b", "interleaved", "zero-bubble")
        for times in (Times(1.0, 1.0, 1.0), *([Times(1.0, 1.4, 0.8)] if general else [])):
            for ranks, m in ((4, 16), (8, 32), (16, 64)):
                got = float(bubble_of(make(name, ranks, m, chunks), times).max())
                want = published_bubble(name, ranks, chunks, times)
                same = "equal" if abs(got - want) < 1e-9 else "NOT EQUAL"
                rows.append(f"| {name} | {times.forward:g}, {times.inputs:g}, {times.weights:g} | "
                            f"{ranks} x {m} | {want:.1f} | {got:.1f} {same} |")  # fmt: skip
    return rows


def gpt_6b() -> Model:
    a = Attention(kind="full", heads=32, kv_heads=32, head_dim=128, v_head_dim=128, bias=True)
    block = Block(count=30, attention=a, mlp=Mlp(hidden=16384, gated=False, bias=True))
    return Model(name="GPT 6.2B", hidden=4096, vocab=51200, blocks=(block,), tied=False,
                 max_seq=1024, norm="layer")  # fmt: skip


def eight_cards() -> list[str]:
    """zero-bubble-pipeline-parallelism issue 21."""
    cluster = msgspec.structs.replace(load_cluster("dgx-h100"), chip=load_chip("h800"))
    ends = (3, 4, 4, 4, 4, 4, 4, 3)
    cases = (("1f1b", 1, ends, 55, 48), ("interleaved", 4, (0, *(1,) * 30, 0), 66, 57),
             ("zb-h2", 1, ends, 67, 79), ("zb-v", 2, (1, *(2,) * 14, 1), 64, 53))  # fmt: skip
    rows = ["| 8 x H800, 6.2 B | measured | over 1F1B | 24 micro-batches | over 1F1B | 512 | "
            "memory measured | played |", "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    base: dict[int, float] = {}
    for name, vpp, layers, samples, gigabytes in cases:
        rate, memory = {}, 0.0
        for m in (24, 512):
            s = Strategy(pp=8, vpp=vpp, micro_batch=7, global_batch=7 * m, seq=1024,
                         schedule="zero-bubble" if name == "zb-h2" else name,
                         stage_layers=layers)  # type: ignore[arg-type]  # fmt: skip
            job = Job(model=gpt_6b(), cluster=cluster, cards=8, seq=1024, global_batch=7 * m)
            plan = make_plan(job, s, allow_misfit=True)
            r = simulate(plan, Scenario(schedule=name, rolling=name.startswith("z"))).result
            rate[m] = 7 * m / r.step_s
            base.setdefault(m, rate[m])
            memory = max(stage.peak_bytes for stage in r.stages) / 1e9
        rows.append(f"| {name} | {samples} | {samples / 55:.2f} | {rate[24]:.0f} | "
                    f"{rate[24] / base[24]:.2f} | {rate[512]:.0f} ({rate[512] / base[512]:.2f}) | "
                    f"{gigabytes} GB | {memory:.0f} GB |")  # fmt: skip
    return [*rows, "", "Samples/s of all eight cards. Assumed, since the user states neither: 24 "
            "micro-batches of 7 sequences of 1,024 tokens (7 is what the four memories ask for), "
            "layers and widths of the 6.2 B model of Qi 2023, zero-bubble with post-validation "
            "(`--rolling`). The flip: with 512 micro-batches all four are within a few percent.",
            ]  # fmt: skip


def many_cards() -> list[str]:
    """torchtitan issue 773."""
    cluster, model = load_cluster("dgx-h100-96g"), load_model("llama-3.1-405b")
    rows = ["| 512 x H100, Llama 3.1 405B | measured tok/s/card | measured MFU | played tok/s | "
            "played MFU |", "|---|---|---|---|---|"]  # fmt: skip
    per_token = 0.2652 * 989e12 / 100.0
    for name, vpp, precision, rate, mfu in (("1f1b", 1, "fp8", 100, 26.5),
                                            ("interleaved", 2, "fp8", 128, 33.9),
                                            ("zero-bubble", 1, "bf16", 13, 3.4)):  # fmt: skip
        s = Strategy(tp=8, pp=8, dp=8, vpp=vpp, global_batch=64, seq=8192, schedule=name,
                     framework="torchtitan", recompute="full", zero="fsdp", precision=precision,
                     overlap_tp=precision == "fp8")  # type: ignore[arg-type]  # fmt: skip
        job = Job(model=model, cluster=cluster, cards=512, seq=8192, global_batch=64,
                  framework="torchtitan")  # fmt: skip
        r = simulate(make_plan(job, s, allow_misfit=True)).result
        tokens = r.tokens_per_s_per_card
        rows.append(f"| {name} | {rate} | {mfu} % | {tokens:.0f} | "
                    f"{100 * tokens * per_token / 989e12:.1f} % |")  # fmt: skip
    return [*rows, "", "Assumed: tp 8, pp 8, fsdp 8, sequence 8,192, micro-batches = pp = 8 (the "
            "framework's default), fp8 and asynchronous tensor parallelism for the first two and "
            "neither for zero-bubble (the issue says so), full recomputation. Why it collapses: "
            "`stage_backward_weight` of torch repeats the checkpointed forward once per weight, 9 "
            "times a block (measured on torch 2.13: 1 F + 1 I + 9 W forwards). What is left "
            "(eager kernels without compilation) is not modelled."]  # fmt: skip


def errors(name: str, got: np.ndarray, measured: np.ndarray) -> str:
    off = np.abs(got / measured - 1.0)
    return (f"| {name} | {100 * np.median(off):.1f} % | {100 * np.quantile(off, 0.9):.1f} % | "
            f"{100 * np.median(got / measured - 1.0):+.1f} % |")  # fmt: skip


BARE = {"overlap_grad": False, "overlap_param": False, "overlap_tp": False, "overlap_pp": False,
        "overlap_ep": False}  # fmt: skip


def unseen(every: int) -> list[tuple[Row, Calibration]]:
    """Return every N-th core row with pp > 1 and a calibration that never saw its fold."""
    rows = [r for r in shipped_rows() if r.job is not None and r.strategy is not None
            and r.measured == r.measured and r.core]  # fmt: skip
    fold = folds_of([r.fold for r in rows], FOLDS)
    given = default_calibration()
    found: list[tuple[Row, Calibration]] = []
    for k in range(FOLDS):
        held = [r for r, f in zip(rows, fold, strict=True) if f == k and r.strategy.pp > 1]
        seen = [r for r, f in zip(rows, fold, strict=True) if f != k]
        cal = with_scale(given, fit_scale(step_table(seen, given))) if held[::every] else given
        found += [(row, cal) for row in held[::every]]
    return found


def evidence(every: int) -> list[str]:
    """Played against measured, and against the estimate, row by row; ablations."""
    kept, table = [], []
    for row, cal in unseen(every):
        assert row.job is not None
        assert row.strategy is not None
        s = row.strategy
        plain = msgspec.structs.replace(s, schedule="1f1b", vpp=1, stage_layers=())
        try:
            costs = evaluate(row.job, columns_of([s]), cal)
            step = float(costs.step_s[0])
            fixed = sum(float(costs.parts[k][0]) for k in CORRECTIONS if k in costs.parts)
            got = [played(row.job, x, cal)
                   for x in (s, msgspec.structs.replace(s, **BARE), plain)]  # fmt: skip
        except LightloomError as error:
            table.append(f"| {row.id} | refused: {error.what.splitlines()[0]} | | | |")
            continue
        kept.append((row.measured / row.scale, step, step - fixed, *got))
        table.append(f"| {row.id} | {row.measured / row.scale:.3f} | {step:.3f} | {got[0]:.3f} | "
                     f"{100 * (got[0] / step - 1):+.1f} % |")  # fmt: skip
    m, e, e0, p, no, f1 = np.array(kept).T
    gap = 100 * (p / e0 - 1.0)
    (HERE / "step_rows.md").write_text(
        "# Published rows with pp > 1, played\n\n| row | measured s | estimate s | played s | "
        "played over estimate |\n|---|---|---|---|---|\n" + "\n".join(table) + "\n"
    )
    return [
        f"{len(kept)} core rows with pp > 1, each under factors fitted without its fold ({FOLDS} "
        f"folds of whole groups; every {every}). Row by row: `benchmarks/step_rows.md`.", "",
        "| | median error | p90 | bias |", "|---|---|---|---|",
        errors("estimate, all its corrections", e, m),
        errors("estimate, operations only", e0, m), errors("played, operations only", p, m),
        errors("played, with the estimate's step-level corrections added", p + e - e0, m),
        errors("played, nothing overlaps", no, m), errors("played, 1F1B for every schedule", f1, m),
        "", f"Played over estimate (operations only): median {np.median(gap):+.1f} %, middle 80 % "
        f"{np.quantile(gap, 0.1):+.1f} to {np.quantile(gap, 0.9):+.1f} %.",
    ]  # fmt: skip


def rank(x: np.ndarray) -> np.ndarray:
    order = np.argsort(np.argsort(x, kind="stable"), kind="stable").astype(float)
    for value in np.unique(x):
        order[x == value] = order[x == value].mean()
    return order


def jitter() -> list[str]:
    with gzip.open(JITTER, "rt") as stream:
        runs = list(csv.DictReader(stream))
    n = np.array([float(r["cards"]) for r in runs])
    ratio = np.array([float(r["p95_over_median"]) for r in runs])
    noise = fit(n[n <= 512], ratio[n <= 512])
    rows = ["| cards | runs | measured 10 / 50 / 90 % | predicted (median card count) | inside |",
            "|---|---|---|---|---|"]  # fmt: skip
    for low, high in ((512, 2100), (2100, 11600)):
        at = (n > low) & (n <= high)
        q = np.quantile(ratio[at], [0.1, 0.5, 0.9])
        said = float(np.median([noise.p95_over_median(x) for x in n[at]]))
        rows.append(f"| {low + 1:,}-{high:,} | {at.sum()} | {q[0]:.4f} / {q[1]:.4f} / {q[2]:.4f} | "
                    f"{said:.4f} | {'yes' if q[0] <= said <= q[2] else 'NO'} |")  # fmt: skip
    large, fair = n > 512, ratio < 1.09
    a = np.corrcoef(rank(n[large]), rank(ratio[large]))[0, 1]
    b = np.corrcoef(rank(n[fair]), rank(ratio[fair]))[0, 1]
    return [*rows, "", f"Fitted on runs of <= 512 cards only: scale {noise.scale:.5f}, shape "
            f"{noise.shape:.1f}. Rank correlation of p95/median with n: {a:.2f} over the larger "
            f"runs ({large.sum()}), {b:.2f} over all below 1.09 ({fair.sum()})."]  # fmt: skip


def priorities() -> list[str]:
    """MoE with gradients and experts on one network: who goes first."""
    s = Strategy(tp=2, pp=4, dp=32, ep=32, vpp=4, global_batch=128, seq=4096,
                 schedule="interleaved")  # fmt: skip
    job = Job(model=load_model("qwen3-235b-a22b"), cluster=load_cluster("hgx-h200"), cards=256,
              seq=4096, global_batch=128)  # fmt: skip
    result = sweep("priorities", make_plan(job, s, allow_misfit=True), Scenario())
    rows = ["| Qwen3-235B-A22B, 256 H200, tp 2, pp 4 x vpp 4, ep 32, 4 micro-batches | step s | "
            "exposed expert s | exposed gradient s |", "|---|---|---|---|"]  # fmt: skip
    return rows + [
        f"| {row.setting} | {row.step_s:.4f} | {row.parts.get('expert', 0.0):.4f} | "
        f"{row.parts.get('gradient', 0.0):.4f} |"
        for row in result.rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--evidence", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    parts = {"Speed": speed(), "Bubbles against their published formulas": bubbles(),
             "A user's eight cards": eight_cards(), "A user's 512 cards": many_cards(),
             "Jitter": jitter(), "Priorities": priorities()}  # fmt: skip
    target = HERE / "step.md"
    if given.evidence:
        parts["Evidence"] = evidence(given.every)
    elif target.exists() and "## Evidence" in target.read_text():
        parts["Evidence"] = target.read_text().split("## Evidence\n\n")[1].rstrip().split("\n")
    text = ["# One step, played", "", "Re-make: `python benchmarks/step.py --evidence`", ""]
    for title, lines in parts.items():
        text += [f"## {title}", "", *lines, ""]
    target.write_text("\n".join(text))
    print("\n".join(text))


if __name__ == "__main__":
    main()
