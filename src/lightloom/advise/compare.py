"""Two runs, operator by operator: what got slower, by how much, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from lightloom.core.advice import Advice, Comparison, OperatorRow
from lightloom.core.timeline import COMM, COMPUTE, COPY, KINDS

from .profile import RankProfile
from .split import NS
from .wire import kind_of

_WORDS = {
    "attention": r"flash|fmha|attention|sdpa|fused_?infer|incre.?flash",
    "expert routing": r"moe|topk|gating|unpermute|grouped.?gemm|groupedmat",
    "convolution": r"conv|implicit.?gemm|winograd|scudnn|dgrad|wgrad",
    "matrix product": r"gemm|gemv|matmul|cutlass|cublas|addmm|\bmm\b|bmm|Cijk|nvjet|xmma",
    "layout": r"trans_?data|transpose|permut|copy|cat|concat|split|slice|pad|TensorMove|nhwc",
    "normalisation": r"norm|bn_|batch_?norm|layer_?norm|rms",
    "softmax and loss": r"softmax|cross.?entropy|nll|loss",
    "optimiser": r"adam|sgd|foreach|multi_?tensor|optimizer",
    "pooling": r"pool",
    "embedding": r"embedding|gather|scatter|index|fbgemm",
    "reduction": r"reduce|sum|mean|argmax|\bmax\b",
    "random": r"dropout|random|philox|bernoulli|DSA",
}
_CLASSES = {label: re.compile(words, re.IGNORECASE) for label, words in _WORDS.items()}
"""Operator class by words in a kernel's name, first match wins; the rest is element-wise."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One side of a comparison."""

    name: str
    profiles: list[RankProfile]
    advice: Advice

    @property
    def steps(self) -> int:
        """Steps in the window, at least one."""
        return max(len(self.advice.steps_kept), 1)


def class_of(name: str, kind: int) -> str:
    """Return the class of an operator that means the same on every stack."""
    if kind == COMM:
        return kind_of(name) or "communication"
    if kind == COPY:
        return "copies"
    return next((label for label, words in _CLASSES.items() if words.search(name)), "element-wise")


def compare(a: Run, b: Run) -> Comparison:
    """Return what takes longer in B than in A, largest change first; seconds of one step."""
    left, right = _classes(a), _classes(b)
    rows = []
    for key in sorted(set(left) | set(right)):
        mine, theirs = left.get(key, (0.0, 0.0)), right.get(key, (0.0, 0.0))
        rows.append(
            OperatorRow(name=key[0], kind=key[1], a_s=mine[0], b_s=theirs[0], a_count=mine[1],
                        b_count=theirs[1], why=_why(mine, theirs))
        )  # fmt: skip
    rows.sort(key=lambda r: -abs(r.change_s))
    parts = {name: (x, y) for name, x, y in zip(_PARTS, _parts(a), _parts(b), strict=True)}
    return Comparison(
        a=a.name, b=b.name, a_device=a.advice.device, b_device=b.advice.device,
        a_step_s=a.advice.step_s, b_step_s=b.advice.step_s, parts=parts, rows=tuple(rows),
        text=_text(a, b, parts, rows),
        notes=tuple(dict.fromkeys((*a.advice.notes, *b.advice.notes))),
    )  # fmt: skip


_PARTS = ("compute", "exposed", "transfer", "waiting", "copy", "idle")


def _parts(run: Run) -> tuple[float | None, ...]:
    n, steps = len(run.advice.splits), run.steps
    total = {f: sum(float(getattr(s, f)) for s in run.advice.splits) / n / steps
             for f in ("span_s", "compute_s", "exposed_s", "copy_s", "idle_s")}  # fmt: skip
    verdict = run.advice.verdict
    moving, waiting = verdict.transfer_exposed, verdict.waiting_exposed
    return (
        total["compute_s"], total["exposed_s"], (moving or 0.0) * total["span_s"],
        (waiting or 0.0) * total["span_s"], total["copy_s"], total["idle_s"],
    )  # fmt: skip


def _classes(run: Run) -> dict[tuple[str, str], tuple[float, float]]:
    """Return (class, kind) -> (seconds, count) of one step, mean over ranks with spans."""
    found: dict[tuple[str, str], list[float]] = {}
    ranks = [p.timeline for p in run.profiles if p.timeline is not None]
    for t in ranks:
        took = (t.end_N - t.start_N).astype(float)
        for kind in (COMPUTE, COMM, COPY):
            rows = t.kind_N == kind
            seconds = np.bincount(t.name_N[rows], took[rows], len(t.names)) * NS
            counts = np.bincount(t.name_N[rows], minlength=len(t.names))
            for i in np.flatnonzero(counts).tolist():
                cell = found.setdefault((class_of(t.names[i], kind), KINDS[kind]), [0.0, 0.0])
                cell[0], cell[1] = cell[0] + float(seconds[i]), cell[1] + int(counts[i])
    n = max(len(ranks), 1) * run.steps
    return {key: (cell[0] / n, cell[1] / n) for key, cell in found.items()}


def _why(a: tuple[float, float], b: tuple[float, float]) -> str:
    """Return whether a class changed by its count or by the time of each."""
    if not a[1] or not b[1]:
        return "only in B" if b[1] else "only in A"
    calls, each = b[1] / a[1], (b[0] / b[1]) / (a[0] / a[1]) if a[0] else 1.0
    if abs(calls - 1) < 0.05 and abs(each - 1) < 0.05:
        return "same"
    if abs(np.log(max(calls, 1e-9))) > abs(np.log(max(each, 1e-9))):
        return f"{calls:.2f}x as many calls"
    return f"each call {each:.2f}x as long"


def _text(
    a: Run,
    b: Run,
    parts: dict[str, tuple[float | None, float | None]],
    rows: list[OperatorRow],
) -> str:
    change = b.advice.step_s - a.advice.step_s
    if abs(change) < 0.02 * max(a.advice.step_s, 1e-12):
        return "the steps take the same time within 2 %"
    sign = 1 if change > 0 else -1
    known = {name: y - x for name, (x, y) in parts.items() if x is not None and y is not None}
    if "transfer" in known:
        known.pop("exposed")
    where = max(known, key=lambda name: sign * known[name])
    top = next((r for r in rows if sign * r.change_s > 0 and r.kind == "compute"), None)
    detail = f", most of it {top.name} ({top.why})" if top and where == "compute" else ""
    ratio = b.advice.step_s / a.advice.step_s if a.advice.step_s else float("inf")
    said = "exposed communication" if where == "exposed" else where
    word = "slower" if change > 0 else "faster"
    return f"B is {word}: {ratio:.2f}x the step; the largest part of it is {said}{detail}"
