"""Agents as Ray actors: ``python -m lightloom.run.engines_ray FOLDER``.

One actor per agent; the agent dies with its actor. A killed actor is what a lost agent is anywhere:
the other agents go on without its ranks, and this driver starts another actor, whose agent joins.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from . import engines, system
from .agent import RESPAWN_S
from .report import report
from .spec import doors, living, load


def serve(folder: str, index: int, count: int, joins: bool, cwd: str) -> int:
    """Run one agent inside an actor until it ends; the kernel ends it with the actor."""
    command = [sys.executable, "-m", "lightloom.run.agent", folder, str(index), str(count)]
    with open(Path(folder) / f"agent-{index}.log", "ab") as log:
        child = subprocess.Popen(
            command + (["join"] if joins else []), stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, cwd=cwd,
            preexec_fn=partial(system.die_with_parent, os.getpid(), f"ll-agent-{index}"),
        )  # fmt: skip
    return child.wait()


def main(folder: Path) -> int:
    """Start Ray (or join the cluster of RAY_ADDRESS), keep the actors, stop what was started."""
    import ray

    spec = load(folder)
    address = os.environ.get("RAY_ADDRESS")
    mine = {} if address else {"num_cpus": spec.agents, "include_dashboard": False}
    ray.init(address=address, log_to_driver=False, **mine)

    class Keeper:
        """One failure domain."""

        def pid(self) -> int:
            return os.getpid()

        def serve(self, index: int, count: int, joins: bool) -> int:
            return serve(str(folder), index, count, joins, os.getcwd())

    actor = ray.remote(num_cpus=0, max_restarts=0, max_concurrency=2)(Keeper)
    running: dict[Any, tuple[Any, int]] = {}

    def open_one(index: int, count: int, joins: bool) -> None:
        keeper = actor.remote()
        pid = ray.get(keeper.pid.remote())
        with open(folder / "actors", "a") as seen:
            seen.write(f"{index} {pid}\n")
        running[keeper.serve.remote(index, count, joins)] = (keeper, count)

    for index in range(spec.agents):
        open_one(index, engines.share(spec, index), False)
    while running:
        ended, _ = ray.wait(list(running), timeout=0.2)
        for one in ended:
            _, count = running.pop(one)
            try:
                ray.get(one)
            except ray.exceptions.RayActorError:
                time.sleep(RESPAWN_S)
                known = max(door.agent for door in doors(folder))
                if living(folder) and spec.respawn and known < spec.agents + 64:
                    open_one(known + 1, count, True)
    ray.shutdown()
    return 6 if report(folder).state in ("failed", "dead") else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
