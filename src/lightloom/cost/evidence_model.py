"""Architecture columns of a published row -> Model; accelerator columns -> Cluster."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from lightloom.core.catalog import load_chip, load_cluster, load_model, names
from lightloom.core.chip import Chip
from lightloom.core.cluster import Cluster
from lightloom.core.errors import InputError
from lightloom.core.fabric import Fabric, Level
from lightloom.core.model import Attention, Block, Mlp, Model

from .evidence_words import Said, Wire

CLASSIC = 2022
"""Last year of software whose GPTs trained with dropout, whose masks are kept."""
PADDED_VOCAB = 51200
"""GPT-2's 50,257 words padded as Megatron does."""


def number(text: str | None, default: float = 0.0) -> float:
    """Return the number in a cell, or `default` where it is blank or words."""
    try:
        return float(text) if text not in (None, "") else default
    except ValueError:
        return default


def whole(text: str | None, default: int = 0) -> int:
    """Return the whole number in a cell, or `default`."""
    value = number(text, float(default))
    return int(value) if value == value and abs(value) < 1e15 else default


@lru_cache(maxsize=1)
def _known() -> dict[tuple[int, int, int], Model]:
    """Return catalogue models by (hidden, heads, experts), smaller names first."""
    found: dict[tuple[int, int, int], Model] = {}
    for name in sorted(names("models"), key=len):
        model = load_model(name)
        block = model.blocks[-1]
        found.setdefault((model.hidden, block.attention.heads, block.mlp.experts), model)
    return found


def model_of(row: dict[str, str], era: int = 2024) -> tuple[Model, Said]:
    """Return the model a row describes.

    Columns decide. What they do not say (head size, MLA, window, shared experts, tied head) comes
    from the catalogue model with the same hidden size, heads and experts, if there is one; else
    head size hidden / heads, no sharing. An MLP is gated unless its width is 4 x hidden.
    """
    layers, hidden, heads = (whole(row.get(k)) for k in ("layers", "hidden", "heads"))
    said: list[str] = []
    if not hidden:
        row, why = _by_name(row)
        layers, hidden, heads = (whole(row.get(k)) for k in ("layers", "hidden", "heads"))
        said.append(why)
    if not heads:
        heads = _likely_heads(hidden, max(whole(row.get("tp"), 1), 1))
        said.append(f"heads not stated: {heads} (size near 128)")
    if not layers:
        layers = _likely_layers(row, hidden)
        said.append(f"layers not stated: {layers} (from parameters and width)")
    kv = whole(row.get("kv_heads"), heads)
    inner, experts = whole(row.get("ffn_hidden")), whole(row.get("experts"))
    topk, narrow = whole(row.get("topk"), 1), whole(row.get("moe_ffn"))
    like = _known().get((hidden, heads, experts))
    dim = _head_dim(row, hidden, heads, like)
    vocab = whole(row.get("vocab"))
    if not vocab:
        vocab = _named_vocab(row) or (like.vocab if like else PADDED_VOCAB)
        said.append(f"vocabulary not stated: {vocab}")
    block = like.blocks[-1] if like else None
    if block and block.attention.kind == "mla":
        attention = block.attention
    else:
        window = block.attention.window if block else 0
        norm = bool(block and block.attention.qk_norm)
        attention = Attention(kind="full", heads=heads, kv_heads=kv, head_dim=dim,
                              v_head_dim=dim, window=window, qk_norm=norm)  # fmt: skip
    blocks, order = _blocks(layers, hidden, attention, inner, experts, topk, narrow, like)
    gpt = not experts and inner == 4 * hidden and kv == heads
    return Model(
        name=(row.get("model") or "row")[:60], hidden=hidden, vocab=vocab, blocks=blocks,
        order=order, tied=like.tied if like else gpt, max_seq=max(whole(row.get("seq")), 1),
        norm="layer" if gpt and era <= CLASSIC else "rms", learned_positions=0,
        source=row.get("source_url", "")[:200],
    ), tuple(said)  # fmt: skip


VOCABULARY: tuple[tuple[str, int], ...] = (
    ("gpt", PADDED_VOCAB), ("llama3", 128256), ("llama", 32000), ("baichuan2", 125696),
    ("baichuan", 64000), ("internlm2", 92544), ("internlm", 103168), ("qwen3", 151936),
    ("qwen2", 152064), ("qwen", 151936), ("yi34", 64000), ("aquila", 100008), ("mixtral", 32000),
    ("mistral", 32000), ("gemma", 256000), ("bloom", 250880), ("glm4", 151552), ("glm", 65024),
    ("deepseekv3", 129280), ("deepseek", 102400),
)  # fmt: skip
"""Family in a model's name (letters and digits only) -> words of its published tokeniser."""


