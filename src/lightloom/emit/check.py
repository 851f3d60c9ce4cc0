"""One door to every checker: says what a file is, then what is wrong with it."""

from __future__ import annotations

import re
from pathlib import PurePath

from lightloom.core.errors import InputError, nearest
from lightloom.core.finding import Finding

from . import (
    lint_args,
    lint_chakra,
    lint_config,
    lint_env,
    lint_manifest,
    lint_ranktable,
    lint_sbatch,
    shell,
)
from .positions import Positions, read_json, read_yaml

KINDS = {
    "ranktable": "HCCL rank table", "topology": "HCCL topology file",
    "deepspeed": "DeepSpeed configuration", "manifest": "Kubernetes manifest",
    "torchtitan": "torchtitan job", "sbatch": "Slurm batch file", "script": "launch script",
    "chakra": "Chakra trace", "env": "environment file",
    "dockerfile": "container file", "yaml": "MindFormers job",
}  # fmt: skip


def kind_of(name: str, text: str) -> str:
    """Return what a file is, by name and content; say so if it is nothing we know."""
    path = PurePath(name)
    suffix = path.suffix.lower()
    if suffix == ".json" or text.lstrip()[:1] == "{":
        if '"edge_list"' in text or '"peer_list"' in text:
            return "topology"
        if re.search(r'"(server_list|rank_list|server_count)"', text):
            return "ranktable"
        if re.search(r'"(train_batch_size|zero_optimization|train_micro_batch)', text):
            return "deepspeed"
        raise unknown(name)
    if path.name.startswith("Dockerfile") or re.search(r"^FROM \S+", text, re.M):
        return "dockerfile"
    if suffix == ".toml":
        return "torchtitan"
    if suffix in (".yaml", ".yml") or re.search(r"^apiVersion:", text, re.M):
        return "manifest" if re.search(r"^apiVersion:", text, re.M) else "yaml"
    if "#SBATCH" in text or suffix == ".sbatch":
        return "sbatch"
    if suffix == ".env" or path.name == ".env":
        return "env"
    if suffix in (".sh", ".bash", "") or text.startswith("#!"):
        return "script"
    raise unknown(name)


def unknown(name: str) -> InputError:
    """Return the answer for a file that no checker reads."""
    return InputError(
        f"{name}: not a file that emit check knows",
        out=f"it reads: {', '.join(KINDS.values())}",
    )


def check_bytes(name: str, data: bytes) -> tuple[str, list[Finding]]:
    """Return (kind, findings) for one file of any kind."""
    if PurePath(name).suffix == ".et":
        return "chakra", lint_chakra.check(name, data)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not text: {error}") from error
    return check_text(name, text)


def check_text(name: str, text: str) -> tuple[str, list[Finding]]:
    """Return (kind, findings) for one file."""
    kind = kind_of(name, text)
    try:
        return kind, _check(kind, name, text)
    except InputError as error:
        raise InputError(f"{name}: {error.what}", out=error.out) from error


def _check(kind: str, name: str, text: str) -> list[Finding]:
    """Run the checkers of one kind."""
    if kind in ("ranktable", "topology", "deepspeed"):
        return check_json(kind, name, text)
    if kind == "manifest":
        return [f for doc in read_yaml(text) for f in lint_manifest.check(name, doc)]
    if kind == "yaml":
        return check_mindformers(name, text)
    if kind == "torchtitan":
        return lint_config.check_torchtitan(name, text)
    if kind == "dockerfile":
        return check_dockerfile(name, text)
    script = shell.read(text, env_file=kind == "env")
    out = lint_sbatch.check(name, text) if kind == "sbatch" else []
    env = script.exported
    out += lint_env.check(name, env, group_seconds(script))
    out += lint_args.check(name, script, text)
    return sorted(out, key=lambda f: int(f.subject.rpartition(":")[2]))


def check_json(kind: str, name: str, text: str) -> list[Finding]:
    """Check a JSON file of a known kind."""
    doc = read_json(text)
    if not isinstance(doc.value, dict):
        raise InputError("the file holds no JSON object")
    checkers = {"ranktable": lint_ranktable.check, "topology": lint_ranktable.check_topology,
                "deepspeed": lint_config.check_deepspeed}  # fmt: skip
    return checkers[kind](name, doc)


def group_seconds(script: shell.Script) -> float | None:
    """Return the process-group time-out that a script sets."""
    for option in lint_args.options_in(script.words):
        if option.name == "--distributed-timeout-minutes" and option.values:
            text = option.values[0]
            return 60.0 * int(text) if text.isdigit() else None
    return None


