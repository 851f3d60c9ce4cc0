"""``lightloom explain``: why this plan, which neighbours it beat, what would flip it."""

from __future__ import annotations

import click

from lightloom.core.lang import _

from .options import echo_json, json_option


@click.command()
@click.argument("path", metavar="PLAN.json")
@json_option
def explain(path: str, as_json: bool) -> None:
    """Say why a plan was chosen: neighbours, what binds, what would flip it."""
    from lightloom.core.files import read_json
    from lightloom.core.plan import Plan
    from lightloom.core.told import told
    from lightloom.core.units import show_bytes, show_time
    from lightloom.cost.job import Job
    from lightloom.plan.explain import flips, neighbours, why_best
    from lightloom.show.estimate import strategy_words

    plan = read_json(path, Plan, "plan")
    s, p = plan.strategy, plan.prediction
    job = Job(model=plan.model, cluster=plan.cluster, cards=plan.cards, seq=s.seq,
              global_batch=s.global_batch, framework=s.framework, task=s.task)  # fmt: skip
    beaten = neighbours(job, plan)
    turned = flips(job, plan, list(plan.rejected))
    if as_json:
        echo_json({
            "strategy": s, "wall": p.wall, "why": plan.why or why_best(plan),
            "neighbours": [b._asdict() for b in beaten],
            "rejected": plan.rejected, "flips": [f._asdict() for f in turned],
        })  # fmt: skip
        return
    on = _("{m} on {n:,} x {c}").format(m=plan.model.name, n=plan.cards, c=plan.cluster.chip.title)
    click.echo(f"{on}: {strategy_words(s)}")
    binds = _("{t} a step; {w} binds").format(t=show_time(p.step_s), w=told(p.wall))
    click.echo(f"{binds}; {told(plan.why or why_best(plan))}\n")
    click.echo(_("neighbours (one choice changed):"))
    for b in beaten[:14]:
        mark = " " if b.fits else "x"
        click.echo(f" {mark} {b.change:28} {show_time(b.step_s):>9}  {show_bytes(b.peak_bytes):>9}"
                   f"  {told(b.why)}")  # fmt: skip
    better = [b for b in beaten if b.fits and b.step_s < p.step_s * (1 - 1e-9)]
    if better:
        click.echo("\n" + _("{n} of them are faster: this plan was fixed by hand or by --fix")
                   .format(n=len(better)))  # fmt: skip
    click.echo("\n" + _("what would flip it:"))
    for f in turned:
        t = f.to
        then = f"tp {t.tp} pp {t.pp} ep {t.ep} cp {t.cp} dp {t.dp}"
        click.echo(f"   {told(f.what)}: {_('then')} {then}")
    if not turned:
        click.echo("   " + _("no level's links, up to 64 times slower or faster, among the "
                             "runners-up"))  # fmt: skip
