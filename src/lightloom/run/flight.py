"""Which rank is where when a hang is found, in the format of PyTorch's flight recorder.

One file a rank, ``hang-STEP/rank-SLOT.json``, readable by torch's ``fr_trace`` style tools: the
collective a rank is in or has not reached, its state and its frames.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lightloom.core.files import write_json

from . import board as b
from .nest import QUIET_PHASES, Nest, RankProc

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>.+)')


def frames(stack: list[str]) -> list[dict[str, Any]]:
    """Return faulthandler's lines as flight-recorder frames, innermost first."""
    found = [_FRAME.search(line) for line in stack]
    return [
        {"name": m["name"], "filename": m["file"], "line": int(m["line"])} for m in found if m
    ]  # fmt: skip


def entry(rank: RankProc, stack: list[str]) -> dict[str, Any]:
    """Return where one rank is: in the step's reduction, or before it."""
    waiting = rank.phase in QUIET_PHASES
    return {
        "record_id": rank.board.get(b.MARK), "pg_id": rank.board.get(b.EPOCH),
        "process_group": ["0", "dp"], "collective_seq_id": rank.board.get(b.STEP),
        "p2p_seq_id": 0, "op_id": rank.board.get(b.STEP), "is_p2p": False,
        "profiling_name": "lightloom:reduce_gradients" if waiting else b.PHASES[rank.phase],
        "state": "started" if waiting else "scheduled",
        "time_created_ns": rank.board.get(b.AT), "frames": frames(stack),
    }  # fmt: skip


def write(folder: Path, nest: Nest, named: RankProc) -> Path:
    """Write where each member of this agent is; returns the folder."""
    target = folder / f"hang-{named.board.get(b.STEP) + 1}"
    for rank in nest.members():
        one = entry(rank, nest.stack(rank) if rank is named else [])
        body = {"version": "2.4", "pg_config": {"0": {"name": "dp", "desc": "default_pg"}},
                "entries": [one]}  # fmt: skip
        write_json(target / f"rank-{rank.slot}.json", body)
    return target
