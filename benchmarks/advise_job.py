"""The job of benchmarks/advise_pairs.py: real gradients and exchange, computing padded by a sleep.

On a machine whose two cores other work shares, real computing varies by a third from run to run;
a sleep does not. Gradients, gloo and the wire are real.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch

import lightloom.run as ll

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--compute", type=float, default=0.05, help="seconds")


def main(args: argparse.Namespace) -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(args.width, args.width) for _ in range(args.layers)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(torch.randn(4096, args.width), batch_size=1)
    with ll.session() as s:
        s.track(model=model, optimizer=optimizer, rng=True)
        for batch in s.steps(loader):
            time.sleep(args.compute)
            loss = model(batch).square().mean()
            loss.backward()
            if s.reduce_gradients(model, loss):
                optimizer.step()


if __name__ == "__main__":
    main(parser.parse_args(sys.argv[1:]))
