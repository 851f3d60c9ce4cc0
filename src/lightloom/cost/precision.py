"""Precision: which arithmetic each operator uses, and what each number weighs at rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from lightloom.core.errors import InputError, nearest


@dataclass(frozen=True, slots=True)
class Precision:
    """Arithmetic per operator, and bytes of stored numbers."""

    name: str
    attention: str
    """Projections of attention."""
    mlp: str
    experts: str
    core: str
    """Attention itself (scores and values)."""
    head: str
    weight: float
    """Bytes of a parameter as the kernels' copy keeps it."""
    activation: float
    """Bytes of an activation kept for backward."""
    master: float
    """Bytes of the optimiser's own copy of a parameter; 0 where the weight is fp32 already."""
    quantised: float = 0.0
    """Bytes of low-precision copies kept beside each matrix weight (value and transpose)."""
    loss_scaling: bool = False
    """fp16 underflows without it; costs one pass over the gradients."""
    training: bool = True


def _uniform(name: str, kind: str, core: str, weight: float = 2.0, **more: object) -> Precision:
    values = {"activation": 2.0, "master": 4.0} | more
    return Precision(name, kind, kind, kind, core, core, weight, **values)  # type: ignore[arg-type]


PRECISIONS: dict[str, Precision] = {
    "fp32": _uniform("fp32", "fp32", "fp32", 4.0, activation=4.0, master=0.0),
    "tf32": _uniform("tf32", "tf32", "tf32", 4.0, activation=4.0, master=0.0),
    "fp16": _uniform("fp16", "fp16", "fp16", loss_scaling=True),
    "bf16": _uniform("bf16", "bf16", "bf16"),
    "fp8": _uniform("fp8", "fp8", "bf16", quantised=2.0),
    "fp8-block": _uniform("fp8-block", "fp8", "bf16", quantised=2.0),
    "mxfp8": _uniform("mxfp8", "fp8", "bf16", quantised=2.0),
    "fp4": _uniform("fp4", "fp4", "bf16", quantised=1.0),
    "int8": _uniform("int8", "bf16", "bf16", 1.0, master=0.0, training=False),
    "int4": _uniform("int4", "bf16", "bf16", 0.5, master=0.0, training=False),
}
"""By name. int8 and int4 store weights only (inference, and the frozen base of LoRA)."""
_ALIASES = {"fp8-tensor": "fp8", "nvfp4": "fp4", "float32": "fp32", "float16": "fp16",
            "bfloat16": "bf16", "float8": "fp8"}  # fmt: skip
OPERATORS = ("attention", "mlp", "experts", "core", "head")
KINDS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")


@lru_cache(maxsize=256)
def parse_precision(text: str) -> Precision:
    """Return the precision named by ``bf16`` or ``bf16,mlp=fp8,experts=fp8,core=bf16,head=bf16``.

    The first word sets everything; ``operator=kind`` then changes single operators.
    """
    first, *changes = [word.strip() for word in text.lower().split(",")]
    first = _ALIASES.get(first, first)
    if first not in PRECISIONS:
        raise InputError(
            f"precision {text!r}: unknown {first!r}{nearest(first, PRECISIONS)}",
            out=f"one of {', '.join(PRECISIONS)}, then operator=kind for {', '.join(OPERATORS)}",
        )
    answer = replace(PRECISIONS[first], name=text)
    for change in changes:
        operator, _, kind = change.partition("=")
        if operator not in OPERATORS or kind not in KINDS:
            raise InputError(
                f"precision {text!r}: cannot read {change!r}{nearest(operator, OPERATORS)}",
                out=f"operator=kind, operators {', '.join(OPERATORS)}, kinds {', '.join(KINDS)}",
            )
        answer = replace(answer, **{operator: kind})  # type: ignore[arg-type]
        if kind in ("fp8", "fp4"):
            answer = replace(answer, quantised=max(answer.quantised, 2.0))
    return answer
