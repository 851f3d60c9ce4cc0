"""Launch scripts and environment files: variables, flags and commands line by line.

Lines that need no change stay byte for byte; a line that lost its only setting becomes a comment.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import NamedTuple

from lightloom.core.errors import InputError
from lightloom.core.migration import Action, Change, Lacking
from lightloom.emit.check import group_seconds
from lightloom.emit.facts import load, origin_line
from lightloom.emit.lint_args import LAUNCHER
from lightloom.emit.shell import read, strip_comment

from .migrate_env import MAP, answer, ours

ASSIGN = re.compile(
    r"""(?<![\w$\-./])([A-Z][A-Z0-9_]*)=("[^"\n]*"|'[^'\n]*'|\$\{[^}\n]*\}|[^\s"'\\;)]*)"""
)
REFERENCE = re.compile(r"\$(\{?)([A-Z][A-Z0-9_]*)\b")
MPI = re.compile(r"(-x\s+)([A-Z][A-Z0-9_]*)(?=[\s\\]|$)")
QUOTED = re.compile(r"([\"'])(--[^\"']*)\1")
"""A flag with its value as one quoted word."""
MARK = "# lightloom:"
COMMANDS = (
    (r"\bnvidia-smi\b", "npu-smi info", "the device tool"),
    (r"\bnsys\s+profile\b", "msprof", "profiler; its options differ"),
    (
        r"\b(all_reduce|all_gather|reduce_scatter|alltoall|broadcast)_perf\b",
        r"\1_test",
        "HCCL Test beside nccl-tests; its options differ",
    ),
    (
        r"--gpus[= ](?:all|\"[^\"]*\"|\S+)",
        "--device=/dev/davinci0 --device=/dev/davinci_manager "
        "--device=/dev/devmm_svm --device=/dev/hisi_hdc -v /usr/local/Ascend/driver:"
        "/usr/local/Ascend/driver:ro",
        "one --device=/dev/davinciN per card",
    ),
    (r"\bmodule load cuda\S*", "source /usr/local/Ascend/ascend-toolkit/set_env.sh", "toolkit"),
)
NONE_COMMANDS = (
    (r"\bnsys\s+profile\s+-\S.*", "the options of Nsight Systems", "msprof's own options"),
    (r"\bncu\b", "Nsight Compute", "msprof op"),
    (r"\bnvcc\b", "the CUDA compiler", "ascendc; custom kernels are written anew"),
    (r"\bcuda-memcheck\b|\bcompute-sanitizer\b", "memory checker", "mssanitizer"),
    (r"--gres=gpu|--gpus-per-node|--gpus-per-task", "Slurm's GPU resource", "the site's NPU gres"),
)
FLAGS: dict[str, tuple[str, str]] = {
    "--attention-backend": ("--use-flash-attn", "one fused attention"),
    "--tp-comm-overlap": ("--use-ascend-mc2", "matrix product fused with its collective"),
    "--optimizer-cpu-offload": ("--swap-optimizer", "optimiser state in host memory"),
    "--tokenizer-model": ("--tokenizer-name-or-path", "with PretrainedFromHF"),
    "--overlap-moe-expert-parallel-comm": (
        "",
        "nearest: --schedules-method dualpipev with --moe-fb-overlap",
    ),
    "--use-megatron-fsdp": ("", "nearest: --use-torch-fsdp2 or --use-distributed-optimizer"),
    "--pipeline-model-parallel-layout": ("", "nearest: --num-layer-list 16,16,16,13"),
    "--window-size": ("--sliding-window", "one number"),
    "--use-nccl-ub": ("", "no user buffers in HCCL"),
    "--use-sharp": ("", "no reduction in the network"),
    "--sharp-enabled-group": ("", "no reduction in the network"),
    "--fp8-format": ("", "no FP8 before Ascend 950; train in bf16"),
    "--fp8-recipe": ("", "no FP8 before Ascend 950; train in bf16"),
    "--fp8-amax-history-len": ("", "no FP8 before Ascend 950; train in bf16"),
    "--fp8-amax-compute-algo": ("", "no FP8 before Ascend 950; train in bf16"),
    "--fp8-param-gather": ("", "no FP8 before Ascend 950; train in bf16"),
    "--async-save": ("", "not wired in MindSpeed-LLM v2.3.0"),
}
"""Megatron's flag -> (MindSpeed's, why); empty: none, with the nearest in why."""
ONE_VALUE = {"--tokenizer-model", "--window-size"}
FP8 = {name for name in FLAGS if name.startswith("--fp8")}


