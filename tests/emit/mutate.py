"""Seeded ways to break an emitted file, each of which a real system would refuse or misread."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import yaml

OPTION = re.compile(r"^(\s+)(--[a-z0-9-]+)( .*)?$")
VOID = {"--attention-backend", "--split"}


def misspell(word: str, rng: random.Random) -> str:
    """Return the word with one letter doubled, dropped or swapped."""
    i = rng.randrange(1, len(word) - 1)
    kind = rng.randrange(3)
    out = word[:i] + (word[i] * 2 if kind == 0 else "" if kind == 1 else "q") + word[i + 1 :]
    return out if out != word else word + "x"


def script(text: str, rng: random.Random) -> str:
    """Break one option of a launch script: its name, or its number."""
    lines = text.splitlines()
    places = [i for i, line in enumerate(lines) if OPTION.match(line.split("  #")[0])]
    numbers = [i for i in places if re.search(r"-(size|heads|layers|experts|topk) \d", lines[i])]
    if numbers and rng.random() < 0.4:
        i = rng.choice(numbers)
        lines[i] = re.sub(r" \d+", rng.choice([" many", " 3x", " 1.5"]), lines[i], count=1)
        return "\n".join(lines)
    i = rng.choice(places)
    found = OPTION.match(lines[i].split("  #")[0])
    assert found
    lines[i] = lines[i].replace(found[2], "--" + misspell(found[2][2:], rng), 1)
    return "\n".join(lines)


def environment(text: str, rng: random.Random) -> str:
    """Break one variable: its name, or its value."""
    lines = text.splitlines()
    places = [i for i, line in enumerate(lines) if re.match(r"export (HCCL|NCCL)_", line)]
    i = rng.choice(places)
    name = lines[i].split()[1].split("=")[0]
    if rng.random() < 0.5 or "ALGO" in name or "DEBUG" in name:
        prefix, rest = name[:5], name[5:]
        lines[i] = f'export {prefix}{misspell(rest, rng).upper()}="1"'
    else:
        lines[i] = f'export {name}="{rng.choice(["-1", "9999999999999", "soon"])}"'
    return "\n".join(lines)


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every key below ``spec`` that a schema names."""
    out: list[tuple[Any, ...]] = []
    if isinstance(value, dict):
        for key, item in value.items():
            if path and key not in ("nodeLabels",) and path[-1] not in (
                    "limits", "requests", "nodeLabels", "annotations", "labels",
                    "nodeSelector", "namespaceSelector", "plugins"):  # fmt: skip
                out.append((*path, key))
            out += spots(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            out += spots(item, (*path, i))
    return out


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def manifest(text: str, rng: random.Random) -> str:
    """Misspell a field, or give it a value of another type, in one custom resource."""
    documents = list(yaml.safe_load_all(text))
    kinds = [i for i, d in enumerate(documents) if d["kind"] not in ("ConfigMap",)]
    doc = documents[rng.choice(kinds)]
    path = rng.choice([p for p in spots(doc["spec"], ("spec",)) if len(p) > 1])
    holder, key = at(doc, path[:-1]), path[-1]
    if rng.random() < 0.6:
        holder["x" + misspell(key + "e", rng)] = holder.pop(key)
    else:
        holder[key] = 7 if isinstance(holder[key], dict | list | str) else {"wrong": True}
    return yaml.safe_dump_all(documents, sort_keys=False)


def sbatch(text: str, rng: random.Random) -> str:
    """Misspell an option of a batch file, or break its value."""
    lines = text.splitlines()
    i = rng.choice([k for k, line in enumerate(lines) if line.startswith("#SBATCH --")])
    name = re.sub(r"#SBATCH --([a-z-]+).*", r"\1", lines[i])
    if name in ("nodes", "ntasks-per-node", "time") and rng.random() < 0.5:
        lines[i] = f"#SBATCH --{name}={rng.choice(['0', 'some', '8x']) if name != 'time' else 'x'}"
    else:
        lines[i] = lines[i].replace(name, misspell(name, rng), 1)
    return "\n".join(lines)


def deepspeed(text: str, rng: random.Random) -> str:
    """Break a key, a type or the batch."""
    config = json.loads(text)
    kind = rng.randrange(4)
    if kind == 0:
        key = rng.choice(list(config))
        config[misspell(key, rng)] = config.pop(key)
    elif kind == 1:
        config["train_batch_size"] += 1 + rng.randrange(3)
        config["train_micro_batch_size_per_gpu"] = 4
    elif kind == 2:
        config["zero_optimization"]["stage"] = rng.choice([4, -1, "three", True])
    else:
        key = rng.choice(list(config["zero_optimization"]))
        config["zero_optimization"][misspell(key, rng)] = config["zero_optimization"].pop(key)
    return json.dumps(config, indent=2)


def toml(text: str, rng: random.Random) -> str:
    """Misspell a key, or break its value."""
    lines = text.splitlines()
    i = rng.choice([k for k, line in enumerate(lines) if re.match(r"[a-z_]+ = ", line)])
    key = lines[i].split(" = ")[0]
    whole = re.match(r"[a-z_]+ = \d+ ", lines[i])
    if whole and key != "max_norm" and rng.random() < 0.5:
        lines[i] = f'{key} = "{rng.choice(["eight", "8"])}"'
    else:
        lines[i] = lines[i].replace(key, misspell(key, rng), 1)
    return "\n".join(lines)


def mindformers(text: str, rng: random.Random) -> str:
    """Break a degree or a key of a MindFormers job."""
    job = yaml.safe_load(text)
    config = job["parallel_config"]
    kind = rng.randrange(3)
    if kind == 0:
        key = rng.choice(["data_parallel", "model_parallel", "pipeline_stage", "micro_batch_num"])
        config[key] = rng.choice([0, -2, "four", 1.5])
    elif kind == 1:
        section = rng.choice(["parallel_config", "recompute_config", "runner_config"])
        key = rng.choice(list(job[section]))
        job[section][misspell(key, rng)] = job[section].pop(key)
    else:
        config["pipeline_stage"] = config["micro_batch_num"] + 1
    return yaml.safe_dump(job, sort_keys=False)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every scalar."""
    if isinstance(value, dict):
        return [p for k, v in value.items() for p in leaves(v, (*path, k))]
    if isinstance(value, list):
        return [p for i, v in enumerate(value) for p in leaves(v, (*path, i))]
    return [path]


FREE = {"server_id", "host_ip", "backup_device_ip", "backup_device_port", "topo_instance_id",
        "net_attr", "plane_id", "net_instance_id", "super_pod_id", "super_device_id",
        "device_port", "host_port", "local_id"}  # fmt: skip


def table(text: str, rng: random.Random) -> str:
    """Drop, retype or repeat something in a rank table or topology file."""
    data = json.loads(text)
    paths = [p for p in leaves(data) if p[-1] not in FREE and not isinstance(p[-1], int)]
    path = rng.choice(paths)
    holder, key = at(data, path[:-1]), path[-1]
    kind = rng.randrange(3)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[key] = [] if isinstance(holder[key], str) else "wrong"
    else:
        holder[key] = "nonsense" if isinstance(holder[key], str) else -1
    return json.dumps(data, indent=1)


def dockerfile(text: str, rng: random.Random) -> str:
    """Pair versions that the published matrix does not pair, or unpin the base image."""
    kind = rng.randrange(3)
    if kind == 0:
        return re.sub(r"torch_npu==[\w.]+", f"torch_npu==2.{rng.randrange(20, 90)}.0", text)
    if kind == 1:
        return re.sub(r" torch==[\w.]+", f" torch==1.{rng.randrange(20, 90)}.0", text)
    return re.sub(r"(FROM \S+?):\S+", r"\1", text)


def chakra(data: bytes, rng: random.Random) -> bytes:
    """Cut a trace off, or break one of its lengths."""
    if rng.random() < 0.5:
        return data[: rng.randrange(10, len(data) - 1)]
    return data[:8] + b"\xff" + data[9:]
