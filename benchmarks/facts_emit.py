"""Re-make the option and schema lists that emit/ checks against, from pinned public tags.

    python benchmarks/facts_emit.py CLONES -o src/lightloom/catalog/emit

CLONES is a folder with git clones named as in SOURCES. Only names, types, choices and required
fields are taken (facts); no text, no code. Every list carries repository, tag and commit.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

SOURCES = {
    "megatron": ("NVIDIA/Megatron-LM", "core_v0.15.0"),
    "mindspeed": ("Ascend/MindSpeed-LLM", "v2.3.0"),
    "mindspeed-core": ("Ascend/MindSpeed", "v2.3.0_core_r0.12.1"),
    "mindspeed-megatron": ("NVIDIA/Megatron-LM", "core_v0.12.1"),
    "torchtitan": ("pytorch/torchtitan", "v0.2.2"),
}
CRDS = {
    "trainjob": ("kubeflow/trainer", "v2.3.0",
                 "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml"),
    "jobset": ("kubernetes-sigs/jobset", "v0.12.0",
               "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"),
    "volcano-job": ("volcano-sh/volcano", "v1.15.1",
                    "config/crd/volcano/bases/batch.volcano.sh_jobs.yaml"),
    "podgroup": ("volcano-sh/volcano", "v1.15.1",
                 "config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml"),
    "hypernode": ("volcano-sh/volcano", "v1.15.1",
                  "config/crd/volcano/bases/topology.volcano.sh_hypernodes.yaml"),
    "kueue-topology": ("kubernetes-sigs/kueue", "v0.19.1",
                       "config/components/crd/bases/kueue.x-k8s.io_topologies.yaml"),
    "kueue-flavor": ("kubernetes-sigs/kueue", "v0.19.1",
                     "config/components/crd/bases/kueue.x-k8s.io_resourceflavors.yaml"),
    "kueue-clusterqueue": ("kubernetes-sigs/kueue", "v0.19.1",
                           "config/components/crd/bases/kueue.x-k8s.io_clusterqueues.yaml"),
    "kueue-localqueue": ("kubernetes-sigs/kueue", "v0.19.1",
                         "config/components/crd/bases/kueue.x-k8s.io_localqueues.yaml"),
}  # fmt: skip
KEEP = ("type", "required", "enum", "format", "minimum", "maximum", "pattern", "minItems")


class Clone:
    """One git clone at one tag."""

    def __init__(self, root: Path, name: str, tag: str) -> None:
        """Find the clone of `name` below `root`."""
        folder = root / name.replace("/", "+") / "repo"
        self.path = folder if folder.exists() else root / name.split("/")[1]
        self.name, self.tag = name, tag
        self.commit = self.git("rev-parse", f"{tag}^{{commit}}").strip()

    def git(self, *words: str) -> str:
        """Return the output of a git command."""
        command = ["git", "-C", str(self.path), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def show(self, path: str) -> str:
        """Return one file at the tag."""
        return self.git("show", f"{self.tag}:{path}")

    def files(self, *prefixes: str) -> list[str]:
        """Return the Python files below any prefix."""
        names = self.git("ls-tree", "-r", "--name-only", self.tag).splitlines()
        return [n for n in names if n.endswith(".py") and n.startswith(prefixes)]

    def origin(self) -> dict[str, str]:
        """Return what identifies the source."""
        return {"repository": f"https://github.com/{self.name}", "tag": self.tag,
                "commit": self.commit}  # fmt: skip


def literal(node: ast.expr | None) -> Any:
    """Return a constant or list of constants; None for anything computed."""
    if node is None:
        return None
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def option_of(call: ast.Call) -> tuple[list[str], dict[str, Any]]:
    """Return names and facts of one ``add_argument`` call."""
    names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    words = {k.arg: k.value for k in call.keywords if k.arg}
    facts: dict[str, Any] = {}
    kind = words.get("type")
    if isinstance(kind, ast.Name):
        facts["type"] = kind.id
    action = literal(words.get("action"))
    if isinstance(action, str):
        facts["action"] = action
    choices = literal(words.get("choices"))
    if choices:
        facts["choices"] = [c for c in choices if c is not None]
    if "nargs" in words:
        facts["nargs"] = str(literal(words["nargs"]))
    return names, facts


def options_in(text: str) -> dict[str, dict[str, Any]]:
    """Return every command-line option declared in one file."""
    found: dict[str, dict[str, Any]] = {}
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        attribute = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(
            node.func, "id", "")  # fmt: skip
        if attribute == "add_argument":
            names, facts = option_of(node)
            found.update({n: facts for n in names if n.startswith("--")})
        if attribute == "add_parser_argument_choices_value":
            strings = [literal(a) for a in node.args if isinstance(a, ast.Constant)]
            if len(strings) == 2 and str(strings[0]).startswith("--"):
                entry = found.setdefault(str(strings[0]), {})
                entry.setdefault("extra_choices", []).append(strings[1])
    return found


def collect(clone: Clone, *prefixes: str) -> dict[str, dict[str, Any]]:
    """Return the options of every file below the prefixes."""
    options: dict[str, dict[str, Any]] = {}
    for path in clone.files(*prefixes):
        for name, facts in options_in(clone.show(path)).items():
            extra = options.get(name, {}).get("extra_choices", []) + facts.pop("extra_choices", [])
            options[name] = {**options.get(name, {}), **facts}
            if extra:
                options[name]["extra_choices"] = sorted(set(extra))
    return options


def merge_choices(options: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Fold choices that a downstream adds into the option's own."""
    for facts in options.values():
        extra = facts.pop("extra_choices", [])
        if extra and "choices" in facts:
            facts["choices"] = sorted({*facts["choices"], *extra})
    return dict(sorted(options.items()))


