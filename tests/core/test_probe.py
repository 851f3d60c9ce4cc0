"""Probe: what tools print becomes a cluster file that loads; what is missing is named."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from lightloom.cli.catalog import catalog
from lightloom.core.catalog import load_cluster
from lightloom.core.cluster import Cluster
from lightloom.core.errors import InputError, LightloomError
from lightloom.core.probe.describe import Description, describe
from lightloom.core.probe.facts import Facts, read_facts

DATA = Path(__file__).resolve().parents[1] / "data" / "probe"
SAMPLES = sorted(p.name for p in DATA.iterdir() if p.name != "cpu_only.txt")


def facts(*names: str) -> Facts:
    return read_facts("\n".join((DATA / name).read_text() for name in names))


def loaded(told: Description, tmp_path: Path) -> Cluster:
    path = tmp_path / "my.toml"
    path.write_text(told.toml)
    return load_cluster(path)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("hosts", [1, 16])
def test_every_sample_becomes_a_file_that_loads(name: str, hosts: int, tmp_path: Path) -> None:
    found = facts(name)
    told = describe(found, hosts=hosts)
    cluster = loaded(told, tmp_path)
    assert cluster.host.cards == len(found.cards) > 0
    assert cluster.cards == hosts * len(found.cards)
    assert told.missing
    assert all(f"# missing: {text}" in told.toml for text in told.missing)
    source = cluster.source_of("host.cards")
    assert source is not None
    assert source.origin == "measured"
    for text in told.missing:
        for field in ("host.pcie_bandwidth", "host.nic_bandwidth", "host.dram_bytes", "storage"):
            if text.startswith(field):
                told_by = cluster.source_of(field)
                assert told_by is not None
                assert told_by.origin == "assumed"


def test_a_dgx_h100_is_recognised_as_such(tmp_path: Path) -> None:
    found = facts("h100.txt")
    assert set(found.seen) == {"nvidia-smi", "nvidia-smi topo -m", "lscpu", "numactl -H", "ibstat",
                               "lldpctl"}  # fmt: skip
    cluster = loaded(describe(found, hosts=4), tmp_path)
    reference = load_cluster("dgx-h100")
    assert cluster.chip == reference.chip
    node, network = cluster.fabric.levels
    ours = reference.fabric.levels[0]
    assert (node.kind, node.links, node.link, node.reduces) == (
        ours.kind, ours.links, ours.link, ours.reduces)  # fmt: skip
    assert network.child_bandwidth == pytest.approx(8 * 50e9)
    host = cluster.host
    assert (host.sockets, host.cores, host.numa, host.nics) == (2, 112, 2, 8)
    assert host.dram_bytes == pytest.approx(2 * 1031785 * 2**20)
    assert cluster.notes == (
        "port eth0 is wired to leaf-3 Eth1/12",
        "port eth1 is wired to leaf-4 Eth1/12",
    )


def test_direct_links_pairs_and_partial_meshes(tmp_path: Path) -> None:
    four = loaded(describe(facts("a100_pairs.txt")), tmp_path)
    level = four.fabric.levels[0]
    assert (four.chip.name, level.kind, level.links, level.child_bandwidth) == (
        "a100-40g", "full-mesh", 4, 300e9)  # fmt: skip
    pair = loaded(describe(facts("h100nvl_q.txt")), tmp_path)
    assert pair.fabric.levels[0].child_bandwidth == pytest.approx(300e9)
    assert (pair.chip.tdp_w, pair.chip.peak["bf16"]) == (310, 835.5e12)
    assert (pair.host.cpu, pair.host.cores) == ("AMD EPYC 9554 64-Core Processor", 128)
    assert pair.host.pcie_bandwidth == pytest.approx(50.4e9)
    told = describe(facts("v100.txt"))
    assert any("partial mesh" in text for text in told.missing)
    assert loaded(told, tmp_path).host.nic_bandwidth == 12.5e9


def test_ascend(tmp_path: Path) -> None:
    told = describe(facts("atlas_a2.txt"))
    cluster = loaded(told, tmp_path)
    level = cluster.fabric.levels[0]
    assert cluster.chip.name == "ascend-910b3"
    assert (level.kind, level.link) == ("full-mesh", pytest.approx(28e9))
    assert (cluster.host.nics, cluster.host.nic_bandwidth) == (7, 25e9)
    assert told.problems == ("port npu5: link is down",)
    assert cluster.host.numa == 8
    dies = loaded(describe(facts("atlas_a3.txt")), tmp_path)
    reference = load_cluster("atlas-900-a3")
    assert (dies.chip.name, dies.cards) == ("ascend-910c", 16)
    for ours, theirs in zip(dies.fabric.levels, reference.fabric.levels[:2], strict=True):
        assert ours.units == theirs.units
        assert ours.child_bandwidth == pytest.approx(theirs.child_bandwidth)


def test_a_card_that_the_catalogue_does_not_know_says_who_stands_in(tmp_path: Path) -> None:
    told = describe(facts("rtx.txt"))
    cluster = loaded(told, tmp_path)
    assert any("RTX 4090' is not in the catalogue" in text for text in told.missing)
    assert cluster.chip.source_of("peak").origin == "assumed"
    assert cluster.chip.hbm_usable == 24564 * 2**20
    assert cluster.chip.tdp_w == 450
    assert cluster.fabric.levels[0].tier == "pcie"
    assert (cluster.host.nics, cluster.host.nic_bandwidth) == (1, 25e9 / 8)


def test_other_tools(tmp_path: Path) -> None:
    by_bus = loaded(describe(facts("lspci.txt")), tmp_path)
    assert (by_bus.chip.name, by_bus.cards, by_bus.host.nics) == ("h100", 2, 1)
    assert by_bus.host.pcie_bandwidth == pytest.approx(50.4e9)
    amd = loaded(describe(facts("mi300x.txt")), tmp_path)
    assert (amd.chip.name, amd.fabric.levels[0].link) == ("mi300x", pytest.approx(64e9))
    listed = loaded(describe(facts("query.csv")), tmp_path)
    assert (listed.chip.name, listed.cards) == ("h200", 8)


def test_several_files_are_one_host() -> None:
    split = facts("query.csv", "cpu_only.txt")
    assert (len(split.cards), split.cores, split.sockets) == (8, 64, 2)
    twice = facts("h100.txt", "h100.txt")
    assert len(twice.cards) == 8


def test_no_accelerator_is_answered() -> None:
    with pytest.raises(InputError) as caught:
        describe(facts("cpu_only.txt"))
    assert "lscpu" in str(caught.value)
    assert "npu-smi" in str(caught.value)


def test_cut_and_damaged_output_gives_no_traceback(tmp_path: Path) -> None:
    rng = random.Random(3)
    texts = [(DATA / name).read_text() for name in SAMPLES]
    for i in range(400):
        text = list(rng.choice(texts))
        for _ in range(rng.randrange(1, 30)):
            at = rng.randrange(len(text))
            if rng.random() < 0.5:
                del text[at : at + rng.randrange(1, 80)]
            else:
                text[at:at] = rng.choice(("\n", "|", "9" * 40, "NV", "\x00", "é", "X", '"', "\\"))
            text = text or ["x"]
        try:
            told = describe(read_facts("".join(text)), hosts=1 + i % 3)
        except LightloomError:
            continue
        try:
            loaded(told, tmp_path)
        except LightloomError as error:
            pytest.fail(f"{error}\n{told.toml}")


def test_the_command_line(tmp_path: Path) -> None:
    out = tmp_path / "my.toml"
    run = CliRunner().invoke(
        catalog, ["probe", "-o", str(out), "--from", str(DATA / "h100.txt"), "--hosts", "2"]
    )
    assert run.exit_code == 0, run.output
    assert "missing: storage" in run.output
    assert load_cluster(out).cards == 16
    shown = CliRunner().invoke(catalog, ["clusters", str(out), "--json"])
    assert json.loads(shown.output)["fabric"]["levels"][0]["links"] == 18
    as_json = CliRunner().invoke(catalog, ["probe", "--from", str(DATA / "rtx.txt"), "--json"])
    assert json.loads(as_json.output)["chip"]
    for args in ([], ["chips"], ["chips", "h100"], ["clusters"], ["clusters", "supernode-8192"],
                 ["models"], ["models", "glm-5.2"], ["models", "70B"], ["prices"]):  # fmt: skip
        for extra in ([], ["--json"]):
            run = CliRunner().invoke(catalog, [*args, *extra])
            assert run.exit_code == 0, run.output
            if extra:
                json.loads(run.output)
    lost = CliRunner().invoke(catalog, ["supernode-8192"])
    assert (lost.exit_code, "catalog clusters supernode-8192" in lost.output) == (2, True)
    assert "nearest: models" in CliRunner().invoke(catalog, ["modles"]).output
    text = CliRunner().invoke(catalog, ["clusters", "supernode-8192"]).output
    assert "51.2" in text
    assert "assumed, low" in text
