"""Operators that a script or a model uses, against the published torch_npu list.

supported: the table says yes for the product. slow: it runs, on the host or after a wait for the
host (the table says so, or torch_npu registers its host fall-back for operators it lacks). absent:
the table says no, or the package is CUDA only. unknown: not in the table, so nobody verified it.
"""

from __future__ import annotations

import functools
import gzip
from collections.abc import Iterable
from typing import Any

import msgspec

from lightloom.core.files import CATALOG, read_bytes
from lightloom.core.migration import Operator, State
from lightloom.core.model import Block, Model

PRODUCTS = {"a2": "Atlas A2 (910B)", "a3": "Atlas A3 (910C)", "950": "Ascend 950DT"}
TENSOR = (
    "torch.Tensor.",
    "torch.nn.functional.",
    "torch.linalg.",
    "torch.fft.",
    "torch.special.",
    "torch.sparse.",
)
"""Names that are operators, for which torch_npu has a host fall-back."""
WAITS = {
    "torch.nonzero",
    "torch.masked_select",
    "torch.unique",
    "torch.unique_consecutive",
    "torch.Tensor.nonzero",
    "torch.Tensor.masked_select",
    "torch.Tensor.unique",
    "torch.Tensor.item",
    "torch.Tensor.tolist",
    "torch.Tensor.cpu",
    "torch.Tensor.numpy",
}
"""The result's size or value is needed on the host, so the device queue drains (derived)."""
PACKAGES = {
    "flash_attn": "torch_npu.npu_fusion_attention, or scaled_dot_product_attention",
    "apex": "Ascend's own apex build; torch_npu.optim.NpuFusedAdamW",
    "transformer_engine": "MindSpeed (fused kernels under Megatron's names)",
    "triton": "triton-ascend (another compiler; kernels must be retuned)",
    "xformers": "scaled_dot_product_attention",
    "bitsandbytes": "MindSpeed's own quantisation",
    "pynvml": "npu-smi info, DCMI",
    "cupy": "",
    "nvidia": "",
    "deep_ep": "MindSpeed's dispatcher",
    "deep_gemm": "torch_npu.npu_grouped_matmul",
    "flash_mla": "torch_npu.npu_fusion_attention",
    "mamba_ssm": "",
    "causal_conv1d": "",
    "fla": "triton-ascend",
    "cutlass": "",
    "numba": "",
    "pycuda": "",
    "tensorrt": "MindIE",
}
"""Packages of CUDA kernels and the nearest on Ascend; empty: none known."""


CUDA = "derived: a package of CUDA kernels"
ALIAS = {
    "torch.utils.data.DistributedSampler": "torch.utils.data.distributed.DistributedSampler",
    "torch.nn.Parameter": "torch.nn.parameter.Parameter",
    "torch.amp.autocast": "torch.autocast",
}
"""Names under which users know an entry of the list."""


FUSED = {
    "torch._grouped_mm": "torch_npu.npu_grouped_matmul",
    "torch.nn.functional.rms_norm": "torch_npu.npu_rms_norm",
    "torch.nn.functional.scaled_dot_product_attention": "torch_npu.npu_fusion_attention",
    "torch.nn.RMSNorm": "torch_npu.npu_rms_norm",
}
"""Operators for which torch_npu publishes a fused one of its own."""


@functools.cache
def _list() -> dict[str, Any]:
    data = gzip.decompress(read_bytes(CATALOG / "migrate" / "operators.json.gz"))
    return msgspec.json.decode(data, type=dict[str, Any])


def versions() -> tuple[str, ...]:
    """Return the torch versions for which the list is shipped, oldest first."""
    return tuple(_list()["versions"])


def origin() -> str:
    """Return where the list comes from."""
    o = _list()["origins"][0]
    return f"published: {o['repository']} {o['tag']} ({o['commit'][:10]})"


