import csv
import json
from pathlib import Path

from lightloom.advise.analyse import Questions, analyse
from lightloom.advise.read import find, load

PROFILES = Path(__file__).resolve().parent.parent / "data" / "profiles"
SETS = (
    "kineto_dlrm_8rank", "kineto_hta_2of128", "kineto_hta_ddp_a100", "kineto_mi300_resnet_ac",
    "ascend_text_2rank", "ascend_db_2rank", "ascend_cluster_16rank", "ascend_kernel_details",
)  # fmt: skip
_loaded: dict[str, list] = {}


def ranks_of(name: str) -> list:
    if name not in _loaded:
        _loaded[name] = load(find([PROFILES / name]))
    return _loaded[name]


def advice_of(name: str, **ask):
    return analyse(ranks_of(name), Questions(**ask))


def reference(name: str) -> list[dict[str, str]]:
    with (PROFILES / "reference.csv").open() as stream:
        return [row for row in csv.DictReader(stream) if row["dataset"] == name]


def trace(path: Path, events: list[dict], rank: int | None = 0, world: int = 2, **keys) -> Path:
    """Write a Kineto trace."""
    head = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": world}}
    path.write_text(json.dumps(head | keys | {"traceEvents": events}))
    return path


def kernel(name: str, ts: float, dur: float, stream: int = 7, **args) -> dict:
    """Return one device event; microseconds."""
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts,
            "dur": dur, "args": args}  # fmt: skip
