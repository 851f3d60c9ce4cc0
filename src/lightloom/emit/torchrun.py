"""torchrun: the launch line for any script, with the environment and NUMA wrapper."""

from __future__ import annotations

from lightloom.core.plan import Plan

from .bundle import Bundle, EmittedFile
from .environment import environment_of
from .launch import environment_file, host_script, launch_lines, numa_file


def emit(plan: Plan) -> Bundle:
    """Return ``launch.sh SCRIPT ARGS``, the environment and the NUMA wrapper."""
    s = plan.strategy
    degrees = {"TP": s.tp, "PP": s.pp, "DP": s.dp, "CP": s.cp, "EP": s.ep, "VPP": s.vpp,
               "MICRO_BATCH": s.micro_batch, "GLOBAL_BATCH": s.global_batch,
               "SEQ_LENGTH": s.seq}  # fmt: skip
    exports = [f"export LL_{name}={value}  # plan" for name, value in degrees.items()]
    text = host_script(
        plan,
        "start any torchrun-style script: ./launch.sh train.py ARGS, on every host",
        exports,
        launch_lines(plan, '"${@:?script and its arguments}"'),
    )
    files = (
        EmittedFile("launch.sh", text, executable=True),
        environment_file(plan, environment_of(plan)),
        numa_file(plan),
    )
    return Bundle("torchrun", files)
