"""Damaged profiles of every kind: the reader may complain, it may never break.

`python tests/advise/mutations.py 10000 [first seed]` runs more of them than the tests do.
"""

import gzip
import json
import random
import re
import sqlite3
import sys
import tempfile
from pathlib import Path

from lightloom.advise.analyse import Questions, analyse
from lightloom.advise.logs import read_logs
from lightloom.advise.read import find, load
from lightloom.core.errors import LightloomError
from lightloom.core.timeline import COMM, COMPUTE
from lightloom.core.timeline_file import Span, encode_timeline, timeline_of

LOG = """[rank0]:[E321 02:07:08.408 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=15, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, \
Timeout(ms)=600000) ran for 600060 milliseconds before timing out.
[rank1]:[E321 02:07:09.1 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 1] Timeout at NCCL work: 15, last \
enqueued NCCL work: 14, last completed NCCL work: 14.
EI0002: [PID: 2969] 2025-10-11-15:09:34.713.335 The wait execution of the Notify register times \
out. remote rank: [1]. tag[AllReduce_x], rankSize[2], rankId[0]
"""
WORDS = (b"null", b"-1", b"1e999", b"123456789012345678901234567890", b'""', b"[]", b"{}", b"NaN",
         b"\x00", b"\xff\xfe", b"\x01", b"}, {", b"]", b'"traceEvents"', b"true", b"\n", b"N/A",
         b"-9223372036854775808", b"9223372036854775807")  # fmt: skip


def kineto(rank: int) -> bytes:
    events = [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1, "ts": 0,
         "dur": 900, "args": {}},
    ]  # fmt: skip
    for i in range(12):
        events.append({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7,
                       "ts": 10 + 60 * i + rank, "dur": 30.5, "args": {"stream": 7}})  # fmt: skip
        events.append({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0,
                       "tid": 8, "ts": 45 + 60 * i + rank, "dur": 20.0 - rank,
                       "args": {"In msg nelems": 1024, "dtype": "Float",
                                "Process Group Ranks": "[0, 1]"}})  # fmt: skip
    head = {"distributedInfo": {"rank": rank, "world_size": 2}, "baseTimeNanoseconds": 10**18}
    return json.dumps(head | {"traceEvents": events}, indent=rank or None).encode()


def ascend() -> bytes:
    rows = [{"ph": "M", "name": "process_name", "pid": 5, "tid": 0, "args": {"name": n}}
            for n in ("Ascend Hardware",)]  # fmt: skip
    rows.append({"ph": "M", "name": "process_name", "pid": 6, "tid": 0, "args": {"name": "HCCL"}})
    for i in range(9):
        rows.append({"ph": "X", "name": "MatMul", "pid": 5, "tid": 2,
                     "ts": f"17364088837046{i}3.21", "dur": 5.5,
                     "args": {"Task Type": "AI_CORE"}})  # fmt: skip
        rows.append({"ph": "X", "name": f"hcom_allReduce__5_{i}_1", "pid": 6, "tid": 0,
                     "ts": f"17364088837046{i}9.21", "dur": 2.5,
                     "args": {"data_type": "FP32", "count": 4096}})  # fmt: skip
    return json.dumps(rows).encode()


def tables() -> dict[str, bytes]:
    kernels = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Stream ID\n"
    kernels += "".join(f"1,k{i},MatMul,AI_CORE,{100 + 9 * i}.5\t,3.25,2\n" for i in range(9))
    kernels += "1,hcom_allReduce__5_0,x,HCCL,200.5,44.1,N/A\n"
    steps = ("Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage\n"
             "1,10.5,20.25,3.0,23.25,7.0,40.0\n2,10.5,20.25,3.0,23.25,7.0,40.0\n")  # fmt: skip
    ruler = "-" * 24 + "  " + "  ".join(["-" * 12] * 4)
    head = (
        f"{'Name':>24}  {'Self CPU':>12}  {'CPU total':>12}  {'Self CUDA':>12}  {'# of Calls':>12}"
    )
    row = f"{'aten::mm':>24}  {'1.2ms':>12}  {'1.2ms':>12}  {'5.250ms':>12}  {'3':>12}"
    return {
        "kernel_details.csv": kernels.encode(),
        "step_trace_time.csv": steps.encode(),
        "table.txt": "\n".join([ruler, head, ruler, row, ruler]).encode(),
    }


