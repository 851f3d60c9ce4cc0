"""The search drops nothing better, keeps what fits, and answers when nothing does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lightloom.core.catalog import load_cluster, load_model
from lightloom.core.errors import InfeasibleError, InputError
from lightloom.cost.columns import strategy_of
from lightloom.cost.evaluate import evaluate
from lightloom.cost.job import Job
from lightloom.plan import search as search_module
from lightloom.plan.compare import compare
from lightloom.plan.decide import Asked, check_cards, plan
from lightloom.plan.explain import flips, neighbours, why_slower
from lightloom.plan.inverse import cards_for, for_budget
from lightloom.plan.scale import parse_sweep, sweep
from lightloom.plan.search import bounds, floor_flops, inner_bounds, peak_of, search
from lightloom.plan.space import Fixes, Outline, Space, candidates, outline, parse_fixes

CASES = [("llama-3.1-8b", "dgx-h100", 64), ("qwen3-30b-a3b", "supernode-8192", 128),
         ("deepseek-v3", "gb200-nvl72", 288), ("llama-3.1-70b", "dgx-a100", 128)]  # fmt: skip


def job(model: str = "llama-3.1-8b", cluster: str = "dgx-h100", cards: int = 64,
        batch: int = 256) -> Job:  # fmt: skip
    return Job(model=load_model(model), cluster=load_cluster(cluster), cards=cards, seq=4096,
               global_batch=batch)  # fmt: skip


def asked(*fix: str, top: int = 5, objective: str = "time") -> Asked:
    return Asked(parse_fixes(fix), top=top, objective=objective)


@pytest.mark.parametrize(("model", "cluster", "cards"), CASES)
def test_pruning_drops_nothing_better(model: str, cluster: str, cards: int) -> None:
    the_job = job(model, cluster, cards)
    space = Space(the_job, Fixes())
    found = search(the_job, space, top=3)
    everything = candidates(space, outline(space))
    costs = evaluate(the_job, everything)
    fits = costs.peak_bytes <= the_job.usable
    assert found.best[0].step_s == pytest.approx(float(costs.step_s[fits].min()), rel=1e-12)
    assert found.priced <= found.counted


@pytest.mark.parametrize(("model", "cluster", "cards"), CASES)
def test_bounds_lie_under_every_candidate(model: str, cluster: str, cards: int) -> None:
    the_job = job(model, cluster, cards)
    space = Space(the_job, Fixes())
    found = candidates(space, outline(space))
    some = found.take(np.random.default_rng(1).choice(len(found), min(20_000, len(found))))
    costs = evaluate(the_job, some)
    floor, peak = floor_flops(the_job), peak_of(the_job, "bf16")
    rows = Outline(some.tp, some.cp, some.pp, some.dp)
    assert (bounds(space, rows, floor, peak) <= costs.step_s * (1 + 1e-9)).all()
    inner = {n: getattr(some, n) for n in ("tp", "cp", "pp", "dp", "micro_batch", "vpp")}
    assert (inner_bounds(space, inner, floor, peak) <= costs.step_s * (1 + 1e-9)).all()


def test_each_set_of_degrees_appears_once_and_in_order() -> None:
    found = search(job(), Space(job(), Fixes()), top=10)
    degrees = [(c.strategy.tp, c.strategy.pp, c.strategy.dp, c.strategy.cp, c.strategy.ep)
               for c in found.best]  # fmt: skip
    assert len(set(degrees)) == len(degrees) == 10
    times = [c.step_s for c in found.best]
    assert times == sorted(times)
    assert all(c.peak_bytes <= job().usable for c in found.best)


def test_objectives_differ() -> None:
    answers = {name: plan(job(), asked(objective=name)).plans[0] for name in
               ("time", "cost", "energy")}  # fmt: skip
    time, cost, energy = (answers[n] for n in ("time", "cost", "energy"))
    assert time.prediction.step_s <= min(cost.prediction.step_s, energy.prediction.step_s)
    assert energy.prediction.energy_j <= time.prediction.energy_j * (1 + 1e-12)


def test_more_cards_are_never_slower() -> None:
    times = [plan(job(cards=n), asked()).plans[0].prediction.step_s for n in (32, 64, 128)]
    assert times == sorted(times, reverse=True)


def test_nothing_fits_names_the_smallest_change() -> None:
    with pytest.raises(InfeasibleError) as error:
        plan(job("llama-3.1-405b", cards=8), asked())
    assert "nothing fits" in error.value.what
    assert "GiB usable" in error.value.what
    assert "smallest change that fits" in error.value.out


def test_conflicting_fixes_are_named_in_pairs() -> None:
    with pytest.raises(InfeasibleError) as error:
        plan(job(cards=8), asked("tp=8", "pp=4"))
    assert "tp" in error.value.what
    assert "pp" in error.value.what
    assert "exclude one another" in error.value.what


def test_an_impossible_degree_names_the_nearest() -> None:
    with pytest.raises(InfeasibleError) as error:
        plan(job(), asked("tp=7"))
    assert "--fix tp=8" in error.value.out


def test_experts_fixed_on_a_dense_model_are_answered() -> None:
    with pytest.raises(InfeasibleError, match="ep=8 alone leaves no legal candidate"):
        plan(job(), asked("ep=8"))


def test_every_fixed_schedule_is_tried() -> None:
    both = plan(job(), asked("schedule=gpipe,zero-bubble", "pp=4"))
    alone = [plan(job(), asked(f"schedule={s}", "pp=4")) for s in ("gpipe", "zero-bubble")]
    assert both.found.priced <= both.found.counted == sum(a.found.counted for a in alone)
    assert both.plans[0].prediction.step_s == min(a.plans[0].prediction.step_s for a in alone)


def test_cards_that_no_host_split_uses_are_refused() -> None:
    with pytest.raises(InputError) as error:
        check_cards(replace(job(), cards=60))
    assert error.value.out == "--cards 56 or 64"


def test_memory_limit_is_kept() -> None:
    limit = 30 * 2.0**30
    answer = plan(job(), asked()._replace(limit_bytes=limit))
    assert all(p.prediction.peak_bytes <= limit for p in answer.plans)


def test_ctrl_c_returns_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = search_module.evaluate, []

    def interrupted(*arguments: object, **named: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(search_module, "evaluate", interrupted)
    the_job = job("deepseek-v3", "supernode-8192", 8192, 16384)
    found = search(the_job, Space(the_job, Fixes()))
    assert not found.complete
    assert found.best


def test_reasons_add_up() -> None:
    plans = plan(job(), asked()).plans
    best, other = plans[0].prediction, plans[1].prediction
    gap = sum(other.parts[n] - best.parts[n] for n in best.parts)
    assert gap == pytest.approx(other.step_s - best.step_s, rel=1e-6)
    assert why_slower(best, other).startswith("+")
    assert plans[0].why
    assert [r.why for r in plans[0].rejected] == [p.why for p in plans[1:]]


def test_no_fitting_neighbour_beats_the_plan() -> None:
    the_job = job()
    best = plan(the_job, asked()).plans[0]
    around = neighbours(the_job, best)
    assert around
    known = {"0", "1"}
    tried = [b for b in around if b.fits and not (b.change.startswith("zero") and
                                                  b.change[5:] not in known)]  # fmt: skip
    assert all(b.step_s >= best.prediction.step_s * (1 - 1e-9) for b in tried), tried[:3]


def test_flips_really_flip() -> None:
    from lightloom.cost.predict import predict
    from lightloom.plan.explain import with_bandwidth

    the_job = job("qwen3-30b-a3b", "dgx-h100", 64)
    best = plan(the_job, asked(top=8)).plans[0]
    for flip in flips(the_job, best, list(best.rejected)):
        index = next(i for i, level in enumerate(the_job.cluster.fabric.levels)
                     if f"level {level.name} " in flip.what)  # fmt: skip
        machine = with_bandwidth(the_job.cluster, index, flip.factor)
        changed = replace(the_job, cluster=machine)
        assert predict(changed, flip.to).step_s < predict(changed, best.strategy).step_s


def test_factors_multiply_to_the_speed_up() -> None:
    the_job = job("qwen3-30b-a3b", "supernode-8192", 256)
    best = plan(the_job, asked()).plans[0]
    result = compare(the_job, best, load_cluster("traditional-8192"), asked())
    product = np.prod([f.value for f in result.factors])
    assert product == pytest.approx(result.speedup, rel=1e-9)


def test_sweep_has_a_curve_with_reasons() -> None:
    assert parse_sweep("cards=64..1000") == [64, 128, 256, 512, 1000]
    curve = sweep(job(cards=128), [32, 64, 128], asked())
    speeds = [p.tokens_per_s for p in curve.points]
    assert speeds == sorted(speeds)
    assert curve.points[0].efficiency == pytest.approx(1.0)
    assert all(p.why for p in curve.points[1:])
    with pytest.raises(InputError):
        parse_sweep("batch=1..4")


def test_deadline_finds_the_fewest_cards() -> None:
    the_job = job(cards=1024)
    run = cards_for(the_job, 1e12, 30 * 86400.0, asked())
    assert run.seconds <= 30 * 86400.0
    with pytest.raises(InfeasibleError, match="days"):
        cards_for(the_job, 1e16, 86400.0, asked())
    with pytest.raises(InputError, match="already passed"):
        cards_for(the_job, 1e12, -1.0, asked())


def test_budget_is_spent_and_not_passed() -> None:
    found = for_budget(job(cards=512), 2e5, 2.35, asked())
    assert all(a.cost <= 2e5 for a in found)
    assert max(a.cost for a in found) > 1.5e5
    assert all(a.tokens == pytest.approx(20 * a.parameters) for a in found)


def test_strategies_survive_the_columns() -> None:
    space = Space(job(), Fixes())
    found = candidates(space, outline(space))
    s = strategy_of(found, 5)
    assert s.world_size <= 64
