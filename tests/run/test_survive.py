"""A real job loses ranks and agents and goes on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from run_jobs import SMALL, Train, finish, script

from lightloom.core.timeline_file import read_timeline
from lightloom.run import launch, sharded
from lightloom.run.spec import load

pytestmark = pytest.mark.torch


def test_a_killed_rank_costs_no_step_and_no_bit(train: Train) -> None:
    calm = train(deterministic=True, ranks=3, micro_batches=5)
    hurt = train(deterministic=True, ranks=3, micro_batches=5, faults=("rank:1@step8",))
    assert (calm.state, calm.steps) == (hurt.state, hurt.steps) == ("done", 20)
    assert hurt.lost_steps == 0 and hurt.pids_kept
    assert [r.how for r in hurt.recoveries] == ["killed"]
    assert hurt.recoveries[0].step == 8 and hurt.recoveries[0].from_failure
    assert hurt.losses == calm.losses, "deterministic: equal bit for bit"
    assert calm.loss_first is not None and calm.loss_last is not None
    assert calm.loss_last < calm.loss_first
    timeline = read_timeline(hurt.timeline)
    assert set(timeline.ranks) == {0, 1, 2} and len(timeline) > 100


def test_an_agent_dies_with_its_ranks_and_rank_0_later(train: Train) -> None:
    calm = train(ranks=3)
    hurt = train(ranks=3, agents=2, respawn=False, faults=("agent:1@step6", "rank:0@step12"),
                 snapshot_every=5)  # fmt: skip
    assert hurt.recoveries[0].what.startswith("agent 1 lost")
    assert hurt.recoveries[0].lost_steps == 0
    assert hurt.losses[:11] == pytest.approx(calm.losses[:11], rel=1e-5)
    # rank 0 was the last one: the run says so, and the snapshot remains
    assert hurt.state == "failed" and "no process is left" in hurt.why
    assert sharded.newest(Path(hurt.folder) / "snapshots")[0] == 10


def test_the_last_replica_without_a_snapshot_is_gone_and_the_run_says_so(train: Train) -> None:
    hurt = train(ranks=1, copies="off", faults=("rank:0@step5",))
    assert hurt.state == "failed" and "4 steps are gone" in hurt.why


def test_long_work_of_one_rank_after_its_update_is_not_a_hang(train: Train, tmp_path: Path) -> None:
    body = """
import time, torch
import lightloom.run as ll
model = torch.nn.Linear(200, 200)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
class Data:
    def batch(self, i):
        return torch.ones(20, 200)
with ll.session() as s:
    s.track(model=model, optimizer=opt)
    for x in s.steps(Data(), steps=12):
        loss = (model(x) - x).pow(2).mean()
        loss.backward()
        if s.reduce_gradients(model, loss):
            opt.step()
            if s.rank == 0 and s.step == 6:
                end = time.process_time() + 0.8
                while time.process_time() < end:
                    model(x).sum()
            if s.rank == 1 and s.step == 8:
                with s.pause():
                    time.sleep(1.5)
