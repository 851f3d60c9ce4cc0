"""`.topo`: generated, written, read, checked by code that shares nothing with the generator."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightloom.core.catalog import load_cluster, load_model
from lightloom.core.cluster import Cluster
from lightloom.core.errors import InfeasibleError, InputError
from lightloom.core.fabric import Fabric, Level, Optics
from lightloom.core.files import read_json, write_json
from lightloom.core.placement import Placement
from lightloom.core.strategy import Strategy
from lightloom.core.topo import Circuit, Topo, expand, fold
from lightloom.fabric.topo import channels_of_card, generate
from lightloom.fabric.topo_check import check
from lightloom.fabric.topo_demand import axis_bytes, axis_groups, ring_order
from lightloom.fabric.topo_heat import difference, heat
from lightloom.fabric.topo_ring import ring_path

BIG = load_cluster("supernode-8192")
JOBS = [
    {"tp": 8, "pp": 16, "dp": 64},
    {"tp": 8, "pp": 8, "dp": 128, "ep": 64},
    {"tp": 64, "pp": 8, "dp": 16},
    {"tp": 4, "cp": 4, "pp": 4, "dp": 128, "ep": 16},
    {"dp": 8192, "ep": 8192},
]


def small(kind: str = "full-mesh", shape: tuple[int, ...] = (4,)) -> Cluster:
    levels = (
        Level(name="inner", kind=kind, shape=shape, link=1e11, latency=1e-7,  # type: ignore[arg-type]
              medium="optical"),
        Level(name="spine", kind="spine", shape=(4,), link=1e12, latency=3e-7, medium="optical",
              optics=Optics(fibres=2, channels=16, channel_rate=1e10)),
    )  # fmt: skip
    return msgspec.structs.replace(BIG, name="small", fabric=Fabric(levels=levels, domain="spine"))


@pytest.mark.parametrize("axes", JOBS, ids=lambda a: "-".join(f"{k}{v}" for k, v in a.items()))
@pytest.mark.parametrize("ring", [True, False])
def test_8192_cards_are_conflict_free_and_connected(
    axes: dict[str, int], ring: bool, tmp_path: Path
) -> None:
    topo = generate(BIG, axes, ring_path=ring)
    assert check(topo, BIG) == []
    write_json(tmp_path / "a.topo", topo)
    assert read_json(tmp_path / "a.topo", Topo) == topo


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["full-mesh", "mesh", "torus", "ring", "spine"]),
    st.sampled_from([(4,), (2, 2), (2, 4), (6,), (3, 3)]),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_any_small_job_on_any_light(
    kind: str, shape: tuple[int, ...], seed: int, ring: bool
) -> None:
    if kind in ("ring", "spine") and len(shape) > 1:
        shape = (4,)
    cluster = small(kind, shape)
    rng = np.random.default_rng(seed)
    cards, axes = cluster.cards, {}
    left = cards
    for axis in ("tp", "cp", "dp", "pp"):
        divisors = [d for d in range(1, left + 1) if left % d == 0]
        axes[axis] = int(rng.choice(divisors))
        left //= axes[axis]
    inner = axes["tp"] * axes["cp"] * axes["dp"]
    axes["ep"] = int(rng.choice([d for d in range(1, inner + 1) if inner % d == 0]))
    world = axes["tp"] * axes["cp"] * axes["dp"] * axes["pp"]
    if axes["ep"] > 1 and inner // axes["ep"] % 2 == 0 and rng.random() < 0.5:
        axes["etp"] = 2
    order = tuple(int(x) for x in rng.permutation(cards)[:world]) if rng.random() < 0.5 else ()
    place = Placement(cards=order, order=tuple(rng.permutation(["tp", "cp", "dp", "pp"]).tolist()))
    try:
        topo = generate(cluster, axes, place, ring_path=ring)
    except InfeasibleError as error:
        assert "channel" in str(error) or "crosses" in str(error)
        return
    assert check(topo, cluster, place) == []


def damaged(topo: Topo, index: int, **change: object) -> Topo:
    circuits = list(topo.circuits)
    circuits[index] = msgspec.structs.replace(circuits[index], **change)
    return msgspec.structs.replace(topo, circuits=tuple(circuits))


def first_of(topo: Topo, level: str, skip: int = 0) -> int:
    return [i for i, c in enumerate(topo.circuits) if c.level == level][skip]


def test_a_channel_with_two_owners_is_named() -> None:
    topo = generate(BIG, JOBS[0])
    index = first_of(topo, "spine")
    one = topo.circuits[index]
    thief = msgspec.structs.replace(one, axis="pp", cls="pipeline", first=one.first, count=1)
    found = check(msgspec.structs.replace(topo, circuits=(*topo.circuits, thief)), BIG)
    assert [f.code for f in found] == ["conflict"]
    assert "input fibre" in found[0].subject
    assert f"{one.axis} ({one.cls})" in found[0].what and "pp (pipeline)" in found[0].what


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        ({"first": 127, "count": 2}, "geometry", "channels outside"),
        ({"count": 0}, "geometry", "channels outside"),
        ({"via": (0, 9999)}, "geometry", "outside"),
        ({"units": ((1, 1),)}, "geometry", "units outside"),
        ({"cls": "snapshot"}, "class", "not snapshot"),
        ({"level": "attic"}, "unknown-level", "not listed"),
        ({"src": 5, "dst": 5}, "geometry", "the same"),
    ],
)
def test_damage_is_found(change: dict[str, object], code: str, word: str) -> None:
    topo = generate(BIG, JOBS[0])
    found = check(damaged(topo, first_of(topo, "spine"), **change), BIG)
    assert any(f.code == code and word in f.what for f in found), found


def test_missing_light_is_found_by_group() -> None:
    topo = generate(BIG, JOBS[0])
    kept = tuple(c for c in topo.circuits if not (c.axis == "tp" and c.src == 0))
    kept = tuple(c for c in kept if not (c.axis == "tp" and c.dst == 0))
    found = check(msgspec.structs.replace(topo, circuits=kept), BIG)
    assert {f.code for f in found} == {"dark"}
    assert "tp light" in found[0].what


def test_crossing_planes_and_wrong_machines_are_found() -> None:
    topo = generate(BIG, JOBS[0])
    index = first_of(topo, "spine")
    a, b = topo.circuits[index].via
    other = b + 1 if (b + 1) // 8 == b // 8 else b - 1
    assert "planes" in check(damaged(topo, index, via=(a, other)))[0].what
    assert "made for" in check(topo, load_cluster("supernode-8192-910b"))[0].what
    level = msgspec.structs.replace(topo.levels[-1], bands=("C",))
    narrow = msgspec.structs.replace(topo, levels=(*topo.levels[:-1], level))
    assert any(f.code == "band" and "9.6 THz" in f.what for f in check(narrow))


def test_one_band_refuses_128_channels_of_75_ghz() -> None:
    with pytest.raises(InfeasibleError, match=r"9\.6 THz"):
        generate(BIG, JOBS[0], bands=("C",))
    assert generate(BIG, JOBS[0]).level("spine").bands == ("C", "L")


def test_bad_jobs_are_answered() -> None:
    with pytest.raises(InfeasibleError, match="16384 ranks"):
        generate(BIG, {"tp": 64, "pp": 16, "dp": 16})
    with pytest.raises(InputError, match="axes are"):
        generate(BIG, {"zz": 2})
    with pytest.raises(InputError, match="does not divide"):
        generate(BIG, {"tp": 8, "dp": 8, "ep": 3})
    with pytest.raises(InfeasibleError, match="optical"):
        generate(load_cluster("ethernet-8"), {"tp": 8})


def test_classes_never_share_a_channel() -> None:
    topo = generate(BIG, JOBS[3])
    owner: dict[tuple[str, int, int, int], str] = {}
    for c in topo.circuits:
        for unit in expand(c.units)[:1]:
            for end in c.via if c.level != "spine" else [c.via[0], -1 - c.via[1]]:
                for channel in range(c.first, c.first + c.count):
                    key = (f"{c.level}{unit}", end, channel, 0)
                    assert owner.setdefault(key, c.cls) == c.cls


def test_spare_channels_stay_dark() -> None:
    topo = generate(BIG, JOBS[2], spare=4)
    top = max(c.first + c.count for c in topo.circuits if c.level == "spine")
    assert top <= 124


def test_ring_path_adds_only_the_closing_light() -> None:
    open_, closed = (generate(BIG, JOBS[2], ring_path=r) for r in (False, True))
    pairs = [
        {(c.level, c.src, c.dst) for c in t.circuits if c.axis == "tp"} for t in (open_, closed)
    ]
    assert pairs[0] < pairs[1]
    worth = ring_path(64, 64 * 2.0**20, 1e-7, 70e9, 1e-6)
    assert worth.closed_s < min(worth.open_s, worth.reversed_s)
    assert ring_path(64, 1e12, 1e-7, 70e9, 1e-6).slower < 1e-2, "no loss where bytes dominate"


@pytest.mark.parametrize("shape", [(2, 4), (4, 2), (4, 4), (3, 4), (2, 2)])
def test_mesh_rings_step_between_neighbours(shape: tuple[int, int]) -> None:
    members = tuple(range(shape[0] * shape[1]))
    order = ring_order(shape, "mesh", members)
    assert sorted(order) == list(members)
    spots = [divmod(m, shape[1]) for m in order]
    for (a, b), (c, d) in zip(spots, [*spots[1:], spots[0]], strict=True):
        assert abs(a - c) + abs(b - d) == 1


def test_groups_match_rank_arithmetic() -> None:
    groups = axis_groups({"tp": 2, "cp": 3, "dp": 4, "pp": 2, "ep": 6}, Placement())
    assert groups["tp"][0].tolist() == [0, 1]
    assert groups["cp"][0].tolist() == [0, 2, 4]
    assert groups["dp"][0].tolist() == [0, 6, 12, 18]
    assert groups["pp"][0].tolist() == [0, 24]
    assert groups["ep"][0].tolist() == list(range(6))
    for table in groups.values():
        assert sorted(table.ravel().tolist()) == list(range(48))


def test_diff_counts_what_changes() -> None:
    a, b = (generate(BIG, JOBS[2], ring_path=r) for r in (True, False))
    assert all((d.added, d.removed, d.moved) == (0, 0, 0) for d in difference(a, a))
    there, back = difference(a, b), difference(b, a)
    assert [(d.added, d.removed) for d in there] == [(d.removed, d.added) for d in back]
    assert sum(d.removed for d in there) > 0


MORE_EXPERT = {"tp": 8.0, "ep": 5.0, "cp": 2.0, "dp": 2.0, "pp": 1.0}


@pytest.mark.parametrize("change", [{"ring_path": False}, {"volume": MORE_EXPERT}])
def test_kept_light_stays_where_it_is(change: dict[str, object]) -> None:
    old = generate(BIG, JOBS[1])
    again = generate(BIG, JOBS[1], keep=old)
    assert all((d.added, d.removed, d.moved) == (0, 0, 0) for d in difference(old, again))
    fresh, kept = (
        generate(BIG, JOBS[1], keep=k, **change)  # type: ignore[arg-type]
        for k in (None, old)
    )
    assert check(kept, BIG) == []
    moved = [sum(d.moved for d in difference(old, t)) for t in (fresh, kept)]
    assert moved[1] <= moved[0] * 0.2 + 1


def test_heat_has_the_bytes_of_the_routes() -> None:
    strategy = Strategy(tp=8, pp=8, dp=128, ep=64, global_batch=8192, seq=4096)
    volume = axis_bytes(load_model("deepseek-v3"), strategy)
    assert all(volume[axis] > 0 for axis in ("tp", "pp", "dp", "ep"))
    topo = generate(BIG, JOBS[1], volume=volume, plan="p.json")
    for h in heat(topo):
        assert h.bytes_AB.sum() == pytest.approx(sum(h.by_class.values()))
        assert (h.channels_AB[h.bytes_AB > 0] > 0).all()
        assert np.trace(h.bytes_AB) == 0


def test_every_card_knows_its_channels() -> None:
    topo = generate(BIG, JOBS[1])
    for card in (0, 777, 8191):
        rows = channels_of_card(topo, card)
        assert {level for level, _, _ in rows} == {"module", "board", "spine"}
        assert all(isinstance(c, Circuit) and c.count > 0 for _, c, _ in rows)


@given(st.sets(st.integers(0, 200)))
def test_fold_and_expand_are_inverse(numbers: set[int]) -> None:
    assert expand(fold(list(numbers))) == sorted(numbers)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_file_is_answered_never_a_crash(data: st.DataObject) -> None:
    raw = msgspec.to_builtins(SMALL)
    spot: object = raw
    for _ in range(12):
        keys = sorted(spot) if isinstance(spot, dict) else range(len(spot))  # type: ignore[arg-type]
        if not keys:
            return
        key = data.draw(st.sampled_from(list(keys)))
        value = spot[key]  # type: ignore[index]
        if not isinstance(value, dict | list) or not value:
            spot[key] = data.draw(  # type: ignore[index]
                st.sampled_from([0, -1, 1, 7, 10**12, 1.5, "", "spine", "tp", None, [], [[0, 9]]])
            )
            break
        spot = value
    try:
        topo = msgspec.convert(raw, Topo)
    except msgspec.ValidationError:
        return
    for finding in check(topo, small("mesh", (2, 2))):
        assert finding.what


SMALL = generate(small("mesh", (2, 2)), {"tp": 4, "dp": 4, "ep": 8})
