"""Rules of framework arguments: names, types, choices, and degrees that must multiply out."""

from __future__ import annotations

import itertools
import re
from typing import Any, NamedTuple

from lightloom.core.errors import nearest
from lightloom.core.finding import Finding, Severity

from .facts import load, origin_line
from .shell import Script, Word

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_INTEGER = re.compile(r"[+-]?\d+")
LAUNCHER = {"--nnodes", "--nproc-per-node", "--nproc_per_node", "--node-rank", "--node_rank",
            "--master-addr", "--master_addr", "--master-port", "--master_port", "--standalone",
            "--max-restarts", "--max_restarts", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id",
            "--rdzv_backend", "--rdzv_endpoint", "--rdzv_id", "--no-python", "--no_python",
            "--log-dir", "--log_dir", "--tee", "--redirects", "--module", "--role",
            "--monitor-interval", "--start-method", "--local-addr", "--run-path",
            "--cpunodebind", "--membind", "--rdzv-conf", "--rdzv_conf"}  # fmt: skip
"""Options of torchrun and numactl, not of the framework."""


class Option(NamedTuple):
    """One option as it stands in the script."""

    name: str
    values: tuple[str, ...]
    line: int


def options_in(words: tuple[Word, ...]) -> list[Option]:
    """Return options with the words that follow them."""
    out: list[Option] = []
    for word in words:
        text, _, tail = word.text.partition("=")
        if text.startswith("--") and len(text) > 2:
            out.append(Option(text, (tail,) if tail else (), word.line))
        elif out and not word.text.startswith("-"):
            last = out[-1]
            out[-1] = last._replace(values=(*last.values, word.text))
        elif out and _NUMBER.fullmatch(word.text):
            out[-1] = out[-1]._replace(values=(*out[-1].values, word.text))
    return out


def framework_of(script: Script, text: str) -> str:
    """Return ``mindspeed`` or ``megatron`` by what the script mentions; empty for neither."""
    if not re.search(r"pretrain_gpt|posttrain_gpt|--tensor-model-parallel-size", text):
        return ""
    ascend = re.search(r"HCCL_|ASCEND|mindspeed|MindSpeed|NPU", text)
    return "mindspeed" if ascend else "megatron"


def check(name: str, script: Script, text: str) -> list[Finding]:
    """Return findings about a Megatron-style launch script."""
    started = check_launcher(name, script)
    framework = framework_of(script, text)
    if not framework:
        return started
    known = load(framework)["options"]
    options = [o for o in options_in(script.words) if o.name not in LAUNCHER]
    out: list[Finding] = []
    seen: dict[str, Option] = {}
    for option in options:
        out += check_option(name, option, known, framework)
        before = seen.get(option.name)
        if before and before.values != option.values:
            out.append(say(name, option.line, "twice", f"{option.name} stands twice: "
                           f"{' '.join(before.values)} on line {before.line}, "
                           f"{' '.join(option.values)} here", "the last one wins"))  # fmt: skip
        seen[option.name] = option
    return [*started, *out, *check_degrees(name, seen, script), *check_needs(name, seen)]


def check_launcher(name: str, script: Script) -> list[Finding]:
    """Check the options between ``torchrun`` and the program it starts."""
    out: list[Finding] = []
    words = list(script.words)
    starts = [i for i, w in enumerate(words) if w.text.rpartition("/")[2] in ("torchrun",)]
    for start in starts:
        rest = words[start + 1 :]
        program = next((i for i, w in enumerate(rest) if w.text.endswith(".py")), len(rest))
        for option in options_in(tuple(rest[: program + 1])):
            key = option.name.replace("_", "-")
            if option.name not in LAUNCHER and key not in LAUNCHER:
                out.append(say(name, option.line, "unknown-option", f"torchrun has no "
                               f"{option.name}{nearest(option.name, LAUNCHER)}"))  # fmt: skip
            counts = key in ("--nnodes", "--nproc-per-node", "--max-restarts")
            value = option.values[0] if option.values else ""
            if counts and not re.fullmatch(r"\d+(:\d+)?|\$.*|auto|gpu|cpu", value):
                out.append(say(name, option.line, "type", f"{option.name} {value!r} is not a "
                               "number"))  # fmt: skip
            ends = ("--no-python", "--module")
            if any("." in v and v.endswith(".py") for v in option.values) or key in ends:
                break
    return out


