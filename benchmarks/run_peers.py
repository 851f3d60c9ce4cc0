"""Drivers of the peers in benchmarks/run.py: kill one of three ranks, wait for the next step."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent / "peers"
PACKAGES = ["torchft==0.2.0", "nvidia-resiliency-ext==0.4.1"]


def venv() -> Path:
    """Make a venv for the peers that shares this interpreter's torch; returns its python."""
    folder = Path(tempfile.gettempdir()) / "lightloom-peers"
    python = folder / "bin" / "python"
    if python.exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    import torch

    (site / "torch.pth").write_text(str(Path(torch.__file__).resolve().parent.parent))
    subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return python


def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Job:
    """Processes of one trial and the steps they print."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int, int]] = []
        self.pids: dict[int, int] = {}
        self.processes: list[subprocess.Popen[str]] = []
        self.tail: list[str] = []

    def start(self, command: list[str], **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "TORCHFT_LOG": "0"} | env,
            start_new_session=True,
        )  # fmt: skip
        self.processes.append(process)
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        return process

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            for found in re.findall(r"STEP (\d) (\d+) (\d{12,})", line):
                self.steps.append(tuple(int(x) for x in found))
            for rank, pid in re.findall(r"PID (\d) (\d+)", line):
                self.pids[int(rank)] = int(pid)
            if "STEP" not in line and "PID" not in line:
                self.tail = [*self.tail[-20:], line.rstrip()]

    def wait_step(self, step: int, timeout_s: float) -> bool:
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if any(s >= step for _, s, _ in self.steps):
                return True
            time.sleep(0.02)
        return False

    def kill_rank(self, rank: int) -> tuple[int, int]:
        """SIGKILL a rank; returns (when, last step it printed)."""
        last = max(s for _, s, _ in self.steps)
        at = time.monotonic_ns()
        os.kill(self.pids[rank], signal.SIGKILL)
        return at, last

    def resumed(self, at: int, timeout_s: float) -> tuple[float, int] | None:
        """Return (seconds to the first step a rank committed, its number) after the kill."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            after = [(t, s) for _, s, t in self.steps if t > at + 20_000_000]
            if after:
                t, s = min(after)
                return (t - at) / 1e9, s
            time.sleep(0.01)
        return None

    def top(self) -> int:
        """Return the highest step any rank has committed."""
        return max((s for _, s, _ in self.steps), default=0)

    def lives(self, rank: int) -> bool:
        """Return whether a rank said its PID and still runs (a zombie does not)."""
        try:
            state = Path(f"/proc/{self.pids[rank]}/stat").read_text().rpartition(")")[2].split()[0]
        except (KeyError, OSError):
            return False
        return state not in "ZX"

    def close(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _torchrun(job: Job, python: Path, ranks: int, restarts: int, *command: str) -> None:
    job.start(
        [str(python), "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
         f"--max-restarts={restarts}", "--monitor-interval=0.1", *command],
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
    )  # fmt: skip


def trial(kind: str, python: Path) -> tuple[float, int] | None:
    """Return (seconds from the kill to the next step, steps lost) of one trial of a peer."""
    job, steps = Job(), "100000"
    with tempfile.TemporaryDirectory() as folder:
        ck = f"{folder}/ck.pt"
        try:
            if kind == "torchrun":
                _torchrun(job, python, 3, 3, "job_ddp.py", steps, ck)
            elif kind == "torchrun-tp":
                _torchrun(job, python, 2, 3, "job_tp.py", steps, ck)
            elif kind == "nvrx":
                p = str(port())
                for rank in range(3):
                    job.start([str(python), "job_nvrx.py", steps, ck], RANK=str(rank),
                              WORLD_SIZE="3", LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                              MASTER_PORT=p)  # fmt: skip
            else:
                _torchft(job, python, steps, kind)
            if not job.wait_step(23, 120):
                print(kind, "did not start:", *job.tail[-6:], sep="\n  ")
                return None
            at, last = job.kill_rank(1)
            found = job.resumed(at, 90)
            if found is None:
                print(kind, "did not go on:", *job.tail[-6:], sep="\n  ")
                return None
            return found[0], max(last + 1 - found[1], 0)
        finally:
            job.close()


def _torchft(job: Job, python: Path, steps: str, kind: str) -> int:
    p, join = port(), "60000" if kind == "torchft" else "2000"
    lighthouse = str(python.parent / "torchft_lighthouse")
    job.start([lighthouse, "--min_replicas", "1", "--join_timeout_ms", join,
               "--heartbeat_timeout_ms", "5000", "--bind", f"[::]:{p}"])  # fmt: skip
    time.sleep(1.0)
    for rank in range(3):
        job.start([str(python), "job_torchft.py", str(rank), steps, str(port())],
                  TORCHFT_LIGHTHOUSE=f"http://localhost:{p}")  # fmt: skip
    return p


def goodput(kind: str, python: Path, minutes: float, every: int = 60) -> tuple[float, int, int]:
    """Kill a rank every `every` steps of the job, for a while; a torchft replica is started again.

    Returns (goodput, steps kept, failures): steps x the mean step before the first failure / wall.
    """
    job, steps = Job(), "1000000"
    with tempfile.TemporaryDirectory() as folder:
        try:
            lighthouse = _begin(kind, job, python, steps, f"{folder}/ck.pt")
            if not job.wait_step(5, 120):
                print(kind, "did not start:", *job.tail[-6:], sep="\n  ")
                return 0.0, 0, 0
            return _disturb(kind, job, python, minutes, every, lighthouse)
        finally:
            job.close()


def _begin(kind: str, job: Job, python: Path, steps: str, checkpoint: str) -> int:
    """Start a peer that may restart without end; returns the lighthouse's port."""
    if kind == "torchrun":
        _torchrun(job, python, 3, 100000, "job_ddp.py", steps, checkpoint)
        return 0
    return _torchft(job, python, steps, kind)


def _disturb(kind: str, job: Job, python: Path, minutes: float, every: int, lighthouse: int
             ) -> tuple[float, int, int]:  # fmt: skip
    end, failures, due = time.monotonic() + 60 * minutes, 0, every
    while time.monotonic() < end:
        time.sleep(0.05)
        if job.top() < due:
            continue
        victim = next((r for r in (failures % 3, 0, 1, 2) if job.lives(r)), None)
        if victim is None:
            continue
        job.kill_rank(victim)
        failures, due = failures + 1, job.top() + every
        if kind.startswith("torchft"):
            job.start([str(python), "job_torchft.py", str(victim), "1000000", str(port())],
                      TORCHFT_LIGHTHOUSE=f"http://localhost:{lighthouse}")  # fmt: skip
    first: dict[int, int] = {}
    for _, s, t in sorted(job.steps, key=lambda row: row[2]):
        first.setdefault(s, t)
    calm = (first[every - 5] - first[10]) / (every - 15)
    begin, last = min(first), job.top()
    wall = time.monotonic_ns() - first[begin]
    return (last - begin) * calm / wall, last, failures


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, trial(name, venv()))
