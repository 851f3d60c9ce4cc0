"""Inference, recommender and HPC (B7): capacity and throughput bounds, not predictions.

Each is a roofline: what must be stored, read, computed and sent, against the machine's memory,
bandwidth, arithmetic and links. Real systems reach a part of it; the published anchors are in
docs/plan.md.
"""

from __future__ import annotations

from typing import NamedTuple

from lightloom.core.chip import BYTES
from lightloom.core.cluster import Cluster
from lightloom.core.errors import InfeasibleError, InputError, nearest
from lightloom.core.model import Attention, Model
from lightloom.core.units import parse_bytes, parse_count
from lightloom.cost.comm import collective_seconds
from lightloom.cost.flops import parameters_of

KEYS = {
    "serve": {"context": 4096.0, "output": 1024.0, "concurrency": 64.0},
    "recommender": {"tables": 1e12, "lookups": 1e3, "dim": 128.0, "batch": 65536.0, "dense": 1e8},
    "hpc": {"flops": 1e12, "bytes": 1e10, "reductions": 2.0, "reduce-bytes": 64.0, "halo": 1e6},
}  # fmt: skip
"""Task -> what a description may say, with the value assumed when it does not."""
SIZES = {"tables", "bytes", "reduce-bytes", "halo"}


class Bound(NamedTuple):
    """One line of the answer."""

    name: str
    value: float
    unit: str
    why: str


def parse_workload(task: str, text: str) -> dict[str, float]:
    """Return the description ``context=32k,concurrency=256`` with defaults filled in."""
    out = dict(KEYS[task])
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, mark, value = part.partition("=")
        if not mark or name not in out:
            raise InputError(f"--workload {part!r}: unknown{nearest(name, out)}",
                             out=f"{task} knows {', '.join(f'{k}=' for k in out)}")  # fmt: skip
        read = parse_bytes if name in SIZES else parse_count
        out[name] = read(value, f"--workload {name}")
        if out[name] <= 0:
            raise InputError(f"--workload {part!r}: must be above 0")
    return out


def kv_bytes(model: Model, tokens: float, element: float = 2.0) -> float:
    """Return bytes of keys and values for `tokens` of one sequence, whole model.

    GQA: 2 x kv heads x head size a layer; MLA: its latent and rotary part; windows and state
    are capped.
    """
    total = 0.0
    for index in model.layer_blocks:
        a = model.blocks[index].attention
        total += per_token(a) * seen(a, tokens) * element
    return total


def per_token(a: Attention) -> float:
    """Return stored numbers of one token in one layer."""
    if a.kind == "mla" or a.kv_lora:
        return float(a.kv_lora + a.rope_dim)
    if a.kind in ("linear", "ssm", "none"):
        return 0.0
    return float(a.kv_heads * (a.head_dim + a.v_head_dim))


def seen(a: Attention, tokens: float) -> float:
    """Return tokens that a layer keeps."""
    return min(tokens, a.window) if a.kind in ("sliding", "chunked") and a.window else tokens


