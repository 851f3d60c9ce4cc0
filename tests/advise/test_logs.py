from pathlib import Path

import pytest

from lightloom.advise.logs import read_logs
from lightloom.core.errors import InputError

WATCHDOG = (
    "[rank{r}]:[E321 02:07:{s:02}.408271257 ProcessGroupNCCL.cpp:607] [Rank {r}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum={n}, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, "
    "Timeout(ms)=600000) ran for 600060 milliseconds before timing out.\n"
    "[rank{r}]:[E321 02:07:{s:02}.465150152 ProcessGroupNCCL.cpp:1664] [PG 1 Rank {r}] Exception "
    "(either an error or timeout) detected by watchdog at work: {n}, last enqueued NCCL work: {q}, "
    "last completed NCCL work: {c}.\n"
)
NOTIFY = (
    "[ERROR] 2025-10-11-15:09:{s:02} (PID:2969, Device:0, RankID:{r}) ERR00100 PTA call acl api "
    "failed.\nEI0002: [PID: 2969] 2025-10-11-15:09:{s:02}.713.335 The wait execution of the Notify "
    "register times out. Reason: The Notify register has not received the Notify record from "
    "remote rank: [{to}]. base information: [streamID:[109], taskID[38], "
    "tag[AllReduce_group_1654], AlgType(level 0-1-2):[ring-NHR-NHR].]. group information: "
    "[group:[group_1654], rankSize[8], rankId[{r}]]\n"
)
SOCKET = (
    "[rank{r}]: [ERROR] 2025-04-08-18:07:{s:02} (PID:12, Device:1, RankID:{r}) ERR01100 OPS call "
    "acl api failed.\n[rank{r}]: EI0006: [PID: 12] 2025-04-08-18:07:{s:02}.444.436 Getting socket "
    "times out. Reason: Remote Rank did not send the data in time.\n"
)


def logs(tmp_path: Path, **texts: str):
    paths = []
    for name, text in texts.items():
        paths.append(tmp_path / f"{name}.log")
        paths[-1].write_text(text)
    return read_logs(paths)


def test_the_rank_that_never_enqueued_stopped_first(tmp_path):
    text = "".join(WATCHDOG.format(r=r, s=r, n=1580, q=1582, c=1579) for r in (0, 1, 3))
    text += WATCHDOG.format(r=2, s=9, n=1579, q=1579, c=1579)
    stop = logs(tmp_path, job=text)
    assert stop.first == (2,)
    assert stop.confidence >= 0.8
    assert "collective 1579" in stop.why
    assert stop.operation.startswith("ALLREDUCE")


def test_a_silent_rank_is_named_when_all_others_waited(tmp_path):
    parts = {f"rank{r}": WATCHDOG.format(r=r, s=r, n=15, q=17, c=14) for r in range(8) if r != 5}
    stop = logs(tmp_path, rank5="2025-03-21 01:57:00 step 14 loss 2.1\n", **parts)
    assert stop.first == (5,)
    assert any("py-spy" in cause.next for cause in stop.causes)


def test_an_own_fault_before_the_time_outs_wins(tmp_path):
    early = "[rank3]: 2025-03-21 01:57:09,1 torch.OutOfMemoryError: CUDA out of memory. Tried\n"
    parts = {f"rank{r}": NOTIFY.format(r=r, s=30 + r, to=(r + 1) % 8) for r in range(8) if r != 3}
    stop = logs(tmp_path, rank3=early, **parts)
    assert stop.first == (3,)
    assert stop.confidence > 0.9
    assert stop.causes[0].code == "out-of-memory"


def test_hccl_chains_lead_to_the_one_who_stopped(tmp_path):
    waits = {0: 1, 1: 2, 2: 3, 4: 3, 5: 4, 6: 5, 7: 6}
    stop = logs(tmp_path, **{f"rank{r}": NOTIFY.format(r=r, s=r, to=to) for r, to in waits.items()})
    assert stop.first == (3,)
    assert {c.code for c in stop.causes} >= {"stopped", "notify-timeout"}


def test_socket_time_outs_point_at_the_rank_without_one(tmp_path):
    parts = {f"rank{r}": SOCKET.format(r=r, s=r) for r in range(4) if r != 1}
    stop = logs(tmp_path, rank1="[rank1]: loading weights\n", **parts)
    assert stop.first == (1,)
    assert any("HCCL_CONNECT_TIMEOUT" in c.next for c in stop.causes)


def test_everybody_timed_out_alike_is_not_guessed(tmp_path):
    text = "".join(WATCHDOG.format(r=r, s=0, n=15, q=17, c=14) for r in range(4))
    stop = logs(tmp_path, job=text)
    assert stop.first == ()
    assert stop.confidence < 0.5
    assert "link or switch" in stop.why


def test_no_rank_is_an_answer(tmp_path):
    with pytest.raises(InputError, match="no rank"):
        logs(tmp_path, job="NCCL INFO nothing here\n")
