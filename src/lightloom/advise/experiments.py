"""Experiments: every run recorded, one variable at a time, changes attributed with their noise.

SQLite; one file per team. Two runs differ in one variable or nothing is attributed: the answer then
names the runs that are missing between them.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import math
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lightloom.core.errors import InfeasibleError, InputError, nearest
from lightloom.core.strategy import Strategy
from lightloom.core.trial import Attribution, Difference, Figure, Trial

SCHEMA = 1
LARGEST_T = {
    1: 12.71,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
    10: 2.228,
    12: 2.179,
    15: 2.131,
    20: 2.086,
    30: 2.042,
    60: 2.0,
}
"""Two-sided 95 % quantile of Student's t by degrees of freedom."""
LOWER_IS_BETTER = (
    "step_s",
    "seconds",
    "memory",
    "loss",
    "cost",
    "energy",
    "latency",
    "_s",
    "bytes",
)
HIGHER = ("tokens", "mfu", "hfu", "throughput", "goodput", "samples")


@contextlib.contextmanager
def opened(path: str, *, create: bool = False) -> Iterator[sqlite3.Connection]:
    """Yield the database; InputError where it is not one of ours."""
    if not create and not Path(path).is_file():
        raise InputError(
            f"experiments: {path} does not exist",
            out="lightloom experiment record --db FILE makes it",
        )
    try:
        base = sqlite3.connect(path, timeout=20.0)
    except sqlite3.Error as error:
        raise InputError(f"experiments: {path} cannot be opened: {error}") from error
    try:
        with base:
            _check(base, path, create)
            yield base
    except sqlite3.DatabaseError as error:
        raise InputError(f"experiments: {path}: {error}", out="another --db") from error
    finally:
        base.close()


def _check(base: sqlite3.Connection, path: str, create: bool) -> None:
    version = base.execute("pragma user_version").fetchone()[0]
    tables = base.execute("select count(*) from sqlite_master").fetchone()[0]
    if version == 0 and tables == 0 and create:
        base.execute(
            "create table trial (id integer primary key, study text not null, name text "
            "not null, body blob not null, unique (study, name))"
        )
        base.execute(f"pragma user_version = {SCHEMA}")
    elif version != SCHEMA:
        raise InputError(f"experiments: {path} is not ours (version {version})", out="another --db")


def record(path: str, trial: Trial) -> Trial:
    """Return the trial with its number, written; a name is used once per study."""
    if not trial.figures:
        raise InputError(f"{trial.name}: no figure", out="--figure step_s=4.2,4.3,4.1 or a report")
    with opened(path, create=True) as base:
        body = msgspec.json.encode(trial)
        try:
            row = base.execute(
                "insert into trial (study, name, body) values (?, ?, ?)",
                (trial.study, trial.name, body),
            )
        except sqlite3.IntegrityError as error:
            raise InputError(
                f"study {trial.study} has a run {trial.name} already",
                out="--name another; a record is never changed",
            ) from error
        return msgspec.structs.replace(trial, id=int(row.lastrowid or 0))


def trials(path: str, study: str) -> list[Trial]:
    """Return the trials of a study in the order of recording."""
    with opened(path) as base:
        rows = base.execute("select id, body from trial where study = ? order by id", (study,))
        found = [
            msgspec.structs.replace(msgspec.json.decode(body, type=Trial), id=number)
            for number, body in rows.fetchall()
        ]
        known = [r[0] for r in base.execute("select distinct study from trial").fetchall()]
    if not found:
        raise InputError(
            f"no study {study!r} in {path}{nearest(study, known)}",
            out=f"studies: {', '.join(known) or 'none'}",
        )
    return found


def known_trials(path: str, study: str) -> list[Trial]:
    """Return the trials of a study; none where nothing was recorded yet."""
    if not Path(path).is_file():
        return []
    with opened(path) as base:
        rows = base.execute("select body from trial where study = ? order by id", (study,))
        return [msgspec.json.decode(body, type=Trial) for (body,) in rows.fetchall()]


def check_variable(name: str, all_trials: Sequence[Trial], config: dict[str, str]) -> None:
    """Raise InputError where `name` is no variable of the study or of a strategy, but near one."""
    known = {*Strategy.__struct_fields__, *config, *(k for t in all_trials for k in t.config)}
    near = difflib.get_close_matches(name, sorted(known), cutoff=0.75)
    if near and name not in known:
        raise InputError(f"--set {name}: unknown variable; nearest: {', '.join(near)}",
                         out=f"--new {name}=VALUE for one of its own")  # fmt: skip


