"""The catalogue: every file loads, every number has a source, every mistake is answered."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lightloom.core.catalog import cluster_of, load_chip, load_cluster, names
from lightloom.core.chip import Chip
from lightloom.core.cluster import Cluster
from lightloom.core.errors import InputError

CONTRACT = tuple(
    name
    for line in (
        "supernode-8192 supernode-8192-910b traditional-8192 atlas-950 atlas-960 atlas-900-a3",
        "atlas-800t-a2 dgx-a100 dgx-a100-40g dgx-h100 dgx-h100-96g dgx-h100-94g hgx-h200",
        "dgx-b200 gb200-nvl72 gb300-nvl72 mi300x tpu-v5p ethernet-8 pcie-8",
    )
    for name in line.split()
)


@pytest.mark.parametrize("name", names("chips"))
def test_every_chip_loads_with_a_source_for_every_number(name: str) -> None:
    chip = load_chip(name)
    assert chip.name == name
    for field in Chip.__struct_fields__:
        source = chip.source_of(field)
        assert source.ref
        assert source.confidence
    assert 100e12 < chip.peak_of("bf16") < 10e15
    assert 0.3e12 < chip.hbm_bandwidth < 30e12
    if chip.hbm_usable is not None:
        assert 0.9 * chip.hbm_bytes < chip.hbm_usable <= chip.hbm_bytes
    assert 0 < chip.idle_w < chip.tdp_w
    if chip.cores and chip.clock_hz and chip.vendor == "NVIDIA" and chip.year >= 2020:
        per_cycle = chip.peak["bf16"] / (chip.cores * chip.clock_hz)
        assert min(abs(per_cycle / n - 1) for n in (1024, 2048, 4096, 8192)) < 0.05


def test_chips_follow_one_direction_and_one_die() -> None:
    die = load_chip("ascend-910c")
    assert (die.peak["bf16"], die.hbm_bytes, die.ranks) == (376e12, 64 * 2**30, 2)
    assert die.scaleup_bandwidth == pytest.approx(196e9)
    assert load_chip("ascend-950dt").scaleup_bandwidth == pytest.approx(1e12)
    assert load_chip("h100").scaleup_bandwidth == pytest.approx(450e9)
    assert load_chip("h100").scaleout_bandwidth == pytest.approx(50e9)
    assert load_chip("ascend-910b").peak["bf16"] == 354e12
    assert load_chip("ascend-910b").source_of("peak").origin == "assumed"


@pytest.mark.parametrize("name", CONTRACT)
def test_every_named_cluster_loads(name: str) -> None:
    cluster = load_cluster(name)
    assert cluster.name == name
    assert cluster.cards % cluster.host.cards == 0
    assert cluster.fabric.domain in {level.name for level in cluster.fabric.levels}
    first = cluster.fabric.levels[0]
    reach = first.child_bandwidth
    assert reach <= cluster.chip.scaleup_bandwidth * 1.15
    for key in cluster.sources:
        head = key.partition(".")[0]
        assert head in {*Cluster.__struct_fields__, "*"}, key
    for field in ("fabric.x.link", "host.dram_bytes", "storage.shared_read", "failures.card_hours"):
        source = cluster.source_of(field)
        assert source is not None
        assert source.ref


def test_shapes_of_the_machines() -> None:
    cards = {"supernode-8192": 8192, "traditional-8192": 8192, "atlas-950": 8192,
             "atlas-960": 15488, "atlas-900-a3": 768, "tpu-v5p": 8960}  # fmt: skip
    assert {name: load_cluster(name).cards for name in cards} == cards
    optical = load_cluster("supernode-8192")
    assert [level.units for level in optical.fabric.levels] == [8, 16, 64]
    module, board, spine = optical.fabric.levels
    assert optical.chip.name == "ascend-960"
    assert load_cluster("supernode-8192-910b").chip.name == "ascend-910b"
    assert spine.optics is not None
    assert spine.optics.fibres * spine.optics.channels * spine.optics.channel_rate * 8 == (
        pytest.approx(81.92e12)
    )
    assert spine.child_bandwidth * 8 == pytest.approx(81.92e12)
    assert board.child_bandwidth * 16 * 8 == pytest.approx(12.8e12)
    assert module.shape == (2, 4)
    assert any("51.2" in note for note in optical.notes)
    assert any("12.8" in note for note in optical.notes)
    a3 = load_cluster("atlas-900-a3").fabric
    assert a3.domain_cards == 768
    assert [level.planes for level in a3.levels] == [1, 7, 7]


def test_fields_can_be_changed_in_the_name() -> None:
    changed = load_cluster("traditional-8192:spine.oversubscription=4,chip=ascend-910b2")
    assert changed.fabric.levels[-1].oversubscription == 4
    assert changed.chip.name == "ascend-910b2"
    assert load_cluster("traditional-8192").fabric.levels[-1].oversubscription == 1
    assert load_cluster("supernode-8192:board.link=853.33Gb/s").fabric.levels[1].link > 100e9
    assert load_cluster("dgx-h100:host.dram_bytes=1TiB").host.dram_bytes == 2**40
    for name, field in (("dgx-h100:host.dram_bytes=1TiB", "host.dram_bytes"),
                        ("supernode-8192:board.link=1Tb/s", "fabric.board.link")):  # fmt: skip
        source = load_cluster(name).source_of(field)
        assert source is not None
        assert source.origin == "given"


def test_a_users_own_origins_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "dgx-h100"\n[host]\npower_w = 5000\nnics = 4\n'
        '[[fabric.levels]]\nname = "node"\nkind = "switch"\nshape = [8]\n'
        'link = "400 GB/s"\nlatency = "1 us"\n'
        '[sources]\n"host.power_w" = { origin = "measured", ref = "our meter" }\n'
    )
    cluster = load_cluster(path)
    found = {f: cluster.source_of(f) for f in ("host.power_w", "host.nics", "fabric.node.latency",
                                               "fabric.node.link")}  # fmt: skip
    assert {f: s.origin for f, s in found.items() if s} == {
        "host.power_w": "measured", "host.nics": "given", "fabric.node.link": "given",
        "fabric.node.latency": "given",
    }  # fmt: skip


def test_a_users_file_has_the_same_schema(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "dgx-h100"\nname = "mine"\ntitle = "Mine"\n'
        '[chip]\nbase = "h100"\nname = "h100-slow"\nhbm_bandwidth = "3.0 TB/s"\n'
        "[host]\npower_w = 5000\n"
    )
    cluster = load_cluster(path)
    assert (cluster.name, cluster.chip.name) == ("mine", "h100-slow")
    assert cluster.chip.hbm_bandwidth == 3e12
    assert cluster.chip.source_of("tdp_w").origin == "data sheet"
    assert cluster.chip.source_of("hbm_bandwidth").origin == "given"
    assert cluster.chip.source_of("hbm_bandwidth").ref == str(path)
    origins = {f: cluster.source_of(f"host.{f}") for f in ("power_w", "cards")}
    assert {f: o.origin for f, o in origins.items() if o} == {
        "power_w": "given", "cards": "data sheet"}  # fmt: skip
    assert (cluster.host.power_w, cluster.host.cards) == (5000, 8)
    again = msgspec.json.decode(msgspec.json.encode(cluster), type=Cluster)
    assert again == cluster


MISTAKES: tuple[tuple[str, str], ...] = (
    ('chip = "h100"\nname = "x"', "required field"),
    ('base = "dgx-h100"\nnmae = "x"', "unknown field `nmae`; nearest: "),
    ('base = "dgx-h100"\n[host]\ndram_bytes = "5 parsecs"', "host.dram_bytes: unknown unit"),
    ('base = "dgx-h100"\n[host]\ndram_bytes = -1', "host.dram_bytes is -1, below 0"),
    ('base = "dgx-h100"\n[host]\ndram_bytes = nan', "host.dram_bytes is nan"),
    ('base = "dgx-h100"\n[host]\ndram_bytes = inf', "host.dram_bytes is inf"),
    ('base = "dgx-h100"\n[host]\ncards = 7', "host.cards 7 does not divide"),
    ('base = "dgx-h100"\n[host]\ncards = "eight"', "host.cards"),
    ('base = "dgx-h100"\n[fabric]\ndomain = "pod"', "fabric.domain 'pod' is no level"),
    ('base = "dgx-h100"\nchip = "h1000"', "no chip 'h1000'; nearest: h100"),
    ('base = "dgx-h100"\nchip = 5', "no `chip`"),
    ('base = "no-such"', "no cluster 'no-such'"),
    ("base = 5", "`base` must name a cluster"),
    ('base = "dgx-h100"\npue = 0.5', "pue 0.5 is below 1"),
    ('base = "dgx-h100"\n[failures]\nlow = "1M"', "low <= card_hours <= high"),
    ('base = "dgx-h100"\n[[fabric.levels]]\nname = 1', "fabric"),
    ("name = ", "Invalid value"),
    ('base = "dgx-h100"\n[fabric]\nlevels = []', "fabric.levels is empty"),
    ('base = "dgx-h100"\ncabinet_cards = 1' + "0" * 400, "cabinet_cards"),
    ("x = " + "[" * 2000, "mine.toml"),
)


@pytest.mark.parametrize(("text", "says"), MISTAKES)
def test_mistakes_are_answered_with_their_place(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_cluster(path)
    assert says in str(caught.value)


def test_names_that_are_not_there() -> None:
    with pytest.raises(InputError, match="nearest: dgx-h100"):
        load_cluster("dgx-h10")
    for bad in ("", "../chips/h100", "supernode-8192:foo", "supernode-8192:board.lnk=5", "no.toml"):
        with pytest.raises(InputError):
            load_cluster(bad)
    with pytest.raises(InputError, match="nearest"):
        load_chip("h10")


def test_loading_is_not_changed_by_an_earlier_change() -> None:
    before = load_cluster("supernode-8192")
    load_cluster("supernode-8192:board.link=1GB/s")
    assert load_cluster("supernode-8192") == before


def fuzz_module() -> Any:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "fuzz_inputs.py"
    spec = importlib.util.spec_from_file_location("fuzz_inputs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_three_hundred_hostile_files_give_no_traceback() -> None:
    ends, bad = fuzz_module().run(300, seed=7)
    assert bad == []
    assert sum(ends.values()) == 300


def test_a_cluster_needs_no_file() -> None:
    raw = {
        "name": "two", "title": "Two cards", "chip": "h100",
        "fabric": {"levels": [{"name": "pair", "kind": "switch", "shape": 2, "link": "450 GB/s",
                               "latency": "1 us"}]},
        "host": {"cards": 2}, "failures": {"card_hours": "50k", "low": "30k", "high": "80k"},
    }  # fmt: skip
    cluster = cluster_of(raw, "here")
    assert cluster.cards == 2
    assert cluster.failures.card_hours == 50_000
    assert cluster.source_of("host.cards") is None
