"""Live reshard beside torch.distributed.checkpoint: ``python benchmarks/run_reshard.py``.

Both move the same 64 MiB of float32 between real gloo ranks on one host; DCP saves to /dev/shm
(no disk) with n ranks and loads with m. Best of 3 wall times of the slowest rank, in seconds.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from lightloom.run import handover, reshard

COUNT, SIDE = 16, 1024
CASES = (("dp 2 -> tp 2", None, 2, 0, 2), ("4 -> 2", 0, 4, 0, 2), ("2 -> 3", 0, 2, 0, 3))


def part(dim: int | None, parts: int, rank: int, fill: bool = True) -> torch.Tensor:
    """Return one rank's part of a tensor."""
    shape = reshard.part_shape(reshard.Whole("", "float32", (SIDE, SIDE)), dim, parts, rank)
    return torch.full(shape, float(rank + 1)) if fill else torch.empty(shape)


def spread(dim: int | None, parts: int, rank: int) -> dict[str, DTensor]:
    """Return the state as DTensors over all ranks of this group."""
    mesh = init_device_mesh("cpu", (parts,))
    where = [Replicate() if dim is None else Shard(dim)]
    return {
        f"w{i}": DTensor.from_local(part(dim, parts, rank), mesh, where, run_check=False,
                                    shape=torch.Size((SIDE, SIDE)), stride=(SIDE, 1))
        for i in range(COUNT)
    }  # fmt: skip


def timed(act) -> float:  # type: ignore[no-untyped-def]
    """Return seconds until the slowest rank has done `act`."""
    dist.barrier()
    start = time.perf_counter()
    act()
    dist.barrier()
    return time.perf_counter() - start


def worker(rank: int, ranks: int, what: str, case: tuple, folder: str) -> None:
    """Do one side of DCP, or the whole live move."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    store = dist.FileStore(f"{folder}/store-{what}", ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    _, old, n, new, m = case
    times = []
    if what == "live":
        buffer = handover.Buffer("ll-bench")
        mine = {f"w{i}": part(old, n, rank) for i in range(COUNT)} if rank < n else {}
        into = {f"w{i}": part(new, m, rank, False) for i in range(COUNT)} if rank < m else {}
        wholes = [reshard.Whole(f"w{i}", "float32", (SIDE, SIDE)) for i in range(COUNT)]

        def move() -> None:
            path = reshard.offer(buffer, mine, os.getpid()) if rank < n else ""
            paths: list[str] = [""] * ranks
            dist.all_gather_object(paths, path)
            if rank < m:
                reshard.pull({i: p for i, p in enumerate(paths) if p}, wholes,
                             (lambda *_: old, n), (lambda *_: new, m), rank, into)  # fmt: skip

        times = [timed(move) for _ in range(4)][1:]
    for again in range(4) if what != "live" else ():
        state = spread(old if what == "save" else new, ranks, rank)
        at = f"{folder}/dcp-{again}"
        act = dcp.save if what == "save" else dcp.load
        times.append(timed(lambda a=act, s=state, p=at: a(s, checkpoint_id=p)))
    if rank == 0:
        Path(f"{folder}/{what}.time").write_text(str(min(times[-3:])))
    dist.destroy_process_group()


def main() -> None:
    """Print one row of the table a case."""
    for case in CASES:
        folder = tempfile.mkdtemp(dir="/dev/shm")
        sides = {"save": case[2], "load": case[4], "live": max(case[2], case[4])}
        for what, ranks in sides.items():
            mp.spawn(worker, (ranks, what, case, folder), nprocs=ranks)
        save, load, live = (float(Path(f"{folder}/{w}.time").read_text()) for w in sides)
        shutil.rmtree(folder)
        peer = save + load
        print(f"| live reshard {case[0]}, {COUNT * SIDE * SIDE * 4 >> 20} MiB | {live:.3f} s | "
              f"DCP {peer:.3f} s (save {save:.3f}, load {load:.3f}) | <= 1.2 times DCP | "
              f"{'yes' if live <= 1.2 * peer else 'no'}, {live / peer:.2f} times | "
              f"{os.getloadavg()[0]:.1f} |")  # fmt: skip
        sys.stdout.flush()


if __name__ == "__main__":
    main()