"""
    found = train(script=script(tmp_path, body), args=(), ranks=3, steps=0)
    assert found.state == "done" and not found.hangs and not found.recoveries


def test_two_failures_in_one_step_and_a_kill_during_recovery(train: Train) -> None:
    killed: list[int] = []

    def third(folder: Path) -> None:
        """Kill a survivor as soon as the first loss is decided, from outside."""
        found = launch.events(folder)
        epochs = [e for e in found if e["kind"] == "epoch" and e["number"] == 2]
        if epochs and not killed:
            uid = epochs[0]["members"][-1][1]
            pid = next(e["pid"] for e in found if e["kind"] == "rank" and e["uid"] == uid)
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    hurt = train(third, ranks=5, steps=120, faults=("rank:1@step8", "rank:2@step8"))
    assert hurt.state == "done" and hurt.steps == 120 and hurt.lost_steps == 0
    assert killed and sum(r.how == "killed" for r in hurt.recoveries) >= 2
    calm = train(ranks=5, steps=120)
    assert hurt.losses == pytest.approx(calm.losses, rel=1e-4)


def test_a_warm_spare_takes_the_slot_and_the_global_batch_stays(train: Train) -> None:
    hurt = train(ranks=2, spares=1, steps=320, faults=("rank:0@step300",), deterministic=True)
    calm = train(ranks=2, steps=320, deterministic=True)
    assert hurt.losses == calm.losses and hurt.world == 2
    assert [r.decision for r in hurt.recoveries] == ["spare"]


def test_without_any_replica_all_rewind_together_to_the_snapshot(train: Train) -> None:
    hurt = train(ranks=2, steps=30, snapshot_every=10, deterministic=True,
                 faults=("rank:0@step18", "rank:1@step18"))  # fmt: skip
    calm = train(ranks=2, steps=30, deterministic=True)
    assert hurt.state == "done" and hurt.lost_steps == 7
    assert hurt.losses == calm.losses, "the data position went back with the state"
    assert hurt.recoveries[-1].decision == "rewind"


@pytest.mark.parametrize("fabric", ["shm", "gloo"])
def test_hangs_are_found_named_and_replaced(train: Train, fabric: str) -> None:
    faults = ("hang:rank:0@step5", "hang:rank:1@step12=lock", "hang:rank:2@step18=loop",
              "hang:rank:1@step24=read")  # fmt: skip
    hurt = train(ranks=3, spares=2, steps=30, faults=faults, fabric=fabric)
    assert hurt.state == "done" and hurt.steps == 30 and hurt.lost_steps == 0
    assert [h["how"] for h in hurt.hangs] == ["stopped", "blocked", "looping", "blocked"]
    assert "faults.py" in hurt.hangs[1]["at"] and "break_down" in hurt.hangs[1]["at"]


def test_stop_loses_nothing_and_resume_goes_on_bit_for_bit(train: Train, home: Path) -> None:
    calm = train(ranks=2, steps=200, deterministic=True)

    def stop(folder: Path) -> None:
        if len(list(folder.glob("agent-0.steps"))) and (folder / "agent-0.steps").stat().st_size:
            launch.stop(folder)

    half = train(stop, ranks=2, steps=200, deterministic=True, snapshot_every=150)
    assert half.state == "stopped" and 0 < half.steps < 200
    assert half.snapshots[-1].step == half.steps
    folder = Path(half.folder)
    launch.resume(folder, load(folder))
    rest = finish(folder)
    assert rest.state == "done" and rest.first_step == half.steps
    assert half.losses + rest.losses == calm.losses


def test_a_damaged_snapshot_is_passed_over_and_a_full_disk_stops_nothing(train: Train) -> None:
    hurt = train(ranks=2, steps=30, snapshot_every=10, keep=5,
                 faults=("snapshot:2=flip", "disk@step30=full"))  # fmt: skip
    assert hurt.state == "done" and hurt.steps == 30
    assert any(f.code == "snapshot-failed" for f in hurt.findings)
    folder = Path(hurt.folder)
    assert sharded.newest(folder / "snapshots")[0] == 10, "20 is damaged, 30 did not fit"
    assert not list((folder / "snapshots").glob(".step-*"))
    assert launch.resume(folder, load(folder)).resume.endswith("step-00000010")
    assert finish(folder).steps == 30


def test_nan_is_skipped_on_all_ranks_alike(train: Train) -> None:
    hurt = train(ranks=2, steps=12, faults=("nan:rank:1@step5",))
    assert hurt.state == "done" and any(f.code == "nan-step" for f in hurt.findings)
    assert hurt.loss_last is not None and hurt.loss_last < 6


def test_the_launcher_may_die(train: Train, home: Path) -> None:
    """Agents live in sessions of their own: what started them does not matter."""
    from lightloom.run.spec import Spec, create

    spec = Spec(name="orphan", script="example:gpt", args=SMALL, steps=15, agents=1, ranks=2,
                snapshot_every=0, cwd=str(home.parent))  # fmt: skip
    folder = create(spec)
    starter = os.fork()
    if starter == 0:
        launch.begin(folder, spec)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(starter, 0)
    time.sleep(0.2)
    found = finish(folder)
    assert found.state == "done" and found.steps == 15
