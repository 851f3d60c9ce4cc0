"""The pieces of a run that need no processes: data position, wire, guards, reduction, checks."""

from __future__ import annotations

import math
import socket
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as hs
from torch.utils.data import DataLoader

from lightloom.core.errors import InputError, RunError
from lightloom.recover import messages as m
from lightloom.run import arena, checks, data, guard, wire

pytestmark = pytest.mark.torch


def test_a_shuffled_loader_gives_every_sample_once_per_epoch_whoever_reads() -> None:
    loader = DataLoader(torch.arange(40), batch_size=4, shuffle=True)
    readers = [data.Source(loader, 3) for _ in range(3)]
    first = torch.cat([readers[i % 3].get(i) for i in range(10)])
    second = torch.cat([readers[i % 2].get(i) for i in range(10, 20)])
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(40))
    assert first.tolist() != second.tolist()
    assert torch.equal(readers[0].get(7), readers[2].get(7))


def test_streams_lists_and_functions_are_read_by_position() -> None:
    stream = data.Source(iter(range(100, 200)), 0)
    assert [stream.get(i) for i in (0, 1, 5, 3)] == [100, 101, 105, 103]
    with pytest.raises(InputError, match="the data ended at micro-batch 100"):
        stream.get(100)
    assert data.Source([1, 2, 3], 0).get(4) == 2
    with pytest.raises(InputError, match="cannot read a int"):
        data.Source(5, 0)


def test_each_micro_batch_has_its_own_random_stream() -> None:
    seeds = {data.mix(s, i) for s in range(20) for i in range(500)}
    assert len(seeds) == 10_000 and all(0 <= x < 2**63 for x in seeds)


def handshake(a: bytes, b: bytes) -> tuple[wire.Peer, wire.Peer]:
    door = socket.create_server(("127.0.0.1", 0))
    left, right = socket.create_connection(door.getsockname()), door.accept()[0]
    door.close()
    x, y = wire.Peer(left, 1, a), wire.Peer(right, 2, b)
    for _ in range(200):
        time.sleep(0.001)
        for peer in (x, y):
            if peer.open and not peer.proved:
                peer.read()
    return x, y


def test_agents_with_the_same_token_trust_one_another_and_others_are_cut_off() -> None:
    x, y = handshake(b"secret", b"secret")
    assert x.proved and y.proved and (x.agent, y.agent) == (2, 1)
    x.send(m.Refuse(3, 4))
    frames: list[object] = []
    while not frames:
        frames = y.read()
    assert frames == [m.Refuse(3, 4)]
    for peer in (x, y):
        peer.sock.close()
    x, y = handshake(b"secret", b"guess")
    assert not x.proved and not y.proved and not (x.open and y.open)
    for peer in (x, y):
        peer.sock.close()


def test_garbage_closes_a_connection_before_it_is_trusted() -> None:
    door = socket.create_server(("127.0.0.1", 0))
    sender, receiver = socket.create_connection(door.getsockname()), door.accept()[0]
    door.close()
    peer = wire.Peer(receiver, 1, b"secret")
    sender.sendall(b"\xff\xff\xff\x7f" + b"x" * 100)
    for _ in range(200):
        time.sleep(0.001)
        if peer.open:
            peer.read()
    assert not peer.open and not peer.proved
    sender.close()
    peer.sock.close()


@pytest.mark.parametrize(("line", "intent"), [
    ("max_norm = all_reduce(norm, SUM)", "max"), ("dist.all_reduce(found_inf)", "flag"),
    ("mean_loss = s.all_reduce(loss)", "mean"), ("total_norm_sq = all_reduce(sq)", ""),
])  # fmt: skip
def test_intent_is_read_from_the_calling_line(line: str, intent: str) -> None:
    call = guard.Call("all_reduce", "sum", "float32", (1,), -1, "x:1", line)
    assert guard.intent_of(call, None) == intent
    assert guard.intent_of(call, "sum") == "sum"
    with pytest.raises(RunError, match="is not one of"):
        guard.intent_of(call, "maximum")


@given(hs.lists(hs.floats(0.5, 128, width=32), min_size=2, max_size=8))
def test_sum_for_max_always_breaks_the_invariant_and_max_never_does(values: list[float]) -> None:
    inputs = [torch.tensor([v]) for v in values]
    assert guard.broken("max", inputs, guard.combine("sum", inputs))
    assert not guard.broken("max", inputs, guard.combine("max", inputs))
    assert not guard.broken("mean", inputs, guard.combine("mean", inputs))
    flags = [torch.ones(1) for _ in values]
    assert guard.broken("flag", flags, guard.combine("sum", flags))
    assert not guard.broken("flag", flags, guard.combine("max", flags))


@settings(deadline=None)
@given(numel=hs.integers(1, 200_000), ranks=hs.integers(1, 7), seed=hs.integers(0, 9))
def test_slices_cover_the_gradient_and_sum_in_order(numel: int, ranks: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    terms = [torch.randn(numel, generator=generator) for _ in range(ranks)]
    result, squares = torch.full((numel,), float("nan")), 0.0
    for index in range(ranks):
        lo, hi = arena.slice_of(numel, index, ranks)
        squares += arena.reduce_slice(terms, result, lo, hi, 1.0 / ranks)
    want = terms[0].clone()
    for term in terms[1:]:
        want += term
    assert torch.equal(result, want * (1.0 / ranks))
    assert math.isclose(squares, float(result.double().pow(2).sum()), rel_tol=1e-4)


def test_checks_name_nan_spikes_and_the_odd_replica() -> None:
    watch = checks.LossWatch()
    assert [watch.judge(2.0 + i % 3 * 0.01, 1.0)[0] for i in range(30)] == [""] * 30
    assert watch.judge(5.0, 1.0)[0] == "loss-spike"
    assert watch.judge(float("nan"), 1.0)[0] == watch.judge(2.0, math.inf)[0] == "nan-step"
    assert checks.minority({0: 5, 1: 5, 2: 6}, 2) == "odd"
    assert checks.minority({0: 5, 1: 5, 2: 6}, 0) == ""
    assert checks.minority({0: 5, 1: 6}, 0) == "split"
    a, b = torch.nn.Parameter(torch.ones(5)), torch.nn.Parameter(torch.ones(5))
    assert checks.fingerprint([a]) == checks.fingerprint([b])
    with torch.no_grad():
        b[3] = torch.nextafter(b[3], torch.tensor(2.0))
    assert checks.fingerprint([a]) != checks.fingerprint([b])
