"""Blocking time of a snapshot per GB and the slow-down of compute meanwhile; one JSON line.

Ours through the real path (warm shared buffer, writer process); DCP through async_save.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median

import torch

from lightloom.core.files import write_json
from lightloom.run import handover, nest
from lightloom.run import state as st
from lightloom.run.spec import Spec

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
GB = 2**30


def compute() -> float:
    """Return seconds of one compute step."""
    a = torch.ones(900, 900)
    began = time.perf_counter()
    for _ in range(6):
        a = (a @ a).clamp_(0, 1)
    return time.perf_counter() - began


def meanwhile(busy: object, most: int = 400) -> list[float]:
    """Return compute steps as long as `busy()` is true."""
    out = []
    while busy() and len(out) < most:  # type: ignore[operator]
        out.append(compute())
    return out


def ours(tensors: dict[str, torch.Tensor], folder: Path) -> tuple[float, float, list[float]]:
    """Return (blocked s, blocked s with the copy under compute, steps while writing)."""
    import msgspec

    spec = Spec(name="save", script="x", ranks=1)
    write_json(folder / "spec.json", spec)
    process, link = nest.start_writer(folder, 0)
    tree, named = st.flatten({"optimizer": tensors})
    pieces, total = st.plan(named)
    buffer = handover.Buffer("bench")
    blocked, steps = [], []
    import threading

    hidden = []
    for index in range(4):
        layout = st.Layout(step=index + 1, cursor=0, pieces=pieces, tree=tree, total=total)
        began = time.perf_counter()
        memory, start = handover.begin(buffer, layout)
        st.copy_in(layout, [t for _, t in named], memory, start)
        if index:
            blocked.append(time.perf_counter() - began)
        began = time.perf_counter()
        thread = threading.Thread(
            target=st.copy_in, args=(layout, [t for _, t in named], memory, start)
        )
        thread.start()
        spent = time.perf_counter() - began
        for _ in range(4):  # the next step's forward and backward
            compute()
        began = time.perf_counter()
        thread.join()
        if index:
            hidden.append(spent + time.perf_counter() - began)
        path = buffer.path(os.getpid())
        link.send(msgspec.msgpack.encode((index + 1, 0, path, False)))
        link.setblocking(False)

        def busy() -> bool:
            try:
                link.recv(4096)
                return False
            except BlockingIOError:
                return True

        steps += meanwhile(busy)
    link.close()
    process.wait(timeout=60)
    return median(blocked), median(hidden), steps


def dcp(tensors: dict[str, torch.Tensor], folder: Path) -> tuple[float, list[float]]:
    """Return (blocked s, steps while writing)."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as d

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29777"}
    dist.init_process_group("gloo", rank=0, world_size=1)
    blocked, steps = [], []
    for index in range(3):
        began = time.perf_counter()
        future = d.async_save({"optimizer": tensors}, checkpoint_id=str(folder / f"d{index}"))
        blocked.append(time.perf_counter() - began)
        steps += meanwhile(lambda f=future: not f.done())
        future.result()
    dist.destroy_process_group()
    return median(blocked), steps


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "snapshots").mkdir()
        tensors = {str(i): torch.full((GB // 4 // 32,), float(i)) for i in range(32)}
        alone = [compute() for _ in range(40)]
        block_s, hidden_s, while_ours = ours(tensors, folder)
        alone += [compute() for _ in range(40)]
        dcp_s, while_dcp = dcp(tensors, folder)
        alone += [compute() for _ in range(40)]
        base = median(alone)
        print(json.dumps({
            "ours_block_s": block_s, "ours_hidden_s": hidden_s, "dcp_block_s": dcp_s,
            "ours_slow": median(while_ours) / base - 1, "dcp_slow": median(while_dcp) / base - 1,
        }))  # fmt: skip