def check_dockerfile(name: str, text: str) -> list[Finding]:
    """Check versions against the torch_npu matrix, and the environment."""
    out = list(lint_env.check(name, env_of_dockerfile(text)))
    npu = re.search(r"torch[_-]npu==([\w.]+)", text)
    torch = re.search(r"\btorch==([\w.]+)", text)
    cann = re.search(r"cann[:-](\d+\.\d+\.(?:\d+|RC\d+))", text, re.I)
    if npu:
        out += check_versions(name, text, npu[1], torch[1] if torch else None,
                              cann[1] if cann else None)  # fmt: skip
    if not re.search(r"^FROM \S+:\S+|^FROM \S+@sha256", text, re.M):
        out.append(Finding(severity="warning", code="unpinned", subject=f"{name}:1",
                           what="the base image has no tag"))  # fmt: skip
    return out


def env_of_dockerfile(text: str) -> dict[str, shell.Word]:
    """Return variables of ENV lines."""
    out = {}
    for number, line in enumerate(text.splitlines(), start=1):
        for key, value in re.findall(r"(\w+)=(\S+)", line) if line.startswith("ENV ") else []:
            out[key] = shell.Word(value.strip("\"'"), number)
    return out


def check_versions(name: str, text: str, npu: str, torch: str | None, cann: str | None
                   ) -> list[Finding]:  # fmt: skip
    """Check torch_npu against torch and CANN."""
    from .facts import load, origin_line

    rows = [r for r in load("torch_npu")["rows"] if r["torch_npu"] == npu]
    line = text[: text.index(npu)].count("\n") + 1
    where = f"{name}:{line}"
    if not rows:
        return [Finding(severity="error", code="version", subject=where,
                        what=f"torch_npu {npu} is not in the published matrix",
                        remedy=origin_line("torch_npu"))]  # fmt: skip
    good = [r for r in rows if torch in (None, r["torch"]) and cann in (None, r["cann"])]
    if good:
        return []
    pairs = "; ".join(f"torch {r['torch']} with CANN {r['cann']}" for r in rows)
    return [Finding(severity="error", code="version", subject=where,
                    what=f"torch_npu {npu} does not go with torch {torch} and CANN {cann}",
                    remedy=f"it goes with {pairs}")]  # fmt: skip


MINDFORMERS = {
    "parallel_config": {
        "data_parallel", "model_parallel", "pipeline_stage", "context_parallel",
        "expert_parallel", "use_seq_parallel", "micro_batch_num", "vocab_emb_dp",
        "gradient_aggregation_group", "optimizer_shard", "context_parallel_algo",
        "ulysses_degree_in_cp", "mem_coeff", "npu_nums_per_device", "seq_split_num",
        "expert_model_parallel", "layer_scale",
    },
    "recompute_config": {
        "recompute", "select_recompute", "parallel_optimizer_comm_recompute",
        "mp_comm_recompute", "recompute_slice_activation", "select_comm_recompute",
        "select_recompute_exclude", "select_comm_recompute_exclude",
    },
    "runner_config": {
        "epochs", "batch_size", "sink_mode", "sink_size", "gradient_accumulation_steps",
        "sink_per_epoch", "num_classes", "stop_step", "initial_epoch", "initial_step",
        "has_trained_epoches", "has_trained_steps",
    },
}  # fmt: skip
"""Keys of MindFormers' sections that decide speed and memory (names only)."""
DEGREES = ("data_parallel", "model_parallel", "pipeline_stage", "micro_batch_num",
           "context_parallel", "expert_parallel")  # fmt: skip


def check_mindformers(name: str, text: str) -> list[Finding]:
    """Check a MindFormers job: keys, degrees above 0, micro-batches that fill the pipeline."""
    out: list[Finding] = []
    for doc in read_yaml(text):
        if not isinstance(doc.value, dict):
            raise InputError("the file holds no YAML mapping")
        for section, keys in MINDFORMERS.items():
            for key in doc.value.get(section) or {}:
                if key not in keys:
                    where = f"{name}:{doc.line(section, key)}"
                    what = f"{section} has no {key}{nearest(str(key), keys)}"
                    out.append(
                        Finding(severity="error", code="unknown-key", subject=where, what=what)
                    )
        out += check_degrees(name, doc)
    return out


def check_degrees(name: str, doc: Positions) -> list[Finding]:
    """Check the degrees of a MindFormers job."""
    out = []
    config = doc.value.get("parallel_config")
    if not isinstance(config, dict):
        return []
    for key in DEGREES:
        value = config.get(key, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            where = f"{name}:{doc.line('parallel_config', key)}"
            what = f"{key} is {value!r}: a whole number above 0"
            out.append(Finding(severity="error", code="value", subject=where, what=what))
    stages, batches = config.get("pipeline_stage", 1), config.get("micro_batch_num", 1)
    if isinstance(stages, int) and isinstance(batches, int) and batches < stages:
        where = f"{name}:{doc.line('parallel_config', 'micro_batch_num')}"
        what = f"micro_batch_num {batches} is below pipeline_stage {stages}: stages starve"
        out.append(Finding(severity="error", code="pipeline", subject=where, what=what))
    return out
