"""Four real models and two user scripts through fit, roi and migrate: answers and CPU seconds.

python benchmarks/decide.py > benchmarks/decide.md
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = ("llama-3.1-70b", "deepseek-v3", "qwen3-235b-a22b", "llama-3.1-8b")
PAIRS = (("dgx-h100", "gb200-nvl72"), ("traditional-8192", "supernode-8192"),
         ("atlas-800t-a2", "atlas-900-a3"))  # fmt: skip
SCRIPTS = ("pretrain_llama_8b.sh", "train_ddp.py")


def run(*words: str) -> tuple[dict, float]:
    """Return the JSON of a command and its CPU seconds."""

    start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run([sys.executable, "-m", "lightloom", *words, "--json"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start
    if done.returncode:
        return {"text": done.stderr.strip().replace("\n", "; "), "failed": True}, used
    return json.loads(done.stdout), used


def main() -> None:
    """Print the page."""
    print("# Decide: four models, two scripts\n\nCommand: `python benchmarks/decide.py`\n")
    print(
        "## fit, 512 cards\n\n| model | now | candidate | answer | CPU s |\n|---|---|---|---|---|"
    )
    for model in MODELS:
        for now, other in PAIRS:
            found, used = run("fit", model, "--now", now, "--candidates", other, "--cards", "512")
            print(f"| {model} | {now} | {other} | {found['text']} | {used:.1f} |")
    print(
        "\n## roi, 512 cards, 2 T tokens\n\n| model | options | answer | CPU s |\n|---|---|---|---|"
    )
    for model in MODELS:
        for pair in PAIRS[:2]:
            found, used = run("roi", model, "--tokens", "2T", "--options", ",".join(pair),
                              "--cards", "512")  # fmt: skip
            print(f"| {model} | {', '.join(pair)} | {found['text']} | {used:.1f} |")
    print("\n## migrate\n\n| script | replaced | added | listed as without counterpart | operators "
          "(supported, slow, absent, unknown) | errors of `emit check` | CPU s |\n|"
          + "---|" * 7)  # fmt: skip
    for name in SCRIPTS:
        with tempfile.TemporaryDirectory() as folder:
            path = ROOT / "tests" / "data" / "scripts" / name
            found, used = run("migrate", str(path), "-o", folder)
        acts = [c["action"] for c in found["changes"]]
        states = [o["state"] for o in found["operators"]]
        counts = [states.count(s) for s in ("supported", "slow", "absent", "unknown")]
        errors = sum(f["severity"] == "error" for f in found["settings"])
        print(f"| {name} | {acts.count('replaced')} | {acts.count('added')} | "
              f"{len(found['lacking'])} | {counts} | {errors} | {used:.1f} |")  # fmt: skip


if __name__ == "__main__":
    main()
