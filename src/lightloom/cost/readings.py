"""Other readings of an ambiguous machine: what the step would be if a note is read otherwise."""

from __future__ import annotations

import re
from dataclasses import replace

from lightloom.core.catalog import load_cluster
from lightloom.core.strategy import Strategy

from .calibration import Calibration
from .columns import columns_of
from .evaluate import evaluate
from .job import Job

_CHANGE = re.compile(r"\b([a-z0-9][\w-]*):([\w.]+=[^\s;,]+)")
"""``supernode-8192:spine.link=6.4Tb/s`` inside a note of the cluster's file."""


def other_readings(
    job: Job, strategy: Strategy, calibration: Calibration | None = None
) -> dict[str, float]:
    """Return change -> seconds of a step, for every change that the cluster's own notes name."""
    found: dict[str, float] = {}
    columns = columns_of([strategy])
    for note in job.cluster.notes:
        for name, change in _CHANGE.findall(note):
            if name != job.cluster.name:
                continue
            other = replace(job, cluster=load_cluster(f"{name}:{change}"))
            found[change] = float(evaluate(other, columns, calibration).step_s[0])
    return found
