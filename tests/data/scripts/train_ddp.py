"""Plain DDP: a small transformer on synthetic tokens, eight cards of one host."""

import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from flash_attn import flash_attn_func
from torch import nn
from torch.cuda.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

os.environ["NCCL_DEBUG"] = "INFO"
os.environ["NCCL_IB_DISABLE"] = "1"
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = True


class Tokens(Dataset):
    """Random tokens."""

    def __init__(self, vocab, seq, size):
        self.data = torch.randint(0, vocab, (size, seq + 1))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        row = self.data[index]
        return row[:-1], row[1:]


class Block(nn.Module):
    """Attention and a gated MLP."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(hidden)
        self.norm2 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.up = nn.Linear(hidden, 8 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, -1).unbind(2)
        if x.is_cuda:
            y = flash_attn_func(q, k, v, causal=True)
        else:
            y = F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
            ).transpose(1, 2)
        x = x + self.out(y.reshape(b, s, h))
        gate, up = self.up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    """A decoder."""

    def __init__(self, vocab, hidden, layers, heads):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    dist.init_process_group(backend="nccl", timeout=timedelta(minutes=10))
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device(f"cuda:{local}")
    tensor_group = dist.new_group(list(range(dist.get_world_size())), backend="nccl")
    model = DDP(Model(32000, 1024, 12, 16).to(device), device_ids=[local])
    scaler = GradScaler()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    data = Tokens(32000, 1024, 4096)
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), pin_memory=True)
    start = time.time()
    for step, (tokens, target) in enumerate(loader):
        tokens, target = tokens.cuda(non_blocking=True), target.cuda(non_blocking=True)
        torch.cuda.nvtx.range_push("step")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.nvtx.range_pop()
        if step % 10 == 0:
            hard = (loss > 8.0).nonzero()
            dist.all_reduce(loss, op=dist.ReduceOp.AVG, group=tensor_group)
            gib = torch.cuda.max_memory_allocated() / 2**30
            if dist.get_rank() == 0:
                print(f"step {step} loss {loss.item():.3f} {len(hard)} "
                      f"{torch.cuda.memory_allocated() / 2**30:.1f} {gib:.1f} GiB "
                      f"{time.time() - start:.1f} s")  # é stays where it is
        if step == args.steps:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
