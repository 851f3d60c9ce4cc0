"""``lightloom estimate``: one configuration, every term shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lightloom.core.lang import _

from .options import FINITE, cluster_option, echo_json, json_option

if TYPE_CHECKING:
    from lightloom.core.plan import Plan
    from lightloom.core.strategy import Strategy
    from lightloom.cost.calibration import Calibration
    from lightloom.cost.job import Job


@click.command()
@click.argument("model", metavar="CONFIG.json|NAME|SIZE")
@cluster_option
@click.option("--cards", type=int, default=None, help="cards of the job; whole machine if not said")
@click.option("--tp", type=int, default=1, help="tensor parallel ranks (with sequence parallel)")
@click.option("--pp", type=int, default=1, help="pipeline stages")
@click.option("--dp", type=int, default=None, help="data-parallel replicas; what is left over")
@click.option("--cp", type=int, default=1, help="context parallel ranks")
@click.option("--cp-kind", default="ring", help="ring or all-to-all")
@click.option("--ep", type=int, default=1, help="expert parallel ranks, inside dp x cp x tp")
@click.option("--etp", type=int, default=1, help="tensor parallel ranks of each expert")
@click.option("--vpp", type=int, default=1, help="model chunks per pipeline rank (interleaved)")
@click.option(
    "--schedule",
    default=None,
    help="gpipe, 1f1b, interleaved, zero-bubble, zb-v, dualpipe, dualpipe-v",
)
@click.option("--stage-layers", default="", help="layers of each stage, for example 7,8,8,7")
@click.option("--micro-batch", type=int, default=1, help="sequences of one micro-batch")
@click.option("--global-batch", default=None, help="sequences of one step, or tokens: 4Mtok")
@click.option("--seq", type=int, default=None, help="tokens of a sequence; the model's, <= 8192")
@click.option(
    "--precision",
    default="bf16",
    help="bf16 fp16 fp32 fp8 fp8-block mxfp8 fp4 int8 int4, then operator=kind: bf16,mlp=fp8",
)
@click.option("--recompute", default="none", help="none, selective, full, or layers per stage")
@click.option("--zero", default=None, help="0 1 2 3 fsdp hsdp; the framework's own if not said")
@click.option("--hsdp-shard", type=int, default=None, help="ranks that share one copy under hsdp")
@click.option(
    "--framework", default="megatron", help="megatron mindspeed torchtitan fsdp deepspeed mindspore"
)
@click.option("--task", default="pretrain", help="pretrain, finetune or lora")
@click.option("--lora-rank", type=int, default=16, help="rank of the adapters")
@click.option("--optimizer-dtype", default="fp32", help="type of the two moments")
@click.option("--gradient-dtype", default=None, help="type of accumulated gradients")
@click.option("--offload-optimizer", is_flag=True, help="keep the optimiser in host memory")
@click.option(
    "--sequence-parallel/--no-sequence-parallel",
    default=None,
    help="shard what tensor parallelism repeats",
)
@click.option(
    "--overlap",
    default=None,
    help="tp,ep,pp,grad,param, no-NAME, all or none; the framework's own if not said",
)
@click.option("--flash/--no-flash", default=True, help="fused attention")
@click.option("--calibration", default=None, metavar="FILE", help="constants of your own runs")
@click.option("--imbalance", type=FINITE, default=1.0, help="busiest expert rank over the mean")
@json_option
@click.option("-o", "--output", default=None, metavar="PLAN.json", help="write the plan")
def estimate(
    model: str,
    cluster: str | None,
    as_json: bool,
    output: str | None,
    calibration: str | None,
    **options: Any,
) -> None:  # fmt: skip
    """Price one configuration: step time, memory, power, goodput, every term shown."""
    import msgspec

    from lightloom.core.catalog import load_cluster, load_model, names
    from lightloom.core.errors import InputError
    from lightloom.core.files import write_json
    from lightloom.cost.calibration import read_calibration
    from lightloom.cost.readings import other_readings
    from lightloom.cost.request import Asked, request

    if cluster is None:
        raise InputError("which machine?", out=f"--cluster NAME: {', '.join(names('clusters'))}")
    job, strategy, notes = request(load_model(model), load_cluster(cluster), Asked(**options))
    cal = read_calibration(calibration) if calibration else None
    plan = plan_or_answer(job, strategy, cal)
    details = details_of(job, plan)
    readings = other_readings(job, strategy, cal)
    if output:
        write_json(output, plan)
    if as_json:
        more = {"details": details, "readings": readings, "notes": notes}
        echo_json(msgspec.to_builtins(plan) | more)
        return
    from lightloom.show.estimate import estimate_view, print_view

    print_view(estimate_view(plan, details, [*notes, *plan.prediction.assumptions], readings))
    if output:
        click.echo(f"{_('wrote')} {output}; {_('next')}: lightloom simulate {output}", err=True)


def plan_or_answer(job: Job, strategy: Strategy, cal: Calibration | None = None) -> Plan:
    """Return the plan, or raise InfeasibleError with parts and the smallest change that fits."""
    from lightloom.core.errors import InfeasibleError
    from lightloom.core.units import show_bytes, show_time
    from lightloom.cost.predict import make_plan
    from lightloom.show.estimate import misfit_text

    plan = make_plan(job, strategy, cal, allow_misfit=True)
    p = plan.prediction
    if p.peak_bytes <= job.usable:
        return plan
    from lightloom.cost.neighbours import fitting_neighbours

    chip = job.cluster.chip
    first, parts = misfit_text(p.memory, job.usable, chip.title, chip.hbm_bytes)
    near = fitting_neighbours(job, strategy, cal)
    if near:
        ways = f"   {_('or')}   ".join(
            f"{n.change} ({show_bytes(n.peak_bytes)}, {show_time(n.step_s)})" for n in near
        )
        out = _("smallest change that fits: {w}").format(w=ways)
    else:
        out = _("no change of up to three options fits; use more cards or another machine")
    raise InfeasibleError(f"{first}\n  {parts}", out=out)


def details_of(job: Job, plan: Plan) -> dict[str, float]:
    """Return the figures of the screen that a Plan does not carry. SI units."""
    import numpy as np

    from lightloom.cost.flops import parameters_of, six_n_d
    from lightloom.cost.goodput import goodput_detail, goodput_of
    from lightloom.cost.memory import load_bytes

    s = plan.strategy
    total = parameters_of(job.model).total
    good = goodput_detail(job.cluster, s.world_size, total)
    cards = np.array([float(s.world_size)])
    fail = job.cluster.failures
    low, high = (float(goodput_of(job.cluster, cards, total, h)[0][0])
                 for h in (fail.low, fail.high))  # fmt: skip
    fullest = max(plan.prediction.memory, key=lambda m: m.total)
    largest = job.model.vocab * job.model.hidden / s.tp
    return {
        "six_n_d": six_n_d(job.model, s.tokens), "mtbf_s": good.mtbf_s,
        "checkpoint_s": good.checkpoint_s, "interval_s": good.interval_s,
        "goodput_low": low, "goodput_high": high,
        "load_bytes": load_bytes(fullest.parts, largest), "idle_cards": float(plan.idle_cards),
    }  # fmt: skip
