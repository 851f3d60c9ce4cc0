"""From the words of the command line to a specification, and from that to agents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from lightloom.core.errors import InputError, RunError
from lightloom.core.event import parse_fault
from lightloom.core.files import read_json
from lightloom.core.placement import Placement
from lightloom.core.plan import Plan

from . import engines, fallback, launch, preflight, sharded
from .spec import Spec, find, fresh_name, home, load

RANK_FAULTS = ("rank", "hang", "nan", "slow", "link")


def specify(words: tuple[str, ...], options: dict[str, Any], price: fallback.Price | None = None
            ) -> tuple[Spec, list[str]]:  # fmt: skip
    """Return the specification and what the user should know before the start.

    `price` asks the planner for layouts to fall back to.
    """
    rest, plan, notes = list(words), None, []
    if rest and rest[0].endswith(".json"):
        plan = read_json(rest[0], Plan, "plan")
        plan_path = str(Path(rest.pop(0)).resolve())
    example = options["example"]
    if not example and not rest:
        raise InputError(
            "nothing to run", out="lightloom run [PLAN.json] -- train.py ARGS, or --example gpt"
        )
    script = f"example:{example}" if example else str(Path(rest.pop(0)).resolve())
    if not example and not Path(script).is_file():
        raise InputError(f"script {script} does not exist")
    ranks = options["ranks"] or (plan.strategy.world_size if plan else 3)
    cut = fallback.choose(plan, options.get("shards"), options.get("replan"), price)
    shards = cut.shards
    notes += _sharded(ranks, shards, options["snapshot_every"], options.get("copies", "auto"))
    micro = options["micro_batches"] or 0
    if plan is not None:
        micro = micro or plan.strategy.micro_batches * (ranks // shards)
        follows = options.get("shards") == "plan"
        notes += against_plan(plan, ranks, bool(options["ranks"]), follows)
    notes += cut.notes
    _present(options["fabric"])
    engines.require(options.get("on", "local"))
    if options["fabric"] not in ("auto", "shm") and options["deterministic"]:
        raise InputError("--deterministic needs sums in a fixed order", out="--fabric shm")
    if micro and micro < ranks // shards:
        notes.append(
            f"{micro} micro-batches for {ranks // shards} replicas: some only shadow the first"
        )
    grouped = shards > 1 or options["fabric"] not in ("auto", "shm")
    faults = check_faults(tuple(options["drill"]), ranks, grouped)
    spec = Spec(
        name=options["name"] or fresh_name(script.replace(":", "-")), script=script,
        args=tuple(rest), ranks=ranks, spares=options["spares"],
        agents=options["agents"] or min(2, ranks), micro_batches=micro,
        steps=options["steps"] or (300 if example else 0), seed=options["seed"],
        deterministic=options["deterministic"], rescale=options["batch"] == "rescale",
        wait=options["wait"], least=options["least"], fabric=options["fabric"],
        snapshot_every=options["snapshot_every"], keep=options["keep"],
        copies=options.get("copies", "auto"), on_nan=options["on_nan"],
        respawn=not options["no_respawn"], faults=faults, plan=plan_path if plan else "",
        engine=options.get("on", "local"), shards=shards, layouts=cut.texts,
        order=plan.placement.order if plan else Placement().order,
        cwd=os.getcwd(), resume=_source(options["source"]),
    )  # fmt: skip
    if spec.agents > ranks:
        raise InputError(
            f"{spec.agents} agents for {ranks} ranks: an agent needs a rank of its own"
        )
    return spec, notes


def _sharded(ranks: int, shards: int, snapshots: int, copies: str) -> list[str]:
    """Raise unless the ranks are whole replicas; say what the loss of a rank costs."""
    if ranks % shards:
        raise InputError(
            f"{ranks} ranks are no whole replicas of {shards} shards",
            out=f"--ranks {(ranks // shards + 1) * shards} --shards {shards}",
        )
    if ranks > shards or copies != "off":
        return []
    way = "rewinds to the newest snapshot" if snapshots else "ends"
    return [f"one replica: a lost rank has no other holder of its shard; the run then {way}"]


def _present(fabric: str) -> None:
    """Raise unless the device a fabric needs is here (device files, torch is not imported)."""
    needed = {"nccl": "/dev/nvidia0", "hccl": "/dev/davinci0"}.get(fabric)
    if needed and not Path(needed).exists():
        raise RunError(
            f"--fabric {fabric}: no such device here ({needed} is absent)",
            out="--fabric auto trains on CPU through shared memory",
        )


def _source(path: str | None) -> str:
    if not path:
        return ""
    folder = Path(path).resolve()
    problem = sharded.verify(folder)
    if problem:
        raise InputError(f"--from {path}: {problem}", out="lightloom snapshots list")
    return str(sharded.parts(folder)[0])


def check_faults(texts: tuple[str, ...], ranks: int, grouped: bool) -> tuple[str, ...]:
    """Return the faults if this run can have them; `grouped`: its ranks have connections."""
    for text in texts:
        fault = parse_fault(text)
        where = fault.where.rsplit(":", 1)[-1]
        if fault.kind in RANK_FAULTS and not (where.isdigit() and int(where) < ranks):
            raise InputError(
                f"fault {text!r}: rank {where or '?'} is not one of 0 to {ranks - 1}",
                out="for example rank:1@step40",
            )
        if fault.kind == "hang" and fault.much not in ("", "stop", "loop", "lock", "read"):
            raise InputError(f"fault {text!r}: a hang is =stop, =loop, =lock or =read")
        if fault.kind == "link" and (fault.much not in ("", "dead") or not grouped):
            raise InputError(
                f"fault {text!r}: " + ("ranks meet in shared memory here: there is no link"
                if not grouped else "a link is cut once, or for good with =dead"),
                out="link:rank:1@step40 with --fabric gloo or --shards N",
            )  # fmt: skip
        if fault.kind == "disk" and fault.much != "full":
            raise InputError(f"fault {text!r}: a disk can be full", out="disk@step30=full")
        if fault.kind == "snapshot" and fault.much not in ("flip", "truncate"):
            raise InputError(f"fault {text!r}: a snapshot is =flip or =truncate")
        if fault.kind not in (*RANK_FAULTS, "agent", "store", "snapshot", "disk"):
            raise InputError(
                f"fault {text!r}: a run on this host has no {fault.kind}",
                out="ranks, agents, snapshots and the disk; fabrics fail in lightloom simulate",
            )
    return texts


def against_plan(plan: Plan, ranks: int, given: bool, follows: bool = False) -> list[str]:
    """Return what differs between a plan and this host; raises where it cannot run at all.

    `follows`: replicas are cut as the plan says.
    """
    s = plan.strategy
    if not given and s.world_size > 16:
        raise InputError(
            f"the plan wants {s.world_size} ranks on {plan.cluster.name}; this is one host",
            out=f"--ranks {s.world_size // s.dp if follows else 4} runs the same loop with "
            f"{'one replica' if follows else '4 replicas'} here; lightloom emit writes the "
            "launch files for the real machine",
        )
    if given and ranks != s.world_size and ranks > s.world_size:
        raise InputError(f"--ranks {ranks}: the plan has {s.world_size}")
    notes = [f"plan: {plan.model.name} on {plan.cluster.name}, {s.world_size} ranks "
             f"(tp {s.tp}, pp {s.pp}, cp {s.cp}, dp {s.dp})"]  # fmt: skip
    inside = s.tp * s.pp * s.cp
    if follows:
        notes.append(
            f"emulated here: dp {ranks // inside} (the plan has {s.dp}) of the script's own model, "
            f"cut as the plan says, on CPU; micro-batches per replica ({s.micro_batches}) are kept"
        )
    elif inside > 1 or ranks != s.world_size:
        notes.append(
            f"emulated here: {ranks} data-parallel replicas of the script's own model on CPU; "
            f"tp, pp and cp of the plan are left out, micro-batches per replica "
            f"({s.micro_batches}) are kept"
        )
    return notes


def launch_run(spec: Spec, resume: bool) -> Path:
    """Check the host, then start a new run or go on with an old one; returns its folder."""
    findings = preflight.check(spec, home())
    bad = [f for f in findings if f.severity == "error"]
    if bad:
        raise RunError(f"{bad[0].code}: {bad[0].what} ({bad[0].subject})", out=bad[0].remedy)
    if resume:
        folder = find(spec.name) if (home() / spec.name).exists() else newest_of(spec.script)
        old = load(folder)
        launch.resume(folder, msgspec.structs.replace(spec, name=old.name))
        return folder
    return launch.start(spec)


def newest_of(script: str) -> Path:
    """Return the newest run of a script."""
    from .spec import folders

    for folder in reversed(folders()):
        if load(folder).script == script:
            return folder
    raise InputError(f"--resume: no earlier run of {script} in {home()}")