def say(name: str, line: int, code: str, what: str, remedy: str = "",
        severity: Severity = "error") -> Finding:  # fmt: skip
    """Return a finding at a line."""
    return Finding(severity=severity, code=code, subject=f"{name}:{line}", what=what,
                   remedy=remedy)  # fmt: skip


def check_option(name: str, option: Option, known: dict[str, Any], framework: str
                 ) -> list[Finding]:  # fmt: skip
    """Check one option against the framework's own list."""
    facts = known.get(option.name)
    if facts is None:
        return [say(name, option.line, "unknown-option",
                    f"{option.name} is not an option of {framework}{nearest(option.name, known)}",
                    f"list of {origin_line(framework)}")]  # fmt: skip
    flag = facts.get("action", "").startswith("store_")
    values = [v for v in option.values if v not in (")", "|", "tee")]
    if flag:
        return []
    if not values:
        return [say(name, option.line, "no-value", f"{option.name} needs a value")]
    value = values[0]
    if "$" in value:
        return []
    kind = facts.get("type")
    if kind == "int" and not _INTEGER.fullmatch(value):
        return [say(name, option.line, "type", f"{option.name} {value!r} is not a whole number")]
    if kind == "float" and not _NUMBER.fullmatch(value):
        return [say(name, option.line, "type", f"{option.name} {value!r} is not a number")]
    choices = [str(c) for c in facts.get("choices", [])]
    wrong = [v for v in (values if "nargs" in facts else [value]) if v not in choices]
    if choices and wrong:
        return [say(name, option.line, "choice", f"{option.name} {wrong[0]!r}: one of "
                    f"{', '.join(choices)}")]  # fmt: skip
    return []


def integer(seen: dict[str, Option], name: str, default: int | None = None) -> int | None:
    """Return the integer value of an option."""
    option = seen.get(name)
    if option is None or not option.values or not _INTEGER.fullmatch(option.values[0]):
        return default
    return int(option.values[0])


def world_of(script: Script) -> tuple[int, int] | None:
    """Return (ranks, line) of the launcher, if both factors are plain numbers."""
    values: dict[str, tuple[int, int]] = {}
    words = script.words
    for word, after in itertools.pairwise(words):
        key = word.text.partition("=")[0].lstrip("-").replace("_", "-")
        text = word.text.partition("=")[2] or after.text
        if key in ("nnodes", "nproc-per-node") and text.isdigit():
            values[key] = (int(text), word.line)
    if "nproc-per-node" not in values:
        return None
    nodes = values.get("nnodes", (1, 0))[0]
    return nodes * values["nproc-per-node"][0], values["nproc-per-node"][1]


def check_degrees(name: str, seen: dict[str, Option], script: Script) -> list[Finding]:
    """Check that degrees divide the ranks, the heads, the layers, the experts and the batch."""
    tp, pp, cp, ep = (integer(seen, f"--{axis}-size", 1) or 1 for axis in (
        "tensor-model-parallel", "pipeline-model-parallel", "context-parallel",
        "expert-model-parallel"))  # fmt: skip
    out: list[Finding] = []
    world = world_of(script)
    if world and world[0] % (tp * pp * cp):
        out.append(say(name, world[1], "world", f"{world[0]} ranks are not a multiple of "
                       f"tp {tp} x pp {pp} x cp {cp} = {tp * pp * cp}"))  # fmt: skip
    for option, axis, degree in (
        ("--num-attention-heads", "tp", tp), ("--num-experts", "ep", ep),
        ("--num-query-groups", "tp", tp),
    ):  # fmt: skip
        value = integer(seen, option)
        small = option == "--num-query-groups" and value is not None and value < degree
        if value is not None and value % degree and not small:
            out.append(say(name, seen[option].line, "divides", f"{option} {value} is not a "
                           f"multiple of {axis} {degree}"))  # fmt: skip
    layers = integer(seen, "--num-layers")
    spread = {"--num-layer-list", "--pipeline-model-parallel-layout", "--noop-layers",
              "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers",
              "--account-for-embedding-in-pipeline-split"}  # fmt: skip
    if layers is not None and layers % pp and not spread & set(seen):
        out.append(say(name, seen["--num-layers"].line, "divides",
                       f"--num-layers {layers} is not a multiple of pp {pp}"))  # fmt: skip
    return [
        *out,
        *check_batch(name, seen, world, tp * pp * cp),
        *check_list(name, seen, layers, pp),
        *check_noops(name, seen, layers),
    ]


