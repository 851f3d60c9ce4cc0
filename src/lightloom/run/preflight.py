"""Before the start: disk, memory, ports, links between ranks, versions. Seconds, never a job."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from lightloom.core.errors import MissingExtraError
from lightloom.core.finding import Finding

from . import system
from .spec import Spec

LEAST_DISK = 256 * 2**20
LEAST_MEMORY = 512 * 2**20
"""Bytes a rank needs before any model: interpreter and torch."""


def check(spec: Spec, home: Path) -> list[Finding]:
    """Return what was looked at; an error means that the run cannot start."""
    system.need_linux()
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("torch", "run")
    home.mkdir(parents=True, exist_ok=True)
    found = [_disk(home), _memory(spec), _ports(spec), _copies(), _cores(spec), _versions()]
    return [f for f in found if f is not None]


def _disk(home: Path) -> Finding:
    free = shutil.disk_usage(home).free
    began = time.perf_counter()
    probe = home / f".probe-{os.getpid()}"
    data = b"\0" * (4 * 2**20)
    try:
        with open(probe, "wb", buffering=0) as stream:
            stream.write(data)
            os.fdatasync(stream.fileno())
        speed = len(data) / (time.perf_counter() - began)
        what, bad = f"{free / 2**30:.1f} GiB free, {speed / 1e6:.0f} MB/s synced", free < LEAST_DISK
    except OSError as error:
        speed, what, bad = 0.0, f"cannot write: {error}", True
    finally:
        probe.unlink(missing_ok=True)
    return Finding(
        severity="error" if bad else "info", code="disk", subject=str(home), what=what,
        numbers={"free_bytes": float(free), "bytes_per_s": speed},
        remedy="free space or set LIGHTLOOM_HOME; --snapshot-every 0 runs without snapshots"
        if bad else "",
    )  # fmt: skip


def _memory(spec: Spec) -> Finding:
    page = os.sysconf("SC_PAGE_SIZE")
    free = os.sysconf("SC_AVPHYS_PAGES") * page
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    need = (spec.ranks + spec.spares) * LEAST_MEMORY
    bad = free < need
    return Finding(
        severity="error" if bad else "info", code="memory", subject=platform.node(),
        what=f"{free / 2**30:.1f} GiB available for {spec.ranks + spec.spares} processes",
        numbers={"available_bytes": float(free), "needed_bytes": float(need)},
        remedy="fewer --ranks or --spares" if bad else "",
    )  # fmt: skip


def _ports(spec: Spec) -> Finding:
    try:
        for agent in range(spec.agents):
            socket.create_server((f"127.0.0.{1 + agent % 250}", 0)).close()
    except OSError as error:
        return Finding(
            severity="error", code="ports", subject="loopback", what=f"cannot listen: {error}",
            remedy="127.0.0.0/8 must be usable by this user",
        )  # fmt: skip
    return Finding(severity="info", code="ports", subject="loopback",
                   what=f"{spec.agents} agents can listen, the kernel chooses ports")  # fmt: skip


def _copies() -> Finding:
    """Measure shared memory between processes: a copy of 16 MiB."""
    _, memory = system.shared("ll-probe", 32 * 2**20)
    view = memoryview(memory)
    half = len(view) // 2
    view[:half] = view[half:]
    began = time.perf_counter()
    view[half:] = view[:half]
    rate = half / (time.perf_counter() - began)
    view.release()
    memory.close()
    return Finding(severity="info", code="link", subject="between ranks",
                   what=f"shared memory, {rate / 1e9:.1f} GB/s a copy",
                   numbers={"bytes_per_s": rate})  # fmt: skip


def _cores(spec: Spec) -> Finding | None:
    cores = len(os.sched_getaffinity(0))
    if spec.ranks <= cores:
        return None
    return Finding(
        severity="warning", code="cores", subject=platform.node(),
        what=f"{spec.ranks} ranks share {cores} cores: slower than a core each",
        numbers={"ranks": float(spec.ranks), "cores": float(cores)},
    )  # fmt: skip


def _versions() -> Finding:
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "of unknown version"
    return Finding(severity="info", code="versions", subject="software",
                   what=f"torch {torch}, Python {platform.python_version()}, "
                        f"Linux {platform.release()}")  # fmt: skip
