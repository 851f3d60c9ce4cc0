"""Jitter: fitted on small runs only, judged on large ones."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from lightloom.core.errors import InputError
from lightloom.step.graph import build
from lightloom.step.noise import Jitter, constants, fit, parse_jitter, sample_steps
from lightloom.step.schedules import Times, make, seconds_of

RUNS = Path(__file__).parent / "step_jitter.csv.gz"


def measured() -> tuple[np.ndarray, np.ndarray]:
    with gzip.open(RUNS, "rt") as stream:
        rows = list(csv.DictReader(stream))
    return (
        np.array([float(row["cards"]) for row in rows]),
        np.array([float(row["p95_over_median"]) for row in rows]),
    )


def test_shipped_noise_is_the_fit_of_runs_up_to_512_cards() -> None:
    cards, ratio = measured()
    small = cards <= 512
    found = fit(cards[small], ratio[small])
    known = constants().jitter
    assert found.scale == pytest.approx(known.scale, rel=0.01)
    assert found.shape == pytest.approx(known.shape, abs=0.05)


@pytest.mark.parametrize(("low", "high", "many"), [(512, 2100, 11), (2100, 11600, 13)])
def test_larger_runs_lie_where_the_small_ones_say(low: int, high: int, many: int) -> None:
    cards, ratio = measured()
    small = cards <= 512
    found = fit(cards[small], ratio[small])
    large = (cards > low) & (cards <= high)
    assert large.sum() == many
    predicted = np.median([found.p95_over_median(n) for n in cards[large]])
    q10, q90 = np.quantile(ratio[large], [0.1, 0.9])
    assert q10 <= predicted <= q90


def test_fit_finds_the_noise_that_made_the_data() -> None:
    cards = np.array([8.0, 16, 64, 128, 256, 512] * 4)
    truth = Jitter(scale=0.002, shape=3.0)
    found = fit(cards, np.array([truth.p95_over_median(n) for n in cards]))
    assert found.shape == pytest.approx(3.0, abs=0.11)
    assert found.scale == pytest.approx(0.002, rel=0.1)


def test_sampled_steps_follow_the_law_of_the_latest_card() -> None:
    """One rank, no slack: the sampled p95/median is the closed form's."""
    graph = build(make("1f1b", 1, 4))
    jitter = Jitter(scale=0.0013, shape=3.2)
    steps = sample_steps(
        graph, np.ones(len(graph)), np.zeros(len(graph)), together=8, apart=64, jitter=jitter,
        samples=4000, rng=np.random.default_rng(0),
    )  # fmt: skip
    p50, p95 = np.quantile(steps, [0.5, 0.95])
    assert p95 / p50 == pytest.approx(jitter.p95_over_median(512), abs=0.002)
    assert steps.min() >= 1.0


def test_more_cards_more_jitter_and_pipelines_absorb_some() -> None:
    schedule = make("1f1b", 4, 16)
    graph = build(schedule)
    seconds = seconds_of(schedule, Times(1.0, 1.0, 1.0))
    jitter = Jitter(scale=0.0013, shape=3.2)

    def p95(apart: int) -> float:
        steps = sample_steps(
            graph, seconds, np.zeros(len(graph)), together=8, apart=apart, jitter=jitter,
            samples=400, rng=np.random.default_rng(1),
        )  # fmt: skip
        return float(np.quantile(steps, 0.95))

    assert p95(4) < p95(64) < p95(1024)
    assert p95(64) < 1.0 + jitter.latest(4 * 8 * 64, 0.95) * 1.2


def test_link_jitter_of_nanoseconds_is_invisible_in_a_step() -> None:
    """Row A5: 12 ns or 0.8 ps, a step of seconds cannot tell."""
    graph = build(make("1f1b", 4, 16))
    seconds = np.full(len(graph), 0.02)
    for link_s, most in ((0.8e-12, 1e-7), (12e-9, 1e-3), (10e-6, 0.5)):
        steps = sample_steps(
            graph, seconds, np.full(len(graph), 100.0), together=64, apart=16,
            jitter=Jitter(link_s=link_s), samples=50, rng=np.random.default_rng(2),
        )  # fmt: skip
        assert 0.0 < steps.mean() - 1.0 < most


def test_same_seed_same_steps() -> None:
    graph = build(make("1f1b", 2, 4))
    one, two = (
        sample_steps(graph, np.ones(len(graph)), np.ones(len(graph)), together=2, apart=4,
                     jitter=Jitter(0.01, 3.0, 1e-6), samples=30, rng=np.random.default_rng(5))
        for _ in range(2)
    )  # fmt: skip
    assert np.array_equal(one, two)


def test_jitter_in_words() -> None:
    assert parse_jitter("none") == Jitter()
    assert parse_jitter("measured").scale == constants().jitter.scale
    both = parse_jitter("pareto:0.002:2.5,link:12ns")
    assert (both.scale, both.shape) == (0.002, 2.5)
    assert both.link_s == pytest.approx(12e-9)


@pytest.mark.parametrize(
    "bad", ["gauss", "pareto:1", "pareto:a:b", "pareto:-1:3", "link", "link:x"]
)
def test_bad_jitter_is_answered(bad: str) -> None:
    with pytest.raises(InputError):
        parse_jitter(bad)


def test_slow_down_per_chip_says_where_it_comes_from() -> None:
    amount, origin = constants().drag_of("hopper")
    assert (amount, origin.split(":")[0]) == (0.189, "published")
    for arch in ("davinci", "tpu", "something-new"):
        assert constants().drag_of(arch)[1].startswith("assumed")
