import gzip
import json
import shutil
from pathlib import Path

import mutations
import pytest
from profiles_kit import PROFILES, kernel, trace

from lightloom.advise.analyse import Questions, analyse, timeline_of_job
from lightloom.advise.read import find, load
from lightloom.advise.split import split_of
from lightloom.core.errors import InputError
from lightloom.core.timeline import COMM, COMPUTE, IDLE
from lightloom.core.timeline_file import Span, read_timeline, timeline_of, write_timeline

ALL = ["ncclDevKernel_AllReduce_Sum", "gemm"]


def pair(tmp_path: Path, **keys) -> list[Path]:
    out = []
    for r in (0, 1):
        events = []
        for i in range(4):
            events += [kernel("gemm", 100 * i + 10 * r, 50), kernel(ALL[0], 100 * i + 60, 30, 8)]
        out.append(trace(tmp_path / f"r{r}.json", events, r, **keys))
    return out


def test_nsight_schema_as_published(tmp_path):
    path = tmp_path / "report.sqlite"
    path.write_bytes(mutations.nsight())
    ranks = load(find([path]))
    assert [p.rank for p in ranks] == [0, 1]
    assert [n for n, _, _ in ranks[0].steps] == [1, 2]
    s = split_of(ranks[0].timeline, 0)
    assert s.compute_s == pytest.approx(6 * 400e-9)
    assert s.comm_s == pytest.approx(6 * 250e-9)
    assert s.copy_s == pytest.approx(100e-9)
    assert analyse(ranks, Questions()).sync.how == "matched"


def test_a_packed_database_reads_the_same(tmp_path):
    (tmp_path / "report.sqlite").write_bytes(mutations.nsight())
    (tmp_path / "report.db.gz").write_bytes(gzip.compress(mutations.nsight()))
    with pytest.raises(InputError, match="appears twice"):
        load(find([tmp_path]))
    packed = analyse(load(find([tmp_path / "report.db.gz"])), Questions())
    assert packed.splits == analyse(load(find([tmp_path / "report.sqlite"])), Questions()).splits


def test_profiler_tables(tmp_path):
    (tmp_path / "table.txt").write_bytes(mutations.tables()["table.txt"])
    ranks = load(find([tmp_path / "table.txt"]))
    assert ranks[0].split.compute_s == pytest.approx(5.25e-3)
    stats = tmp_path / "cuda_gpu_kern_sum.csv"
    stats.write_text("Time (%),Total Time (ns),Instances,Name\n60,6000,2,gemm\n40,4000,1,"
                     "ncclDevKernel_AllReduce\n")  # fmt: skip
    split = load(find([stats]))[0].split
    assert (split.compute_s, split.comm_s) == (pytest.approx(6e-6), pytest.approx(4e-6))
    ops = PROFILES / "ascend_text_2rank/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/op_statistic.csv"
    assert load(find([ops]))[0].split.compute_s == pytest.approx(8873.8e-6, rel=0.03)


def test_kernel_details_and_step_trace_alone(tmp_path):
    folder = PROFILES / "ascend_text_2rank/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"
    mine = tmp_path / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    mine.mkdir(parents=True)
    for name in ("kernel_details.csv.gz", "step_trace_time.csv", "communication.json"):
        shutil.copy(folder / name, mine / name)
    ranks = load(find([mine.parent]))
    split = split_of(ranks[0].timeline, 0)
    assert split.compute_s * 1e6 == pytest.approx(8873.8, abs=1)
    assert split.exposed_s * 1e6 == pytest.approx(101963.2, abs=1)
    assert analyse(ranks, Questions()).sync.transfer_share == pytest.approx(0.035, abs=0.005)
    (mine / "kernel_details.csv.gz").unlink()
    ranks = load(find([mine.parent]))
    assert ranks[0].split.idle_s * 1e6 == pytest.approx(25744.05, abs=0.1)


def test_own_timeline_round_trip(tmp_path):
    ranks = load(find([PROFILES / "kineto_dlrm_8rank"]))
    write_timeline(tmp_path / "job.json.gz", timeline_of_job(ranks))
    again = load(find([tmp_path / "job.json.gz"]))
    a, b = analyse(ranks, Questions()), analyse(again, Questions())
    assert a.splits == b.splits
    assert b.sync.transfer_share == pytest.approx(a.sync.transfer_share)
    assert b.sync.last == a.sync.last
    assert len(set(read_timeline(tmp_path / "job.json.gz").match_N.tolist())) == 9


def test_two_processes_read_the_same_as_one(tmp_path, monkeypatch):
    paths = pair(tmp_path)
    one = analyse(load(find(paths)), Questions())
    monkeypatch.setattr("lightloom.advise.read.BIG", 0)
    said = []
    two = analyse(load(find(paths), said.append), Questions())
    assert two == one
    assert said[-1] == "read 2 of 2 profiles"


