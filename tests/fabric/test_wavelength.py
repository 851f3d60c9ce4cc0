"""Routes, the allocator against a slow one, published blocking, classes, refusals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightloom.core.errors import FabricError, InputError
from lightloom.fabric.wavelength import (
    NO_CAPACITY,
    NO_CONTIGUITY,
    NO_CONTINUITY,
    FibreMap,
    Requests,
    Setting,
    draw,
    load_map,
    load_settings,
    map_names,
)
from lightloom.fabric.wavelength_load import load_at
from lightloom.fabric.wavelength_pool import (
    ChannelPool,
    Lightpath,
    Refusal,
    contiguity,
    fragmentation,
    pick,
    runs,
)
from lightloom.fabric.wavelength_replay import replay, shifts
from lightloom.fabric.wavelength_routes import route_table, width

SETTINGS = load_settings()


def tiny(**more: object) -> Setting:
    base = {"title": "t", "map": "nsfnet", "shared": False, "channels": 6, "erlang": 5.0,
            "blocking": 0.0, "spread": 0.0, "ref": ""}  # fmt: skip
    return Setting(**(base | more))  # type: ignore[arg-type]


def slow(setting: Setting, table: object, requests: Requests) -> list[tuple[int, int, int]]:
    """First fit on plain sets: (route, first, width) per request, -1 where refused."""
    free = [set(range(setting.channels)) for _ in range(table.spectra)]  # type: ignore[attr-defined]
    held: dict[int, tuple[tuple[int, ...], range]] = {}
    out = [(-1, -1, 0)] * len(requests)
    for event in requests.events():
        if event < 0:
            for link in held[~event][0] if ~event in held else ():
                free[link].update(held[~event][1])
            continue
        pair, rate = int(requests.pair_R[event]), int(requests.rate_R[event])
        for j, route in enumerate(table.routes[pair]):  # type: ignore[attr-defined]
            need = width(setting, rate, route.bits)
            starts = [
                s for s in range(setting.channels - need + 1)
                if all(set(range(s, s + need)) <= free[x] for x in route.links)
            ]  # fmt: skip
            if starts:
                block = range(starts[0], starts[0] + need)
                for link in route.links:
                    free[link].difference_update(block)
                held[event] = (route.links, block)
                out[event] = (j, starts[0], need)
                break
    return out


@pytest.mark.parametrize("name", map_names())
def test_routes_are_simple_ordered_and_complete(name: str) -> None:
    fibres = load_map(name)
    table = route_table(fibres, 8)
    assert len(table.pairs) == len(fibres.nodes) * (len(fibres.nodes) - 1)
    ends = {link: (a, b) for a, b, link, _ in fibres.directed()}
    for (a, b), routes in zip(table.pairs, table.routes, strict=True):
        assert [len(r.links) for r in routes] == sorted(len(r.links) for r in routes)
        assert len({r.links for r in routes}) == len(routes) == 8
        for route in routes:
            assert len(set(route.nodes)) == len(route.nodes)
            assert (route.nodes[0], route.nodes[-1]) == (a, b)
            assert [ends[x] for x in route.links] == list(itertools.pairwise(route.nodes))


def test_routes_by_length_are_the_shortest_of_all() -> None:
    fibres = load_map("nsfnet")
    out: list[list[tuple[int, float]]] = [[] for _ in fibres.nodes]
    for a, b, _, metres in fibres.directed():
        out[a].append((b, metres))

    def walk(node: int, seen: tuple[int, ...], metres: float) -> list[float]:
        if node == 13:
            return [metres]
        ways = [(b, m) for b, m in out[node] if b not in seen]
        return [x for b, m in ways for x in walk(b, (*seen, b), metres + m)]

    table = route_table(fibres, 30, "km")
    mine = table.routes[table.pairs.index((0, 13))]
    assert [r.metres for r in mine] == sorted(walk(0, (0,), 0.0))[:30]


@given(st.integers(1, 40), st.integers(0, 2**60))
def test_shifts_find_blocks(count: int, mask: int) -> None:
    found = mask
    for step in shifts(count):
        found &= found >> step
    wanted = [s for s in range(62) if all(mask >> (s + k) & 1 for k in range(count))]
    assert [s for s in range(62) if found >> s & 1] == wanted


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([(0, 0, 0), (25, 100, 1)]))
def test_fast_first_fit_equals_a_slow_one(
    seed: int, shared: bool, rates: tuple[int, int, int]
) -> None:
    low, high, guard = rates
    setting = tiny(
        channels=30, shared=shared, rate_low=low, rate_high=high, guard=guard, erlang=40.0
    )
    table = route_table(load_map("nsfnet"), 4, shared=shared)
    requests = draw(setting, len(table.pairs), 300, np.random.default_rng(seed))
    fast = replay(setting, table, requests, "first-fit")
    rows = list(
        zip(fast.route_R.tolist(), fast.first_R.tolist(), fast.width_R.tolist(), strict=True)
    )
    assert rows == slow(setting, table, requests)


@pytest.mark.parametrize("policy", ["first-fit", "weave", "replan"])
def test_no_channel_carries_two_lightpaths(policy: str) -> None:
    setting = SETTINGS["nsfnet-deep"]
    table = route_table(load_map("nsfnet"), 10)
    requests = draw(setting, len(table.pairs), 3000, np.random.default_rng(1), 300.0)
    out = replay(setting, table, requests, policy)  # type: ignore[arg-type]
    assert (out.reason_R == 0).sum() == (out.route_R >= 0).sum() > 2000
    if policy == "replan":
        assert out.moves > 0
        return  # channels change on the way; the log holds the last ones
    busy: dict[tuple[int, int], float] = {}
    for i in range(len(requests)):
        if out.route_R[i] >= 0:
            route = table.routes[int(requests.pair_R[i])][int(out.route_R[i])]
            assert out.width_R[i] == width(setting, int(requests.rate_R[i]), route.bits)
            for link in route.links:
                for channel in range(out.first_R[i], out.first_R[i] + out.width_R[i]):
                    assert busy.get((link, channel), -1.0) <= requests.arrive_R[i]
                    busy[link, channel] = float(requests.leave_R[i])


@pytest.mark.parametrize("name", ["nsfnet-deep", "cost239-deep", "nsfnet-rwa"])
def test_blocking_matches_the_published_one(name: str) -> None:
    s = SETTINGS[name]
    table = route_table(load_map(s.map), 50, shared=s.shared)
    shares = [
        replay(s, table, draw(s, len(table.pairs), 60_000, np.random.default_rng(seed)),
               "first-fit").blocking(3000)
        for seed in (11, 12)
    ]  # fmt: skip
    spread = max(s.spread, float(np.std(shares)))
    assert abs(np.mean(shares) - s.blocking) <= 2 * spread


def test_weave_refuses_less_and_the_bound_least() -> None:
    s = SETTINGS["nsfnet-mask"]
    table = route_table(load_map(s.map), 30, shared=True)
    requests = draw(s, len(table.pairs), 15_000, np.random.default_rng(3))
    first, weave, bound = (
        replay(s, table, requests, p).blocking(2000)  # type: ignore[arg-type]
        for p in ("first-fit", "weave", "replan")
    )
    assert bound < weave < first


def test_truncation_lowers_the_true_load() -> None:
    rng = np.random.default_rng(0)
    cut = draw(tiny(truncated=True), 10, 50_000, rng)
    hold = cut.leave_R - cut.arrive_R
    assert hold.max() < 2.0
    assert hold.mean() == pytest.approx(1 - 2 * math.exp(-2) / (1 - math.exp(-2)), abs=0.01)


def test_load_at_finds_a_planted_blocking() -> None:
    s = tiny(channels=12, map="cost239", erlang=60.0)
    table = route_table(load_map("cost239"), 3)
    load = load_at(s, table, "first-fit", 0.02, [0], 60.0, 8000)
    requests = draw(s, len(table.pairs), 8000, np.random.default_rng(0), load)
    assert replay(s, table, requests, "first-fit").blocking(3000) == pytest.approx(0.02, rel=0.15)


def line(channels: int = 2, **more: object) -> tuple[Setting, object]:
    fibres = FibreMap(name="l", nodes=("a", "b", "c"), links=((0, 1, 1e3), (1, 2, 1e3)))
    return tiny(channels=channels, **more), route_table(fibres, 3)


def stream(table: object, *pairs: tuple[int, int], rate: int = 0, cls: int = 0) -> Requests:
    index = {pair: i for i, pair in enumerate(table.pairs)}  # type: ignore[attr-defined]
    n = len(pairs)
    one = np.ones(n, np.int64)
    when = np.arange(n, dtype=float)
    return Requests(np.array([index[p] for p in pairs]), rate * one, cls * one, when, when + 99.0)


def test_refusals_say_why() -> None:
    setting, table = line(2)
    full = replay(setting, table, stream(table, (0, 1), (0, 1), (0, 2)), "first-fit")
    assert full.reason_R.tolist() == [0, 0, NO_CAPACITY]
    pools = [0b01, 0b10]
    both = stream(table, (0, 1), (1, 2), (0, 2))
    mixed = Requests(both.pair_R, both.rate_R, np.array([0, 1, 0]), both.arrive_R, both.leave_R)
    assert replay(setting, table, mixed, "weave", pools).reason_R.tolist()[2] == NO_CAPACITY
    crossed = replay(setting, table, mixed, "first-fit", [0b11, 0b10])
    assert crossed.reason_R.tolist() == [0, 0, NO_CONTINUITY]
    wide, table3 = line(3, rate_low=1, rate_high=1, slot_hz=1e9 / 4)
    gap = stream(table3, (0, 1), (0, 1), (0, 1))
    leave = Requests(gap.pair_R, np.array([1, 1, 2]), gap.class_R,
                     np.array([0.0, 1.0, 3.0]), np.array([9.0, 2.0, 9.0]))  # fmt: skip
    assert replay(wide, table3, leave, "first-fit").reason_R.tolist() == [0, 0, 0]
    hole = Requests(np.repeat(gap.pair_R[:1], 4), np.array([1, 1, 1, 2]), np.zeros(4, np.int64),
                    np.array([0.0, 1.0, 1.5, 3.0]), np.array([2.0, 9.0, 2.5, 9.0]))  # fmt: skip
    assert replay(wide, table3, hole, "first-fit").reason_R.tolist()[3] == NO_CONTIGUITY


def test_classes_keep_to_their_pools() -> None:
    setting = tiny(channels=40, erlang=120.0)
    table = route_table(load_map("nsfnet"), 5)
    rng = np.random.default_rng(5)
    requests = draw(setting, len(table.pairs), 2000, rng, classes=2)
    out = replay(setting, table, requests, "weave", [(1 << 25) - 1, ((1 << 15) - 1) << 25])
    lit = out.first_R >= 0
    assert (out.first_R[lit & (requests.class_R == 0)] < 25).all()
    assert (out.first_R[lit & (requests.class_R == 1)] >= 25).all()
    with pytest.raises(InputError, match="class 1"):
        replay(setting, table, requests, "weave", [1])


def test_the_pool_names_both_owners() -> None:
    pool = ChannelPool(3, 8)
    first = pool.admit("a", "job1", "expert", [(0, 1)], 3)
    assert isinstance(first, Lightpath) and first.channels == (0, 1, 2)
    with pytest.raises(FabricError, match=r"link 1 channel 2: .*job2.*job1"):
        pool.light(Lightpath("b", "job2", "gradient", (1, 2), (2, 3)))
    assert pool.free[2] == pool.full, "a refused lightpath leaves no trace"
    assert pool.release_owner("job1") == 1
    assert pool.free == [pool.full] * 3
    with pytest.raises(InputError, match="no lightpath"):
        pool.release("a")


def test_the_pool_refuses_with_a_reason() -> None:
    pool = ChannelPool(2, 4, {"expert": 0b0011, "gradient": 0b1100})
    codes = []
    pool.light(Lightpath("x", "j", "expert", (0,), (0,)))
    pool.light(Lightpath("y", "j", "expert", (1,), (1,)))
    for cls, count in (("expert", 1), ("expert", 3), ("tensor", 1)):
        answer = pool.admit("n", "j", cls, [(0, 1)], count)
        assert isinstance(answer, Refusal)
        codes.append(answer.code)
    assert codes == ["continuity", "capacity", "unknown-class"]
    whole = ChannelPool(1, 5)
    whole.light(Lightpath("m", "j", "expert", (0,), (2,)))
    answer = whole.admit("n", "j", "expert", [(0,)], 3, contiguous=True)
    assert isinstance(answer, Refusal) and answer.code == "contiguity"
    assert isinstance(whole.admit("n", "j", "expert", [(0,)], 3), Lightpath)


@given(st.integers(0, 2**40 - 1), st.integers(1, 6))
def test_runs_and_picks(mask: int, count: int) -> None:
    assert sum(((1 << n) - 1) << first for first, n in runs(mask)) == mask
    block = pick(mask, count, True)
    longest = max((n for _, n in runs(mask)), default=0)
    assert bool(block) == (longest >= count)
    loose = pick(mask, count, False)
    assert len(loose) == (count if mask.bit_count() >= count else 0)
    assert all(mask >> c & 1 for c in (*block, *loose))


def test_fragmentation_index() -> None:
    assert fragmentation([0b1111]) == 0.0
    assert fragmentation([0b0101]) == 0.5
    pool = ChannelPool(1, 4)
    pool.light(Lightpath("a", "j", "expert", (0,), (1,)))
    assert contiguity(pool) == pytest.approx(2 / 3)