def nsight() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.sqlite"
        base = sqlite3.connect(path)
        base.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        base.executemany("INSERT INTO StringIds VALUES (?, ?)",
                         [(1, "gemm"), (2, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")])  # fmt: skip
        base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, "
                     "deviceId INTEGER, streamId INTEGER, globalPid INTEGER, demangledName "
                     "INTEGER, shortName INTEGER)")  # fmt: skip
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, "
            "deviceId INTEGER, streamId INTEGER, globalPid INTEGER, bytes INTEGER)"
        )
        base.execute("CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT, "
                     "textId INTEGER)")  # fmt: skip
        for device in (0, 1):
            for i in range(6):
                at = 1000 * i + 10 * device
                row = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?)"
                base.execute(row, (at, at + 400, device, 7, 99, 1, 1))
                base.execute(row, (at + 450, at + 700 - 10 * device, device, 8, 99, 2, 2))
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?)",
                         (6000, 6100, device, 9, 99, 64))  # fmt: skip
        base.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?)",
                         [(0, 2990, "step 1", None), (3000, 6200, "step 2", None)])  # fmt: skip
        base.commit()
        base.close()
        return path.read_bytes()


def own_timeline() -> bytes:
    rows = [Span(100 * i + 3 * r, 100 * i + 60, r, "s", COMPUTE, "f", step=i // 3)
            for i in range(9) for r in (0, 1)]  # fmt: skip
    rows += [Span(100 * i + 60 + r, 100 * i + 90, r, "c", COMM, "all-reduce", 4096, "dp:0,1", i,
                  i // 3) for i in range(9) for r in (0, 1)]  # fmt: skip
    return encode_timeline(timeline_of(rows, source="run", meta={"world_size": "2"}))


SEEDS = {"rank0.json": kineto(0), "rank1.json": kineto(1), "trace_view.json": ascend(),
         "report.sqlite": nsight(), "timeline.json": own_timeline(), "job.log": LOG.encode(),
         **tables()}  # fmt: skip


def mutate(data: bytes, r: random.Random) -> bytes:
    """Return `data` with one to four injuries."""
    for _ in range(r.randint(1, 4)):
        if not data:
            break
        at, size = r.randrange(len(data)), r.choice((1, 1, 4, 16, 200))
        match r.randrange(8):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + data[at + size :]
            case 2:
                data = data[:at] + data[at : at + size] + data[at:]
            case 3:
                data = data[:at] + r.randbytes(size) + data[at + size :]
            case 4:
                data = data[:at] + r.choice(WORDS) + data[at:]
            case 5:
                numbers = list(re.finditer(rb"-?\d+\.?\d*", data))
                if numbers:
                    m = r.choice(numbers)
                    data = data[: m.start()] + r.choice(WORDS) + data[m.end() :]
            case 6:
                words = list(re.finditer(rb'"[^"]{0,30}"', data))
                if words:
                    m = r.choice(words)
                    data = data[: m.start()] + r.choice(WORDS) + data[m.end() :]
            case _:
                data = gzip.compress(data)[: -r.choice((0, 0, 1, 9))] if r.random() < 0.3 else data
    return data


def attack(seed: int, folder: Path) -> str:
    """Read one damaged set; returns what came of it: read, refused."""
    r = random.Random(seed)
    names = r.choice([["rank0.json", "rank1.json"], *([n] for n in SEEDS)])
    for old in folder.iterdir():
        old.unlink()
    for name in names:
        (folder / name).write_bytes(mutate(SEEDS[name], r) if r.random() < 0.9 else SEEDS[name])
    try:
        whole = len(names) > 1 and r.random() < 0.5
        sources = find([folder] if whole else [folder / n for n in names])
        stop = read_logs(sources.logs) if sources.logs else None
        if sources.profiles:
            from lightloom.core.files import encode_json
            from lightloom.show.advise_report import report

            advice = analyse(load(sources), Questions(changes=("bandwidth=3x+skew=0",)), stop)
            encode_json(advice)
            report(advice)
    except LightloomError:
        return "refused"
    return "read"


def main(count: int, first: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        outcome: dict[str, int] = {}
        for seed in range(first, first + count):
            try:
                result = attack(seed, Path(name))
            except Exception:
                print("seed", seed)
                raise
            outcome[result] = outcome.get(result, 0) + 1
    print(count, "damaged profiles:", outcome)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
