"""A container file per stack; its versions are checked against the published matrix."""

from __future__ import annotations

from typing import NamedTuple

from lightloom.core.errors import InfeasibleError
from lightloom.core.plan import Plan

from .bundle import Bundle, EmittedFile, head, lines_of
from .facts import load, origin_line
from .topology import vendor_of


class Stack(NamedTuple):
    """One set of versions that belong together."""

    base: str
    torch: str
    source: str
    cann: str = ""
    torch_npu: str = ""


STACKS = {
    "nvidia": Stack("nvcr.io/nvidia/pytorch:25.08-py3", "2.8.0",
                    "NVIDIA framework container notes 25.08 (torch 2.8.0 pre-release)"),
    "amd": Stack("rocm/pytorch:rocm6.4.3_ubuntu24.04_py3.12_pytorch_release_2.6.0", "2.6.0",
                 "ROCm 6.4.3 container list"),
    "ascend": Stack("quay.io/ascend/cann:8.5.0-910b-ubuntu22.04-py3.11", "2.7.1",
                    "torch_npu compatibility table", "8.5.0", "2.7.1.post2"),
}  # fmt: skip
REPOSITORY = {
    "megatron": ("https://github.com/NVIDIA/Megatron-LM", "core_v0.15.0"),
    "mindspeed": ("https://github.com/Ascend/MindSpeed-LLM", "v2.3.0"),
    "torchtitan": ("https://github.com/pytorch/torchtitan", "v0.2.2"),
}
PACKAGE = {"deepspeed": "deepspeed==0.19.8", "mindspore": "mindformers", "fsdp": ""}


def emit(plan: Plan) -> Bundle:
    """Return ``Dockerfile`` for the plan's framework on the machine's stack."""
    vendor = vendor_of(plan)
    if vendor not in STACKS:
        raise InfeasibleError(
            f"no container stack is pinned for {plan.cluster.chip.title}",
            out=f"stacks: {', '.join(STACKS)}",
        )
    stack = STACKS[vendor]
    check(stack)
    text = lines_of(
        head(plan, f"container of {plan.strategy.framework}; docker build ."),
        f"# versions: {stack.source}",
        f"FROM {base_of(plan, stack)}",
        "ENV PIP_NO_CACHE_DIR=1",
        python_part(stack),
        framework_part(plan),
        "COPY . /lightloom",
        "WORKDIR /workspace",
    )
    return Bundle("dockerfile", (EmittedFile("Dockerfile", text),))


def base_of(plan: Plan, stack: Stack) -> str:
    """Return the base image; A3 machines have their own CANN image."""
    a3 = "910c" in plan.cluster.chip.name
    return stack.base.replace("-910b-", "-a3-") if a3 else stack.base


def check(stack: Stack) -> None:
    """Refuse versions that the published matrix does not pair."""
    if not stack.cann:
        return
    rows = load("torch_npu")["rows"]
    want = (stack.torch_npu, stack.torch, stack.cann)
    if not any((r["torch_npu"], r["torch"], r["cann"]) == want for r in rows):
        near = [f"{r['torch_npu']} with CANN {r['cann']}" for r in rows if r["torch"] == want[1]]
        raise InfeasibleError(
            f"torch_npu {want[0]} with torch {want[1]} and CANN {want[2]} is not in the matrix of"
            f" {origin_line('torch_npu')}",
            out=f"for torch {want[1]}: {'; '.join(near[:3])}",
        )


def python_part(stack: Stack) -> list[str]:
    """Return the Python packages under the framework."""
    if not stack.cann:
        return ["# torch comes with the base image"]
    return [f"RUN pip install torch=={stack.torch} torch_npu=={stack.torch_npu}"
            "  # matrix: published pair"]  # fmt: skip


def framework_part(plan: Plan) -> list[str]:
    """Return the framework at its pinned tag."""
    name = plan.strategy.framework
    if name in REPOSITORY:
        url, tag = REPOSITORY[name]
        lines = [f"RUN git clone --depth 1 --branch {tag} {url} /workspace/{name}"]
        if name == "mindspeed":
            lines += [
                "RUN git clone --depth 1 --branch core_v0.12.1 "
                "https://github.com/NVIDIA/Megatron-LM /workspace/megatron",
                "RUN cp -r /workspace/megatron/megatron /workspace/mindspeed/",
                "RUN git clone --depth 1 --branch v2.3.0_core_r0.12.1 "
                "https://github.com/Ascend/MindSpeed /workspace/mindspeed-core",
                "RUN pip install -e /workspace/mindspeed-core",
            ]
        return [*lines, f"ENV PYTHONPATH=/workspace/{name}"]
    package = PACKAGE.get(name, "")
    return [f"RUN pip install {package}"] if package else []