def check_batch(name: str, seen: dict[str, Option], world: tuple[int, int] | None, model: int
                ) -> list[Finding]:  # fmt: skip
    """Check that the global batch is whole micro-batches of every replica."""
    batch, micro = integer(seen, "--global-batch-size"), integer(seen, "--micro-batch-size")
    if not (batch and micro and world) or world[0] % model:
        return []
    replicas = world[0] // model
    if batch % (micro * replicas):
        near = max(1, batch // (micro * replicas)) * micro * replicas
        return [say(name, seen["--global-batch-size"].line, "batch",
                    f"--global-batch-size {batch} is not a multiple of micro-batch {micro} x dp "
                    f"{replicas}", f"nearest: {near}")]  # fmt: skip
    return []


def check_list(name: str, seen: dict[str, Option], layers: int | None, pp: int
               ) -> list[Finding]:  # fmt: skip
    """Check ``--num-layer-list`` against layers and stages."""
    option = seen.get("--num-layer-list")
    if option is None or not option.values or "$" in option.values[0]:
        return []
    parts = option.values[0].split(",")
    if not all(p.isdigit() for p in parts):
        return [say(name, option.line, "type", f"--num-layer-list {option.values[0]!r}")]
    total = sum(int(p) for p in parts)
    if len(parts) != pp or (layers is not None and total != layers):
        return [say(name, option.line, "layer-list", f"--num-layer-list has {len(parts)} stages "
                    f"and {total} layers; pp is {pp}, --num-layers {layers}")]  # fmt: skip
    return []


def check_noops(name: str, seen: dict[str, Option], layers: int | None) -> list[Finding]:
    """Check that ``--noop-layers`` names places of layers, each once, counted from 0."""
    option = seen.get("--noop-layers")
    if option is None or not option.values or "$" in option.values[0]:
        return []
    parts = option.values[0].split(",")
    if not all(p.strip().isdigit() for p in parts):
        return [say(name, option.line, "type", f"--noop-layers {option.values[0]!r}")]
    places = [int(p) for p in parts]
    outside = [p for p in places if layers is not None and p >= layers]
    if outside or len(set(places)) != len(places):
        return [say(name, option.line, "noop", f"--noop-layers names layer {(outside or places)[0]}"
                    f"; places are 0 .. {(layers or 0) - 1}, each once")]  # fmt: skip
    return []


def check_needs(name: str, seen: dict[str, Option]) -> list[Finding]:
    """Check options that are void, or fail, without another."""
    out: list[Finding] = []
    needs = {
        "--overlap-param-gather": ("--use-distributed-optimizer", "--overlap-grad-reduce"),
        "--recompute-method": ("--recompute-granularity",),
        "--num-query-groups": ("--group-query-attention",),
        "--moe-router-topk": ("--num-experts",),
        "--tp-comm-overlap": ("--sequence-parallel",),
        "--q-lora-rank": ("--multi-latent-attention",),
    }
    out += [
        say(name, seen[option].line, "needs", f"{option} needs {other}")
        for option, others in needs.items()
        for other in others
        if option in seen and other not in seen
    ]
    if "--fp16" in seen and "--bf16" in seen:
        out.append(say(name, seen["--fp16"].line, "conflict", "--fp16 and --bf16 together"))
    tp = integer(seen, "--tensor-model-parallel-size", 1)
    if "--sequence-parallel" in seen and tp == 1:
        out.append(say(name, seen["--sequence-parallel"].line, "void",
                       "--sequence-parallel does nothing at tp 1", severity="warning"))  # fmt: skip
    granularity = seen.get("--recompute-granularity")
    if granularity and granularity.values[:1] == ("full",) and "--recompute-method" not in seen:
        out.append(say(name, granularity.line, "needs",
                       "--recompute-granularity full needs --recompute-method"))  # fmt: skip
    return out
