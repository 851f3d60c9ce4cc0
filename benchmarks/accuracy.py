"""Every figure of how far predictions are from measurements; writes benchmarks/accuracy.md.

python benchmarks/accuracy.py            # all of it, about 4 minutes of CPU
python benchmarks/accuracy.py --quick    # without kernels and ablation
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import msgspec
import numpy as np

from lightloom.cost import calibration_step, layer_table, layer_time
from lightloom.cost.calibration import Calibration, default_calibration
from lightloom.cost.columns import columns_of
from lightloom.cost.evaluate import evaluate
from lightloom.cost.evidence import Report, Summary
from lightloom.cost.evidence_kernels import (
    curves_report,
    generations_out_of_fold,
    kernels_out_of_fold,
)
from lightloom.cost.evidence_live import choice_groups, core_rows, left_out, sweep_report
from lightloom.cost.evidence_pack import shipped_curves, shipped_kernels
from lightloom.cost.evidence_rows import shipped_rows
from lightloom.cost.evidence_steps import (
    FOLDS,
    folds_of,
    memory_report,
    out_of_fold_steps,
    peak_of,
    score_out_of_fold,
)

HERE = Path(__file__).resolve().parent
OUT: list[str] = []


def say(text: str = "") -> None:
    OUT.append(text)
    print(text, flush=True)


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100.0 * value:.1f} %"


def line(name: str, s: Summary) -> str:
    n = s.rows - s.unmeasured
    mark = " (indicative)" if n < 20 else ""
    return (f"| {name}{mark} | {n} | {s.refused} | {percent(s.median_abs_error)} | "
            f"{percent(s.p90_abs_error)} | {percent(s.mape)} | {percent(s.coverage)} | "
            f"{percent(s.median_half_width)} |")  # fmt: skip


def table(title: str, report: Report) -> None:
    say(f"\n## {title}\n")
    say("| rows of | n | refused | median | p90 | MAPE | in 90 % interval | half-width |")
    say("|---|---|---|---|---|---|---|---|")
    for name, s in report.groups.items():
        say(line(name, s))
    if len(report.groups) > 1:
        say(line("**all**", report.summary))


def errors_of(steps: np.ndarray, measured: np.ndarray) -> tuple[float, float, float]:
    e = np.abs(steps / measured - 1.0)
    return float(np.median(e)), float(np.quantile(e, 0.9)), float(e.mean())


def ablation_cases(
    cal: Calibration,
) -> list[tuple[str, Calibration, list[tuple[object, str, object]]]]:
    """Return each case: its name, its constants, and what is patched for it."""
    kinds = calibration_step.KINDS
    plain = dict.fromkeys(kinds, ("*",))
    no_surface = msgspec.structs.replace(
        cal, kernels=msgspec.structs.replace(cal.kernels, surfaces=False))  # fmt: skip
    one_rate = msgspec.structs.replace(
        cal, comm=msgspec.structs.replace(cal.comm, efficiency={"*": 1.0}))  # fmt: skip
    return [
        ("the model as it ships", cal, []),
        ("kernel laws without measured surfaces", no_surface, []),
        (
            "no cause but the part itself (one factor a part)",
            cal,
            [(calibration_step, "KINDS", plain)],
        ),
        (
            "no stack: software not a cause",
            cal,
            [
                (
                    calibration_step,
                    "KINDS",
                    {
                        p: tuple(c for c in cs if "stack" not in c) or ("*",)
                        for p, cs in kinds.items()
                    },
                )
            ],
        ),
        (
            "no floor under a stack's attention",
            cal,
            [
                (
                    calibration_step,
                    "KINDS",
                    {p: c for p, c in kinds.items() if p != "attention_floor"}
                    | {"attention_floor": ("*",)},
                )
            ],
        ),
        ("gradient accumulation free", cal, [(layer_table, "ACCUMULATE_BYTES", 0.0)]),
        ("misaligned heads as quick as others", cal, [(layer_time, "MISALIGNED", 1.0)]),
        ("experts' casts launch nothing", cal, [(layer_table, "EXPERT_KERNELS", 0.0)]),
        ("networks at their full link rate", one_rate, []),
    ]


def ablation(cal: Calibration) -> None:
    rows = core_rows()
    measured = np.array([r.measured for r in rows])
    folds = folds_of([r.fold for r in rows], FOLDS)
    prefix = folds_of([r.prefix for r in rows], 0)
    say("\n## What each part of the model buys (step time, core rows)\n")
    say("| model | folds: median | p90 | MAPE | source left out: median | p90 |")
    say("|---|---|---|---|---|---|")
    for name, used, patches in ablation_cases(cal):
        for where, what, value in patches:
            patch = mock.patch.object(where, what, value)
            patch.start()
        one = errors_of(out_of_fold_steps(rows, used, folds), measured)
        two = errors_of(out_of_fold_steps(rows, used, prefix), measured)
        mock.patch.stopall()
        say(f"| {name} | {percent(one[0])} | {percent(one[1])} | {percent(one[2])} | "
            f"{percent(two[0])} | {percent(two[1])} |")  # fmt: skip
    bare = msgspec.structs.replace(cal, scale={})
    steps = np.array([float(evaluate(r.job, columns_of([r.strategy]), bare).step_s[0]) * r.scale
                      for r in rows if r.job and r.strategy])  # fmt: skip
    none = errors_of(steps, measured)
    say(f"| no calibration of the step at all | {percent(none[0])} | {percent(none[1])} | "
        f"{percent(none[2])} | same | same |")  # fmt: skip


def choosing(cal: Calibration) -> None:
    rows = core_rows()
    say("\n## Choosing within groups of equal model, cards, batch, sequence\n")
    say("| group | runs | regret | Spearman | the same, source left out |")
    say("|---|---|---|---|---|")
    in_fold = out_of_fold_steps(rows, cal, folds_of([r.fold for r in rows], FOLDS))
    apart = out_of_fold_steps(rows, cal, folds_of([r.prefix for r in rows], 0))
    for one, two in zip(choice_groups(rows, in_fold), choice_groups(rows, apart), strict=True):
        say(f"| {one[0]} | {one[1]} | {percent(one[3] / one[2] - 1.0)} | {one[4]:.2f} | "
            f"{percent(two[3] / two[2] - 1.0)}, {two[4]:.2f} |")  # fmt: skip


def fitting(cal: Calibration) -> None:
    rows = [r for r in shipped_rows() if r.core and r.job is not None]
    fits = [r for r in rows if r.job and peak_of(r, cal) <= r.job.usable]
    say("\nNo folds: memory has no fitted constants, but what is read into blanks was chosen with "
        "these rows in view.")  # fmt: skip
    say(f"\nRuns that ran judged to fit: {len(fits)} of {len(rows)} core rows "
        f"({percent(len(fits) / len(rows))}).")  # fmt: skip


HEAD = """# Accuracy

