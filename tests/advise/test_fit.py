"""Fit: verdicts follow prices and speeds, the profile caps the fabric, rules beside ours."""

from __future__ import annotations

import json
import math

import pytest
from click.testing import CliRunner
from profiles_kit import advice_of

from lightloom.advise.fit import Situation, capped, fit, parse_growth, scaled
from lightloom.advise.fit_workload import fit_workload, shown
from lightloom.advise.money import load_money, shipped
from lightloom.advise.odds import Desk, Factor, Ratio, speed_of
from lightloom.cli.main import cli
from lightloom.core.catalog import load_cluster, load_model
from lightloom.core.errors import InfeasibleError, InputError
from lightloom.cost.flops import parameters_of


@pytest.fixture(scope="module")
def planner():
    from lightloom.cli.desk import desk

    return desk(256, 8192, "4Mtok", "bf16")


@pytest.fixture(scope="module")
def machines():
    return load_cluster("dgx-h100"), load_cluster("gb200-nvl72")


def decide(planner, machines, money=None, **said):
    now, other = machines
    return fit(
        load_model("llama-3.1-70b"), now, [other], money or shipped(), planner, Situation(**said)
    )


def test_price_decides_both_ways(planner, machines) -> None:
    cheap = decide(planner, machines, load_money(None, ("rent.gb200=0.1", "rent.h100=5")))
    dear = decide(planner, machines, load_money(None, ("rent.gb200=100", "rent.h100=2")))
    assert cheap.code == "move" and dear.code == "stay"
    assert cheap.options[0].speed == dear.options[0].speed


def test_the_flip_is_where_the_verdict_turns(planner, machines) -> None:
    first = decide(planner, machines)
    at = first.flips[0].at
    assert at is not None
    rents = [f"rent.gb200={at * 2.0 * x}" for x in (0.99, 1.01)]
    values = [decide(planner, machines, load_money(None, (one, "rent.h100=2.0"))).options[0].value
              for one in rents]  # fmt: skip
    assert values[0] > 1 > values[1]


def test_factors_multiply_to_the_speed(planner, machines) -> None:
    option = decide(planner, machines).options[0]
    assert math.prod(option.factors.values()) == pytest.approx(option.speed, rel=1e-6)


def test_low_utilisation_stays(planner, machines) -> None:
    found = decide(planner, machines, load_money(None, ("rent.gb200=0.1",)), utilisation=0.15)
    assert found.code == "stay" and "15%" in found.text


def test_profile_caps_what_a_fabric_gives() -> None:
    advice = advice_of("kineto_dlrm_8rank")
    speed, factors = capped(Ratio(3.0, 2.0, 4.0), {"chip": 1.5, "communication": 2.0,
                                                   "recovery": 1.0}, advice)  # fmt: skip
    assert speed.value == pytest.approx(1.5 * factors["fabric, limited by the profile"])
    assert factors["fabric, limited by the profile"] < 1.05, "DLRM waits, it does not transfer"
    same, _ = capped(Ratio(3.0, 2.0, 4.0), {"chip": 3.0}, None)
    assert same.value == 3.0


def test_profile_overrules_the_share(planner, machines) -> None:
    found = decide(planner, machines, advice=advice_of("kineto_dlrm_8rank"))
    rule = found.rules[0]
    assert "38%: buy" in rule.says and rule.fails
    assert any("measured" in reason.source for reason in found.reasons)


def test_site_reasons_are_said(planner, machines) -> None:
    found = decide(planner, machines, staff=1.0, budget=1e6, adapted=False, aware=True,
                   automatic=False)  # fmt: skip
    text = " ".join(reason.what for reason in found.reasons)
    for word in ("staff", "budget", "not adapted", "knows the topology", "needs a person"):
        assert word in text


def test_manual_recovery_costs_goodput(planner, machines) -> None:
    slow, quick = (decide(planner, machines, automatic=x).options[0].goodput
                   for x in (False, True))  # fmt: skip
    assert slow < quick


def test_growth_is_a_model_that_grows() -> None:
    for name in ("llama-3.1-8b", "mixtral-8x7b-v0.1"):
        model = load_model(name)
        grown = scaled(model, 3.0)
        ratio = parameters_of(grown).total / parameters_of(model).total
        assert 2.5 < ratio < 3.5


@pytest.mark.parametrize(
    ("text", "value"),
    [("3x/year", 3.0), ("2x/month", 4096.0), ("1.5x/6months", 2.25), ("2x/quarter", 16.0)],
)
def test_growth_words(text: str, value: float) -> None:
    assert parse_growth(text) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("text", ["3", "x/year", "3x", "0x/year", "3x/fortnight", "-2x/year", ""])
def test_bad_growth(text: str) -> None:
    with pytest.raises(InputError):
        parse_growth(text)


