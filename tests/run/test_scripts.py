"""Users' scripts: equal to plain torch, without the library, broken, guarded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from run_jobs import Train, script
from torch import nn

pytestmark = pytest.mark.torch

LIBRARY = """
import sys, torch
import lightloom.run as ll
mode = sys.argv[1] if len(sys.argv) > 1 else ""
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(opt, 5, 0.5)
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4000
    def __getitem__(self, i):
        x = torch.sin(torch.arange(8.0) * (i + 1))
        return x, x.sum().reshape(1)
loader = torch.utils.data.DataLoader(Data(), batch_size=4)
with ll.session() as s:
    s.track(model=model, optimizer=opt, scheduler=schedule)
    for x, y in s.steps(loader, steps=25):
        opt.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        if s.reduce_gradients(model, loss):
            if mode == "sum" and s.step == 10:
                max_norm = s.all_reduce(loss.detach(), "sum")
            if mode == "mixed" and s.step == 10:
                s.all_reduce(torch.ones(1), "max" if s.rank else "sum")
            if mode == "skips" and s.step == 10 and s.rank == 0:
                s.all_reduce(torch.ones(1), "max")
            if mode == "right":
                assert float(s.all_reduce(torch.tensor([float(s.rank)]), "max", intent="max")) == 2
                assert float(s.broadcast(torch.tensor([float(s.rank)]), root=2)) == 2
        elif mode == "early":
            s.all_reduce(torch.ones(1), "max")
        opt.step()
        schedule.step()
"""


def plain_losses(ranks: int, steps: int) -> list[float]:
    """Return the losses of the same training in one process without the library."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 5, 0.5)
    out = []
    for step in range(steps):
        opt.zero_grad()
        parts = []
        for m in range(ranks):
            at = (step * ranks + m) * 4
            x = torch.stack([torch.sin(torch.arange(8.0) * (i + 1)) for i in range(at, at + 4)])
            loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
            (loss / ranks).backward()
            parts.append(float(loss.detach()))
        opt.step()
        schedule.step()
        out.append(sum(parts) / ranks)
    return out


def test_equals_plain_torch_on_the_same_global_batch(train: Train, tmp_path: Path) -> None:
    path = script(tmp_path, LIBRARY)
    found = train(script=path, args=("right",), ranks=3, spares=1, steps=0,
                  faults=("rank:1@step13",))  # fmt: skip
    assert found.state == "done" and found.steps == 25
    assert found.losses == pytest.approx(plain_losses(3, 25), rel=1e-4)


@pytest.mark.parametrize(("mode", "code", "words"), [
    ("sum", "wrong-operator", "a maximum is the largest of its inputs"),
    ("mixed", "collective-differs", "all_reduce max float32[1]"),
    ("skips", "collective-differs", "is in reduce_gradients instead"),
])  # fmt: skip
def test_wrong_collectives_are_named_within_the_step(
    train: Train, tmp_path: Path, mode: str, code: str, words: str
) -> None:
    found = train(script=script(tmp_path, LIBRARY), args=(mode,), ranks=3, steps=0)
    assert found.state == "failed" and found.steps in (10, 11)
    assert code in {f.code for f in found.findings}
    assert words in found.why and "train.py" in found.why


def test_a_collective_inside_a_micro_batch_is_refused(train: Train, tmp_path: Path) -> None:
    path = script(tmp_path, LIBRARY)
    found = train(script=path, args=("early",), ranks=2, micro_batches=4, steps=0)
    assert found.state == "failed" and "once a step" in found.why


def test_a_script_without_the_library_runs_and_says_what_it_loses(
    train: Train, tmp_path: Path
) -> None:
    path = script(tmp_path, "import os, sys\nprint(os.environ['RANK'], os.environ['WORLD_SIZE'])\n"
                  "os.kill(os.getpid(), 9) if 'die' in sys.argv and os.environ['RANK'] == '1' "
                  "else None\n")  # fmt: skip
    good = train(script=path, args=(), ranks=2, steps=0)
    assert good.state == "done" and "never used the library" in good.why
    said = "".join(p.read_text() for p in Path(good.folder).glob("rank-*.log"))
    assert sorted(said.split()) == ["0", "1", "2", "2"]
    bad = train(script=path, args=("die",), ranks=2, steps=0)
    assert bad.state == "failed" and "does not use the library" in bad.why


def test_a_broken_script_shows_its_traceback(train: Train, tmp_path: Path) -> None:
    path = script(tmp_path, "import lightloom.run\nraise ValueError('the reason')\n")
    found = train(script=path, args=(), ranks=2, steps=0)
    assert found.state == "failed" and "the reason" in found.why and "exit code 1" in found.why
