"""The mesh of a run, the texts of layouts, and the layouts to fall back to from a real plan."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from run_jobs import Train, script

from lightloom.cli import run_replan
from lightloom.cli.main import cli
from lightloom.cli.run import start
from lightloom.core.errors import InputError, RunError
from lightloom.core.files import read_json, write_json
from lightloom.core.plan import Plan
from lightloom.core.strategy import Strategy
from lightloom.run import fallback, mesh, starting
from lightloom.run.spec import Spec, load
from lightloom.run.spec import home as spec_home

LAYOUTS = [{}, {"tp": 2}, {"pp": 3}, {"pp": 2, "tp": 2}, {"pp": 2, "cp": 2, "tp": 3}, {"fsdp": 4}]


@pytest.mark.parametrize(("inside", "replicas"), list(itertools.product(LAYOUTS, [1, 2, 3])))
def test_groups_partition_the_ranks_and_follow_the_fabric(
    inside: dict[str, int], replicas: int
) -> None:
    made = mesh.mesh_of(inside, replicas)
    assert made.degrees == {"dp": replicas, **inside} and made.size == len(made.numbers)
    assert sorted(made.order) == list(made.numbers) == list(range(made.size))
    for axis, degree in made.degrees.items():
        groups = made.groups(axis)
        assert sorted(itertools.chain(*groups)) == list(range(made.size))
        for group in groups:
            assert [made.place(r)[axis] for r in group] == list(range(degree))
            assert all(made.ranks(axis, r) == group for r in group)
    nearest = made.groups(made.axes[0])
    assert tuple(itertools.chain(*nearest)) == made.order, "groups of the nearest axis are together"
    shards = made.size // replicas
    for rank in made.numbers:
        assert made.place(rank)["dp"] == rank // shards, "ranks count replica by replica"
        assert made.ranks("ep", rank) == (rank,), "an axis that is not cut is the rank alone"


def test_the_placement_decides_which_axis_is_near() -> None:
    usual = mesh.mesh_of({"pp": 2, "tp": 2}, 2)
    assert usual.axes == ("tp", "dp", "pp") and usual.order == (0, 1, 4, 5, 2, 3, 6, 7)
    other = mesh.mesh_of({"pp": 2, "tp": 2}, 2, ("pp", "tp", "cp", "dp"))
    assert other.order == (0, 2, 1, 3, 4, 6, 5, 7) and other.ranks("pp", 1) == (1, 3)
    with pytest.raises(InputError, match="no axis 'tq'; nearest: tp"):
        usual.ranks("tq", 0)
    with pytest.raises(InputError, match="rank 8 is not in the mesh of 8"):
        usual.place(8)


def test_a_dropped_replica_leaves_the_numbers_of_the_others() -> None:
    order = Spec(name="a", script="x").order
    members = tuple(SimpleNamespace(slot=s) for s in (0, 1, 4, 5))
    exchange = SimpleNamespace(epoch=SimpleNamespace(members=members), slot=5)
    wrap = SimpleNamespace(degrees={"tp": 2}, group=lambda axis: f"group of {axis}")
    here = mesh.own_mesh(exchange, wrap, order)
    assert here.degrees == {"tp": 2, "dp": 2} and here.numbers == (0, 1, 4, 5)
    assert here.ranks("tp") == (4, 5) and here.ranks("dp") == (1, 5)
    assert here.ranks("dp", rank=4) == (0, 4) and here.group("tp") == "group of tp"
    with pytest.raises(RunError, match="sums whole replicas itself"):
        here.group("dp")
    plain = mesh.own_mesh(SimpleNamespace(epoch=exchange.epoch, slot=4), None, order)
    assert plain.degrees == {"dp": 4} and plain.ranks("dp") == (0, 1, 4, 5)
    assert mesh.own_mesh(None, None, order).degrees == {"dp": 1}, "a script that runs alone"


@pytest.mark.parametrize(("text", "words"), [
    ("", "'' is not AXIS=1..64"), ("pp", "'pp' is not AXIS"), ("pp=2,tp=0", "'tp=0' is not AXIS"),
    ("pp=2,tp=x", "'tp=x' is not"), ("pq=2", "'pq=2': unknown axis; nearest: tp, pp"),
    ("dp=2,tp=2", "'dp=2': the replicas are what is left over"), ("tp=2,tp=2", "there twice"),
    ("pp=64,tp=2", "128 ranks, at most 64"), ("tp=2/pp=2", "'pp=2' needs no fewer ranks"),
])  # fmt: skip
def test_bad_texts_name_the_piece(text: str, words: str) -> None:
    with pytest.raises(InputError) as said:
        mesh.parse_layouts(text)
    assert words in str(said.value)


def test_a_text_says_what_it_was_made_from() -> None:
    for layout in LAYOUTS[1:]:
        assert mesh.parse_layout(mesh.layout_text(layout)) == layout
    assert mesh.parse_layout(" pp=2, tp = 2 ") == {"pp": 2, "tp": 2}
    assert mesh.first_of(("pp=2", "pp=1")) == {"pp": 2}
    with pytest.raises(RunError, match="neither the script nor the run"):
        mesh.first_of(())
    strategy = Strategy(tp=2, pp=3, cp=2, dp=4, global_batch=8, seq=8)
    assert mesh.layout_text(mesh.layout_of(strategy)) == "pp=3,cp=2,tp=2"
    assert mesh.layout_of(Strategy(dp=4, global_batch=8, seq=8)) == {"tp": 1}


def test_the_list_is_the_one_with_the_shortest_steps() -> None:
    """Three ranks are better as 2 + 1 idle than as 3: then a layout of 3 is never used."""

    def costs(times: dict[int, float]) -> dict[int, fallback.Priced | str]:
        strategy = Strategy(global_batch=8, seq=8)
        return {n: fallback.Priced(strategy, s) for n, s in times.items()}

    sizes = {"three": 3, "two": 2, "one": 1}
    table = {"three": costs({3: 5.0}), "two": costs({2: 4.0, 3: 4.0}),
             "one": costs({1: 9.0, 2: 8.0, 3: 7.0})}  # fmt: skip
    assert fallback.shortest(sizes, table, 3) == ("two", "one")
    assert fallback.shortest(sizes, table | {"two": costs({2: 4.0, 3: 6.0})}, 3) == (
        "three", "two", "one")  # fmt: skip
    assert fallback.shortest({"two": 2}, table, 3) == ("two",), "nothing for one rank"
    assert fallback.shortest({}, {}, 3) == ()


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small real plan: 8 ranks, of which 4 hold a model that no card holds alone."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    done = CliRunner().invoke(cli, [
        "plan", "llama-3.1-8b", "--cluster", "dgx-h100", "--cards", "8", "--seq", "4096",
        "--global-batch", "64", "--fix", "tp=2", "--fix", "pp=2", "--fix", "micro_batch=1",
        "-o", str(path)])  # fmt: skip
    assert done.exit_code == 0, done.output
    return path


def specify(*typed: str) -> tuple[Spec, list[str]]:
    """Return what the command line would start."""
    context = start.make_context("start", list(typed))
    options: dict[str, Any] = dict(context.params)
    return starting.specify(options.pop("words"), options, run_replan.price)


def test_the_plan_cuts_the_run_and_the_planner_says_what_comes_next(planned: Path) -> None:
    spec, notes = specify(str(planned), "--example", "axes", "--shards", "plan")
    assert (spec.ranks, spec.shards, spec.layouts[0]) == (8, 4, "pp=2,tp=2")
    assert spec.micro == 64, "the plan's micro-batches: 32 in each of 2 replicas"
    sizes = [mesh.size_of(mesh.parse_layout(text)) for text in spec.layouts]
    assert sizes == sorted(set(sizes), reverse=True) and sizes[-1] == 2
    said = "\n".join(notes)
    assert "dp 2 (the plan has 2)" in said and "left out" not in said
    assert "start: pp=2,tp=2, " in said and "a step expected (derived)" in said
    assert "nothing for 1 rank left: the leanest of" in said and "79.1 GiB usable" in said
    for text in spec.layouts[1:]:
        assert f"re-plan: {text} with " in said
    other, _ = specify(str(planned), "--example", "axes", "--shards", "plan", "--ranks", "4",
                       "--replan", "off")  # fmt: skip
    assert (other.ranks, other.layouts, other.micro) == (4, ("pp=2,tp=2",), 32)


def test_a_typed_list_begins_with_the_layout_to_start_with(planned: Path) -> None:
    spec, notes = specify("--example", "axes", "--ranks", "4", "--replan", "pp=2,tp=2/tp=2/tp=1")
    assert (spec.shards, spec.layouts) == (4, ("pp=2,tp=2", "tp=2", "tp=1"))
    assert "pp=2,tp=2 then tp=2 then tp=1; without a plan no step times" in notes[-1]
    spec, notes = specify(str(planned), "--example", "axes", "--shards", "plan", "--replan", "tp=2")
    assert spec.layouts == ("pp=2,tp=2", "tp=2")
    assert "re-plan: tp=2 with 3 to 2 ranks left, " in notes[-1]


@pytest.mark.parametrize(("typed", "words"), [
    (("--shards", "plan"), "there is no plan"),
    (("--replan", "auto"), "the planner must know the job"),
    (("--shards", "2", "--ranks", "4", "--replan", "pp=2,tp=2/tp=2"), "--shards says 2"),
    (("--replan", "pp=2/tq=1"), "'tq=1': unknown axis"),
    (("PLAN", "--shards", "plan", "--ranks", "6"), "no whole replicas of 4"),
])  # fmt: skip
def test_what_cannot_be_is_answered(planned: Path, typed: tuple[str, ...], words: str) -> None:
    with pytest.raises(InputError) as said:
        specify(*(str(planned) if t == "PLAN" else t for t in typed), "--example", "axes")
    assert words in str(said.value)


def test_a_large_plan_needs_ranks(planned: Path, tmp_path: Path) -> None:
    plan = json.loads(planned.read_text())
    plan["strategy"]["dp"], plan["cards"] = 16, 64
    write_json(tmp_path / "big.json", plan)
    assert read_json(tmp_path / "big.json", Plan, "plan").strategy.world_size == 64
    with pytest.raises(InputError) as said:
        specify(str(tmp_path / "big.json"), "--example", "axes", "--shards", "plan")
    assert "--ranks 4 runs the same loop with one replica" in str(said.value)


WHERE = """
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
import lightloom.run as ll
from lightloom.run.axes import axes
from lightloom.run.wrap_pipeline import pipeline


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.down(self.up(x))


