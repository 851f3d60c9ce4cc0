#!/usr/bin/env python3
"""The door to lightloom on a machine with only python3, pip and git.

python3 go.py setup   make .venv and install lightloom into it
python3 go.py demo    the main job on a real configuration, with what to type next
python3 go.py test    every test (says what it fetches and how big before it does)

Arguments after the verb go to the job: ``python3 go.py test tests/core -x``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
CONSTRAINTS = HERE / "constraints.txt"
TORCH = next(line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("torch=="))


def call(*command: object, **options: object) -> subprocess.CompletedProcess:
    """Run a command without PYTHONDONTWRITEBYTECODE (compiled files halve every start)."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run([str(part) for part in command], cwd=HERE, env=env, **options)


def make_venv() -> None:
    """Make .venv, through virtualenv where ensurepip is missing (Debian without python3-venv)."""
    if (
        PYTHON.exists()
        and call(PYTHON, "-m", "pip", "--version", capture_output=True).returncode == 0
    ):
        return
    shutil.rmtree(VENV, ignore_errors=True)
    try:
        import ensurepip  # noqa: F401

        venv.create(VENV, with_pip=True)
    except ImportError:
        boot = HERE / ".boot"
        need(call(sys.executable, "-m", "pip", "install", "-q", "--target", boot, "virtualenv"))
        env = {**os.environ, "PYTHONPATH": str(boot)}
        need(subprocess.run([sys.executable, "-m", "virtualenv", "-q", str(VENV)], env=env))


def need(done: subprocess.CompletedProcess) -> None:
    """Stop with the command's own exit code when it failed."""
    if done.returncode:
        sys.exit(f"go.py: {' '.join(map(str, done.args))} failed with {done.returncode}")


def stamp_of(extra: str) -> str:
    """Return the fingerprint of what an install with `extra` depends on."""
    text = (HERE / "pyproject.toml").read_bytes() + CONSTRAINTS.read_bytes()
    return hashlib.sha256(text + f"{extra}{sys.version}{HERE}".encode()).hexdigest()


def install(extra: str, size: str) -> None:
    """Install lightloom with `extra` unless the last install was the same."""
    stamp = VENV / f".stamp-{extra or 'core'}"
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == stamp_of(extra):
        return
    make_venv()
    print(
        f"go.py: installing lightloom{extra and f'[{extra}]'} into .venv ({size}) ...", flush=True
    )
    target = f"{HERE}[{extra}]" if extra else str(HERE)
    need(call(PYTHON, "-m", "pip", "install", "-q", "-c", CONSTRAINTS, "-e", target))
    stamp.write_text(stamp_of(extra))


def cpu_torch_offered() -> bool:
    """True where pip would fetch a CPU build of torch (or the platform has no other)."""
    if sys.platform != "linux":
        return True
    report = call(PYTHON, "-m", "pip", "install", "-q", "--dry-run", "--no-deps", "--report", "-",
                  "--ignore-installed", TORCH, capture_output=True, text=True)  # fmt: skip
    if report.returncode:
        return False
    chosen = json.loads(report.stdout)["install"][0]
    return "cpu" in chosen["metadata"]["version"] or "%2Bcpu" in chosen["download_info"]["url"]


def install_torch() -> bool:
    """Install torch for the tests of real training; False, with a reason, where it is huge."""
    if call(PYTHON, "-c", "import torch", capture_output=True).returncode == 0:
        install("run", "nothing large: torch is here")
        return True
    if not cpu_torch_offered() and os.environ.get("CI") != "true":
        print(f"go.py: tests of real training are skipped: pip offers no CPU build of {TORCH},\n"
              f"       and the CUDA build is several GB. To run them: {PYTHON} -m pip install "
              f"{TORCH}")  # fmt: skip
        return False
    install("run", "torch for CPU: about 200 MB fetched, 760 MB on disk")
    return True


def demo(arguments: list[str]) -> int:
    """Plan a real model on a real machine and say what to type next."""
    install("plot", "about 60 MB fetched, 150 MB on disk")
    return call(PYTHON, "-m", "lightloom.cli.demo", *arguments).returncode


def test(arguments: list[str]) -> int:
    """Run every test."""
    install("dev", "tests and checkers: about 110 MB fetched, 350 MB on disk")
    install_torch()
    for check in (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]):
        if not arguments and call(PYTHON, "-m", *check).returncode:
            return 1
    workers = [] if arguments else ["-n", "2", "--dist", "loadgroup"]
    return call(PYTHON, "-m", "pytest", "-q", *workers, *arguments).returncode


def main() -> int:
    """Choose the job."""
    verb, arguments = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if sys.version_info < (3, 11):  # noqa: UP036
        sys.exit(f"go.py: Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    if verb == "setup":
        install("", "about 30 MB fetched, 90 MB on disk")
        print(f"ready: {BIN / 'lightloom'} --help")
        return 0
    if verb in ("demo", "test"):
        return {"demo": demo, "test": test}[verb](arguments)
    print(__doc__)
    return 0 if verb in ("", "-h", "--help", "help") else 2


if __name__ == "__main__":
    sys.exit(main())