def nearest_version(torch: str | None) -> str:
    """Return the shipped list nearest to a torch version, the newest where none is asked for."""
    known = versions()
    if torch is None:
        return known[-1]
    want = [int(x) for x in torch.split("+")[0].split(".")[:2] if x.isdigit()]
    return min(known, key=lambda v: abs(int(v.split(".")[1]) - (want[1] if len(want) > 1 else 99)))


def known(name: str, version: str) -> dict[str, Any] | None:
    """Return the published facts of a name, from its version, else from the other list."""
    tables, name = _list()["versions"], ALIAS.get(name, name)
    for v in (version, *reversed(versions())):
        if name in tables[v]:
            found: dict[str, Any] = {**tables[v][name], "version": v}
            return found
    return None


def judge(name: str, where: Iterable[str], product: str, version: str) -> Operator:
    """Return the state of one name on one product."""
    lines, facts = tuple(where), known(name, version)
    types = tuple(facts.get("types", ())) if facts else ()
    state, why, source = ruling(name, facts, product, version)
    return Operator(name=name, state=state, where=lines, why=why, types=types, source=source)


def ruling(
    name: str, facts: dict[str, Any] | None, product: str, version: str
) -> tuple[State, str, str]:
    """Return (state, why, source) of a name from its published facts."""
    head = name.split(".")[0]
    if head in PACKAGES:
        near = PACKAGES[head]
        return "absent", f"nearest: {near}" if near else "no counterpart known", CUDA
    if facts is None:
        why = "not in the published list: nobody verified it"
        return "unknown", why + fused(name), origin()
    note = "" if facts["version"] == version else f"from the list of torch {facts['version']}; "
    if not facts.get(product, False):
        no = f"{note}listed as not supported on {PRODUCTS[product]}"
        if name.startswith(TENSOR) or name.count(".") == 1:
            return "slow", f"{no}: torch_npu falls back to the host, or fails", origin()
        return "absent", no, origin()
    if facts.get("host"):
        return "slow", f"{note}the list says that it may fall back to the host", origin()
    if name in WAITS:
        return "slow", "the device queue drains", "derived: the host needs the result"
    types = facts.get("types", ())
    limit = f"the list verifies {' '.join(types)}" if types and "bf16" not in types else ""
    return "supported", (note + limit).rstrip("; "), origin()


def fused(name: str) -> str:
    """Return the fused operator of torch_npu to use instead, in words."""
    return f"; use {FUSED[name]}" if name in FUSED else ""


def of_model(model: Model, product: str, version: str) -> list[Operator]:
    """Return the operators of an architecture, by block."""
    used: dict[str, list[str]] = {}
    for name in (
        "torch.nn.functional.embedding",
        "torch.nn.functional.linear",
        "torch.matmul",
        "torch.nn.functional.cross_entropy",
        "torch.optim.AdamW",
    ):
        used[name] = ["every layer" if name != "torch.optim.AdamW" else "optimiser"]
    norm = (
        "torch.nn.functional.rms_norm"
        if model.norm == "rms"
        else ("torch.nn.functional.layer_norm")
    )
    used[norm] = ["every layer"]
    for index, block in enumerate(model.blocks):
        for name in of_block(block):
            used.setdefault(name, []).append(f"block {index}")
    return [judge(name, where, product, version) for name, where in used.items()]


def of_block(block: Block) -> list[str]:
    """Return the operators of one kind of layer."""
    kind, mlp = block.attention.kind, block.mlp
    out = []
    if kind in ("ssm", "linear"):
        out.append("mamba_ssm.selective_scan" if kind == "ssm" else "fla.chunk_linear_attention")
    elif kind != "none":
        out += ["torch.nn.functional.scaled_dot_product_attention", "torch.nn.functional.softmax"]
    out.append("torch.nn.functional.silu" if mlp.gated else "torch.nn.functional.gelu")
    if mlp.is_moe:
        out += [
            "torch.topk",
            "torch.sort",
            "torch._grouped_mm",
            "torch.Tensor.index_add_",
            "torch.distributed.all_to_all_single",
        ]
    return out