class Moved(NamedTuple):
    """One file after migration."""

    text: str
    changes: tuple[Change, ...]
    lacking: tuple[Lacking, ...]


class _Line:
    """Changes of one line under way."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.changes: list[Change] = []
        self.lacking: list[Lacking] = []

    def change(self, action: Action, before: str, after: str, why: str, source: str) -> None:
        """Note one change."""
        self.changes.append(
            Change(
                where=self.where,
                action=action,
                before=before,
                after=after,
                why=why,
                source=source,
            )
        )

    def lost(self, what: str, why: str, nearest: str) -> None:
        """Note something without a counterpart."""
        self.lacking.append(Lacking(where=self.where, what=what, why=why, nearest=nearest))


def check_shell(name: str, text: str) -> None:
    """Raise InputError naming the line that is no shell: by ``bash -n``, else by open quotes.

    ``bash -n`` reads and runs nothing. Where no bash is installed only quotes are looked at.
    """
    bash = shutil.which("bash")
    if bash is None:
        check_quotes(name, text)
        return
    command = [bash, "--norc", "--noprofile", "-n"]
    done = subprocess.run(
        command, input=text.encode(), capture_output=True, timeout=20, check=False
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        found = re.search(r"line (\d+): (.*)", said)
        where, what = (found[1], found[2]) if found else ("1", said)
        raise InputError(f"{name}:{where}: not a shell script: {what}", out="nothing was written")


def check_quotes(name: str, text: str) -> None:
    """Raise InputError naming the line where a quote opens that nothing closes.

    Comments, escapes and here-documents are respected.
    """
    quote, opened, ends = "", 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if ends:
            ends = "" if line.strip() == ends else ends
            continue
        i = 0
        while i < len(line):
            char = line[i]
            if char == "\\" and quote != "'":
                i += 1
            elif quote:
                quote = "" if char == quote else quote
            elif char in "'\"`":
                quote, opened = char, number
            elif char == "#" and (i == 0 or line[i - 1] in " \t;"):
                break
            i += 1
        here = re.search(r"<<-?\s*[\"']?(\w+)", line) if not quote else None
        ends = here[1] if here and "<<<" not in line else ""
    if quote:
        raise InputError(
            f"{name}:{opened}: a quote {quote} opens here and nothing closes it",
            out="nothing was written",
        )


def move_script(name: str, text: str, product: str, *, env_file: bool = False) -> Moved:
    """Return a script for Ascend: variables, Megatron flags, commands, and what it lacked."""
    if not env_file:
        check_shell(name, text)
    megatron = bool(re.search(r"--tensor-model-parallel-size|pretrain_\w+\.py", text))
    out: list[str] = []
    changes: list[Change] = []
    lacking: list[Lacking] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _Line(f"{name}:{number}")
        new = raw
        if not raw.lstrip().startswith("#") or raw.lstrip().startswith("#SBATCH"):
            new = move_variables(raw, line)
            new = move_flags(new, line, product) if megatron else new
            new = move_commands(new, line)
        changes += line.changes
        lacking += line.lacking
        out.append(new if new == raw else new.rstrip(" \t"))
    whole = "\n".join(out) + "\n"
    whole, added = complete(name, whole, env_file, megatron)
    if not env_file:
        check_shell(f"{name} (migrated)", whole)
    return Moved(whole, (*changes, *added), tuple(lacking))


def move_variables(raw: str, line: _Line) -> str:
    """Return the line with its assignments and references moved."""
    tokens = [m for m in ASSIGN.finditer(raw) if ours(m[1])]
    new, gone = raw, False
    for m in reversed(tokens):
        if m[2].startswith(("$(", "`", '"$(')):
            new = new[: m.start(1)] + MAP.get(m[1], m[1]) + new[m.end(1) :]
            if m[1] not in MAP:
                line.lost(m[1], "its value is computed; the line is kept", "set it by hand")
            continue
        found = answer(m[1], m[2])
        before = f"{m[1]}={m[2]}"
        after = " ".join(f"{k}={v}" for k, v in found.pairs)
        if found.lacking:
            line.lost(before, found.why, found.nearest)
            line.change("removed", before, "", found.why, found.source)
            new, gone = new[: m.start()] + new[m.end() :], True
            continue
        line.change("kept" if found.kept else "replaced", before, after, found.why, found.source)
        head = re.fullmatch(r"\s*(export\s+)?", raw[: m.start()])
        if len(found.pairs) > 1 and head and not raw[m.end() :].strip():
            after = f"\n{head[0]}".join(f"{k}={v}" for k, v in found.pairs)
        new = new[: m.start()] + after + new[m.end() :]
    new = MPI.sub(lambda m: f"{m[1]}{MAP.get(m[2], m[2])}", new)
    new = REFERENCE.sub(lambda m: f"${m[1]}{MAP.get(m[2], m[2])}", new)
    left = re.sub(r"^\s*(export|declare -x|ENV|set -x)?\s*", "", new)
    if gone and not left and not raw.rstrip().endswith("\\"):
        return f"{MARK} no counterpart: {raw.strip()}"
    return new


def move_flags(raw: str, line: _Line, product: str) -> str:
    """Return the line with Megatron's flags in MindSpeed's words; its comment stays."""
    code = strip_comment(raw)

    def quoted(m: re.Match[str]) -> str:
        moved = _flags(m[2], line, product).strip()
        return f"{m[1]}{moved}{m[1]}" if moved else ""

    return _flags(QUOTED.sub(quoted, code), line, product) + raw[len(code) :]


def _unbalanced(part: str, tail: str) -> str:
    """Return what must stay of a value that goes: a closing bracket, a quote opened elsewhere."""
    if part.count('"') % 2 == 0 and part.count("'") % 2 == 0:
        return "" if "(" in part else ")" * (len(part) - len(part.rstrip(")")))
    return tail


def _flags(raw: str, line: _Line, product: str) -> str:
    """Return words with flags moved; the values of a flag that goes go with it."""
    known = load("mindspeed")["options"]
    parts = re.split(r"(\s+)", raw)
    out: list[str] = []
    skip = False
    for i, part in enumerate(parts):
        word = part.rstrip("\"')")
        tail = part[len(word) :]
        flag, _, inside = word.lstrip("\"'(").partition("=")
        if flag.startswith("--"):
            skip = False
            stays = flag in known and flag not in FLAGS
            if (
                stays
                or flag in LAUNCHER
                or (flag in FP8 and product == "950")
                or (flag not in FLAGS and flag not in load("megatron")["options"])
            ):
                out.append(part)
                continue
            new, why = FLAGS.get(flag, ("", "not an option of MindSpeed-LLM v2.3.0"))
            values = [] if inside else _values(parts[i + 1 :])
            before = " ".join([word, *values])
            keep = flag in ONE_VALUE
            after = " ".join([new, *values[: int(keep)]]) if new else ""
            source = f"published: option list of {origin_line('mindspeed')}"
            if new:
                line.change("replaced", before, after, why, source)
            else:
                line.change("removed", before, "", why, source)
                line.lost(before, why, "")
            out.append(new + (f"={inside}" if inside and keep else "") + tail)
            skip = not keep
        elif skip and word.strip(" \t\\") and not re.match(r"--?[A-Za-z]", word.strip()):
            out.append(_unbalanced(part, tail))
        else:
            skip = skip and not part.strip()
            out.append(part)
    new_line = "".join(out)
    return re.sub(r"(?<=\S)[ \t]{2,}(?=\S)", " ", new_line) if new_line != raw else raw


def _values(rest: list[str]) -> list[str]:
    """Return the words that belong to a flag."""
    found = []
    for part in rest:
        word = part.strip().rstrip("\"')")
        if not word:
            continue
        if re.match(r"--?[A-Za-z]", word) or word == "\\":
            break
        found.append(word)
    return found


def move_commands(raw: str, line: _Line) -> str:
    """Return the line with vendor tools replaced; those without a counterpart are listed."""
    new = raw
    for pattern, to, why in COMMANDS:
        for m in re.finditer(pattern, new):
            line.change("replaced", m[0], m.expand(to), why, "published: CANN documentation")
        new = re.sub(pattern, to, new)
    for pattern, what, nearest in NONE_COMMANDS:
        hit = re.search(pattern, raw)
        if hit:
            line.lost(hit[0].rstrip("\\ "), f"{what}: no equal on Ascend; left as it is", nearest)
    if "--tokenizer-type" in new and "HuggingFaceTokenizer" in new:
        line.change(
            "replaced",
            "HuggingFaceTokenizer",
            "PretrainedFromHF",
            "MindSpeed's name",
            f"published: option list of {origin_line('mindspeed')}",
        )
        new = new.replace("HuggingFaceTokenizer", "PretrainedFromHF")
    return new


GROUP_MIN = 40


def timeouts(group_s: float | None) -> dict[str, int]:
    """Return connect < exec < event time-outs that end before the process group's."""
    limit = group_s if group_s else GROUP_MIN * 60.0
    event = min(1868, max(3, int(limit) - 32))
    execute = min(1836, max(2, event - 32))
    return {
        "HCCL_CONNECT_TIMEOUT": min(600, max(120, execute - 60)),
        "HCCL_EXEC_TIMEOUT": execute,
        "HCCL_EVENT_TIMEOUT": event,
    }


