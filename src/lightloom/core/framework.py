"""Frameworks and what each does when nothing is said."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

FrameworkName = Literal["megatron", "mindspeed", "torchtitan", "fsdp", "deepspeed", "mindspore"]
FRAMEWORKS: tuple[FrameworkName, ...] = get_args(FrameworkName)


class Framework(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Default flags of one training framework that change cost."""

    name: FrameworkName
    zero: str
    """Optimiser sharding by default: 0, 1, 2, 3, fsdp."""
    sequence_parallel: bool
    overlap_grad: bool
    overlap_param: bool
    overlap_tp: bool
    overlap_pp: bool
    flash_attention: bool = True
    gradient_dtype: str = "fp32"
    """Type in which gradients are accumulated and reduced."""
    pinned: str = ""
    """Version whose defaults these are, with source."""