Remake: `python benchmarks/accuracy.py` (all), `lightloom evidence` (the same, live, kernels on a
sample). Error is |predicted / measured - 1|; a refused row counts 100 %. Folds are whole
`fold_group`s, 8 of them; constants, surfaces and intervals of a fold never saw its rows. Strict
twins (the same configuration published twice) differ by 4.1 % (median), 11 % (90th percentile).
Fewer than 20 rows: indicative. No row is left out. First table before any calibration of the
step: 19.5 % median, 44.9 % at the 90th percentile (lab notes, Truth).

| figure | goal | reached |
|---|---|---|
"""


def main() -> None:
    quick = "--quick" in sys.argv
    cal = default_calibration()
    rows = core_rows()
    steps = score_out_of_fold(rows, cal, folds_of([r.fold for r in rows], FOLDS), "prefix")
    table("Step time, core rows, folds never seen, by source", steps)
    apart = left_out(rows, cal)
    table("Step time, one source left out at a time", apart)
    for by in ("chip", "axis", "size"):
        report = score_out_of_fold(rows, cal, folds_of([r.fold for r in rows], FOLDS), by)
        table(f"Step time, folds never seen, by {by}", report)
    choosing(cal)
    sweep = sweep_report(cal)
    table("Single-node A100 sweep, folds by (layers, hidden)", sweep)
    memory = memory_report("memory", shipped_rows(), cal)
    table("Peak memory, all rows that state one, by kind of figure", memory)
    fitting(cal)
    goals = goal_lines(steps, apart, sweep, memory)
    if not quick:
        kernels = kernels_out_of_fold(shipped_kernels(), tell)
        table("Kernels, unseen shapes (the same shape unseen on every chip)", kernels)
        gens = generations_out_of_fold(shipped_kernels(), tell)
        table("Kernels, a whole generation left out", gens)
        curves = curves_report(shipped_curves(), cal)
        table("NCCL curves of 64 KiB and more", curves)
        goals += kernel_lines(kernels, gens, curves)
        ablation(cal)
    text = HEAD + "\n".join(goals + kept_goals(quick)) + "\n" + "\n".join(OUT) + "\n"
    (HERE / "accuracy.md").write_text(text + kept_sections(quick), encoding="utf-8")


KEPT = ("Kernels, unseen", "Kernels, a whole", "NCCL", "What each part")
KEPT_GOALS = ("| unseen shapes", "| a generation", "| NCCL")


def kept_goals(quick: bool) -> list[str]:
    """Return the lines on kernels of the last full run, for a run without them."""
    old = (HERE / "accuracy.md").read_text(encoding="utf-8").splitlines() if quick else []
    return [x for x in old if x.startswith(KEPT_GOALS)]


def kept_sections(quick: bool) -> str:
    """Return the sections on kernels and ablation of the last full run, said to be so."""
    old = (HERE / "accuracy.md").read_text(encoding="utf-8") if quick else ""
    parts = [p for p in old.split("\n## ")[1:] if p.startswith(KEPT)]
    note = "" if not parts else "\n(The sections below are of the last full run.)\n"
    return note + "".join(f"\n## {p.rstrip()}\n" for p in parts)


def tell(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def goal_lines(steps: Report, apart: Report, sweep: Report, memory: Report) -> list[str]:
    s, a, v = steps.summary, apart.summary, apart.groups["vtrain"]
    covered = [g.coverage for g in steps.groups.values() if g.rows >= 20 and g.coverage]
    rows = [
        ("step time, core: median / p90; refusals", "<= 6 / <= 18 %; <= 2 %",
         f"{percent(s.median_abs_error)} / {percent(s.p90_abs_error)}; {s.refused} of {s.rows}"),
        ("one source left out: median / p90", "<= 10 / <= 25 %",
         f"{percent(a.median_abs_error)} / {percent(a.p90_abs_error)}"),
        ("90 % interval: coverage; per source (20 rows and more); half-width",
         "87-93 %; 80-98 %; <= 15 %",
         f"{percent(s.coverage)}; {percent(min(covered))} to {percent(max(covered))}; "
         f"{percent(s.median_half_width)}"),
        ("vTrain multi-node, no vTrain row in calibration: MAPE / median", "<= 10 / <= 7 %",
         f"{percent(v.mape)} / {percent(v.median_abs_error)}"),
        ("single-node sweep: MAPE", "<= 9 %", percent(sweep.summary.mape)),
        ("peak memory: median / p90", "<= 5 / <= 15 %", "; ".join(
            f"{k} {percent(g.median_abs_error)} / {percent(g.p90_abs_error)}"
            for k, g in memory.groups.items())),
    ]  # fmt: skip
    return [f"| {a} | {b} | {c} |" for a, b, c in rows]


def kernel_lines(kernels: Report, gens: Report, curves: Report) -> list[str]:
    def medians(report: Report, pick: Callable[[str], bool]) -> str:
        return "; ".join(f"{k} {percent(g.median_abs_error)}"
                         for k, g in report.groups.items() if pick(k))  # fmt: skip

    return [
        f"| unseen shapes, GEMM / attention / expert | <= 3 / <= 3 / <= 12 % | "
        f"{medians(kernels, lambda k: True)} |",
        f"| a generation left out | <= 12 / <= 15 / <= 25 % | {medians(gens, lambda k: True)} |",
        f"| NCCL, by system / by ranks | <= 8 / <= 15 % | {medians(curves, lambda k: True)} |",
    ]


if __name__ == "__main__":
    main()
