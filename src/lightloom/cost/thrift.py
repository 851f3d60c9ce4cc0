"""Ways in which software spares memory beside what a strategy says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thrift:
    """Memory that is not kept. None of it is priced in time: each hides or costs below 2 %."""

    remade: frozenset[str] = frozenset()
    """What runs again or waits in host memory: norm, act, mla, mlp; attention is MindSpeed's
    swap-attention (attention waits on the host, the rest runs again, the input stays)."""
    offloaded_layers: int = 0
    """Layers of a stage whose activations wait in host memory."""
    shared_master: bool = False
    """The fp32 copy is the bf16 weight and two bytes more (MindSpeed reuse-fp32-param); a sharded
    one takes nothing beside the buffers of weights and gradients (baselines of 1, 2, 4 ranks)."""
    narrow_primary: bool = False
    """Narrow weights are the only copy beside the optimiser's (fp8 parameter gather)."""
    logit_bytes: float = 0.0
    """Bytes per logit alive at once with a fused loss; 0: as the framework's own loss."""
    expandable: bool = False
    """The allocator grows its segments (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)."""
    filled: float = 1.0
    """Share of a sequence that holds tokens: batches not packed are padded to their longest."""


USUAL = Thrift(expandable=True)
"""What a job spares unless it says so: emitted environments let segments grow."""
