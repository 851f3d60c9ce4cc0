"""Rules of Slurm batch files that start one agent per host."""

from __future__ import annotations

import re

from lightloom.core.errors import nearest
from lightloom.core.finding import Finding, Severity

OPTIONS = {
    "account", "acctg-freq", "array", "batch", "bb", "bbf", "begin", "chdir", "cluster-constraint",
    "clusters", "comment", "constraint", "contiguous", "container", "core-spec", "cores-per-socket",
    "cpu-freq", "cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot", "dependency",
    "distribution", "error", "exclude", "exclusive", "export", "export-file", "extra",
    "extra-node-info", "get-user-env", "gid", "gpu-bind", "gpu-freq", "gpus", "gpus-per-node",
    "gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "hint", "hold", "ignore-pbs",
    "input", "job-name", "kill-on-invalid-dep", "licenses", "mail-type", "mail-user", "mcs-label",
    "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "network", "nice", "no-kill",
    "no-requeue", "nodefile", "nodelist", "nodes", "ntasks", "ntasks-per-core",
    "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "open-mode", "output",
    "oversubscribe", "overcommit", "parsable", "partition", "power", "prefer", "priority",
    "profile", "propagate", "qos", "quiet", "reboot", "requeue", "reservation", "segment",
    "signal", "sockets-per-node", "spread-job", "stepmgr", "switches", "test-only", "thread-spec",
    "threads-per-core", "time", "time-min", "tmp", "tres-bind", "tres-per-task", "uid",
    "use-min-nodes", "verbose", "wait", "wait-all-nodes", "wckey", "wrap", "consolidate-segments",
}  # fmt: skip
"""Long options of sbatch (Slurm 25.05 manual page, names only)."""
SHORT = {"N": "nodes", "n": "ntasks", "J": "job-name", "o": "output", "e": "error",
         "t": "time",
         "p": "partition", "A": "account", "c": "cpus-per-task", "G": "gpus", "w": "nodelist",
         "x": "exclude", "C": "constraint", "d": "dependency", "D": "chdir",
         "q": "qos"}  # fmt: skip
_TIME = re.compile(r"(\d+-)?\d+(:\d+){0,2}|UNLIMITED|infinite", re.I)


def check(name: str, text: str) -> list[Finding]:
    """Return findings about a batch file."""
    out: list[Finding] = []
    given: dict[str, tuple[str, int]] = {}
    started = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#SBATCH"):
            if started:
                out.append(say(name, number, "late", "#SBATCH after the first command is ignored",
                               f"move it above line {started}"))  # fmt: skip
            out += read_option(name, number, line[7:].split("#")[0].strip(), given)
        elif line.strip() and not line.lstrip().startswith("#"):
            started = started or number
    if not text.startswith("#!"):
        out.append(say(name, 1, "shebang", "the first line must be #!/bin/bash or the like"))
    return [*out, *check_values(name, given), *check_steps(name, text, given)]


def say(name: str, line: int, code: str, what: str, remedy: str = "",
        severity: Severity = "error") -> Finding:  # fmt: skip
    """Return a finding at a line."""
    return Finding(severity=severity, code=code, subject=f"{name}:{line}", what=what,
                   remedy=remedy)  # fmt: skip


def read_option(name: str, number: int, text: str, given: dict[str, tuple[str, int]]
                ) -> list[Finding]:  # fmt: skip
    """Read one #SBATCH line into `given`."""
    match = re.match(r"--([a-z-]+)(?:[= ](.*))?$|-([A-Za-z])\s*(.*)$", text)
    if not match:
        return [say(name, number, "syntax", f"#SBATCH {text!r} is not an option")]
    key = match[1] or SHORT.get(match[3], "")
    value = (match[2] if match[1] else match[4]) or ""
    if not key or key not in OPTIONS:
        word = match[1] or match[3]
        return [say(name, number, "unknown-option", f"sbatch has no option {word!r}"
                    f"{nearest(word, OPTIONS)}")]  # fmt: skip
    if key in given:
        return [say(name, number, "twice", f"--{key} stands twice (line {given[key][1]})")]
    given[key] = (value.strip(), number)
    return []


def whole(given: dict[str, tuple[str, int]], key: str) -> int | None:
    """Return a whole-number option."""
    text = given.get(key, ("", 0))[0]
    return int(text) if text.isdigit() else None


def check_values(name: str, given: dict[str, tuple[str, int]]) -> list[Finding]:
    """Check numbers, time, segments."""
    out = []
    for key in ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "segment"):
        text, line = given.get(key, ("1", 0))
        good = re.fullmatch(r"\d+(-\d+)?" if key == "nodes" else r"\d+", text)
        if not good or text == "0":
            out.append(say(name, line, "value", f"--{key} {text!r} is not a number above 0"))
    text, line = given.get("time", ("1", 0))
    if not _TIME.fullmatch(text):
        out.append(say(name, line, "value", f"--time {text!r}: minutes, hours:minutes:seconds or "
                       "days-hours:minutes:seconds"))  # fmt: skip
    nodes, segment = whole(given, "nodes"), whole(given, "segment")
    if nodes and segment and nodes % segment:
        out.append(say(name, given["segment"][1], "segment", f"--segment {segment} does not divide "
                       f"--nodes {nodes}"))  # fmt: skip
    text, line = given.get("gres", ("gpu:1", 0))
    if not re.fullmatch(r"[a-z_]+(:[\w.-]+)?(:\d+)?(,.*)?", text):
        out.append(say(name, line, "value", f"--gres {text!r}: name[:type]:count"))
    return out


def check_steps(name: str, text: str, given: dict[str, tuple[str, int]]) -> list[Finding]:
    """Check that one agent per host starts its ranks, and may outlive one of them."""
    out = []
    agents = re.search(r"torchrun|msrun|lightloom run|train\.sh|launch\.sh", text)
    per_node = whole(given, "ntasks-per-node")
    if agents and per_node not in (None, 1):
        out.append(say(name, given["ntasks-per-node"][1], "agents",
                       f"--ntasks-per-node {per_node}: one agent per host starts its own ranks",
                       "--ntasks-per-node=1"))  # fmt: skip
    for number, line in enumerate(text.splitlines(), start=1):
        if re.match(r"\s*(exec\s+)?srun\b", line):
            kill = re.search(r"--kill-on-bad-exit(?:=(\d))?|-K(\d)?", line)
            if kill and (kill[1] or kill[2] or "1") != "0":
                out.append(say(name, number, "kill", "srun kills the job for one bad task",
                               "--kill-on-bad-exit=0: the agent recovers"))  # fmt: skip
    if agents and not re.search(r"^\s*(exec\s+)?srun\b", text, re.M) and (
            whole(given, "nodes") or 1) > 1:  # fmt: skip
        out.append(say(name, given["nodes"][1], "srun", "several hosts, but no srun: only the "
                       "first one starts", "srun bash train.sh"))  # fmt: skip
    return out
