"""The screen of one configuration: what, how sure, why, what next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lightloom.core.lang import _
from lightloom.core.plan import Plan, StageMemory
from lightloom.core.strategy import Strategy
from lightloom.core.told import told
from lightloom.core.units import show_bytes, show_count, show_flops, show_time, show_watts

GIB = 2.0**30
NAMES = {
    "gemm": "matrix products", "attention": "attention", "experts": "experts",
    "elementwise": "element-wise kernels", "recompute": "recomputation",
    "launch": "launching kernels", "tp": "tensor parallel (tp)", "cp": "context parallel (cp)",
    "ep": "expert all-to-all (ep)", "pp": "pipeline messages (pp)",
    "dp": "gradients and parameters (dp)", "bubble": "pipeline bubble", "optimizer": "optimiser",
    "data": "data and step overhead", "straggler": "waiting for the slowest",
}  # fmt: skip
"""Part of the step -> words."""
MEMORY = {
    "weights": "weights", "gradients": "grads", "optimizer": "optim", "activations": "activ",
    "gathered": "gather", "logits": "logits", "communicators": "comms", "context": "context",
    "fragmentation": "frag",
}  # fmt: skip


def strategy_words(s: Strategy) -> str:
    """Return one line that says how the job is cut."""
    words = [f"{axis} {getattr(s, axis)}" for axis in ("tp", "pp", "cp", "ep", "etp", "dp", "vpp")
             if getattr(s, axis) > 1 or axis == "dp"]  # fmt: skip
    if s.pp > 1:
        words.append(s.schedule)
    words.append(_("micro-batch {m} ({n:,} a step)").format(m=s.micro_batch, n=s.micro_batches))
    words.append(f"ZeRO {s.zero}" if s.zero.isdigit() else s.zero.upper())
    again: str = s.recompute
    if s.recompute_layers:
        again = _("{n} layers a stage").format(n=s.recompute_layers)
    words.append(_("recompute {r}").format(r=again))
    if s.offload_optimizer:
        words.append(_("optimiser on the host"))
    return " · ".join(words)


def _scale(step_s: float) -> tuple[str, float, int]:
    """Return (unit, seconds of one, decimals) in which a step and its parts read best."""
    unit, size = ("ms", 1e-3) if step_s < 1.0 else ("s", 1.0) if step_s < 600.0 else ("min", 60.0)
    value = step_s / size
    return unit, size, 1 if value >= 100.0 else 2 if value >= 10.0 else 3


def time_table(plan: Plan) -> Table:
    """Return the step by part: seconds, share, and what hides under computation."""
    p = plan.prediction
    unit, size, digits = _scale(p.step_s)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(_("step by part"))
    for name in (unit, _("share"), _("hidden")):
        table.add_column(name, justify="right")
    for part, seconds in p.parts.items():
        hidden = p.hidden.get(part, 0.0)
        if seconds <= 5e-5 * p.step_s and hidden <= 5e-5 * p.step_s:
            continue
        table.add_row(_(NAMES.get(part, part)), f"{seconds / size:,.{digits}f}",
                      f"{100.0 * seconds / p.step_s:.1f} %",
                      f"{hidden / size:,.{digits}f}" if hidden > 0.0 else "")  # fmt: skip
    table.add_row(_("step"), f"{p.step_s / size:,.{digits}f}", "100.0 %", "", style="bold")
    return table


def _runs(stages: Sequence[StageMemory]) -> list[tuple[str, StageMemory]]:
    """Return stages with equal memory as one line each."""
    runs: list[tuple[int, int]] = []
    for i, stage in enumerate(stages):
        same = runs and all(
            abs(stage.parts[k] - stages[runs[-1][0]].parts[k]) < 1e6 for k in stage.parts
        )
        runs = [*runs[:-1], (runs[-1][0], i)] if same else [*runs, (i, i)]
    return [(str(a) if a == b else f"{a}-{b}", stages[a]) for a, b in runs]


def memory_table(stages: Sequence[StageMemory], usable: float) -> Table:
    """Return GiB of every stage by part; the fullest is marked."""
    table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=True)
    table.add_column(_("GiB"), no_wrap=True)
    shown = [name for name in MEMORY if any(s.parts.get(name, 0.0) > 5e6 for s in stages)]
    for name in shown:
        table.add_column(_(MEMORY[name]), justify="right", no_wrap=True)
    table.add_column(_("total"), justify="right", style="bold")
    worst = max(s.total for s in stages)
    for label, stage in _runs(stages):
        mark = " *" if stage.total >= worst - 1e6 else ""
        row = [stage.parts.get(n, 0.0) for n in shown] + [stage.total]
        table.add_row(_("stage {n}").format(n=label) + mark, *(f"{x / GIB:.1f}" for x in row),
                      style="red" if stage.total > usable else "")  # fmt: skip
    return table


def head(plan: Plan) -> Text:
    """Return the first lines: what was priced, and the answer with its interval."""
    p, s, m = plan.prediction, plan.strategy, plan.model
    active = plan_active(plan)
    text = Text()
    text.append(f"{m.name}", style="bold")
    text.append(f" · {active} · {plan.cards:,} x {plan.cluster.chip.title} · "
                f"{s.global_batch:,} x {s.seq:,} {_('tokens')} · {s.precision} · {s.task} "
                f"({s.framework})\n")  # fmt: skip
    text.append(strategy_words(s))
    if plan.idle_cards:
        text.append(_(" · {n} cards idle").format(n=f"{plan.idle_cards:,}"), style="yellow")
    text.append("\n\n")
    text.append(f"{show_time(p.step_s)}", style="bold")
    text.append(f"  {show_time(p.low_s)} .. {show_time(p.high_s)} (90 %)", style="dim")
    text.append(f"   {p.tokens_per_s_per_card:,.0f} tok/s/card   MFU {100 * p.mfu:.1f} %   "
                f"HFU {100 * p.hfu:.1f} %\n")  # fmt: skip
    return text


def plan_active(plan: Plan) -> str:
    """Return total (and active) parameters in words."""
    from lightloom.core.params import parameters

    count = parameters(plan.model)
    if plan.model.is_moe:
        return _("{total} ({active} active)").format(
            total=show_count(count.total), active=show_count(count.active)
        )
    return show_count(count.total)


def show_work(flops: float) -> str:
    """Return FLOPs in decimal units: ``"1.78 EFLOP"``, above that in powers of ten."""
    return f"{flops:.3g} FLOP" if flops >= 1e21 else show_flops(flops).removesuffix("/s")


def _most_exposed(plan: Plan) -> str:
    """Return which axis most of the exposed communication is, or nothing where there is little."""
    p = plan.prediction
    shares = {axis: p.parts.get(axis, 0.0) for axis in ("tp", "cp", "ep", "pp", "dp")}
    total = sum(shares.values())
    if total < 0.02 * p.step_s:
        return ""
    axis = max(shares, key=lambda a: shares[a])
    return _("; of the {a:.0f} % exposed communication {b:.0f} % is {c}").format(
        a=100.0 * total / p.step_s, b=100.0 * shares[axis] / total, c=_(NAMES[axis])
    )


def _facts(plan: Plan, details: dict[str, float]) -> list[tuple[str, str]]:
    """Return memory, wall and the check against 6ND as (word, sentence)."""
    p = plan.prediction
    ratio = p.model_flops / max(details["six_n_d"], 1.0)
    memory = _("{a} of {b} usable on the fullest rank; {c} while loading").format(
        a=show_bytes(p.peak_bytes), b=show_bytes(p.usable_bytes),
        c=show_bytes(details["load_bytes"]),
    )  # fmt: skip
    check = _("6ND says {a} a step, the per-layer count {b} ({c:+.1f} %); 6ND takes {d} "
              "at this MFU").format(
        a=show_work(details["six_n_d"]), b=show_work(p.model_flops), c=100.0 * (ratio - 1.0),
        d=show_time(p.step_s / ratio),
    )  # fmt: skip
    wall = told(p.wall) + _most_exposed(plan)
    return [(_("memory"), memory), (_("wall"), wall), (_("check"), check)]


def _running(plan: Plan, details: dict[str, float]) -> list[tuple[str, str]]:
    """Return power and failures as (word, sentence)."""
    p = plan.prediction
    power = _("not known: the chip's file gives no power")
    if p.power_w:
        power = _("{a} at the site, {b} kWh a step, {c:.3g} J per token").format(
            a=show_watts(p.power_w), b=f"{p.energy_j / 3.6e6:,.3g}",
            c=p.energy_j / plan.strategy.tokens,
        )  # fmt: skip
    failures = _("one every {a}; checkpoint of {b} every {c}; goodput {d:.1f} % "
                 "({e:.1f} to {f:.1f})").format(
        a=show_time(details["mtbf_s"]), b=show_time(details["checkpoint_s"]),
        c=show_time(details["interval_s"]), d=100.0 * p.goodput,
        e=100.0 * details["goodput_low"], f=100.0 * details["goodput_high"],
    )  # fmt: skip
    return [(_("power"), power), (_("failures"), failures)]


def closing(plan: Plan, details: dict[str, float], readings: Mapping[str, float]) -> Table:
    """Return the lines below the tables: wall, check, power, failures, readings, trust."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for word, sentence in (*_facts(plan, details), *_running(plan, details)):
        table.add_row(word, sentence)
    step = plan.prediction.step_s
    for change, seconds in readings.items():
        table.add_row(_("if read"), f"{told(change)}: {show_time(seconds)} "
                                    f"({100.0 * (seconds / step - 1.0):+.1f} %)")  # fmt: skip
    table.add_row(_("trust"), told(plan.prediction.trust))
    return table


