"""The benchmark's job with lightloom."""

import sys

from model import batch, build, loss_of

import lightloom.run as ll

width = int(sys.argv[1]) if len(sys.argv) > 1 else 1024


class Data:
    def batch(self, index):
        return batch(index, width)


model, optimizer = build(width)
with ll.session() as s:
    s.track(model=model, optimizer=optimizer)
    for x in s.steps(Data()):
        loss = loss_of(model, x)
        loss.backward()
        s.reduce_gradients(model, loss)
        optimizer.step()
