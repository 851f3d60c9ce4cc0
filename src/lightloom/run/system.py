"""What Linux offers: death proofs, parent-death signals, anonymous shared memory, /proc."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from lightloom.core.errors import RunError

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


def need_linux() -> None:
    """Raise unless this is Linux with pidfd (5.3) and memfd."""
    if not sys.platform.startswith("linux") or not hasattr(os, "pidfd_open"):
        raise RunError(
            "`run` needs Linux 5.3 or later (pidfd, memfd, parent-death signals)",
            out="plan, simulate, emit and advise also run here; run the job on Linux",
        )


def die_with_parent(parent: int, name: str) -> None:
    """Have the kernel kill this process when its parent ends; `name` shows up in ps."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
    if os.getppid() != parent:
        os._exit(9)


def shared(name: str, size: int) -> tuple[int, mmap.mmap]:
    """Return (file descriptor, mapping) of new anonymous memory that others can map.

    It has no name on any file system: it is gone when the last process that maps it is.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    os.ftruncate(fd, max(size, mmap.PAGESIZE))
    return fd, mmap.mmap(fd, max(size, mmap.PAGESIZE))


def attach(path: str) -> mmap.mmap | None:
    """Return a mapping of memory another process shares as ``/proc/PID/fd/N``; None if it died."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # it has ended, or the number names something else by now
        return None
    try:
        return mmap.mmap(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def started(pid: int) -> int:
    """Return the start time of a process in clock ticks, 0 if there is none."""
    fields = stat(pid)
    return int(fields[19]) if fields else 0


def stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; empty if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text[text.rindex(")") + 2 :].split()


def thread_state(pid: int) -> tuple[str, float]:
    """Return (state, CPU seconds) of a process's main thread, to the nanosecond where possible."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/stat").read_text()
        used = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X", 0.0
    return text[text.rindex(")") + 2], int(used) / 1e9


def blocked_in(pid: int) -> str:
    """Return the kernel function a sleeping process waits in, where the kernel tells."""
    try:
        return Path(f"/proc/{pid}/wchan").read_text().strip("0\n") or "?"
    except OSError:
        return "?"


def open_pid(pid: int) -> int:
    """Return a pidfd that becomes readable when the process ends; -1 if it has ended."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return -1


def kill(pidfd: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to exactly the process behind a pidfd; one that has ended is left in peace."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return


def now_ns() -> int:
    """Return the clock all processes of this host share, nanoseconds."""
    return time.monotonic_ns()


def polite() -> None:
    """Give way to everything else: lowest CPU and disk priority."""
    os.nice(19)
    libc: Any = ctypes.CDLL(None, use_errno=True)
    if os.uname().machine in ("x86_64", "aarch64"):
        number = {"x86_64": 251, "aarch64": 30}[os.uname().machine]
        libc.syscall(number, 1, 0, 3 << 13)


def prompt(level: int) -> None:
    """Set the CPU priority of this process; without the right to raise it, it stays as it is."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, level)
    except PermissionError:
        return