cut = {"up": ColwiseParallel(), "down": RowwiseParallel()}
build = pipeline(Net, None, lambda x: (x, x), nn.functional.mse_loss, plan=lambda model: cut)
with ll.session() as s:
    job = axes(s, build, lambda own: torch.optim.SGD(own, lr=0.1), largest=100)
    for batch in s.steps([torch.ones(2, 4)] * 4, steps=3):
        if job.reduce(job.compute(batch)):
            members = dist.get_process_group_ranks(s.mesh.group("tp"))
            print("mesh", s.rank, s.mesh.degrees, s.mesh.ranks("tp"), s.mesh.ranks("dp"), members,
                  flush=True)
            job.step()
"""


@pytest.mark.torch
def test_a_script_takes_its_axes_and_its_mesh_from_the_run(train: Train, tmp_path: Path) -> None:
    found = train(script=script(tmp_path, WHERE), args=(), ranks=4, shards=2, steps=3,
                  layouts=("tp=2", "tp=1"))  # fmt: skip
    assert (found.state, found.steps) == ("done", 3)
    folder = spec_home() / found.name
    assert load(folder).layouts == ("tp=2", "tp=1")
    said = {line for path in folder.glob("rank-*.log") for line in path.read_text().splitlines()
            if line.startswith("mesh")}  # fmt: skip
    assert said == {
        f"mesh {r} {{'tp': 2, 'dp': 2}} {(r // 2 * 2, r // 2 * 2 + 1)} {(r % 2, r % 2 + 2)} [0, 1]"
        for r in range(4)
    }
