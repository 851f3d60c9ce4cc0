"""Drills: the same training with faults and without, on real processes, compared step by step."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import msgspec

from lightloom.core.errors import InputError
from lightloom.core.event import parse_fault
from lightloom.core.finding import Finding
from lightloom.core.runs import DrillReport, RunReport

from . import launch, starting, traces
from .report import report
from .spec import Spec, find, fresh_name, load

Say = Callable[[str], None]
TOLERANCE = 1e-5
"""Relative difference of a step's loss that another order of sums may cause."""


def make(target: str, words: tuple[str, ...], options: Mapping[str, Any], say: Say) -> DrillReport:
    """Run a drill and return its report."""
    spec = _base(target, words, options)
    chosen = tuple(options["faults"]) + _random(spec, int(options["count"]), int(options["seed"]))
    if not chosen:
        raise InputError("a drill needs --fault or --random N", out="--fault rank:1@step40")
    chosen = starting.check_faults(
        chosen, spec.ranks, spec.shards > 1 or spec.fabric not in ("auto", "shm")
    )
    spec = msgspec.structs.replace(
        spec, faults=chosen, name=fresh_name(f"drill-{spec.script}".replace(":", "-"))
    )
    say(f"drill of {spec.ranks} ranks, {spec.agents} agents: {' '.join(chosen)}")
    say("expected: no step lost, each recovery within 0.3 s or 3 steps; a hang adds its detection")
    hurt = _train(spec)
    calm = None
    if options["compare"] and hurt.state == "done":
        say("the same without faults")
        plain = fresh_name(f"calm-{spec.script}".replace(":", "-"))
        calm = _train(msgspec.structs.replace(spec, faults=(), name=plain))
    return judge(chosen, hurt, calm)


def _base(target: str, words: tuple[str, ...], options: Mapping[str, Any]) -> Spec:
    """Return the training to drill: an existing run's, a plan's, the example's."""
    over = {
        k: options[k] for k in ("ranks", "spares", "agents", "steps") if options[k] is not None
    }  # fmt: skip
    if target.startswith("example:") or target.endswith((".json", ".py")):
        example = target.removeprefix("example:") if target.startswith("example:") else None
        if example not in (None, "gpt"):
            raise InputError(f"no example {example!r}; there is example:gpt")
        given = words if example else (target, *words)
        spec, _ = starting.specify(given, _defaults(options, example))
        return msgspec.structs.replace(spec, steps=int(options["steps"] or 100))
    old = load(find(target))
    over.setdefault("steps", min(old.steps or 100, 200))
    return msgspec.structs.replace(old, resume="", cwd=old.cwd or os.getcwd(), **over)


def _defaults(options: Mapping[str, Any], example: str | None) -> dict[str, Any]:
    return {
        "example": example, "ranks": options["ranks"], "micro_batches": None, "fabric": "auto",
        "drill": (), "name": None, "spares": options["spares"], "agents": options["agents"],
        "steps": options["steps"], "seed": options["seed"], "deterministic": False,
        "batch": "keep", "wait": False, "least": 1, "snapshot_every": 20, "keep": 3,
        "on_nan": "skip", "no_respawn": False, "source": None, "on": "local", "out": None,
    }  # fmt: skip


def _random(spec: Spec, count: int, seed: int) -> tuple[str, ...]:
    """Return `count` seeded faults spread over the steps, each on another step."""
    random, steps = Random(seed), spec.steps or 100
    room = range(3, max(steps - 2, 4))
    if count > len(room):
        raise InputError(f"{count} faults do not fit {steps} steps; --steps {count + 8}")
    out = []
    for step in sorted(random.sample(room, count)):
        rank = random.randrange(spec.ranks)
        kinds = [f"rank:{rank}"] * 3 + [f"hang:rank:{rank}", f"hang:rank:{rank}"]
        kind = random.choice(kinds)
        tail = random.choice(("", "=loop", "=lock", "=read")) if kind.startswith("hang") else ""
        out.append(f"{kind}@step{step}{tail}")
    return tuple(out)


def _train(spec: Spec) -> RunReport:
    folder = starting.launch_run(spec, resume=False)
    launch.follow(folder)
    traces.write(folder)
    return report(folder)


def judge(faults: tuple[str, ...], hurt: RunReport, calm: RunReport | None) -> DrillReport:
    """Return the answers: finished, nothing lost, same losses, every snapshot checked."""
    checks = [
        _check("finished", hurt.state == "done",
               f"{hurt.state} at step {hurt.steps} of {hurt.wanted_steps} {hurt.why}".strip()),
        _check("steps lost", hurt.lost_steps == 0, str(hurt.lost_steps)),
        _check("survivors", hurt.pids_kept, "kept their processes" if hurt.pids_kept
               else "some were restarted"),
    ]  # fmt: skip
    worst = None
    touched = any(parse_fault(f).kind == "nan" for f in faults)
    if calm is not None and not touched:
        worst = _difference(hurt, calm)
        limit = 0.0 if hurt.deterministic else TOLERANCE
        checks.append(
            _check("loss of each step", worst <= limit,
                   f"differs by at most {worst:.1e} (relative) from the run without faults")
        )  # fmt: skip
    step_s = hurt.step_s or 0.1
    return DrillReport(
        faults=faults, report=hurt, passed=all(c.severity == "info" for c in checks),
        checks=tuple(checks), compared=calm is not None, max_relative_difference=worst,
        expected_recovery_s=max(0.3, 3 * step_s),
    )  # fmt: skip


def _check(subject: str, good: bool, what: str) -> Finding:
    return Finding(severity="info" if good else "error", code="drill", subject=subject, what=what)


def _difference(a: RunReport, b: RunReport) -> float:
    pairs = [
        (x, y) for x, y in zip(a.losses, b.losses, strict=False)
        if x is not None and y is not None
    ]  # fmt: skip
    if not pairs or len(a.losses) != len(b.losses):
        return float("inf")
    return max(abs(x - y) / max(abs(y), 1e-12) for x, y in pairs)
