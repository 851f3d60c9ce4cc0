"""Traffic classes and priorities: one vocabulary for planning, simulation, light and real runs."""

from __future__ import annotations

from typing import Literal, get_args

TrafficClass = Literal[
    "expert", "tensor", "pipeline", "context", "gradient", "snapshot", "telemetry"
]
Priority = Literal["highest", "high", "medium", "low"]

CLASSES: tuple[TrafficClass, ...] = get_args(TrafficClass)
PRIORITIES: tuple[Priority, ...] = get_args(Priority)
DEFAULT_PRIORITY: dict[TrafficClass, Priority] = {
    "expert": "highest", "tensor": "highest", "pipeline": "high", "context": "high",
    "gradient": "medium", "snapshot": "low", "telemetry": "low",
}  # fmt: skip
AXIS_CLASS: dict[str, TrafficClass] = {
    "tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert", "etp": "tensor",
    "dp": "gradient",
}  # fmt: skip
