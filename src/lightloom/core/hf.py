"""Reading models: a Hugging Face ``config.json``, a catalogue name, or a size alone.

What a configuration leaves to the code of its family is in `hf_family`; what is approximated and
which fields were not understood are said in the Model.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from . import hf_family as family
from . import hf_mlp
from .errors import InputError, nearest
from .files import CATALOG, read_bytes
from .hf_fields import NAMES, Fields, Raw
from .hf_mixers import attention_of, layer_kinds
from .hf_settings import settings_of
from .hf_size import SIZE, model_of_size
from .hf_special import doubled, with_block_configs
from .model import Attention, Block, Mlp, Model

MOST_LAYERS = 4096
_INSIDE = ("text_config", "llm_config", "language_config", "thinker_config", "text_model",
           "language_model_config", "talker_config")  # fmt: skip
_TOWERS = ("vision_config", "audio_config", "vision_tower_config", "vit_config", "visual",
           "speech_config", "code2wav_config", "projector_config")  # fmt: skip
_ORGANISATION = re.compile(r"^meta-(?=llama)")


def read_model(text: str) -> Model:
    """Return the model that `text` means: an existing file or folder, a name, or a size."""
    path = Path(text)
    try:
        if path.is_dir() and (path / "config.json").is_file():
            path = path / "config.json"
        here = path.is_file()
    except (OSError, ValueError) as error:
        raise InputError(f"model {text[:80]!r}: not a path or name") from error
    if here or text.endswith(".json"):
        data = read_bytes(path, "model")
        name = path.parent.name if path.name == "config.json" else path.stem.split("--")[-1]
        return model_of(parse(data, f"model {path}"), name.lower() or "config", f"model {path}")
    if SIZE.fullmatch(text.strip()):
        return model_of_size(text.strip())
    return _named(_short(text))


def _short(text: str) -> str:
    """Return a name as the catalogue spells it: no organisation, lower case."""
    name = text.strip().rpartition("/")[2].lower().replace("_", "-")
    return _ORGANISATION.sub("", name).removesuffix("-hf")


@functools.lru_cache(maxsize=128)
def _named(name: str) -> Model:
    path = CATALOG / "models" / f"{name}.json"
    if not re.fullmatch(r"[a-z0-9.\-]{1,100}", name) or not path.is_file():
        known = sorted(p.stem for p in (CATALOG / "models").glob("*.json"))
        raise InputError(
            f"no model {name[:80]!r}{nearest(name[:80], known)}",
            out="give a config.json, a size such as 70B, or a name (lightloom catalog models)",
        )
    where = f"model {name}"
    return model_of(parse(read_bytes(path, "model"), where), name, where)


def parse(data: bytes, where: str) -> Raw:
    """Return the JSON object in `data`, or say why there is none."""
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {str(error)[:120]}") from error
    if not isinstance(raw, dict):
        raise InputError(f"{where}: a configuration is an object, not {type(raw).__name__}")
    return raw


def model_of(raw: Raw, name: str, where: str) -> Model:
    """Return the Model noun that a configuration describes."""
    f, outer = _language_part(raw, where)
    kind = _family(f, outer)
    hidden = f.integer("hidden", None, 1, 10**6)
    layers = _layers(f)
    blocks, order = _blocks(f, kind, hidden, layers)
    norm, norms = _norms(f, kind)
    mtp = f.integer("mtp", 0, 0, 64)
    if f.raw.get("use_mtp") is False:
        mtp = 0
    if mtp and any(f.raw.get(n) for n in ("mtp_layers_block_type", "mtp_hybrid_override_pattern")):
        f.note("prediction layers costed as the last layer, not as their own pattern")
    f.use(("use_mtp", "mtp_transformer_layers", "mtp_layers_block_type",
           "mtp_hybrid_override_pattern"))  # fmt: skip
    vocab = _vocab(f)
    max_seq = f.integer("max_seq", 0, 0, 10**9) or f.integer("initial_context_length", 4096, 1)
    f.use(("initial_context_length",))
    tied = _tied(f, outer, kind)
    learned = _positions(f, kind, max_seq)
    dtype = _dtype(f, outer)
    _rest(f)
    ignored = tuple(dict.fromkeys((*f.unknown(), *(outer.unknown() if outer else ()))))
    return Model(
        name=name, hidden=hidden, vocab=vocab, blocks=blocks, order=order, tied=tied,
        max_seq=max_seq, mtp_layers=mtp, learned_positions=learned, norm=norm, norms=norms,
        weights_dtype=dtype, family=kind, settings=settings_of(f.raw),
        approximated=tuple(f.approximated),
        ignored=ignored, source=str(raw.get("_lightloom_source") or where)[:400],
    )  # fmt: skip


def _language_part(raw: Raw, where: str) -> tuple[Fields, Fields | None]:
    """Return the fields of the language model, and those of the wrapper around it."""
    outer: Fields | None = None
    inner = raw
    missing: Raw = {}
    for _ in range(3):
        key = next((k for k in _INSIDE if isinstance(inner.get(k), dict)), None)
        if key is None:
            break
        outer = Fields(inner, where)
        outer.use((*_INSIDE, *_TOWERS, "_lightloom_source"))
        inner = {"model_type": outer.raw.get("model_type"), **inner[key]}
        missing = {k: v for k, v in family.defaults(inner).items() if inner.get(k) is None}
        inner |= missing
        where = f"{where}: {key}"
    for key in ("attn_config", "ffn_config", "ssm_cfg"):
        table = inner.get(key)
        if isinstance(table, dict):
            inner = {**{k: v for k, v in table.items() if k not in inner}, **inner}
    f = Fields(inner, where)
    if missing:
        f.note(f"not given, defaults of the family taken: {', '.join(sorted(missing))}")
    f.use(("_lightloom_source", "attn_config", "ffn_config", "ssm_cfg", *_TOWERS))
    towers = [k for k in _TOWERS if raw.get(k) or (outer and outer.raw.get(k))]
    if towers:
        f.note(f"language part only: {', '.join(towers)} not counted")
    return f, outer


def _family(f: Fields, outer: Fields | None) -> str:
    kind = f.text("model_type", "").lower()
    if not kind and outer:
        kind = outer.text("model_type", "").lower()
    kind = family.ALIASES.get(kind, kind)
    if kind in family.NOT_DECODERS or f.get("is_encoder_decoder") is True:
        raise InputError(
            f"{f.where}: model_type {kind!r} is not a decoder",
            out="lightloom costs decoder language models",
        )
    if not kind:
        f.note("no model_type: read by the names of its fields")
    elif kind not in family.KNOWN:
        f.note(f"family {kind[:40]!r} is not known: read by the names of its fields")
    return kind


def _layers(f: Fields) -> int:
    blocks = f.raw.get("layers_block_type") or f.raw.get("hybrid_override_pattern")
    default = len(blocks) if isinstance(blocks, list | str) and blocks else None
    return f.integer("layers", default, 1, MOST_LAYERS)


def _blocks(
    f: Fields, kind: str, hidden: int, layers: int
) -> tuple[tuple[Block, ...], tuple[int, ...]]:
    """Return the different layers with their counts, and their order where they interleave."""
    kinds = layer_kinds(f, kind, layers)
    experts = hf_mlp.expert_count(f)
    routed = hf_mlp.expert_layers(f, kind, layers) if experts else [False] * layers
    if all(routed):
        f.use((*NAMES["inner"], *NAMES["dense_inner"]))
    separate = _separate(f, kind, kinds, layers)
    pairs: list[tuple[Attention, Mlp]] = []
    for i, mix in enumerate(kinds):
        words = separate[i] if separate else None
        on = routed[i] if words is None else words == "moe"
        mlp = hf_mlp.NONE
        if words in (None, "mlp", "moe") and not (kind.startswith("zamba") and mix == "ssm"):
            mlp = hf_mlp.mlp_of(f, kind, i, hidden, experts if on else 0)
        if mix == "hybrid":
            f.note("layers with state space beside attention costed as two layers, one of each")
            pairs.append((attention_of(f, kind, "ssm", i, hidden), hf_mlp.NONE))
            mix = "full"
        pairs.append((attention_of(f, kind, mix, i, hidden), mlp))
    pairs = with_block_configs(f, pairs, hidden)
    if kind == "longcat_flash":
        pairs = doubled(f, pairs, f.integer("inner", None, 1))
    return _runs(pairs)


def _separate(f: Fields, kind: str, kinds: list[str], layers: int) -> list[str] | None:
    """Return ``mlp``/``moe``/``""`` per layer where mixing and MLP are layers of their own."""
    pattern = f.raw.get("hybrid_override_pattern")
    listed: Any = f.raw.get("layers_block_type")
    if isinstance(pattern, str):
        return [{"-": "mlp", "E": "moe"}.get(c, "") for c in pattern[:layers]]
    if isinstance(listed, list) and any(v in ("mlp", "moe") for v in listed):
        return [v if v in ("mlp", "moe") else "" for v in listed[:layers]]
    if kind in family.PURE_SSM or (set(kinds) == {"ssm"} and not _has_mlp(f)):
        return [""] * layers
    return None


def _has_mlp(f: Fields) -> bool:
    return any(f.raw.get(n) for n in ("intermediate_size", "ffn_hidden_size", "mlp_hidden_size"))


def _runs(
    pairs: list[tuple[Attention, Mlp]],
) -> tuple[tuple[Block, ...], tuple[int, ...]]:
    index: dict[tuple[Attention, Mlp], int] = {}
    order = [index.setdefault(pair, len(index)) for pair in pairs]
    counts = Counter(order)
    blocks = tuple(
        Block(count=counts[i], attention=attention, mlp=mlp)
        for (attention, mlp), i in index.items()
    )
    return blocks, () if order == sorted(order) else tuple(order)


def _norms(f: Fields, kind: str) -> tuple[Any, int]:
    """Return the kind of norm and how many a layer has."""
    layer = kind in family.LAYER_NORM
    if kind not in family.KNOWN and f.raw.get("rms_norm_eps") is None:
        layer = any(f.raw.get(n) for n in ("layer_norm_epsilon", "layer_norm_eps"))
    said = [f.flag(n) for n in ("sandwich_norm", "use_post_norm", "use_sandwich_norm")]
    four = kind in family.SANDWICH or any(said)
    return ("layer" if layer else "rms"), 4 if four else 2


def _vocab(f: Fields) -> int:
    vocab = f.integer("vocab", None, 1, 10**8)
    multiple = f.integer("pad_vocab_size_multiple", 1, 1, 10**6)
    return -(-vocab // multiple) * multiple


def _tied(f: Fields, outer: Fields | None, kind: str) -> bool:
    for part in (f, outer):
        if part and part.raw.get("tie_word_embeddings") is not None:
            return part.flag("tie_word_embeddings")
    shared = f.flag("share_input_output_layers", kind in family.TIED)
    return f.flag("tie_embeddings", shared)


def _positions(f: Fields, kind: str, max_seq: int) -> int:
    """Return rows of a learned position embedding."""
    said = f.get("position_embedding_type", "")
    if kind in family.LEARNED_POSITIONS or said in ("learned", "learned_absolute"):
        return max_seq + (2 if kind == "opt" else 0)
    return 0


def _dtype(f: Fields, outer: Fields | None) -> str:
    """Return the type of the weights as published: of the quantisation, else of the tensors."""
    quant: Any = f.raw.get("quantization_config") or (
        outer and outer.raw.get("quantization_config")
    )
    if isinstance(quant, dict):
        method = str(quant.get("quant_method", ""))[:40]
        known = {"fp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4", "compressed-tensors": "int4"}
        f.note(f"published weights are quantised ({method or 'unknown method'}): cost follows the "
               "precision that is asked for")  # fmt: skip
        return known.get(method, "bf16")
    said = f.raw.get("dtype") or f.raw.get("torch_dtype") or "bfloat16"
    names = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "half": "fp16"}
    return names.get(str(said).removeprefix("torch."), "bf16")


_COSTLY: dict[str, str] = {
    "cross_attention_layers": "layers of cross-attention costed as self-attention",
    "num_kv_shared_layers": "layers that reuse keys and values of others costed with their own",
    "use_cla": "keys and values shared across layers costed per layer",
    "hc_mult": "hyper-connections: extra residual streams (memory, element-wise work) not costed",
    "hidden_size_per_layer_input": "per-layer input embeddings not counted",
    "word_embed_proj_dim": "embedding width different from hidden not counted",
    "altup_num_inputs": "alternating updates (extra residual streams) not costed",
    "laurel_rank": "low-rank residual branch not costed",
    "num_mem_blocks": "shared blocks counted once per use",
    "use_shared_attention_adapter": "adapters of shared blocks not counted",
    "attention_hidden_size": "attention width different from hidden not counted",
    "adapter_rank": "adapters of shared blocks not counted",
}
"""Fields understood well enough to say what their effect would be."""


def _rest(f: Fields) -> None:
    """Name what known fields would change and is not costed."""
    for field, text in _COSTLY.items():
        value = f.raw.get(field)
        f.use((field,))
        same = ("word_embed_proj_dim", "attention_hidden_size")
        if field in same and value == f.raw.get("hidden_size"):
            continue
        if (value and value != 1) or value is True:
            f.note(f"{field}: {text}")
    f.use(("tie_word_embeddings", "tie_embeddings", "share_input_output_layers", "num_hash_layers",
           "mlp_bias", "hybrid_layer_ids", "use_mixed_mlp_moe"))  # fmt: skip