def test_ranks_of_two_jobs_are_refused(tmp_path):
    a = trace(tmp_path / "a.json", [kernel("k", 0, 1)], 0, world=2)
    b = trace(tmp_path / "b.json", [kernel("k", 0, 1)], 1, world=128)
    with pytest.raises(InputError, match="different jobs: worlds of 2, 128"):
        load(find([a, b]))
    c = trace(tmp_path / "c.json", [kernel("k", 0, 1)], 0, world=2)
    with pytest.raises(InputError, match="rank 0 appears twice"):
        load(find([a, c]))


def test_ranks_without_numbers_are_counted(tmp_path):
    for name in ("x.json", "y.json"):
        trace(tmp_path / name, [kernel("k", 0, 1)], None)
    assert [p.rank for p in load(find([tmp_path]))] == [0, 1]
    trace(tmp_path / "rank-7.json", [kernel("k", 0, 1)], None)
    assert {p.rank for p in load(find([tmp_path / "rank-7.json"]))} == {7}


def test_steps_are_chosen_and_named(tmp_path):
    events = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 1, "tid": 1,
         "ts": 100 * n, "dur": 100} for n in (1, 2, 3, 9)
    ]  # fmt: skip
    events += [kernel("gemm", 100 * n + 10, 10 * n) for n in (1, 2, 3)]
    path = trace(tmp_path / "t.json", events, world=1)
    a = analyse(load(find([path])), Questions())
    assert a.steps_kept == (1, 2, 3)
    assert a.steps_dropped == (9,)
    some = analyse(load(find([path])), Questions(steps=(2, 3)))
    assert some.steps_kept == (2, 3)
    assert some.splits[0].compute_s == pytest.approx(50e-6)
    with pytest.raises(InputError, match=r"hold 1\.\.3"):
        analyse(load(find([path])), Questions(steps=(7, 8)))


def test_processor_only_traces_count_operators(tmp_path):
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 50},
        {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": 1, "tid": 2,
         "ts": 40, "dur": 30, "args": {"Input Dims": [[1024]], "Input type": ["float"]}},
    ]  # fmt: skip
    a = analyse(load(find([trace(tmp_path / "t.json", events, world=1)])), Questions())
    assert a.format == "kineto-cpu"
    assert a.splits[0].compute_s == pytest.approx(50e-6)
    assert a.splits[0].exposed_s == pytest.approx(20e-6)
    assert any("operators of the processor" in note for note in a.notes)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.json", "", "empty"),
        ("a.json", "{}", "not a trace"),
        ("a.json", '{"traceEvents": []}', "no work"),
        ("a.json", '{"version": 1, "kind": "plan"}', "is a lightloom plan"),
        ("a.csv", "x,y\n1,2\n", "not a profile that can be read"),
        ("step_trace_time.csv", "Step,Computing\n", "no step"),
        ("kernel_details.csv", "Name,Start Time(us),Duration(us)\n", "no kernel"),
        ("communication.json", '{"step1": {}}', "part of a profile"),
    ],
)
def test_bad_input_is_answered(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=says):
        analyse(load(find([tmp_path / name])), Questions())


def test_missing_and_empty_folders(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        find([tmp_path / "no"])
    with pytest.raises(InputError, match="no profile"):
        find([tmp_path])
    (tmp_path / "package.json").write_text(json.dumps({"name": "x"}))
    with pytest.raises(InputError, match="no profile"):
        find([tmp_path])
    with pytest.raises(InputError, match="not a trace"):
        load(find([tmp_path / "package.json"]))


def test_300_damaged_profiles(tmp_path):
    outcomes = [mutations.attack(seed, tmp_path) for seed in range(300)]
    assert outcomes.count("read") > 50
    assert outcomes.count("refused") > 50


def test_the_wait_that_a_run_records_belongs_to_its_collective(tmp_path):
    rows = []
    for step in range(4):
        for r, work in ((0, 50), (1, 80)):
            at = 200 * step * 1000
            rows += [
                Span(
                    at, at + work * 1000, r, "compute", COMPUTE, "forward and backward", step=step
                ),
                Span(at + work * 1000, at + 81_000, r, "compute", IDLE, "wait for the others"),
                Span(at + 81_000, at + 120_000, r, "gradient", COMM, "reduce", 0, "dp", step, step),
            ]
    write_timeline(tmp_path / "timeline.json.gz", timeline_of(rows, source="run"))
    a = analyse(load(find([tmp_path])), Questions())
    assert a.clocks.state == "verified"
    assert a.sync.late_rank == 1
    assert a.sync.transfer_share == pytest.approx(40 / 55, rel=0.01)
