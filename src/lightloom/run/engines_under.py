"""One worker of torchrun: starts its agent, waits for the end of the run, passes on a stop.

``torchrun --nproc-per-node AGENTS --max-restarts 0 -m lightloom.run.engines_under FOLDER``. The
agent has a session of its own: torchrun never sees a lost rank or agent, only the end of the job.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from . import agent as agents
from . import engines, launch
from .report import report
from .spec import doors, living, load

_OWN = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE",
        "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR",
        "MASTER_PORT")  # fmt: skip


def main(folder: Path) -> int:
    """Serve until no agent of the run lives; 0 if the run ended well."""
    spec, index = load(folder), int(os.environ["LOCAL_RANK"])
    for name in list(os.environ):
        if name in _OWN or name.startswith("TORCHELASTIC_"):
            del os.environ[name]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: launch.stop(folder) and None)
    child = agents.launch(folder, index, engines.share(spec, index))
    launch.wait_until(lambda: len(doors(folder)) >= spec.agents or child.poll() is not None, 60.0)
    while living(folder) or launch.wait_until(lambda: bool(living(folder)), 1.0):
        child.poll()
        time.sleep(0.1)
    return 6 if report(folder).state in ("failed", "dead") else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