def _named_vocab(row: dict[str, str]) -> int:
    """Return the vocabulary that a model's name implies, or 0."""
    text = re.sub(r"[^a-z0-9]", "", (row.get("model") or "").lower())
    return next((words for family, words in VOCABULARY if family in text), 0)


def _by_name(row: dict[str, str]) -> tuple[dict[str, str], str]:
    """Return the row with the architecture of the catalogue model that its name means."""
    text = re.sub(r"[^a-z0-9]", "", (row.get("model") or "").lower())
    named = {re.sub(r"[^a-z0-9]", "", n): n for n in names("models")}
    hits = [k for k in named if len(k) > 5 and text.startswith(k)]
    if not hits:
        raise InputError("architecture not stated (layers, hidden, heads)")
    name = named[max(hits, key=len)]
    model = load_model(name)
    block = model.blocks[-1]
    short = re.search(r"truncated to (\d+) layers|_l(\d+)[_-]", f"{row.get('model')} {row['id']}")
    layers = int(short.group(1) or short.group(2)) if short else model.layers
    mlp, a = block.mlp, block.attention
    return row | {
        "layers": str(layers), "hidden": str(model.hidden), "heads": str(a.heads),
        "kv_heads": str(a.kv_heads), "ffn_hidden": str(model.blocks[0].mlp.hidden or ""),
        "vocab": str(model.vocab), "experts": str(mlp.experts or ""),
        "topk": str(mlp.topk or ""), "moe_ffn": str(mlp.expert_hidden or ""),
    }, f"architecture not stated: {name} of the catalogue, {layers} layers"  # fmt: skip


def _likely_heads(hidden: int, tp: int) -> int:
    """Return heads that divide `hidden`, are a multiple of `tp`, of size nearest 128."""
    fits = [h for h in range(1, hidden + 1) if hidden % h == 0 and h % tp == 0]
    return min(fits or [1], key=lambda h: abs(hidden / h - 128.0))


def _likely_layers(row: dict[str, str], hidden: int) -> int:
    """Return layers that the parameter count leaves after the embedding."""
    total = number(row.get("params_b")) * 1e9
    inner = whole(row.get("ffn_hidden"), 4 * hidden) or 4 * hidden
    if not total or whole(row.get("experts")):
        raise InputError("architecture not stated (layers)")
    mats = 2.0 if inner == 4 * hidden else 3.0
    each = 4.0 * hidden**2 + mats * hidden * inner
    return max(round((total - whole(row.get("vocab"), PADDED_VOCAB) * hidden) / each), 1)