def test_only_the_candidate_holds_the_model(machines, planner) -> None:
    now, other = machines

    def plan(model, machine):
        if machine.name == now.name:
            raise InfeasibleError("does not fit")
        return planner.plan(model, machine)

    found = fit(load_model("llama-3.1-70b"), now, [other], shipped(),
                Desk(plan, lambda *_: (Factor("chip", 1.0, ""),)), Situation())  # fmt: skip
    assert found.code == "move" and "does not fit on dgx-h100" in found.text


def test_nothing_fits_anywhere(machines) -> None:
    def plan(model, machine):
        raise InfeasibleError("does not fit")

    with pytest.raises(InfeasibleError, match="none of these"):
        fit(load_model("llama-3.1-70b"), machines[0], [machines[1]], shipped(),
            Desk(plan, lambda *_: ()), Situation())  # fmt: skip


def test_same_chip_cancels_the_kernels(planner) -> None:
    model = load_model("llama-3.1-70b")
    a, b = (planner.plan(model, load_cluster(n)) for n in ("supernode-8192", "traditional-8192"))
    mine = speed_of(a, b)
    assert mine.high / mine.low < (a.prediction.high_s / a.prediction.low_s) ** 2


def bounds(machine, said):
    """Time grows with context on the machine of small domains only."""
    slow = 1 + said["context"] / 1e5 if machine.fabric.domain_cards <= 8 else 1.0
    return {"most output tokens": 100 / slow, "keys and values": said["context"] * 1e3,
            "cards of one replica": 8.0, "share of memory for keys and values": 0.6}  # fmt: skip


def test_serving_turns_with_context(machines) -> None:
    money = load_money(None, ("rent.gb200=4", "rent.h100=2"))
    short, long = (fit_workload("m", "serve", *machines[:1], [machines[1]], 64, money, bounds,
                                {"context": c, "concurrency": 64.0, "output": 100.0})
                   for c in (1000.0, 1e6))  # fmt: skip
    assert short.code == "stay" and long.code == "move"
    assert short.flips[-1].at and "turns" in short.flips[-1].text
    assert {rule.source for rule in long.rules} == {"S2", "S3"}


def command(*words: str):
    return CliRunner().invoke(cli, ["fit", *words])


@pytest.mark.parametrize(("work", "more"), [
    ("llama-3.1-8b", ("--cards", "64")),
    ("llama-3.1-8b", ("--cards", "64", "--task", "serve", "--workload", "context=32k")),
    ("recommender", ("--cards", "64")), ("climate", ("--cards", "64")),
])  # fmt: skip
def test_command_answers_every_kind_of_work(work: str, more: tuple[str, ...]) -> None:
    words = (work, "--now", "dgx-a100", "--candidates", "dgx-h100", *more)
    told = json.loads(command(*words, "--json").stdout)
    assert told["kind"] == "fit" and told["options"]
    assert all(reason["source"] for reason in told["reasons"])
    assert "verdict" in command(*words).stdout


def test_a_rate_nobody_published_is_said() -> None:
    done = command("cfd", "--now", "dgx-a100", "--candidates", "supernode-8192", "--json")
    assert json.loads(done.stdout)["code"] == "not-enough-data"


@pytest.mark.parametrize("words", [
    ("llama-3.1-8b", "--now", "dgx-a100", "--candidates", ""),
    ("llama-3.1-8b", "--now", "dgx-a10", "--candidates", "dgx-h100"),
    ("serve", "--now", "dgx-a100", "--candidates", "dgx-h100", "--task", "serve"),
    ("llama-3.1-8b", "--now", "dgx-a100", "--candidates", "dgx-h100", "--utilisation", "20"),
    ("llama-3.1-8b", "--now", "dgx-a100", "--candidates", "dgx-h100", "--growth", "3"),
    ("llama-3.1-8b", "--now", "dgx-a100", "--candidates", "dgx-h100", "--profile", "/nowhere"),
    ("llama-3.1-8b", "--now", "dgx-a100", "--candidates", "dgx-h100", "--cards", "99999999"),
])  # fmt: skip
def test_bad_input(words: tuple[str, ...]) -> None:
    assert isinstance(command(*words).exception, InputError)


@pytest.mark.parametrize(
    "words",
    [
        ("--now", "dgx-h100", "--candidates", "dgx-h100"),
        ("--now", "dgx-h100", "--candidates", "hgx-h200", "--set", "rent.h10=1"),
        ("--now", "dgx-h100", "--candidates", "hgx-h200", "--budget", "-5MUSD"),
    ],
)
def test_figures_of_no_use_are_refused(words: tuple[str, ...]) -> None:
    assert isinstance(command("llama-3.1-8b", "--cards", "8", *words).exception, InputError)


def test_bounds_are_shown_in_their_units() -> None:
    assert shown("arithmetic", 2.5e-4) == "250 us"
    assert shown("most iterations", 343.0) == "343"
    assert shown("share of memory for keys and values", 0.5) == "50%"
