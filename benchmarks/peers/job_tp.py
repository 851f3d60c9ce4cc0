"""The axes example's network by tensor parallel 2 under torchrun, checkpoint every 10 steps."""

import os
import sys

import torch
import torch.distributed as dist
from model import say
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

steps, checkpoint = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


model = nn.Sequential(nn.Embedding(256, 64), *(Block() for _ in range(4)), nn.Linear(64, 256))
mesh = init_device_mesh("cpu", (world,))
cut = {"up": ColwiseParallel(), "down": RowwiseParallel()}
for block in list(model)[1:-1]:
    parallelize_module(block, mesh, cut, src_data_rank=None)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
first = 0
own = f"{checkpoint}-{rank}"
if os.path.exists(own):
    saved = torch.load(own, weights_only=False)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["step"]
print(f"PID {rank} {os.getpid()}", flush=True)
for step in range(first + 1, steps + 1):
    text = torch.randint(256, (8, 33), generator=torch.Generator().manual_seed(step))
    out = model(text[:, :-1])
    loss = nn.functional.cross_entropy(out.reshape(-1, 256), text[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    say(rank, step)
    if step % 10 == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, own + ".tmp")
        dist.barrier()
        os.replace(own + ".tmp", own)
dist.destroy_process_group()
