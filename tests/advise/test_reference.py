"""The shipped sets against HTA, torch_npu, msprof-analyze and the hand-made reference."""

import csv

import pytest
from profiles_kit import PROFILES, SETS, advice_of, ranks_of, reference

from lightloom.advise.split import split_of

FIELDS = {
    "compute_us": "compute_s", "comm_us": "comm_s", "overlap_us": "hidden_s",
    "exposed_comm_us": "exposed_s", "memcpy_us": "copy_s", "idle_us": "idle_s",
}  # fmt: skip


def splits(name):
    return {p.rank: p.split or split_of(p.timeline, p.rank) for p in ranks_of(name)}


@pytest.mark.parametrize("name", [s for s in SETS if s != "ascend_kernel_details"])
def test_every_part_is_within_a_tenth_of_a_point(name):
    mine = splits(name)
    rows = [row for row in reference(name) if "HTA" not in row["source"]]
    assert {int(row["rank"]) for row in rows} <= set(mine)
    for row in rows:
        split = mine[int(row["rank"])]
        assert abs(split.span_s * 1e6 - float(row["span_us"])) < 0.2
        for column, field in FIELDS.items():
            if row[column]:
                off = getattr(split, field) * 1e6 - float(row[column])
                assert abs(off) / float(row["span_us"]) < 0.001, (row["rank"], column, off)


@pytest.mark.parametrize("name", ["ascend_text_2rank", "ascend_db_2rank", "ascend_cluster_16rank"])
def test_ascend_is_within_a_microsecond_of_its_own_tables(name):
    mine = splits(name)
    rows = [r for r in reference(name) if "torch_npu" in r["source"] or "msprof" in r["source"]]
    assert rows
    for row in rows:
        for column, field in FIELDS.items():
            if row[column] and column != "memcpy_us":
                assert getattr(mine[int(row["rank"])], field) * 1e6 == pytest.approx(
                    float(row[column]), abs=1.0
                )


def test_complete_hta_runs_agree():
    for name in ("kineto_dlrm_8rank", "kineto_hta_2of128"):
        mine = splits(name)
        for row in reference(name):
            if "include_last" in row["source"]:
                s = mine[int(row["rank"])]
                assert 100 * s.compute_s / s.span_s == pytest.approx(
                    float(row["compute_pct"]), abs=0.1
                )
                assert 100 * s.idle_s / s.span_s == pytest.approx(float(row["idle_pct"]), abs=0.1)


def test_waiting_against_transfer_of_every_dlrm_collective():
    found = {(c.name, c.index): c for c in advice_of("kineto_dlrm_8rank").collectives}
    with (PROFILES / "reference_sync.csv").open() as stream:
        rows = [r for r in csv.DictReader(stream) if r["dataset"] == "kineto_dlrm_8rank"]
    seen: dict[str, int] = {}
    for row in rows:
        index = seen.get(row["name"], 0)
        seen[row["name"]] = index + 1
        c = found[row["name"], index]
        assert c.start_skew_s * 1e6 == pytest.approx(float(row["start_skew_us"]), abs=0.5)
        assert c.end_skew_s * 1e6 == pytest.approx(float(row["end_skew_us"]), abs=0.5)
        assert c.mean_s * 1e6 == pytest.approx(float(row["mean_kernel_us"]), abs=0.5)
        assert c.transfer_s * 1e6 == pytest.approx(
            float(row["last_end_minus_last_start_us"]), abs=0.5
        )
        assert c.last_rank == int(row["last_rank_to_start"])


def test_transfer_shares():
    dlrm = advice_of("kineto_dlrm_8rank")
    assert dlrm.sync.transfer_share == pytest.approx(0.037, abs=0.005)
    assert dlrm.clocks.state == "verified"
    assert dlrm.clocks.worst_end_skew_s < 8e-6
    assert dlrm.sync.late_rank == 7
    assert dlrm.sync.last[7] == 5
    ascend = advice_of("ascend_text_2rank").sync
    assert ascend.how == "library"
    assert ascend.by_rank[0] == pytest.approx(0.035, abs=0.005)
    assert ascend.by_rank[1] == pytest.approx(0.038, abs=0.005)


def test_the_share_rule_is_contradicted_where_it_is_wrong():
    for name, rule in (("kineto_dlrm_8rank", "buy"), ("ascend_text_2rank", "buy")):
        v = advice_of(name).verdict
        assert rule in v.naive
        assert v.naive_share > 0.30
        assert v.transfer_exposed < 0.03
        assert v.code == "stragglers-first"


def test_a_lone_rank_gets_bounds():
    a = advice_of("kineto_mi300_resnet_ac")
    assert a.sync.how == "bounds"
    assert a.sync.transfer_share is None
    assert 0 < a.sync.high < 1
    assert a.verdict.code == "not-enough-data"
    assert any("one rank alone" in note for note in a.notes)


def test_sampled_ranks_are_refused_not_guessed():
    a = advice_of("kineto_hta_2of128")
    assert a.clocks.state == "refused"
    assert a.sync.how == "durations"


def test_text_database_and_tables_of_one_model_agree():
    text, base = splits("ascend_text_2rank")[0], splits("ascend_db_2rank")[0]
    assert base.compute_s == pytest.approx(text.compute_s, rel=0.02)
    assert advice_of("ascend_db_2rank").sync.transfer_share == pytest.approx(0.04, abs=0.005)
