import random
from dataclasses import replace

import pytest
from profiles_kit import SETS, ranks_of
from toy import Toy, faster, play

from lightloom.advise.match import match
from lightloom.advise.sync import waits_of
from lightloom.advise.whatif import Change, graph_of, latencies, parse_change, replay
from lightloom.core.errors import InputError


def predict(timelines, change: str) -> float:
    blocks, _ = match(timelines)
    return replay(graph_of(timelines, blocks, 1), parse_change(change)) / 1000


@pytest.mark.parametrize("name", SETS)
def test_changing_nothing_gives_back_the_measured_time(name):
    ranks = ranks_of(name)
    timelines = {p.rank: p.timeline for p in ranks if p.timeline is not None}
    if timelines:
        waits = waits_of(ranks)
        graph = graph_of(timelines, waits.blocks, 1, own=waits.own)
        assert replay(graph, Change("nothing")) == pytest.approx(graph.span, rel=1e-9)


def draws(n: int, seed: int = 5):
    r = random.Random(seed)
    for _ in range(n):
        yield Toy(
            ranks=r.choice((2, 3, 4, 8)), layers=r.choice((4, 8)), bucket=r.choice((1, 2, 4)),
            tensor=r.random() < 0.4, bytes_=r.uniform(1e6, 2e7), bandwidth=r.uniform(5e3, 5e4),
            latency_us=r.uniform(0, 60), forward_us=r.uniform(100, 600),
            backward_us=r.uniform(200, 1200),
            jitter=tuple(r.uniform(0.97, 1.03) for _ in range(7)),
        )  # fmt: skip


@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_a_faster_fabric_is_foretold(factor):
    worst = 0.0
    for toy in draws(40):
        timelines, _ = play(toy)
        _, truth = play(faster(toy, factor))
        worst = max(worst, abs(predict(timelines, f"bandwidth={factor:g}x") / truth - 1))
    assert worst < 0.02


def test_a_slower_fabric_is_foretold():
    errors = []
    for toy in draws(40):
        timelines, _ = play(toy)
        _, truth = play(faster(toy, 0.5))
        errors.append(abs(predict(timelines, "bandwidth=0.5x") / truth - 1))
    assert sorted(errors)[len(errors) // 2] < 0.02
    assert max(errors) < 0.12


def test_a_straggler_taken_away_is_foretold():
    for toy in draws(40):
        slow = replace(toy, slow={1: 1.6})
        timelines, _ = play(slow)
        _, truth = play(replace(slow, slow={}))
        assert predict(timelines, "skew=0") == pytest.approx(truth, rel=0.05)


def test_latency_is_told_from_bandwidth():
    timelines, _ = play(Toy(latency_us=150, bytes_=2e6))
    blocks, _ = match(timelines)
    found = max(float(part.max()) for part in latencies(blocks))
    assert found == pytest.approx(150e3, rel=0.05)


def test_joined_changes_save_at_least_as_much_as_each():
    timelines, _ = play(Toy(slow={2: 1.5}, bytes_=1e7))
    both = predict(timelines, "bandwidth=4x+skew=0")
    assert both <= min(predict(timelines, "bandwidth=4x"), predict(timelines, "skew=0")) * 1.001


@pytest.mark.parametrize("text", ["bandwidth=0x", "bandwidth=-1", "skew", "overlap=2", "", "x+y"])
def test_unknown_changes_are_refused(text):
    with pytest.raises(InputError, match="what-if"):
        parse_change(text)
