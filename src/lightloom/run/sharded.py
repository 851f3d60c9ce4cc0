"""Snapshots as a whole: one folder of a step, or one of the same step from each shard.

Each shard of a replica writes ``snapshots/shard-1-of-4/step-00000050/``, a folder like any other. A
step can be loaded when all its shards are there, are of the same course of the training (a rewind
or a resumed run begins another) and verify. Everywhere the path of the first shard stands for all.
"""

from __future__ import annotations

import re
from pathlib import Path

from lightloom.core.errors import InputError

from . import snapshot

LAG = 8
"""Snapshots by which one shard's writer may be ahead of another's."""
_PLACE = re.compile(r"shard-(\d+)-of-(\d+)")


def place(shard: int, shards: int) -> str:
    """Return the folder of a shard inside ``snapshots``; empty for whole replicas."""
    return "" if shards == 1 else f"shard-{shard}-of-{shards}"


def parts(path: Path) -> list[Path]:
    """Return the folders of all shards of a snapshot, given that of any."""
    found = _PLACE.fullmatch(path.parent.name)
    if not found:
        return [path]
    shards = int(found[2])
    return [path.parent.parent / place(i, shards) / path.name for i in range(shards)]


def folders(folder: Path) -> list[Path]:
    """Return the complete snapshots of a folder, oldest step first."""
    firsts = [*snapshot.folders(folder)]
    for first in folder.glob("shard-0-of-*"):
        firsts += [p for p in snapshot.folders(first) if _complete(p)]
    return sorted(firsts, key=lambda p: (p.name, len(parts(p))))


def _complete(path: Path) -> bool:
    """Return whether all shards are there, of one course; one that cannot be read counts, too."""
    others = parts(path)
    if not all((p / snapshot.MANIFEST).is_file() for p in others):
        return False
    return len({snapshot.mark_of(p) for p in others} - {None}) <= 1


def verify(path: Path) -> str:
    """Return what is wrong with a snapshot, naming the shard; empty if every byte is right."""
    others = parts(path)
    for index, part in enumerate(others):
        problem = snapshot.verify(part)
        if problem:
            return f"shard {index} of {len(others)}: {problem}" if len(others) > 1 else problem
    if len({snapshot.mark_of(p) for p in others}) > 1:
        return "its shards are of different courses of the training"
    return ""


def newest(folder: Path, before: int | None = None) -> tuple[int, int]:
    """Return (step, cursor) of the newest snapshot that verifies; (-1, 0) without one."""
    found = newest_path(folder, before)
    return snapshot.position(found) if found else (-1, 0)


def newest_path(folder: Path, before: int | None = None) -> Path | None:
    """Return the newest snapshot that verifies, older than step `before` if given."""
    for path in reversed(folders(folder)):
        if (before is None or path.name < snapshot.name_of(before)) and not verify(path):
            return path
    return None


def at_step(run: Path, resume: str, step: int, shards: int) -> Path:
    """Return where the snapshot of `step` lies: among this run's own, or the one resumed.

    One of as many shards as the run has goes before one that must be cut anew.
    """
    own = [p for p in folders(run / "snapshots") if p.name == snapshot.name_of(step)]
    if own:
        return min(own, key=lambda p: len(parts(p)) != shards)
    return Path(resume) if resume else run / "snapshots" / snapshot.name_of(step)


def prune(folder: Path, where: str, step: int, keep: int) -> None:
    """Delete what a shard needs no more, after it wrote the snapshot of `step`.

    Kept are the `keep` newest steps that all shards have, and what is newer: the other shards may
    still be writing it. Later steps are of a course that was left; they are written over.
    """
    own = snapshot.folders(folder / where)
    past = [p for p in own if p.name <= snapshot.name_of(step)]
    common = [p.name for p in past if not where or _complete(p)]
    if len(common) >= keep:
        floor = common[-keep]
        snapshot.remove((p for p in past if p.name < floor), folder / where)
    if common:
        newer = [p for p in past if p.name > common[-1]]
        snapshot.remove(newer[: -(keep + LAG)], folder / where)


class Shelf:
    """What an agent knows of the snapshots of its run, without reading their bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "snapshots"
        self.bad: set[tuple[str, str | None]] = set()
        """(name of the step, course) of those that did not verify."""
        self.writing = 0
        """Snapshots the agent's writer is still busy with."""

    def newest(self, upto: int) -> tuple[int, int]:
        """Return (step, cursor) of the newest up to a step that is not known as damaged, or -1."""
        for path in reversed(folders(self.folder)):
            if path.name > snapshot.name_of(upto) or (path.name, _mark(path)) in self.bad:
                continue
            try:
                return snapshot.position(path)
            except InputError:
                continue
        return -1, 0

    def older(self, step: int) -> tuple[int, int]:
        """Return the newest that verifies before `step`, whose snapshot turned out damaged."""
        for path in folders(self.folder):
            if path.name == snapshot.name_of(step):
                self.bad.add((path.name, _mark(path)))
        return newest(self.folder, before=step)


def _mark(path: Path) -> str | None:
    """Return the course of a snapshot by the first shard that can be read."""
    return next((m for m in map(snapshot.mark_of, parts(path)) if m is not None), None)