def serve(model: Model, cluster: Cluster, w: dict[str, float], precision: str, cards: int
          ) -> list[Bound]:  # fmt: skip
    """Return bounds for inference: smallest replica, sequences it holds, tokens/s, latency."""
    chip = cluster.chip
    usable = chip.hbm_usable or 0.94 * chip.hbm_bytes
    count = parameters_of(model)
    element = BYTES.get(precision, 2.0)
    weights = count.total * element
    each = kv_bytes(model, w["context"] + w["output"], 2.0 if precision != "fp8" else 1.0)
    need = weights + w["concurrency"] * each
    replica = smallest_power(lambda n: n * usable * 0.9 >= need, cards)
    if replica is None:
        raise InfeasibleError(
            f"weights {weights / 2**30:.0f} GiB and {w['concurrency']:.0f} x {each / 2**30:.2f} "
            f"GiB of keys and values do not fit {cards:,} cards",
            out="fewer concurrent sequences, a shorter context, or a smaller precision",
        )
    active = count.active * element
    read = min(weights, active * max(1.0, w["concurrency"] * expert_share(model)))
    memory_s = (read + w["concurrency"] * each) / (replica * chip.hbm_bandwidth)
    compute_s = 2.0 * count.active * w["concurrency"] / (replica * chip.peak_of(precision))
    wire_s = decode_wire(model, cluster, replica, w["concurrency"])
    step = max(memory_s, compute_s) + wire_s
    wall = "memory bandwidth" if memory_s >= compute_s else "compute"
    prefill = 2.0 * count.active * w["context"] / (replica * chip.peak_of(precision))
    return [
        Bound("cards of one replica", replica, "cards", "smallest power of two that holds it"),
        Bound("replicas", cards // replica, "", "whole replicas on the cards given"),
        Bound("weights", weights, "B", f"{count.total:.3g} parameters in {precision}"),
        Bound("keys and values", each, "B", "one sequence of context + output"),
        Bound("share of memory for keys and values", w["concurrency"] * each / need, "share",
              "grows with context x concurrency"),
        Bound("least time per output token", step, "s", f"{wall} binds; wire {wire_s:.3g} s"),
        Bound("most output tokens", w["concurrency"] / step / replica, "tokens/s/card", "decode"),
        Bound("least time to first token", prefill, "s", "prefill at peak"),
    ]  # fmt: skip


def expert_share(model: Model) -> float:
    """Return the part of the weights that one more token newly touches (1 for dense models)."""
    return 1.0 if model.is_moe else 1e-9


def smallest_power(fits, most: int) -> int | None:  # type: ignore[no-untyped-def]
    """Return the smallest power of two that fits, None where none up to `most` does."""
    size = 1
    while size <= most:
        if fits(size):
            return size
        size *= 2
    return None


def decode_wire(model: Model, cluster: Cluster, replica: int, concurrency: float) -> float:
    """Return seconds of one decode step's all-reduces over the replica (two a layer)."""
    if replica == 1:
        return 0.0
    size = concurrency * model.hidden * 2.0
    one = collective_seconds(cluster.fabric, "all-reduce", replica, 1, size)
    return float(2.0 * model.layers * one)


def recommender(cluster: Cluster, w: dict[str, float], cards: int) -> list[Bound]:
    """Return bounds for embedding tables spread over the cards."""
    chip = cluster.chip
    usable = 0.8 * (chip.hbm_usable or 0.94 * chip.hbm_bytes)
    least = int(-(-w["tables"] // usable))
    if least > cards:
        raise InfeasibleError(f"tables need {least:,} cards, {cards:,} given",
                              out="more cards, or cold rows in host memory")  # fmt: skip
    row = max(128.0, w["dim"] * 2.0)
    read = w["batch"] * w["lookups"] * row / (cards * chip.hbm_bandwidth * 0.5)
    size = w["batch"] * w["lookups"] * w["dim"] * 2.0 / cards
    wire = float(collective_seconds(cluster.fabric, "all-to-all", cards, 1, size)) if (
        cards > 1) else 0.0  # fmt: skip
    dense = 3.0 * w["batch"] * w["dense"] / (cards * chip.peak_of("bf16") * 0.4)
    step = read * 2 + wire * 2 + dense
    wall = max((wire * 2, "all-to-all"), (read * 2, "memory bandwidth"), (dense, "compute"))[1]
    return [
        Bound("least cards for the tables", least, "cards", "80 % of memory for rows"),
        Bound("reading rows", read * 2, "s", "half of peak bandwidth: random rows; both passes"),
        Bound("all-to-all", wire * 2, "s", "rows forward, gradients backward"),
        Bound("dense layers", dense, "s", "40 % of peak assumed"),
        Bound("most samples", w["batch"] / step, "samples/s", f"{wall} binds"),
    ]


def hpc(cluster: Cluster, w: dict[str, float], cards: int) -> list[Bound]:
    """Return bounds for one iteration: arithmetic, memory, global reductions, halo."""
    chip = cluster.chip
    kind = "fp64" if "fp64" in chip.peak else "fp32"
    peak = chip.peak[kind] if kind in chip.peak else chip.peak_of("fp32")
    compute = w["flops"] / (cards * peak)
    memory = w["bytes"] / (cards * chip.hbm_bandwidth)
    reduce = 0.0 if cards == 1 else w["reductions"] * float(
        collective_seconds(cluster.fabric, "all-reduce", cards, 1, w["reduce-bytes"]))  # fmt: skip
    halo = 0.0 if cards == 1 else float(
        collective_seconds(cluster.fabric, "send-recv", 2, 1, w["halo"]))  # fmt: skip
    step = max(compute, memory) + reduce + halo
    wall = max((reduce, "global reductions"), (halo, "halo"), (compute, "compute"),
               (memory, "memory bandwidth"))[1]  # fmt: skip
    return [
        Bound("arithmetic", compute, "s", f"{kind} peak {peak:.3g} FLOP/s a card"),
        Bound("memory", memory, "s", "peak bandwidth"),
        Bound("global reductions", reduce, "s", f"{w['reductions']:.0f} a step, latency mostly"),
        Bound("halo", halo, "s", "one neighbour exchange"),
        Bound("most iterations", 1.0 / step, "1/s", f"{wall} binds"),
    ]
