"""The state of a lost rank comes out of the agents' memory; parts are cut anew; links break."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from run_jobs import Train

from lightloom.cli.run import run
from lightloom.core.runs import RunReport
from lightloom.run import launch

pytestmark = pytest.mark.torch

SIZE = ("--width", "32", "--layers", "2", "--context", "16", "--batch", "4")
TP = {"script": "example:axes", "args": ("--axes", "tp", *SIZE), "ranks": 2, "shards": 2,
      "deterministic": True, "steps": 16}  # fmt: skip
PRODUCT = {"script": "example:axes", "args": ("--axes", "pp,tp", *SIZE), "ranks": 4, "shards": 4,
           "steps": 30}  # fmt: skip


def decisions(found: RunReport) -> list[str]:
    """Return what was done about each loss."""
    return [r.decision for r in found.recoveries]


def test_the_only_rank_is_lost_twice_and_no_step_with_it(train: Train) -> None:
    calm = train(ranks=1, deterministic=True)
    hurt = train(ranks=1, deterministic=True, spares=1, faults=("rank:0@step2", "rank:0@step9"))
    assert (hurt.state, hurt.lost_steps) == ("done", 0)
    assert decisions(hurt) == ["copy", "copy"]
    assert hurt.losses == calm.losses, "equal bit for bit"


def test_a_shard_of_the_only_replica_survives_the_agent_of_its_rank(train: Train) -> None:
    calm = train(**TP)
    hurt = train(**TP, agents=2, spares=2, faults=("rank:0@step5", "agent:1@step10"))
    assert (hurt.state, hurt.lost_steps, hurt.world) == ("done", 0, 2)
    assert decisions(hurt) == ["copy", "copy"]
    assert hurt.losses == calm.losses, "equal bit for bit"


def test_without_copies_the_lost_shard_ends_the_run_and_it_says_so(train: Train) -> None:
    hurt = train(**TP, copies="off", spares=1, faults=("rank:1@step6",))
    assert hurt.state == "failed" and "5 steps are gone" in hurt.why


def test_too_few_ranks_for_a_replica_are_cut_anew_and_back(train: Train) -> None:
    """4 ranks are pp 2 x tp 2; 3 are tp 2 and one in reserve; the replaced one makes 4 again."""
    calm = train(**PRODUCT)
    layouts = ("pp=2,tp=2", "pp=1,tp=2", "pp=1,tp=1")
    long = PRODUCT | {"steps": 120}
    back = train(**long, layouts=layouts, agents=2, faults=("rank:3@step5",))
    assert (back.state, back.lost_steps, back.world) == ("done", 0, 4)
    assert decisions(back) == ["re-plan"] and back.epochs >= 3 and back.pids_kept
    assert back.losses[:30] == pytest.approx(calm.losses, rel=1e-4)
    down = train(**PRODUCT, layouts=layouts, agents=2, respawn=False,
                 faults=("rank:0@step5", "rank:1@step10", "rank:0@step15"))  # fmt: skip
    assert (down.state, down.lost_steps, down.world) == ("done", 0, 1)
    assert decisions(down)[0] == decisions(down)[-1] == "re-plan"
    assert down.losses == pytest.approx(calm.losses, rel=1e-4)


def test_a_rank_lost_while_the_parts_are_cut_anew_takes_nothing_along(train: Train) -> None:
    hit: list[int] = []

    def second(folder: Path) -> None:
        events = launch.events(folder)
        pids = {e["uid"]: e["pid"] for e in events if e["kind"] == "rank"}
        cut = [e for e in events if e["kind"] == "epoch" and e["sources"]]
        if cut and not hit:
            hit.append(cut[0]["members"][-1][1])
            os.kill(pids[hit[0]], 9)

    layouts = ("pp=2,tp=2", "pp=1,tp=2", "pp=1,tp=1")
    calm = train(**PRODUCT)
    hurt = train(second, **PRODUCT, layouts=layouts, agents=2, faults=("rank:2@step8",))
    assert hit and (hurt.state, hurt.lost_steps) == ("done", 0)
    assert hurt.losses == pytest.approx(calm.losses, rel=1e-4)


def test_a_link_that_broke_is_made_again_and_one_that_stays_broken_is_gone_round(
    train: Train,
) -> None:
    once = train(ranks=2, fabric="gloo", faults=("link:rank:1@step6",))
    assert (once.state, once.lost_steps, decisions(once)) == ("done", 0, ["regroup"])
    dead = train(ranks=2, fabric="gloo", faults=("link:rank:1@step6=dead",))
    assert (dead.state, dead.lost_steps) == ("done", 0)
    assert decisions(dead) == ["regroup", "reroute"]
    assert [f.code for f in dead.findings] == ["rerouted"]
    assert dead.losses == pytest.approx(once.losses, rel=1e-5)


def test_a_dead_link_inside_a_replica_has_its_rank_replaced(train: Train) -> None:
    hurt = train(**TP, spares=1, faults=("link:rank:1@step6=dead",))
    assert (hurt.state, hurt.lost_steps) == ("done", 0)
    assert decisions(hurt)[:1] == ["regroup"] and decisions(hurt)[-1] == "copy"


def test_a_link_fault_needs_links() -> None:
    found = CliRunner().invoke(run, ["--example", "gpt", "--drill", "link:rank:1@step6"])
    assert "there is no link" in str(found.exception)
