"""What a run is: its specification and its files under ``runs/NAME``."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

import msgspec

from lightloom.core.errors import InputError, nearest
from lightloom.core.files import read_json, write_bytes, write_json
from lightloom.core.placement import Placement

from . import system


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything needed to start a run, or to start it again after a reboot."""

    version: int = 1
    name: str
    script: str
    args: tuple[str, ...] = ()
    ranks: int = 3
    spares: int = 0
    agents: int = 2
    shards: int = 1
    layouts: tuple[str, ...] = ()
    """How a replica may be cut (``pp=2,tp=2``), in order of preference; empty: the script says."""
    order: tuple[str, ...] = Placement().order
    """Axes from neighbours to strangers on the fabric: the plan's placement."""
    micro_batches: int = 0
    """Micro-batches of one step of the whole job; 0 is one per replica."""
    steps: int = 0
    """Steps to train; 0 leaves it to the script."""
    seed: int = 0
    deterministic: bool = False
    """Fixed order of the micro-batches in every sum: equal bit for bit after a failure."""
    rescale: bool = False
    wait: bool = False
    least: int = 1
    fabric: str = "auto"
    """shm, gloo, nccl, hccl; auto picks shm on CPU."""
    snapshot_every: int = 50
    keep: int = 3
    copies: str = "auto"
    """Copies of the state in the agents' memory: on, off, or auto: where no replica holds it."""
    on_nan: str = "skip"
    respawn: bool = True
    faults: tuple[str, ...] = ()
    resume: str = ""
    """Snapshot folder to start from."""
    plan: str = ""
    engine: str = "local"
    """What starts the agents: local, torchrun or ray."""
    cwd: str = ""
    silent_s: float = 1.5
    """Seconds without a heartbeat before an agent is suspected."""

    @property
    def micro(self) -> int:
        """Micro-batches of one step."""
        return self.micro_batches or self.ranks // self.shards


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent listens and which process it is (``agent-N.json``)."""

    agent: int
    pid: int
    started: int
    host: str
    port: int

    @property
    def alive(self) -> bool:
        """Return whether exactly this process still runs."""
        return bool(self.pid) and system.started(self.pid) == self.started


def home() -> Path:
    """Return the folder of all runs: $LIGHTLOOM_HOME or ./runs."""
    return Path(os.environ.get("LIGHTLOOM_HOME") or "runs").absolute()


def create(spec: Spec) -> Path:
    """Make the folder of a new run and return it."""
    folder = home() / spec.name
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise InputError(
            f"run {spec.name} exists in {home()}",
            out=f"another --name, or: lightloom run resume {spec.name}",
        ) from error
    except OSError as error:
        raise InputError(f"cannot write runs to {home()}: {error}", out="set LIGHTLOOM_HOME")
    write_json(folder / "spec.json", spec)
    write_bytes(folder / "token", secrets.token_hex(32).encode())
    (folder / "token").chmod(0o600)
    return folder


def fresh_name(script: str) -> str:
    """Return a name no run has yet, from the script and the time."""
    stem = "".join(c if c.isalnum() else "-" for c in Path(script).stem)[:24] or "run"
    name = f"{stem}-{time.strftime('%m%d-%H%M%S')}"
    number = 1
    while (home() / name).exists():
        number += 1
        name = f"{stem}-{time.strftime('%m%d-%H%M%S')}-{number}"
    return name


def find(name: str) -> Path:
    """Return the folder of a run by name, unique beginning or path."""
    for folder in (Path(name), home() / name):
        if (folder / "spec.json").is_file():
            return folder.absolute()
    names = [p.name for p in folders()]
    close = [n for n in names if n.startswith(name)]
    if len(close) == 1:
        return home() / close[0]
    raise InputError(f"no run {name!r} in {home()}{nearest(name, names)}", out="lightloom run list")


def folders() -> list[Path]:
    """Return the folders of all runs, oldest first."""
    if not home().is_dir():
        return []
    found = [p for p in home().iterdir() if (p / "spec.json").is_file()]
    return sorted(found, key=lambda p: (p / "spec.json").stat().st_mtime)


def load(folder: Path) -> Spec:
    """Return the specification of a run."""
    return read_json(folder / "spec.json", Spec, "run")


def doors(folder: Path) -> list[Door]:
    """Return the agents that ever started, by number."""
    found = [read_json(path, Door, "agent") for path in folder.glob("agent-*.json")]
    return sorted(found, key=lambda d: d.agent)


def living(folder: Path) -> list[Door]:
    """Return the agents that run now."""
    return [door for door in doors(folder) if door.alive]
