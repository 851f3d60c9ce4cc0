from dataclasses import replace

import pytest
from toy import Toy, play

from lightloom.advise.analyse import Questions, analyse
from lightloom.advise.compare import Run, class_of, compare
from lightloom.advise.profile import RankProfile
from lightloom.core.timeline import COMM, COMPUTE
from lightloom.core.timeline_file import Span, timeline_of


def advice(toy: Toy, **ask):
    timelines, _ = play(toy)
    return analyse(profiles(timelines), Questions(**ask))


def profiles(timelines):
    return [RankProfile(rank=r, source="toy", path=str(r), timeline=t)
            for r, t in timelines.items()]  # fmt: skip


BASE = Toy(host_us=1.0, latency_us=5.0)


@pytest.mark.parametrize(
    ("toy", "code"),
    [
        (replace(BASE, bytes_=1e5), "compute-bound"),
        (replace(BASE, bytes_=4e7), "fabric-helps"),
        (replace(BASE, tensor=True, bytes_=4e7, bucket=4), "fabric-helps"),
        (replace(BASE, bytes_=1e5, slow={1: 1.5}), "stragglers-first"),
        (replace(BASE, bytes_=1e5, host_us=2000.0), "host-first"),
        (replace(BASE, tensor=True, bytes_=8e6, bandwidth=1e4, bucket=8), "strategy-first"),
    ],
)
def test_each_disease_gets_its_own_cure(toy, code):
    a = advice(toy)
    assert a.verdict.code == code
    found = {w.change: w for w in a.what_ifs}
    if code != "compute-bound":
        assert found[a.verdict.proof].saved >= 0.05
    assert a.causes or code == "compute-bound"


def test_the_straggler_is_named_with_the_next_measurement():
    a = advice(replace(BASE, bytes_=1e5, slow={1: 1.5}))
    assert a.verdict.subject == 1
    assert "rank 1" in a.verdict.text
    codes = [c.code for c in a.causes]
    assert "late-rank" in codes[:2]
    assert "slow-card" in codes[:2]
    assert all(c.next for c in a.causes)


def test_causes_come_heaviest_first():
    weights = [c.weight for c in advice(replace(BASE, slow={1: 1.3}, host_us=500)).causes]
    assert weights == sorted(weights, reverse=True)


def test_an_infinite_fabric_never_saves_less_than_a_faster_one():
    for toy in (BASE, replace(BASE, bytes_=4e7), replace(BASE, tensor=True, slow={0: 1.2})):
        found = {w.change: w.saved for w in advice(toy).what_ifs}
        assert (
            -1e-9 <= found["bandwidth=2x"] <= found["bandwidth=5x"] <= found["bandwidth=inf"] + 1e-9
        )
        assert all(-0.01 <= saved <= 1 for saved in found.values())


def test_asked_what_ifs_are_answered_beside_the_usual():
    a = advice(BASE, changes=("bandwidth=3x+skew=0",))
    assert "bandwidth=3x+skew=0" in [w.change for w in a.what_ifs]


def test_moving_to_another_machine():
    from lightloom.core.catalog import load_cluster

    timelines, _ = play(replace(BASE, bytes_=4e7, ranks=8))
    here, there = load_cluster("ethernet-8"), load_cluster("dgx-h100")
    a = analyse(profiles(timelines), Questions(cluster=here, other=there))
    moved = next(w for w in a.what_ifs if w.change == "fabric=dgx-h100")
    assert 0 < moved.saved <= next(w for w in a.what_ifs if w.change == "bandwidth=inf").saved


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("flash_fwd_kernel", COMPUTE, "attention"),
        ("sm90_xmma_gemm_bf16", COMPUTE, "matrix product"),
        ("aclnnMm_MatMulCommon_MatMulV2", COMPUTE, "matrix product"),
        ("MIOpenBatchNormFwdTrainSpatial", COMPUTE, "normalisation"),
        ("trans_TransData_3", COMPUTE, "layout"),
        ("aclnnMuls_MulAiCore_Mul", COMPUTE, "element-wise"),
        ("ncclDevKernel_ReduceScatter_Sum", COMM, "reduce-scatter"),
        ("hcom_allReduce__5_0", COMM, "all-reduce"),
    ],
)
def test_operators_of_both_stacks_fall_in_the_same_class(name, kind, said):
    assert class_of(name, kind) == said


def test_comparison_says_what_got_slower():
    def run(name, gemm, calls):
        rows = [
            Span(2000 * i, 2000 * i + gemm, 0, "s", COMPUTE, "gemm_kernel") for i in range(calls)
        ]
        rows.append(Span(2000 * calls, 2000 * calls + 100, 0, "s", COMPUTE, "softmax"))
        ranks = profiles({0: timeline_of(rows, source="x")})
        return Run(name, ranks, analyse(ranks, Questions()))

    c = compare(run("A", 1000, 10), run("B", 1900, 10))
    assert c.rows[0].name == "matrix product"
    assert c.rows[0].change_s == pytest.approx(9e-6)
    assert "1.90x as long" in c.rows[0].why
    c = compare(run("A", 1000, 10), run("B", 1000, 20))
    assert "2.00x as many calls" in c.rows[0].why
    assert "slower" in c.text
    same = compare(run("A", 1000, 10), run("B", 1000, 10))
    assert "same time" in same.text