def notes_table(notes: Sequence[str]) -> Table:
    """Return what was filled in and assumed, one line each."""
    table = Table(box=None, pad_edge=False, show_header=False, style="dim")
    table.add_column(width=1)
    table.add_column(overflow="fold")
    for note in notes:
        table.add_row("-", Text(told(note)))
    return table


def estimate_view(
    plan: Plan, details: dict[str, float], notes: Sequence[str], readings: Mapping[str, float]
) -> RenderableType:
    """Return the whole screen of one configuration."""
    tables: list[RenderableType] = [
        head(plan), time_table(plan), Text(""),
        memory_table(plan.prediction.memory, plan.prediction.usable_bytes), Text(""),
        closing(plan, details, readings), Text(""), notes_table(notes),
    ]  # fmt: skip
    return Group(*tables)


def misfit_text(
    stages: Sequence[StageMemory], usable: float, chip: str, sold: float
) -> tuple[str, str]:
    """Return (first line, parts of the fullest rank) of a configuration that does not fit."""
    worst = max(stages, key=lambda s: s.total)
    first = _("does not fit: {a} needed, {b} usable on stage {s} ({c}, sold as {d})").format(
        a=show_bytes(worst.total), b=show_bytes(usable), s=worst.stage, c=chip, d=show_bytes(sold)
    )
    parts = " · ".join(
        f"{told(name)} {value / GIB:.1f}" for name, value in worst.parts.items() if value > 5e6
    )
    return first, parts


def print_view(view: RenderableType) -> None:
    """Print a view at most 100 columns wide, plain in a pipe."""
    console = Console(width=None, highlight=False, soft_wrap=False)
    if console.width > 100:
        console = Console(width=100, highlight=False)
    console.print(view)
