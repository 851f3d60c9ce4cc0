"""A run's files read back as one report, a Timeline and Telemetry."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from lightloom.core.errors import InputError
from lightloom.core.finding import Finding
from lightloom.core.runs import Recovery, RunReport, RunState, SnapshotInfo
from lightloom.recover.decide import LINK
from lightloom.recover.record import RECUT, SNAPSHOT

from . import sharded, snapshot
from .launch import events
from .log import read_lines
from .spec import Spec, living, load

Event = dict[str, Any]


def report(folder: Path) -> RunReport:
    """Return the report of a run, whether it runs, has ended or was cut off."""
    spec, found = load(folder), events(folder)
    steps = read_lines(folder, "steps")
    committed = _committed(folder, spec)
    losses = _losses(steps, committed, _first(spec))
    rows = recoveries(found, spec)
    times = sorted(r.recovery_s for r in rows)
    epochs = [e for e in found if e["kind"] == "epoch"]
    state, why = _state(folder, found, bool(committed))
    step_s = _step_s(steps)
    last = epochs[-1]["members"] if epochs else []
    return RunReport(
        name=spec.name, state=state, why=why, folder=str(folder), script=spec.script,
        ranks=spec.ranks, world=len(last), agents=spec.agents, spares=spec.spares,
        steps=committed, wanted_steps=spec.steps, first_step=_first(spec),
        lost_steps=sum({e["number"]: e["lost"] for e in epochs}.values()),
        recovery_s=times[-1] if times else None,
        recovery_median_s=median(times) if times else None, recoveries=tuple(rows),
        pids_kept=_pids_kept(found), step_s=step_s,
        loss_first=next((x for x in losses if x is not None), None),
        loss_last=next((x for x in reversed(losses) if x is not None), None),
        losses=tuple(losses), goodput=_goodput(steps, epochs, committed),
        wall_s=(int(found[-1]["at_ns"]) - int(found[0]["at_ns"])) / 1e9 if found else 0.0,
        epochs=len({e["number"] for e in epochs}), hangs=tuple(_hangs(found)),
        findings=tuple(_findings(found)), snapshots=tuple(snapshots(folder / "snapshots")),
        timeline=_if(folder / "timeline.json.gz"), telemetry=_if(folder / "telemetry.json.gz"),
        fabric=spec.fabric if spec.fabric != "auto" else "shm", deterministic=spec.deterministic,
    )  # fmt: skip


def _if(path: Path) -> str:
    return str(path) if path.exists() else ""


def _first(spec: Spec) -> int:
    return int(Path(spec.resume).name.rsplit("-", 1)[-1]) if spec.resume else 0


def _committed(folder: Path, spec: Spec) -> int:
    """Return the last committed step in the record, rewinds undone."""
    last: dict[int, int] = {}
    for entry in read_lines(folder, "record"):
        number = int(entry["epoch"])
        step = int(entry.get("commit", entry.get("base", 0)))
        last[number] = max(last.get(number, 0), step)
    return last[max(last)] if last else _first(spec)


def _state(folder: Path, found: list[Event], trained: bool) -> tuple[RunState, str]:
    failed = [e for e in found if e["kind"] == "failed"]
    ends = [e for e in found if e["kind"] == "end"]
    if failed:
        return "failed", str(failed[0]["why"])
    if ends:
        return ("stopped" if ends[-1]["stopped"] else "done"), ""
    if living(folder):
        return ("running" if trained else "starting"), ""
    if any(e["kind"] == "over" for e in found):
        return "done", "the script never used the library"
    if any(e["kind"] == "left" for e in found) and not trained:
        return "stopped", "stopped before the first step"
    return "dead", "its agents ended without a word (reboot, kill); resume it"


def _losses(steps: list[Event], committed: int, first: int) -> list[float | None]:
    by_step: dict[int, float | None] = {}
    for line in steps:
        by_step[int(line["step"])] = line["loss"]
    return [by_step.get(s) for s in range(first + 1, committed + 1)]


def _ends(steps: list[Event]) -> dict[int, int]:
    """Return step -> nanoseconds at which its gradients were reduced first."""
    ends: dict[int, int] = {}
    for line in steps:
        if len(line["marks"]) >= 4:
            ends.setdefault(int(line["step"]), int(line["marks"][3]))
    return ends


def _step_s(steps: list[Event]) -> float | None:
    ends = _ends(steps)
    gaps = [(ends[s] - ends[s - 1]) / 1e9 for s in ends if s - 1 in ends and ends[s] > ends[s - 1]]
    return median(gaps) if gaps else None


def _goodput(steps: list[Event], epochs: list[Event], committed: int) -> float | None:
    """Return the share of the wall time that the steps would have needed undisturbed.

    Undisturbed is the mean step of epochs with all members, their first steps left out: so
    recoveries, hand-overs and steps of a shrunk job all count as lost.
    """
    ends = _ends(steps)
    if committed not in ends or len(ends) < 3:
        return None
    world = {int(e["number"]): len(e["members"]) for e in epochs}
    starts = {int(e["base"]) + 1 for e in epochs}
    number = {int(x["step"]): int(x["epoch"]) for x in steps}
    full = max(world.values(), default=0)
    calm = [
        ends[s] - ends[s - 1]
        for s in ends
        if s - 1 in ends and s not in starts and world.get(number[s]) == full
    ]
    first = min(ends)
    wall = ends[committed] - ends[first]
    if not calm or wall <= 0:
        return None
    return min((committed - first) * sum(calm) / len(calm) / wall, 1.0)


def recoveries(found: list[Event], spec: Spec) -> list[Recovery]:
    """Return one row per loss that cost a member, in time order."""
    epochs = {int(e["number"]): e for e in reversed(found) if e["kind"] == "epoch"}
    firsts: dict[int, Event] = {}
    for e in found:
        if e["kind"] == "first-commit":
            firsts.setdefault(int(e["epoch"]), e)
    rows = []
    for number in sorted(epochs):
        before = epochs.get(number - 1)
        if before is None or "lost" not in epochs[number]["why"]:
            continue
        gone = {m[1] for m in before["members"]} - {m[1] for m in epochs[number]["members"]}
        after = [firsts[n] for n in sorted(firsts) if n >= number]
        if (gone or epochs[number]["why"] == LINK) and after:
            rows.append(_recovery(found, epochs[number], before, gone, after[0], spec.shards))
    return rows


def _recovery(
    found: list[Event],
    epoch: Event,
    before: Event,
    gone: set[int],
    first: Event,
    shards: int,
) -> Recovery:
    broken = [e for e in found if e["kind"] == "broken" and e["epoch"] == before["number"]
              and epoch["why"] == LINK]  # fmt: skip
    deaths = [e for e in found if e["kind"] == "death" and e["uid"] in gone]
    agents = [e for e in found if e["kind"] in ("agent-death", "killing")
              and int(e["at_ns"]) <= int(epoch["at_ns"])
              and any(m[2] == e.get("lost", e["agent"]) for m in before["members"]
                      if m[1] in gone)]  # fmt: skip
    injected = [int(d["killed_ns"]) for d in deaths if d["killed_ns"]]
    injected += [int(e["at_ns"]) for e in agents if e["kind"] == "killing"]
    injected += [int(e["killed_ns"]) for e in broken if e["killed_ns"]]
    seen = [int(epoch["at_ns"]), *(int(e["at_ns"]) for e in [*deaths, *agents, *broken])]
    began = min(injected) if injected else min(seen)
    how = next((str(d["how"]) for d in deaths if d["how"]), "")
    if not how and deaths:
        code = deaths[0]["code"]
        how = "killed" if code in (None, -9) else _code(int(code))
    return Recovery(
        what=str(epoch["why"]), how="broken" if broken else how or "agent killed",
        decision=_decision(epoch, before, shards),
        step=int(first["step"]), epoch=int(epoch["number"]),
        recovery_s=(int(first["at_ns"]) - began) / 1e9, expected_s=epoch.get("expected_s"),
        detect_s=(int(epoch["at_ns"]) - began) / 1e9 if injected else None,
        lost_steps=int(epoch["lost"]), from_failure=bool(injected),
    )  # fmt: skip


def _decision(epoch: Event, before: Event, shards: int) -> str:
    """Return what was done about a loss, in one word."""
    newcomers = {m[1] for m in epoch["members"]} - {m[1] for m in before["members"]}
    if any(donor == SNAPSHOT for _, donor in epoch["joins"]):
        return "rewind"
    if any(donor == RECUT for _, donor in epoch["joins"]):
        return "re-plan"
    if epoch["why"] == LINK:
        other_way = shards == 1 and epoch["rerouted"] and not before["rerouted"]
        return "reroute" if other_way else "regroup"
    if not newcomers:
        return "shrink"
    return "copy" if epoch["kept"] else "spare"


def _code(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _pids_kept(found: list[Event]) -> bool:
    """Return whether no process was ever restarted under the uid of a survivor."""
    pids: dict[int, int] = {}
    for e in found:
        if e["kind"] == "rank" and pids.setdefault(int(e["uid"]), int(e["pid"])) != e["pid"]:
            return False
    return True


def _hangs(found: list[Event]) -> list[dict[str, str]]:
    return [
        {
            "rank": str(e["slot"]), "how": str(e["how"]), "step": str(e["step"]),
            "phase": str(e["phase"]), "kernel": str(e["kernel"]),
            "at": next(iter(e["stack"]), ""),
        }
        for e in found
        if e["kind"] == "hang"
    ]  # fmt: skip


def _findings(found: list[Event]) -> list[Finding]:
    out = []
    for e in found:
        if e["kind"] == "note":
            out.append(
                Finding(severity="warning", code=e["code"], subject=f"rank {e['slot']}",
                        what=e["text"], numbers=e["numbers"])
            )  # fmt: skip
        elif e["kind"] == "snapshot" and e["why"]:
            out.append(
                Finding(severity="error", code="snapshot-failed", subject=f"step {e['step']}",
                        what=e["why"], remedy="free space; training went on")
            )  # fmt: skip
        elif e["kind"] in ("bad-snapshot", "excluded", "fence"):
            out.append(
                Finding(severity="warning", code=e["kind"],
                        subject=f"step {e['step']}" if "step" in e else f"agent {e['agent']}",
                        what=str(e["why"]))
            )  # fmt: skip
    return out


def snapshots(folder: Path, check: bool = False) -> list[SnapshotInfo]:
    """Return the snapshots of a folder, oldest first; `check` reads every byte."""
    return [_info(path, check) for path in sharded.folders(folder)]


def _info(path: Path, check: bool) -> SnapshotInfo:
    parts = sharded.parts(path)
    try:
        found = [snapshot.manifest(p) for p in parts]
        return SnapshotInfo(
            path=str(path), step=found[0].step, cursor=found[0].cursor,
            bytes=sum(m.size for m in found), made_s=max(m.made_s for m in found),
            problem=sharded.verify(path) if check else "", checked=check, shards=len(parts),
        )  # fmt: skip
    except InputError as error:
        step = int(path.name.rsplit("-", 1)[-1])
        return SnapshotInfo(path=str(path), step=step, cursor=0, bytes=0, made_s=0.0,
                            problem=str(error), checked=True, shards=len(parts))  # fmt: skip
