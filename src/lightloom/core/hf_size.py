"""A model from its size alone."""

from __future__ import annotations

import re

from .errors import InputError
from .model import Attention, Block, Mlp, Model
from .units import parse_count, show_count

SIZE = re.compile(r"\d+(\.\d+)?\s*[kKMBT]")
VOCAB = 50_304
HEAD = 128
SMALLEST, LARGEST = 1e6, 1e16


def model_of_size(text: str) -> Model:
    """Return a dense GPT-3-like decoder of `text` parameters ("70B", "10T").

    Rule: parameters = l (4 h^2 + 2 h i) + V h, attention heads of 128, no gate, tied embeddings
    (GPT-3, arXiv 2005.14165, table 2.1: i = 4 h, and h/l grows from 64 at 125M to 128 at 175B).
    Here h/l is near 128 (N / 175e9)^(1/6); h is a multiple of 1,024 (128 below 3B) and l of 4 so
    that heads and layers divide; i, near 4 h, meets the size.
    """
    size = parse_count(text, "size")
    if not SMALLEST <= size <= LARGEST:
        raise InputError(f"size {text!r} is outside 1M to 10,000T parameters")
    aspect = 128.0 * (size / 175e9) ** (1 / 6)
    unit, step = (1024, 4) if size >= 3e9 else (HEAD, 1)
    hidden = max(HEAD, round((size * aspect / 12.0) ** (1 / 3) / unit) * unit)
    square = float(hidden) * hidden
    layers = max(1, round((size - VOCAB * hidden) / (12.0 * square) / step) * step)
    inner = ((size - VOCAB * hidden) / layers - 4.0 * square) / (2.0 * hidden)
    width = max(HEAD, round(inner / HEAD) * HEAD)
    found = layers * (4.0 * square + 2.0 * hidden * width) + VOCAB * hidden
    heads = hidden // HEAD
    attention = Attention(kind="full", heads=heads, kv_heads=heads, head_dim=HEAD, v_head_dim=HEAD)
    off = found / size - 1.0
    return Model(
        name=text.replace(" ", ""), hidden=hidden, vocab=VOCAB, tied=True, max_seq=8192,
        norm="layer", family="gpt",
        blocks=(Block(count=layers, attention=attention, mlp=Mlp(hidden=width, gated=False)),),
        approximated=(
            f"size alone: a dense GPT-3-like decoder of {layers} layers x {hidden} is assumed, "
            f"{show_count(found)} parameters ({off:+.1%})",
        ),
        source="assumed: dense GPT-3-like shape for a size alone",
    )  # fmt: skip
