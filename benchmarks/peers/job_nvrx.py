"""The benchmark's job with nvidia-resiliency-ext in-process restart (intervals of 0.2 s)."""

import os
import sys
from datetime import timedelta

import nvidia_resiliency_ext.inprocess as inprocess
import torch
import torch.distributed as dist
from model import batch, build, loss_of, say

steps, checkpoint = int(sys.argv[1]), sys.argv[2]


@inprocess.Wrapper(
    monitor_thread_interval=timedelta(seconds=0.2), monitor_process_interval=timedelta(seconds=0.2),
    heartbeat_interval=timedelta(seconds=0.2), progress_watchdog_interval=timedelta(seconds=0.2),
    last_call_wait=timedelta(seconds=0.5), soft_timeout=timedelta(seconds=60),
    hard_timeout=timedelta(seconds=90), barrier_timeout=timedelta(seconds=120),
    completion_timeout=timedelta(seconds=120),
    initialize=inprocess.initialize.RetryController(max_iterations=20, min_world_size=1),
)  # fmt: skip
def train(call_wrapper: inprocess.CallWrapper | None = None) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(
        "127.0.0.1", int(os.environ["MASTER_PORT"]) + 7 + call_wrapper.iteration, world, rank == 0
    )
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    model, optimizer = build()
    first = 0
    if os.path.exists(checkpoint):
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    net = torch.nn.parallel.DistributedDataParallel(model)
    for step in range(first + 1, steps + 1):
        loss = loss_of(net, batch(step * world + rank))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(rank, step)
        if step % 10 == 0 and rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, checkpoint + ".tmp")
            os.replace(checkpoint + ".tmp", checkpoint)


print(f"PID {os.environ['RANK']} {os.getpid()}", flush=True)
train()
