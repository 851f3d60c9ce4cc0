"""Cost of a run: lines add up, ranges hold the value, units and sources, bad prices."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lightloom.advise import roi as r
from lightloom.advise.money import load_money, shipped
from lightloom.advise.odds import speed_of
from lightloom.advise.roi_compare import difference, money_factors, roi
from lightloom.cli.desk import desk
from lightloom.cli.main import cli
from lightloom.core.catalog import load_cluster, load_model
from lightloom.core.errors import InputError
from lightloom.show.roi import figure

TOKENS = 2e12


@pytest.fixture(scope="module")
def planner():
    return desk(512, 8192, "4Mtok", "bf16")


@pytest.fixture(scope="module")
def plans(planner):
    model = load_model("llama-3.1-70b")
    return [planner.plan(model, load_cluster(n)) for n in ("dgx-h100", "hgx-h200")]


def test_lines_add_up_and_ranges_hold(plans, planner) -> None:
    result = roi(plans, TOKENS, shipped(), planner)
    for o in result.options:
        assert math.isclose(o.cost, sum(line.value for line in o.lines), rel_tol=1e-12)
        assert o.per_million_low <= o.per_million <= o.per_million_high
        assert math.isclose(o.per_million * TOKENS / 1e6, o.cost, rel_tol=1e-9)
        for line in o.lines:
            assert line.low <= line.value <= line.high
            assert line.sources


def test_every_input_has_a_source(plans, planner) -> None:
    result = roi(plans, TOKENS, shipped(), planner)
    assert all(f.source.ref or f.source.note for f in result.prices.values())


def test_rent_is_cards_times_hours(plans) -> None:
    run = r.run_of(plans[0], TOKENS, shipped(), "rent", "NVIDIA")
    v = {k: f.value for k, f in run.inputs.items()}
    steps = TOKENS / plans[0].strategy.tokens
    hand = steps * plans[0].prediction.step_s / 3600 * plans[0].cards * v["rent"]
    assert math.isclose(r.lines_of(run, v)["rent"], hand, rel_tol=1e-12)


def test_power_line_by_hand(plans) -> None:
    run = r.run_of(plans[0], TOKENS, shipped(), "own", "NVIDIA")
    v = {k: f.value for k, f in run.inputs.items()}
    hours, _, kw = r.times(run, v)
    assert math.isclose(r.lines_of(run, v)["power"], hours * kw * v["electricity_kwh"])
    watts = kw * 1e3 / plans[0].cards
    assert 400 < watts < 1400, "a card with its share of a host"


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(["electricity_kwh", "pue", "interest", "capital", "salary_year"]),
    times=st.floats(1.01, 3.0),
)
def test_dearer_inputs_never_make_it_cheaper(name: str, times: float) -> None:
    run = _run()
    v = {k: f.value for k, f in run.inputs.items()}
    before, after = (sum(r.lines_of(run, x).values()) for x in (v, {**v, name: v[name] * times}))
    assert after > before


_kept: list[r.Run] = []


def _run() -> r.Run:
    if not _kept:
        planner = desk(512, 8192, "4Mtok", "bf16")
        plan = planner.plan(load_model("llama-3.1-70b"), load_cluster("dgx-h100"))
        _kept.append(r.run_of(plan, TOKENS, shipped(), "own", "NVIDIA"))
    return _kept[0]


def test_break_even_is_where_both_cost_the_same(plans) -> None:
    run = r.run_of(plans[0], TOKENS, shipped(), "own", "NVIDIA")
    v = {k: f.value for k, f in run.inputs.items()}
    even, why = r.break_even(run, v)
    assert even is not None and "range" in why
    hours, _, kw = r.times(run, v)
    owned = r.own_lines(run, {**v, "utilisation": even}, hours, kw)
    rented = v["rent"] * run.plan.cards * hours
    assert math.isclose(sum(owned.values()) - owned["staff"], rented, rel_tol=1e-9)


def test_no_capital_price_is_not_enough_data(plans) -> None:
    run = r.run_of(plans[1], TOKENS, shipped(), "own", "NVIDIA")
    option = r.price(run)
    assert option.missing == ("capital.h200",) and option.cost == 0
    assert option.break_even is None and "not enough data" in option.break_even_why


def test_a_machine_against_itself_is_undecided_or_equal(plans, planner) -> None:
    one = r.run_of(plans[0], TOKENS, shipped(), "rent", "NVIDIA")
    gap, low, high, _ = difference(one, one)
    assert gap == 0 and low <= 0 <= high
    ratio = speed_of(plans[0], plans[0])
    assert ratio.value == 1.0 and ratio.low <= 1.0 <= ratio.high


def test_factors_in_money_add_up(plans, planner) -> None:
    result = roi(plans, TOKENS, shipped(), planner)
    factors = result.factors["hgx-h200"]
    saved = result.options[0].cost - result.options[1].cost
    assert math.isclose(sum(f.saves for f in factors), saved, rel_tol=1e-9)
    assert money_factors(result.options[0], result.options[1], ())[-1].saves == pytest.approx(saved)


def test_a_far_cheaper_price_decides(plans, planner) -> None:
    money = load_money(None, ("rent.h200=0.2", "rent.h100=4"))
    result = roi(plans, TOKENS, money, planner)
    assert result.code == "cheaper" and "hgx-h200 is cheaper" in result.text


def test_a_guessed_price_is_not_enough_data(planner) -> None:
    model = load_model("llama-3.1-70b")
    found = [planner.plan(model, load_cluster(n)) for n in ("dgx-h100", "mi300x")]
    result = roi(found, TOKENS, shipped(), planner)
    assert result.code in ("not-enough-data", "cheaper")
    if result.code == "not-enough-data":
        assert "rent.mi300x" in result.text


def test_migration_is_charged_across_vendors(plans, planner) -> None:
    other = planner.plan(load_model("llama-3.1-70b"), load_cluster("atlas-800t-a2"))
    result = roi([plans[0], other], TOKENS, shipped(), planner)
    lines = {line.name: line.value for line in result.options[1].lines}
    assert lines["migration"] == 6 * 150000 / 12
    assert {line.name: line.value for line in result.options[0].lines}["migration"] == 0


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(("text", "says"), [
    ('[electricity_kwh]\nvalue = 0.1\nsource = "bill"\n', "no currency"),
    ('currency = "USD"\n[electricity_kwh]\nvalue = 0.1\n', "no source"),
    ('currency = "USD"\n[electricty_kwh]\nvalue = 0.1\nsource = "bill"\n',
     "nearest: electricity_kwh"),
    ('currency = "CNY"\n[electricity_kwh]\nvalue = 0.6\nsource = "bill"\n', "no rate"),
    ('currency = "USD"\n[pue]\nvalue = 0.9\nsource = "site"\n', "never below 1"),
    ('currency = "USD"\n[utilisation]\nvalue = 1.4\nsource = "site"\n', "share"),
    ('currency = "USD"\n[pue]\nvalue = 1.2\nlow = 1.3\nhigh = 1.4\nsource = "x"\n',
     "does not hold"),
    ('currency = "USD"\nelectricity_kwh = 0.1\n', "not a table"),
    ("currency = [", "prices"),
])  # fmt: skip
def test_bad_price_files_are_answered(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        load_money(write(tmp_path, text))


def test_another_currency_converts_at_its_own_rate(tmp_path: Path) -> None:
    text = ('currency = "CNY"\n[usd]\nvalue = 7.0\nsource = "rate of the day"\n'
            '[electricity_kwh]\nvalue = 0.6\nsource = "bill"\n')  # fmt: skip
    money = load_money(write(tmp_path, text))
    assert money.currency == "CNY" and money.value("electricity_kwh") == 0.6
    assert money.value("rent.h100") == pytest.approx(7 * 2.35)
    assert "rate of the day" in money.figures["rent.h100"].source.note
    assert money.value("pue") == shipped().value("pue")


def test_settings_override_with_a_range() -> None:
    money = load_money(None, ("electricity_kwh=0.05..0.09",))
    assert money.figures["electricity_kwh"].low == 0.05
    assert money.value("electricity_kwh") == pytest.approx(0.07)
    with pytest.raises(InputError, match="nearest: utilisation"):
        load_money(None, ("utilization=0.4",))


def command(*words: str):
    return CliRunner().invoke(cli, ["roi", *words])


def test_command_prints_json_and_screen() -> None:
    words = ("llama-3.1-8b", "--tokens", "1T", "--options", "dgx-h100", "--cards", "64")
    told = json.loads(command(*words, "--json").stdout)
    assert told["kind"] == "roi" and told["options"][0]["tornado"]
    screen = command(*words).stdout
    assert "what moves it" in screen and "break" not in screen.split("verdict")[0]


def test_plot_writes_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "t.svg"
    done = command("llama-3.1-8b", "--tokens", "1T", "--options", "dgx-h100", "--cards", "64",
                   "--plot", str(path))  # fmt: skip
    assert done.exit_code == 0 and path.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize("words", [
    ("llama-3.1-8b", "--tokens", "-1", "--options", "dgx-h100"),
    ("llama-3.1-8b", "--tokens", "1T", "--options", ","),
    ("llama-3.1-8b", "--tokens", "1T", "--options", "dgx-h1000"),
    ("llama-3.1-8b", "--tokens", "1T", "--options", "dgx-h100", "--cards", "0"),
    ("llama-3.1-8b", "--tokens", "1T", "--options", "dgx-h100", "--price", "/nowhere.toml"),
    ("llama-3.1-8b", "--tokens", "much", "--options", "dgx-h100"),
])  # fmt: skip
def test_bad_input_exits_3(words: tuple[str, ...]) -> None:
    done = command(*words)
    assert isinstance(done.exception, InputError), done.output


def test_figures_have_no_exponent() -> None:
    assert [figure(v) for v in (60000.0, 9.75, 0.997)] == ["60,000", "9.75", "0.997"]
