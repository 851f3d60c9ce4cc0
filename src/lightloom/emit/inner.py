"""The training command that a launch target carries: the framework's own files."""

from __future__ import annotations

from lightloom.core.plan import Plan

from .bundle import Bundle, EmittedFile


def framework_bundle(plan: Plan) -> Bundle:
    """Return the files of the plan's framework; every launch target mounts them."""
    from . import deepspeed, fsdp, megatron, mindspeed, mindspore, torchtitan

    emitters = {
        "megatron": megatron.emit, "mindspeed": mindspeed.emit, "mindspore": mindspore.emit,
        "torchtitan": torchtitan.emit, "deepspeed": deepspeed.emit, "fsdp": fsdp.emit,
    }  # fmt: skip
    return emitters[plan.strategy.framework](plan)


def entry_of(files: tuple[EmittedFile, ...]) -> str:
    """Return the script that starts one host."""
    names = [file.path for file in files]
    return "train.sh" if "train.sh" in names else "launch.sh"


def image_of(plan: Plan) -> str:
    """Return the image name that the emitted Dockerfile is meant to be built as."""
    return f"REGISTRY/lightloom-{plan.strategy.framework}:site"
