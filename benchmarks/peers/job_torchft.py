"""The benchmark's job with torchft: one replica group of one process each."""

import os
import sys
from datetime import timedelta

import torch
from model import batch, build, loss_of, say
from torch.distributed import TCPStore
from torchft import Manager, ProcessGroupGloo
from torchft.optim import OptimizerWrapper

rank, steps, port = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
model, optimizer = build()


def load(state):
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


store = TCPStore("localhost", port, is_master=True, wait_for_workers=False)
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", str(port)
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=20)), min_replica_size=1, load_state_dict=load,
    state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
    replica_id=f"replica_{rank}", store_addr="localhost", store_port=port, rank=0, world_size=1,
    timeout=timedelta(seconds=20), quorum_timeout=timedelta(seconds=60),
)  # fmt: skip
opt = OptimizerWrapper(manager, optimizer)  # its DDP hook fails an assert with torch 2.13
print(f"PID {rank} {os.getpid()}", flush=True)
while manager.current_step() < steps:
    opt.zero_grad()
    loss = loss_of(model, batch(manager.current_step() * 3 + rank))
    loss.backward()
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    manager.allreduce(flat).wait()
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view(p.shape))
        at += p.numel()
    before = manager.current_step()
    opt.step()
    if manager.current_step() > before:
        say(rank, manager.current_step())
manager.shutdown(wait=False)
