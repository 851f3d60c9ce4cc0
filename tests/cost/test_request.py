"""What a user says, what is filled in, and what is refused with the way out."""

from __future__ import annotations

from typing import Any

import pytest

from lightloom.core.catalog import load_cluster, load_model
from lightloom.core.errors import InputError
from lightloom.core.strategy import Strategy
from lightloom.cost.job import Job, check_strategy, legal_batches, nearest_divisors
from lightloom.cost.precision import parse_precision
from lightloom.cost.predict import predict
from lightloom.cost.request import Asked, parse_batch, parse_recompute, request


def ask(model: str = "llama-3.1-8b", cluster: str = "dgx-h100", **more: Any
        ) -> tuple[Job, Strategy, list[str]]:  # fmt: skip
    return request(load_model(model), load_cluster(cluster), Asked(**more))


def test_defaults_are_stated() -> None:
    job, s, notes = ask(cards=64)
    assert (s.seq, s.dp, s.zero, s.precision, s.task) == (8192, 64, "1", "bf16", "pretrain")
    assert s.global_batch * s.seq == 2**22
    assert any("sequence 8,192" in n for n in notes)
    assert any("about 4 Mi tokens" in n for n in notes)
    assert job.cards == 64


def test_a_batch_in_tokens_is_rounded_to_sequences_and_said() -> None:
    assert parse_batch("512", 4096) == (512, "")
    sequences, said = parse_batch("4Mtok", 8192)
    assert sequences == 488
    assert "3,997,696 tokens" in said
    assert parse_batch("4Mitok", 8192)[0] == 512
    for wrong in ("", "lots", "-4", "4M"):
        with pytest.raises(InputError):
            parse_batch(wrong, 4096)


def test_a_given_batch_is_kept_or_refused_with_the_nearest() -> None:
    job, s, _ = ask(cards=64, global_batch="100")
    assert s.global_batch == 100
    with pytest.raises(InputError, match=r"multiple of dp 64.*\n.*64 or 128"):
        check_strategy(job, s)
    assert legal_batches(s) == [64, 128]


def test_idle_cards_are_counted() -> None:
    _, s, notes = ask(cards=100, tp=8)
    assert s.world_size == 96
    assert any("4 of 100 cards idle" in n for n in notes)


def test_frameworks_bring_their_own_flags() -> None:
    assert ask(cards=8, framework="fsdp")[1].zero == "fsdp"
    assert ask(cards=8, framework="deepspeed")[1].gradient_dtype == "bf16"
    assert ask(cards=8, tp=2)[1].sequence_parallel
    assert not ask(cards=8, tp=2, framework="deepspeed")[1].sequence_parallel
    assert not ask(cards=8, overlap="no-grad,tp")[1].overlap_grad
    assert ask(cards=8, overlap="no-grad,tp")[1].overlap_tp


def test_recompute_words() -> None:
    assert parse_recompute("3") == ("full", 3)
    assert parse_recompute("0") == ("none", 0)
    with pytest.raises(InputError, match="selective"):
        parse_recompute("selektive")


@pytest.mark.parametrize(("more", "words"), [
    ({"tp": 3}, "attention heads"),
    ({"tp": 64}, "does not divide"),
    ({"tp": 32, "cards": 16}, "but 16 cards"),
    ({"dp": 9}, "72 ranks, but 64 cards"),
    ({"ep": 2}, "has no experts"),
    ({"vpp": 2}, "needs pp > 1"),
    ({"pp": 64, "tp": 1}, "32 layers"),
    ({"seq": 4097, "cp": 2}, "does not divide"),
    ({"recompute": "99"}, "a stage has"),
    ({"stage_layers": "1,2", "pp": 2}, "add up to 32"),
    ({"pp": 4, "vpp": 2, "global_batch": "20", "dp": 2, "tp": 4}, "multiples of pp 4"),
    ({"cp": 8, "cp_kind": "all-to-all", "tp": 8}, "cuts heads"),
    ({"schedule": "zb-v", "pp": 4}, "2 chunks per rank"),
    ({"precision": "int8"}, "inference only"),
    ({"schedule": "1f1b", "pp": 4, "vpp": 2}, "one chunk per rank"),
    ({"zero": "hsdp", "hsdp_shard": 3}, "does not divide dp 8"),
    ({"hsdp_shard": 4}, "--zero hsdp"),
    ({"seq": 0}, "--seq 0"),
])  # fmt: skip
def test_every_law_says_what_and_the_way_out(more: dict[str, Any], words: str) -> None:
    values = {"cards": 64, "tp": 8} | more
    with pytest.raises(InputError, match=words) as caught:
        job, s, _ = ask(**values)
        check_strategy(job, s)
    assert caught.value.exit_code == 3
    assert caught.value.out


def test_arithmetic_that_the_chip_lacks_is_said() -> None:
    for cluster, precision, words in (
        ("dgx-a100", "fp8", "no fp8 arithmetic: bf16 speed"), ("dgx-h100", "fp8", ""),
        ("dgx-h100", "bf16,mlp=fp4", "no fp4 arithmetic: fp8 speed"),
    ):  # fmt: skip
        job, s, _ = ask(cluster=cluster, cards=8, precision=precision, zero="1")
        found = [a for a in predict(job, s).assumptions if "arithmetic" in a]
        assert bool(words) == bool(found)
        assert words in "".join(found)


def test_expert_laws() -> None:
    for more, words in (({"ep": 3}, "128 experts|dp x cp x tp"), ({"ep": 48, "cards": 48},
                        "128 experts"), ({"etp": 5, "cards": 40}, "expert width")):  # fmt: skip
        job, s, _ = ask("qwen3-30b-a3b", **({"cards": 64} | more))
        with pytest.raises(InputError, match=words):
            check_strategy(job, s)


@pytest.mark.parametrize("more", [
    {"cards": 0}, {"cards": 10**9}, {"tp": 0}, {"micro_batch": -1}, {"seq": -5},
    {"framework": "megatronn"}, {"task": "train"}, {"zero": "9"}, {"precision": "bf15"},
    {"precision": "bf16,mpl=fp8"}, {"schedule": "x"}, {"cp_kind": "x"}, {"overlap": "x"},
    {"stage_layers": "a,b"}, {"optimizer_dtype": "bf61"}, {"lora_rank": 0}, {"dp": -1},
    {"vpp": 10**19}, {"lora_rank": 10**19}, {"recompute": "9" * 30}, {"imbalance": float("nan")},
    {"imbalance": 0.5}, {"stage_layers": "9" * 30}, {"hsdp_shard": -3}, {"seq": 10**19},
    {"global_batch": "9" * 30},
])  # fmt: skip
def test_nonsense_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        job, s, _ = ask(**({"cards": 64} | more))
        check_strategy(job, s)


def test_precision_words() -> None:
    p = parse_precision("bf16,mlp=fp8,core=fp16")
    assert (p.mlp, p.attention, p.core) == ("fp8", "bf16", "fp16")
    assert parse_precision("nvfp4").mlp == "fp4"
    assert parse_precision("fp16").loss_scaling


def test_nearest_divisors() -> None:
    assert nearest_divisors(32, 3) == [1, 2, 4]
    assert nearest_divisors(121, 12) == [1, 11, 121]