def complete(name: str, text: str, env_file: bool, megatron: bool) -> tuple[str, list[Change]]:
    """Return the text with the settings that every Ascend job needs and this one lacks."""
    script = read(text, env_file=env_file)
    have = set(re.findall(r"\b([A-Z][A-Z0-9_]*)=", re.sub(r"^\s*#.*$", "", text, flags=re.M)))
    group = group_seconds(script)
    why = {
        "HCCL_CONNECT_TIMEOUT": "120 s is short above 512 ranks (EI0006)",
        "HCCL_EXEC_TIMEOUT": "one collective; shorter than the process group, or nobody knows who"
        " stopped",
        "HCCL_EVENT_TIMEOUT": "must exceed HCCL_EXEC_TIMEOUT",
        "HCCL_IF_BASE_PORT": "32 ports; reserve them: sysctl net.ipv4.ip_local_reserved_ports="
        "60000-60031,16666",
        "TASK_QUEUE_ENABLE": "host dispatch off the critical path",
        "PYTORCH_NPU_ALLOC_CONF": "less fragmentation",
    }
    want: dict[str, str] = {k: str(v) for k, v in timeouts(group).items()}
    want |= {
        "HCCL_IF_BASE_PORT": "60000",
        "TASK_QUEUE_ENABLE": "2",
        "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
    }
    if {"HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT", "HCCL_EVENT_TIMEOUT"} & have:
        want = {k: v for k, v in want.items() if not k.endswith("_TIMEOUT")}
    missing = {k: v for k, v in want.items() if k not in have}
    source = "published: HCCL and torch_npu manuals"
    added = [
        Change(where=name, action="added", before="", after=f"{k}={v}", why=why[k], source=source)
        for k, v in missing.items()
    ]
    lines = [f"{k}={v}" if env_file else f"export {k}={v}" for k, v in missing.items()]
    if megatron and group is None and not env_file:
        text, done = with_group(text)
        if done:
            added.append(
                Change(
                    where=name,
                    action="added",
                    before="",
                    after=f"--distributed-timeout-minutes {GROUP_MIN}",
                    source=source,
                    why="longer than every wait inside HCCL; 10 minutes by default",
                )
            )
    if not env_file and "set_env.sh" not in text:
        lines.insert(0, "source /usr/local/Ascend/ascend-toolkit/set_env.sh")
    return insert(text, [f"{MARK} Ascend environment", *lines], env_file), added


def with_group(text: str) -> tuple[str, bool]:
    """Return the text with a process-group time-out behind the training program."""
    lines = text.split("\n")
    for i, raw in enumerate(lines):
        code = strip_comment(raw)
        m = re.search(r"(?<![\"'\w=/])(?:[\w./$-]*/)?pretrain_\w+\.py(?=\s|$)", code)
        assigned = re.match(r"\s*(export\s+)?\w+=", code)
        if m is not None and not assigned and "if " not in code:
            flag = f" --distributed-timeout-minutes {GROUP_MIN}"
            lines[i] = raw[: m.end()] + flag + raw[m.end() :]
            return "\n".join(lines), True
    return text, False


def insert(text: str, lines: list[str], env_file: bool) -> str:
    """Return the text with lines after its opening comments (behind #SBATCH and ``set -e``)."""
    if env_file:
        return text + "\n".join(lines) + "\n"
    old = text.split("\n")
    at = 0
    while at < len(old) and (not old[at].strip() or old[at].startswith(("#", "set "))):
        at += 1
    return "\n".join([*old[:at], *lines, *old[at:]])
