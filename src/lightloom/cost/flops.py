"""FLOPs and parameters of a model: the per-layer count, and 6 N D beside it.

Convention: a multiply-add is 2 FLOPs, backward is twice forward, recomputation does not count,
causal attention counts the lower triangle only, embeddings' look-up is free.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightloom.core.model import Model
from lightloom.core.params import Convention, Parameters, parameters

from .anatomy import Anatomy, anatomy_of
from .layer_time import visible_tokens
from .memo import per_object

F64 = NDArray[np.float64]
CONVENTION = "model FLOPs, causal attention counted half, no recompute"


def _layer_counts(a: Anatomy) -> F64:
    """Return layers of each kind, prediction layers among the last. Shape (B, 1)."""
    counts = a.count_B.astype(np.float64)[:, None]
    counts[int(a.blocks_L[-1])] += a.mtp
    return counts


@per_object(64)
def parameters_of(model: Model) -> Parameters:
    """Return parameters of `model` by part; prediction layers in, for they are trained too."""
    return parameters(model, Convention(mtp=True))


def model_flops_per_sequence(model: Model, seq: F64, task: str = "pretrain") -> F64:
    """Return training FLOPs of one sequence of `seq` tokens. Shape of `seq`.

    LoRA has no weight gradients of its frozen matrices: 2 instead of 3 times forward there.
    """
    a = anatomy_of(model)
    seq = np.asarray(seq, np.float64)
    whole = (a.n_G + a.kv_n_G * a.kv_heads_G) * a.k_G * a.times_G
    kinds = np.add.reduceat(whole, a.start_B, axis=0)
    counts = _layer_counts(a)
    experts = a.topk_B * (2.0 + a.gated_B) * a.expert_width_B * a.expert_hidden_B
    weights = float((counts * (kinds[:-1] + experts)).sum() + kinds[-1, 0])
    seen = visible_tokens(a, seq)
    cores = np.add.reduceat(a.heads_A * (a.qk_A + a.v_A) * seen, a.core_B, axis=0)
    attention = (counts * cores).sum(axis=0)
    passes = 2.0 if task == "lora" else 3.0
    total: F64 = seq * (passes * 2.0 * weights + 3.0 * attention)
    return total


def six_n_d(model: Model, tokens: float) -> float:
    """Return 6 x active parameters x tokens (4 x for LoRA is the caller's), FLOPs."""
    return 6.0 * parameters_of(model).active * tokens
