"""``python3 go.py demo``: the main job on real models, with what to type next."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lightloom.core.lang import _

if TYPE_CHECKING:
    from lightloom.cost.job import Job
    from lightloom.plan.compare import Comparison
    from lightloom.plan.decide import Answer

OUT = Path("out")
MACHINE, RIVAL = "supernode-8192", "traditional-8192"
OTHER_READING = "supernode-8192:board.link=853.33Gb/s"
"""The article's 12.8 Tb/s read per module instead of per board."""
JOBS = (("deepseek-v3", 16384, 4096), ("llama-3.1-70b", 4096, 8192))


def say(text: str = "") -> None:
    """Print a line at once."""
    click.echo(text)
    sys.stdout.flush()


def job_on(cluster: str, model: str, batch: int, seq: int) -> Job:
    """Return the demo's job on a machine."""
    from lightloom.core.catalog import load_cluster, load_model
    from lightloom.cost.job import Job

    machine = load_cluster(cluster)
    return Job(model=load_model(model), cluster=machine, cards=machine.cards, seq=seq,
               global_batch=batch, framework="mindspeed")  # fmt: skip


def planned(model: str, batch: int, seq: int) -> tuple[Answer, float, Comparison, Comparison]:
    """Return plan, CPU seconds of its search, and the comparison under both readings."""
    from lightloom.core.catalog import load_cluster
    from lightloom.plan.compare import compare
    from lightloom.plan.decide import Asked, plan
    from lightloom.plan.space import Fixes

    asked = Asked(Fixes(), top=5)
    job = job_on(MACHINE, model, batch, seq)
    begin = time.process_time()
    answer = plan(job, asked)
    seconds = time.process_time() - begin
    rival = load_cluster(RIVAL)
    other = replace(job, cluster=load_cluster(OTHER_READING))
    wide = compare(other, plan(other, asked).plans[0], rival, asked)
    return answer, seconds, compare(job, answer.plans[0], rival, asked), wide


def show(answer: Answer, comparison: Comparison, wide: Comparison, seconds: float) -> None:
    """Print one model's table, comparison and sensitivity."""
    from lightloom.cost.flops import six_n_d
    from lightloom.show.plan import factor_table, plan_view, print_all

    found, best = answer.found, answer.plans[0]
    flops = six_n_d(best.model, best.strategy.tokens)
    rows = [(f.name, f.value, f.why) for f in comparison.factors]
    print_all(plan_view(answer.plans, found.counted, found.priced, seconds, flops, []),
              "", factor_table(rows, comparison.speedup, RIVAL))  # fmt: skip
    say(sensitivity(wide) + "\n")


def sensitivity(wide: Comparison) -> str:
    """Return what the other reading of an ambiguous figure gives."""
    step = wide.here.prediction.step_s
    said = _("{m}: the article's 12.8 Tb/s backplane is ambiguous; read per board it gives the "
             "plan above, per module {t:.3g} s a step, {x:.3g} x {c}")  # fmt: skip
    return said.format(m=wide.here.model.name, t=step, x=wide.speedup, c=RIVAL)


def curves_of(model: str, batch: int, seq: int) -> list[tuple[str, list[tuple[int, float]]]]:
    """Return throughput against cards on both machines."""
    from lightloom.plan.decide import Asked
    from lightloom.plan.scale import sweep
    from lightloom.plan.space import Fixes

    out = []
    for cluster in (MACHINE, RIVAL):
        job = job_on(cluster, model, batch, seq)
        counts = [n for n in (512, 1024, 2048, 4096, 8192) if n <= job.cards]
        curve = sweep(job, counts, Asked(Fixes(), top=1))
        out.append((cluster, [(p.cards, p.tokens_per_s) for p in curve.points]))
    return out


def write(groups: list[Any], curves: list[Any], comparison: Comparison, notes: list[str]) -> Path:
    """Write the report and the plan."""
    from lightloom.core.files import write_bytes, write_json
    from lightloom.show.plan_report import report

    factors = [(f.name, f.value, f.why) for f in comparison.factors]
    text = report(groups, curves, factors, comparison.speedup, notes, "python3 go.py demo")
    write_bytes(OUT / "demo.html", text.encode())
    write_json(OUT / "plan.json", groups[0][1][0])
    return OUT / "demo.html"


def main() -> None:
    """Plan two real models on the supernode and on a traditional cluster, and write a report."""
    start = time.process_time()
    say("lightloom · 光织 — " + _("plan a real job on an 8,192-card supernode, against a "
                                  "traditional cluster of the same chips"))  # fmt: skip
    say(_("every figure is a prediction: no run on a full supernode is published") + "\n")
    groups: list[Any] = []
    notes: list[str] = []
    first: Comparison | None = None
    for model, batch, seq in JOBS:
        answer, seconds, comparison, wide = planned(model, batch, seq)
        show(answer, comparison, wide, seconds)
        groups.append((_("{m} on {c}").format(m=model, c=MACHINE), answer.plans))
        notes.append(sensitivity(wide))
        first = first or comparison
    assert first is not None
    there = _("{m} on {c}").format(m=JOBS[0][0], c=RIVAL)
    groups.append((there, (first.there,)))
    page = write(groups, curves_of(*JOBS[0]), first, notes)
    said = _("wrote {a} (open it in a browser) and {b}; {s:.0f} s of CPU")
    say(said.format(a=page, b=OUT / "plan.json", s=time.process_time() - start))
    command = Path(sys.executable).with_name("lightloom")
    say("\n" + _("what to type next:"))
    for words in ("explain out/plan.json", "simulate out/plan.json",
                  "emit out/plan.json --for mindspeed", "fabric show supernode-8192",
                  "run --example gpt --steps 100 --ranks 3 --drill rank:1@step40",
                  "doctor"):  # fmt: skip
        say(f"  {command} {words}")


if __name__ == "__main__":
    main()
