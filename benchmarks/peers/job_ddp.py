"""The benchmark's job with DistributedDataParallel, checkpoint every 10 steps, for torchrun."""

import os
import sys

import torch
import torch.distributed as dist
from model import batch, build, loss_of, say

steps, checkpoint = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model, optimizer = build()
first = 0
if checkpoint != "-" and os.path.exists(checkpoint):
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["step"]
net = torch.nn.parallel.DistributedDataParallel(model)
print(f"PID {rank} {os.getpid()}", flush=True)
for step in range(first + 1, steps + 1):
    loss = loss_of(net, batch(step * world + rank))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    say(rank, step)
    if checkpoint != "-" and step % 10 == 0 and rank == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, checkpoint + ".tmp")
        os.replace(checkpoint + ".tmp", checkpoint)
dist.destroy_process_group()
