"""Real faults a drill asks a rank for: signals, loops, locks and blocked reads, never a mock."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from lightloom.core.event import Fault, parse_fault

from . import board as b
from . import system
from .link import Link

RANKS = ("rank", "hang", "nan", "slow", "link")
"""Kinds that a rank does to itself."""


def mine(faults: tuple[str, ...], kinds: tuple[str, ...]) -> list[Fault]:
    """Return the faults of the given kinds."""
    return [f for f in map(parse_fault, faults) if f.kind in kinds]


def slot_of(fault: Fault) -> int:
    """Return the rank a fault names: ``rank:2`` or ``hang:rank:2``; -1 for none."""
    last = fault.where.rsplit(":", 1)[-1]
    return int(last) if last.isdigit() else -1


class Injector:
    """Injects this rank's share of the faults, each once."""

    def __init__(self, faults: tuple[str, ...], link: Link, folder: Path) -> None:
        self.left = list(enumerate(map(parse_fault, faults)))
        self.link, self.folder = link, folder
        self.poison, self.cut = False, ""

    def _first(self, number: int) -> bool:
        """Return whether no rank has injected this fault yet; a redone step does not repeat it."""
        try:
            os.close(os.open(self.folder / f"fired-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def at(self, slot: int, step: int) -> None:
        """Do what the drill wants of this slot at the beginning of `step`."""
        for number, fault in self.left:
            if fault.kind not in RANKS or slot_of(fault) != slot or (fault.step or 1) != step:
                continue
            if not self._first(number):
                continue
            if fault.kind == "nan":
                self.poison = True
            elif fault.kind == "link":
                self.link.board.set(b.KILLED, system.now_ns())
                self.cut = fault.much or "once"
            elif fault.kind == "slow":
                time.sleep(max(fault.factor - 1.0, 0.0) if fault.factor < 1e3 else 1.0)
            else:
                self.link.board.set(b.KILLED, system.now_ns())
                break_down(fault)


def break_down(fault: Fault) -> None:
    """Die or hang, as the fault says: ``rank`` SIGKILL; ``hang`` stop, loop, lock or read."""
    if fault.kind == "rank":
        os.kill(os.getpid(), signal.SIGKILL)
    how = fault.much or "stop"
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "loop":
        spin()
    elif how == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    elif how == "read":
        reader, _writer = os.pipe()
        os.read(reader, 1)
    else:
        raise ValueError(f"{fault.text}: a hang is =stop, =loop, =lock or =read")


def spin() -> None:
    """Loop for ever using CPU."""
    x = 0
    while True:
        x += 1