def annotation(node: ast.expr) -> Any:
    """Return the type of a dataclass field as text, choices of a Literal as a list."""
    text = ast.unparse(node)
    if text.startswith("Literal["):
        inside, _, rest = text[len("Literal[") :].partition("]")
        return [*ast.literal_eval(f"({inside},)"), *([None] if "None" in rest else [])]
    return text


def dataclasses_in(text: str) -> dict[str, dict[str, Any]]:
    """Return class -> field -> type of every dataclass in one file."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = {
                field.target.id: annotation(field.annotation)
                for field in node.body
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            }
    return found


def prune(schema: Any) -> Any:
    """Return only what decides whether a manifest is valid."""
    if not isinstance(schema, dict):
        return True
    out = {k: schema[k] for k in KEEP if k in schema}
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        out["open"] = True
    if schema.get("x-kubernetes-int-or-string"):
        out["type"] = "int-or-string"
    if "properties" in schema:
        out["properties"] = {k: prune(v) for k, v in schema["properties"].items()}
    if "items" in schema:
        out["items"] = prune(schema["items"])
    if "additionalProperties" in schema:
        out["values"] = prune(schema["additionalProperties"])
    return out


def crd_schema(text: str) -> dict[str, Any]:
    """Return group, kind and one pruned schema per served version."""
    spec = yaml.safe_load(text)["spec"]
    return {
        "group": spec["group"],
        "kind": spec["names"]["kind"],
        "versions": {
            v["name"]: prune(v["schema"]["openAPIV3Schema"])
            for v in spec["versions"]
            if v["served"]
        },
    }


def version_rows(text: str) -> list[dict[str, str]]:
    """Return torch_npu, branch, torch and CANN of every row of the compatibility tables."""
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 4 and cells[3].startswith("CANN ") and cells[1].startswith("v"):
            keys = ("torch_npu", "branch", "torch", "cann")
            values = (cells[0], cells[1], cells[2], cells[3].removeprefix("CANN "))
            rows.append(dict(zip(keys, values, strict=True)))
    return rows


def write(path: Path, data: dict[str, Any]) -> None:
    """Write reproducible gzip JSON."""
    raw = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(raw, mtime=0))
    print(f"{path}: {len(raw):,} bytes, {path.stat().st_size:,} packed")


def main() -> None:
    """Write every list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clones", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    clones = {k: Clone(arguments.clones, *v) for k, v in SOURCES.items()}
    megatron = collect(clones["megatron"], "megatron/training/")
    origin = [clones["megatron"].origin()]
    data = {"origins": origin, "options": merge_choices(megatron)}
    write(arguments.out / "megatron.json.gz", data)
    layers = ("mindspeed-megatron", "mindspeed-core", "mindspeed")
    options: dict[str, dict[str, Any]] = {}
    prefixes = ("megatron/training/", "mindspeed/", "mindspeed_llm/")
    for name, prefix in zip(layers, prefixes, strict=True):
        for option, facts in collect(clones[name], prefix).items():
            options[option] = {**options.get(option, {}), **facts}
    origin = [clones[n].origin() for n in layers]
    data = {"origins": origin, "options": merge_choices(options)}
    write(arguments.out / "mindspeed.json.gz", data)
    titan = clones["torchtitan"]
    write(arguments.out / "torchtitan.json.gz",
          {"origins": [titan.origin()],
           "classes": dataclasses_in(titan.show("torchtitan/config/job_config.py"))})  # fmt: skip
    npu = Clone(arguments.clones, "Ascend/pytorch", "HEAD")
    rows = version_rows(npu.show("COMPATIBILITY.en.md"))
    write(arguments.out / "torch_npu.json.gz", {"origins": [npu.origin()], "rows": rows})
    for name, (repository, tag, path) in CRDS.items():
        clone = Clone(arguments.clones, repository, tag)
        origin = [{**clone.origin(), "path": path}]
        data = {"origins": origin, **crd_schema(clone.show(path))}
        write(arguments.out / f"crd-{name}.json.gz", data)


if __name__ == "__main__":
    main()