def _head_dim(row: dict[str, str], hidden: int, heads: int, like: Model | None) -> int:
    stated = re.search(r"head_dim ?(\d+)", row.get("notes") or "")
    if stated:
        return int(stated.group(1))
    if like is not None:
        return like.blocks[-1].attention.head_dim
    return max(hidden // heads, 1)


def _blocks(
    layers: int, hidden: int, attention: Attention, inner: int, experts: int, topk: int,
    narrow: int, like: Model | None,
) -> tuple[tuple[Block, ...], tuple[int, ...]]:  # fmt: skip
    """Return the layers: all dense, all experts, or as the catalogue model mixes them."""
    if not experts:
        if not inner:
            inner = 4 * hidden
        gated = inner != 4 * hidden
        if like and like.blocks[-1].mlp.hidden == inner:
            gated = like.blocks[-1].mlp.gated
        mlp = Mlp(hidden=inner, gated=gated)
        return (Block(count=layers, attention=attention, mlp=mlp),), ()
    width = narrow or inner
    if not width:
        raise InputError("expert width not stated (moe_ffn, ffn_hidden)")
    shared = like.blocks[-1].mlp if like else None
    routed = Mlp(
        hidden=0, gated=shared.gated if shared else True, experts=experts, topk=topk,
        expert_hidden=width, shared_experts=shared.shared_experts if shared else 0,
        shared_hidden=shared.shared_hidden if shared else 0,
        latent=shared.latent if shared else 0,
    )  # fmt: skip
    dense = 0
    if like and len(like.blocks) == 2 and not like.blocks[0].mlp.is_moe and not like.order:
        part = like.blocks[0].count * layers / like.layers
        dense = min(max(round(part), 1), layers - 1)  # a truncated model keeps them in proportion
    tail = Block(count=layers - dense, attention=attention, mlp=routed)
    if not dense or like is None:
        return (tail,), ()
    first = like.blocks[0].mlp
    head = Mlp(hidden=inner or first.hidden, gated=first.gated)
    return (Block(count=dense, attention=attention, mlp=head), tail), ()


BASE = {"A100": "dgx-a100", "H100": "dgx-h100", "H200": "hgx-h200", "B200": "dgx-b200",
        "GB200": "gb200-nvl72", "GB300": "gb300-nvl72", "910B": "atlas-800t-a2",
        "MI300X": "mi300x", "v5p": "tpu-v5p"}  # fmt: skip
"""Chip column -> the catalogue machine whose node, host and tiers a row gets."""


def chip_of(row: dict[str, str]) -> tuple[Chip, Said]:
    """Return the chip: the `chip` column, refined by memory size and variant in `accelerator`."""
    word = (row.get("chip") or "").strip()
    text = (row.get("accelerator") or "").lower()
    table = {"A100": "a100-80g", "H100": "h100", "H200": "h200", "B200": "b200", "GB200": "gb200",
             "GB300": "gb300", "B300": "b300", "910B": "ascend-910b", "MI300X": "mi300x",
             "H800": "h800", "H20": "h20", "v5p": "tpu-v5p", "v5e": "tpu-v5e", "v4": "tpu-v4",
             "Gaudi": "gaudi2", "NVIDIA L40S": "l40s", "L40S": "l40s",
             "A800": "a800-80g"}  # fmt: skip
    if not word:
        word = next((k for k in sorted(table, key=len, reverse=True) if k.lower() in text), "")
    if word not in table:
        raise InputError(f"accelerator not known: {row.get('accelerator') or word!r}")
    name = table[word]
    if word == "A100" and "40gb" in text.replace(" ", ""):
        name = "a100-40g"
    if word == "H100" and "96" in text:
        name = "h100-96g"
    if word == "H100" and "94" in text:
        name = "h100-sxm-94g"
    said: Said = ()
    if word == "910B":
        bin_ = re.search(r"910b([1-4])", text)
        name = f"ascend-910b{bin_.group(1)}" if bin_ else name
        said = () if bin_ else ("910B variant not stated: 354 TFLOP/s assumed",)
    return load_chip(name), said


def cluster_of(row: dict[str, str], wire: Wire, cards: int) -> tuple[Cluster, Said]:
    """Return the machine of a row: the catalogue node of its chip, and one network above it."""
    chip, said = chip_of(row)
    word = (row.get("chip") or "").strip()
    if word not in BASE:
        word = {"ampere": "A100", "hopper": "H100", "blackwell": "B200",
                "davinci": "910B", "tpu": "v5p"}.get(chip.arch, "H100")  # fmt: skip
    base = load_cluster(BASE[word])
    inner = base.fabric.levels[0]
    node = whole(row.get("accel_per_node"), 8) or 8
    note = (row.get("intra_bw_note") or "").lower()
    rack = "nvl72" in note or "domain size 72" in note or word in ("GB200", "GB300")
    if rack:
        node = 72 if cards <= 72 or cards % 72 == 0 else 64
    per_card, tier = wire.per_card, wire.tier
    if not per_card:
        per_card = chip.scaleout_bandwidth or 25e9
        said = (*said, f"inter-node network not stated: {per_card * 8 / 1e9:.0f} Gb/s per card")
    nodes = max(-(-cards // node), 1)
    levels = [msgspec.structs.replace(inner, shape=(node,))]
    if inner.kind == "full-mesh" and inner.units != node:
        levels = [msgspec.structs.replace(inner, shape=(node,), link=inner.child_bandwidth
                                          / max(node - 1, 1), links=1)]  # fmt: skip
    if nodes > 1:
        hop = base.fabric.levels[1].latency if len(base.fabric.levels) > 1 else 2e-6
        levels.append(Level(name="net", kind="fat-tree", shape=(nodes,), link=per_card,
                            links=node, latency=hop, tier=tier, medium="optical"))  # fmt: skip
    host = msgspec.structs.replace(base.host, cards=whole(row.get("accel_per_node"), 8) or 8)
    return msgspec.structs.replace(
        base, name=f"row-{word}", chip=chip, host=host,
        fabric=Fabric(levels=tuple(levels), domain=inner.name),
    ), said  # fmt: skip
