"""A small GPT on real text: ``lightloom run --example gpt`` (King James Bible, public domain).

Reads top to bottom like a training script of your own; only the lines with ``ll`` and ``s`` differ
from a script for one process.
"""

from __future__ import annotations

import argparse
import lzma
import sys

import torch
from torch import nn
from torch.nn import functional

import lightloom.run as ll
from lightloom.core.files import CATALOG

parser = argparse.ArgumentParser(prog="lightloom run --example gpt --")
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--context", type=int, default=64)
parser.add_argument("--batch", type=int, default=8, help="sequences of one micro-batch")
parser.add_argument("--rate", type=float, default=1e-3)
parser.add_argument("--dropout", type=float, default=0.0)


class Block(nn.Module):  # type: ignore[misc]
    """Attention and a two-layer network, each behind a norm."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output, [batch, time, width]."""
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, w))
        hidden = functional.gelu(self.up(self.norm2(x)))
        return x + functional.dropout(self.down(hidden), self.dropout, self.training)


class GPT(nn.Module):  # type: ignore[misc]
    """Bytes in, distribution over the next byte out."""

    def __init__(self, width: int, layers: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits, [batch, time, 256]."""
        x = self.embed(tokens) + self.place.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class Text(torch.utils.data.Dataset):  # type: ignore[misc]
    """Windows of the text, one byte more than the context."""

    def __init__(self, context: int) -> None:
        raw = lzma.decompress((CATALOG / "text" / "kjv.txt.xz").read_bytes())
        self.bytes = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
        self.context = context

    def __len__(self) -> int:
        return (len(self.bytes) - 1) // self.context

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return window `index` as int64."""
        start = index * self.context
        return self.bytes[start : start + self.context + 1].long()


def main(args: argparse.Namespace) -> None:
    """Train until the run's steps are done."""
    torch.manual_seed(0)
    model = GPT(args.width, args.layers, args.heads, args.context, args.dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
    loader = torch.utils.data.DataLoader(
        Text(args.context), batch_size=args.batch, shuffle=True, drop_last=True
    )
    with ll.session() as s:
        s.track(model=model, optimizer=optimizer, rng=True)
        for batch in s.steps(loader):
            logits = model(batch[:, :-1])
            loss = functional.cross_entropy(logits.reshape(-1, 256), batch[:, 1:].reshape(-1))
            loss.backward()
            if s.reduce_gradients(model, loss):
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
        if s.rank == 0:
            print(f"step {s.applied}: loss {s.last_loss}")


if __name__ == "__main__":
    main(parser.parse_args(sys.argv[1:]))