def find(all_trials: Sequence[Trial], name: str) -> Trial:
    """Return a trial by name or number."""
    for trial in all_trials:
        if name in (trial.name, str(trial.id)):
            return trial
    names = [t.name for t in all_trials]
    raise InputError(
        f"no run {name!r} in the study{nearest(name, names)}", out=f"runs: {', '.join(names[:12])}"
    )


def digest(environment: dict[str, str]) -> str:
    """Return the first 12 digits of the SHA-256 of an environment."""
    text = "\n".join(f"{k}={v}" for k, v in sorted(environment.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def parse_figure(text: str) -> tuple[str, Figure]:
    """Return (name, figure) of ``step_s=4.2,4.3,4.1`` (samples) or ``mfu=0.41``."""
    name, mark, values = (part.strip() for part in text.partition("="))
    try:
        samples = [float(v) for v in values.split(",")]
    except ValueError as error:
        raise InputError(
            f"--figure {text!r}: not numbers", out="--figure step_s=4.2,4.3,4.1"
        ) from error
    if not mark or not name or not all(math.isfinite(v) for v in samples):
        raise InputError(f"--figure {text!r}: not NAME=NUMBERS", out="--figure step_s=4.2,4.3,4.1")
    if min(samples) < 0.0 and name.endswith(("_s", "_bytes", "mfu")):
        raise InputError(f"--figure {text!r}: {name} is never below 0")
    return name, figure_of(samples)


def figure_of(samples: Sequence[float], unit: str = "", source: str = "measured") -> Figure:
    """Return mean, deviation and count of samples."""
    mean = sum(samples) / len(samples)
    if len(samples) < 2:
        return Figure(mean=mean, unit=unit, source=source)
    std = math.sqrt(sum((v - mean) ** 2 for v in samples) / (len(samples) - 1))
    return Figure(mean=mean, std=std, n=len(samples), unit=unit, source=source)


def read_plan(data: dict[str, Any]) -> tuple[dict[str, str], dict[str, Figure]]:
    """Return configuration and predicted figures of a plan file."""
    strategy, p = data.get("strategy", {}), data.get("prediction", {})
    config = {k: _text(v) for k, v in strategy.items()}
    config["model"] = str(data.get("model", {}).get("name", ""))
    config["cluster"] = str(data.get("cluster", {}).get("name", ""))
    config["cards"] = str(data.get("cards", ""))
    names = ("step_s", "mfu", "tokens_per_s_per_card", "exposed_comm", "bubble", "goodput")
    figures = {n: Figure(mean=float(p[n]), source="predicted") for n in names if n in p}
    if p.get("memory"):
        most = max(sum(s["parts"].values()) for s in p["memory"])
        figures["memory_bytes"] = Figure(mean=most, unit="B", source="predicted")
    return config, figures


def read_report(data: dict[str, Any]) -> tuple[dict[str, str], dict[str, Figure]]:
    """Return configuration and measured figures of a run report."""
    config: dict[str, str] = {
        str(k): _text(data[k])
        for k in ("script", "ranks", "agents", "fabric", "deterministic")
        if k in data
    }
    figures: dict[str, Figure] = {}
    for name in ("step_s", "goodput", "loss_last", "recovery_s"):
        if isinstance(data.get(name), int | float):
            figures[name] = Figure(mean=float(data[name]))
    return config, figures


def read_file(data: bytes, where: str) -> tuple[dict[str, str], dict[str, Figure]]:
    """Return what a plan, a run report or an advice says of a run."""
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise InputError(f"{where}: {error}") from error
    if isinstance(found, dict) and found.get("kind") == "plan":
        return read_plan(found)
    if isinstance(found, dict) and "report" in found and isinstance(found["report"], dict):
        return read_report(found["report"])
    if isinstance(found, dict) and "losses" in found and "state" in found:
        return read_report(found)
    if isinstance(found, dict) and found.get("kind") == "advice":
        return {}, {"step_s": Figure(mean=float(found["step_s"]), source="profile")}
    raise InputError(
        f"{where}: not a plan, a run report or an advice",
        out="--set tp=8 --figure step_s=4.2,4.3 says it by hand",
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def changed(a: Trial, b: Trial) -> dict[str, tuple[str, str]]:
    """Return variables that differ: configuration by name, environment as env.NAME."""
    out = {}
    for prefix, left, right in (("", a.config, b.config), ("env.", a.environment, b.environment)):
        for name in sorted(set(left) | set(right)):
            pair = (left.get(name, "-"), right.get(name, "-"))
            if pair[0] != pair[1]:
                out[prefix + name] = pair
    if "dp" in out and follows(a.config, b.config) and len(out) > 1:
        del out["dp"]
    return out


def follows(a: dict[str, str], b: dict[str, str]) -> bool:
    """Return whether dp only fills up the same number of ranks: it is then no variable."""
    axes = ("tp", "pp", "cp", "dp")
    worlds = [
        math.prod(int(c[x]) for x in axes if c.get(x, "").isdigit()) for c in (a, b) if "dp" in c
    ]
    return len(worlds) == 2 and worlds[0] == worlds[1]


def attribute(all_trials: Sequence[Trial], a: Trial, b: Trial) -> Attribution:
    """Return what one variable did; refuse where none or several changed."""
    found = changed(a, b)
    if not found:
        raise InfeasibleError(
            f"{a.name} and {b.name} do not differ in any recorded variable",
            out="two runs of the same configuration show the noise: record both "
            "as samples of one, --figure step_s=4.2,4.3",
        )
    if len(found) > 1:
        raise InfeasibleError(
            f"{len(found)} variables changed between {a.name} and {b.name}: "
            + "; ".join(f"{k} {x} -> {y}" for k, (x, y) in found.items()),
            out=missing_runs(all_trials, a, b, found),
        )
    variable, (before, after) = next(iter(found.items()))
    rows = tuple(
        difference(name, a.figures[name], b.figures[name])
        for name in a.figures
        if name in b.figures and a.figures[name].source == b.figures[name].source
    )
    if not rows:
        raise InfeasibleError(
            f"{a.name} and {b.name} have no figure of one kind in common",
            out=f"{a.name}: {', '.join(a.figures)}; {b.name}: {', '.join(b.figures)}",
        )
    return Attribution(
        a=a.name,
        b=b.name,
        variable=variable,
        before=before,
        after=after,
        differences=rows,
        text=sentence(variable, before, after, rows),
    )


def missing_runs(
    all_trials: Sequence[Trial], a: Trial, b: Trial, found: dict[str, tuple[str, str]]
) -> str:
    """Return the runs between that exist, or the ones to make: one variable each."""
    between = [
        t.name
        for t in all_trials
        if t.id not in (a.id, b.id)
        and len(changed(a, t)) == 1
        and changed(a, t).items() <= found.items()
    ]
    if between:
        return f"attribute {a.name} {between[0]}: it changes one of them"
    (name, (_, value)) = next(iter(found.items()))
    return f"run {a.name} again with only {name} = {value}, record it, and attribute in two steps"


def quantile(freedom: float) -> float:
    """Return Student's t at 95 %, of the next smaller tabulated freedom."""
    known = [n for n in LARGEST_T if n <= max(freedom, 1.0)]
    return LARGEST_T[max(known)] if freedom < 120 else 1.96


def difference(name: str, a: Figure, b: Figure) -> Difference:
    """Return the change with its 95 % interval (Welch 1947), where both have samples."""
    change = b.mean / a.mean - 1.0 if a.mean else math.copysign(1e9, b.mean) if b.mean else 0.0
    if a.std is None or b.std is None or not a.mean:
        return Difference(
            figure=name,
            a=a.mean,
            b=b.mean,
            change=change,
            low=None,
            high=None,
            real=None,
            unit=a.unit,
        )
    va, vb = a.std**2 / a.n, b.std**2 / b.n
    total = va + vb
    freedom = total**2 / (va**2 / (a.n - 1) + vb**2 / (b.n - 1)) if total else 1e9
    half = quantile(freedom) * math.sqrt(total)
    gap = b.mean - a.mean
    low, high = sorted(((gap - half) / a.mean, (gap + half) / a.mean))
    return Difference(
        figure=name,
        a=a.mean,
        b=b.mean,
        change=change,
        low=low,
        high=high,
        real=low > 0 or high < 0,
        unit=a.unit,
    )


def better(name: str, change: float) -> str:
    """Return whether a change is for the better, in a word."""
    if any(word in name for word in HIGHER):
        return "better" if change > 0 else "worse"
    if any(name.endswith(word) or word in name for word in LOWER_IS_BETTER):
        return "better" if change < 0 else "worse"
    return "changed"


def sentence(variable: str, before: str, after: str, rows: Sequence[Difference]) -> str:
    """Return the answer in one sentence, on the first figure."""
    head = f"{variable} {before} -> {after}: "
    first = next((r for r in rows if r.figure == "step_s"), rows[0])
    if first.real is None:
        return head + (
            f"{first.figure} {first.change:+.1%}, but the noise is not known: record "
            "several samples"
        )
    span = f"({first.low:+.1%} .. {first.high:+.1%}, 95 %)"
    if not first.real:
        return head + f"no effect on {first.figure} beyond the noise {span}"
    return head + f"{first.figure} {first.change:+.1%} {span}: {better(first.figure, first.change)}"
