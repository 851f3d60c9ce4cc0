"""The space of strategies: which values each axis may take, and how many candidates that makes.

Two steps keep it small in memory. An *outline* holds one row per (tp, cp, pp, dp) that uses at
most the cards given; everything else (micro-batch, chunks, recompute, sharding, experts) is
*expanded* for a few rows at a time. Axes: R outline rows, N candidates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError, nearest
from lightloom.cost.columns import RECOMPUTE, SCHEDULES, ZERO, Columns, make_columns
from lightloom.cost.frameworks import framework_of
from lightloom.cost.job import Job, legal
from lightloom.emit.capability import CAN

I64 = NDArray[np.int64]

MICRO_BATCHES = (1, 2, 4, 8, 16)
CHUNKS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
SHORTEST = 1024
"""Tokens below which a context-parallel shard is not cut further."""
SHARDING = {
    "megatron": ("0", "1"), "mindspeed": ("0", "1"), "mindspore": ("0", "1"),
    "torchtitan": ("fsdp",), "fsdp": ("fsdp", "hsdp"), "deepspeed": ("1", "2", "3"),
}  # fmt: skip
"""ZeRO kinds that each framework really offers beside pipeline stages."""
WORDS = {"recompute": RECOMPUTE, "zero": ZERO, "schedule": SCHEDULES,
         "cp_kind": ("ring", "all-to-all")}  # fmt: skip
NUMBERS = ("tp", "pp", "dp", "cp", "ep", "etp", "vpp", "micro_batch")
ALIASES = {"mbs": "micro_batch", "mb": "micro_batch", "micro-batch": "micro_batch",
           "cp-kind": "cp_kind", "recomp": "recompute"}  # fmt: skip


def expressible(job: Job, feature: str, values: list[int]) -> list[int]:
    """Return the values of an axis that the job's framework can be told; 1 where it has none."""
    return values if feature in CAN[job.framework] else [1]


@dataclass(frozen=True, slots=True)
class Fixes:
    """What the user holds: axis -> allowed values (numbers or words)."""

    values: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def keep(self, name: str, options: list[int]) -> list[int]:
        """Return the options that the user allows; a fixed value outside is added."""
        if name not in self.values:
            return options
        return sorted({int(v) for v in self.values[name]})

    def words(self, name: str, options: tuple[str, ...]) -> tuple[str, ...]:
        """Return the words that the user allows."""
        return tuple(self.values.get(name, options))


def parse_fixes(texts: tuple[str, ...]) -> Fixes:
    """Return fixes from ``tp=8``, ``pp=1..16``, ``recompute=none,full``."""
    out: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        name = ALIASES.get(name.strip(), name.strip())
        if not mark or name not in (*NUMBERS, *WORDS):
            known = (*NUMBERS, *WORDS)
            raise InputError(f"--fix {text!r}: unknown axis {name!r}{nearest(name, known)}",
                             out=f"AXIS=VALUE, AXIS=LOW..HIGH or AXIS=A,B with AXIS one of "
                             f"{', '.join(known)}")  # fmt: skip
        found = word_values(name, value) if name in WORDS else number_values(text, value)
        if name in out:
            both = tuple(v for v in out[name] if v in found)
            if not both:
                what = f"{out[name][0]}.. and {found[0]}.."
                raise InputError(f"--fix {name}: two fixes exclude one another ({what})",
                                 out="drop one")  # fmt: skip
            found = both
        out[name] = found
    return Fixes(out)


def word_values(name: str, text: str) -> tuple[str, ...]:
    """Return checked words."""
    words = tuple(w.strip() for w in text.split(","))
    for word in words:
        if word not in WORDS[name]:
            raise InputError(f"--fix {name}={word}: unknown{nearest(word, WORDS[name])}",
                             out=f"one of {', '.join(WORDS[name])}")  # fmt: skip
    return words


def number_values(text: str, value: str) -> tuple[int, ...]:
    """Return numbers from ``8``, ``1..16`` or ``1,2,4``."""
    try:
        if ".." in value:
            low, high = (int(v) for v in value.split(".."))
            if not 1 <= low <= high <= 10**6:
                raise ValueError(value)
            return tuple(range(low, high + 1))
        numbers = tuple(int(v) for v in value.split(","))
    except ValueError as error:
        raise InputError(
            f"--fix {text!r}: not a number or a range", out="--fix pp=1..16"
        ) from error
    if min(numbers) < 1:
        raise InputError(f"--fix {text!r}: must be 1 or more")
    return numbers


def divisors(number: int) -> list[int]:
    """Return every divisor, ascending."""
    low = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """Everything that may be tried for one job."""

    job: Job
    fixes: Fixes
    precision: str = "bf16"
    offload: bool = False


def axis_values(space: Space) -> dict[str, list[int]]:
    """Return the values of tp, cp, pp, dp that may be combined."""
    job, model = space.job, space.job.model
    heads = [b.attention.heads for b in model.blocks if b.attention.kind != "none"]
    common = math.gcd(*heads) if heads else model.hidden
    most = model.layers + 2
    tp = [d for d in divisors(common) if d <= job.cards and d <= 64]
    cp = [2**k for k in range(8) if job.seq % 2**k == 0 and job.seq // 2**k >= SHORTEST]
    some = {*range(1, 17), *divisors(job.cards), *divisors(model.layers), *divisors(most)}
    pp = sorted(p for p in some if p <= min(most, job.cards))
    return {
        "tp": space.fixes.keep("tp", tp),
        "cp": space.fixes.keep("cp", expressible(space.job, "cp", cp or [1])),
        "pp": space.fixes.keep("pp", expressible(space.job, "pp", pp)),
        "dp": space.fixes.keep("dp", [d for d in divisors(job.global_batch) if d <= job.cards]),
    }


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """Rows of (tp, cp, pp, dp) that fit the cards. Axis R."""

    tp: I64
    cp: I64
    pp: I64
    dp: I64

    def __len__(self) -> int:
        return len(self.tp)

    @property
    def world(self) -> I64:
        """Ranks of each row."""
        return self.tp * self.cp * self.pp * self.dp

    def take(self, rows: Any) -> Outline:
        """Return some of the rows."""
        return Outline(self.tp[rows], self.cp[rows], self.pp[rows], self.dp[rows])


def outline(space: Space) -> Outline:
    """Return every (tp, cp, pp, dp) within the cards, batch divided exactly."""
    v = axis_values(space)
    grid = np.meshgrid(*(np.array(v[a], np.int64) for a in ("tp", "cp", "pp", "dp")), indexing="ij")
    tp, cp, pp, dp = (g.ravel() for g in grid)
    fine = (tp * cp * pp * dp <= space.job.cards) & (space.job.global_batch % dp == 0)
    return Outline(tp, cp, pp, dp).take(fine)


def inner_values(space: Space) -> dict[str, list[int]]:
    """Return the values of every axis that the outline leaves open, as codes."""
    model, fixes = space.job.model, space.fixes
    experts = [b.mlp.experts for b in model.blocks if b.mlp.is_moe]
    ep = divisors(math.gcd(*experts)) if experts else [1]
    zero = fixes.words("zero", SHARDING[space.job.framework])
    can = CAN[space.job.framework]
    recompute = fixes.words("recompute", tuple(r for r in RECOMPUTE if r == "none" or r in can))
    kinds = WORDS["cp_kind"] if "cp:all-to-all" in can else ("ring",)
    return {
        "micro_batch": fixes.keep("micro_batch", list(MICRO_BATCHES)),
        "vpp": fixes.keep("vpp", expressible(space.job, "vpp", list(CHUNKS))),
        "ep": fixes.keep("ep", expressible(space.job, "ep", ep)),
        "zero": [ZERO.index(z) for z in zero],
        "recompute": [RECOMPUTE.index(r) for r in recompute],
        "cp_kind": [WORDS["cp_kind"].index(k) for k in fixes.words("cp_kind", kinds)],
        "etp": fixes.keep("etp", [1]),
        "schedule": [SCHEDULES.index(s) for s in fixes.words("schedule", ("1f1b",))],
    }


def expand(rows: dict[str, I64], name: str, values: list[int], fine: Any) -> dict[str, I64]:
    """Return every row with every value of a new axis, where ``fine(rows)`` allows it."""
    options = np.array(values, np.int64)
    count = len(next(iter(rows.values())))
    wide = dict(rows)
    if len(options) != 1:
        wide = {key: np.repeat(column, len(options)) for key, column in rows.items()}
    wide[name] = np.tile(options, count)
    mask = fine(wide)
    return wide if mask is None else {key: column[mask] for key, column in wide.items()}


def batches(space: Space, part: Outline) -> dict[str, I64]:
    """Return rows of (outline, micro-batch, chunks), laws of batch and layers kept."""
    job, inner = space.job, inner_values(space)
    layers = job.model.layers
    rows = {"tp": part.tp, "cp": part.cp, "pp": part.pp, "dp": part.dp,
            "row": np.arange(len(part))}  # fmt: skip
    rows = expand(rows, "micro_batch", inner["micro_batch"],
                  lambda w: job.global_batch % (w["dp"] * w["micro_batch"]) == 0)  # fmt: skip
    return expand(rows, "vpp", inner["vpp"], lambda w: (
        (w["vpp"] == 1) | ((w["pp"] > 1) & (w["pp"] * w["vpp"] <= layers)
                           & (job.global_batch // (w["dp"] * w["micro_batch"]) % w["pp"] == 0))
    ))  # fmt: skip


def sharded_stages(space: Space, pp: I64, zero: I64) -> Any:
    """Return where ZeRO and stages go together, None for everywhere.

    DeepSpeed's pipeline engine refuses stages 2 and 3 (deepspeed/runtime/pipe/engine.py).
    """
    if space.job.framework != "deepspeed" or "zero" in space.fixes.values:
        return None
    return (pp == 1) | (zero <= ZERO.index("1"))


def complete(space: Space, rows: dict[str, I64]) -> dict[str, I64]:
    """Return every candidate of the given (outline, micro-batch, chunks) rows."""
    inner = inner_values(space)
    rows = expand(rows, "zero", inner["zero"], lambda w: sharded_stages(space, w["pp"], w["zero"]))
    rows = expand(rows, "recompute", inner["recompute"], lambda w: None)
    rows = expand(rows, "cp_kind", inner["cp_kind"],
                  lambda w: (w["cp"] > 1) | (w["cp_kind"] == inner["cp_kind"][0]))  # fmt: skip
    rows = expand(rows, "ep", inner["ep"],
                  lambda w: w["dp"] * w["cp"] * w["tp"] % w["ep"] == 0)  # fmt: skip
    rows = expand(rows, "schedule", inner["schedule"], lambda w: None)
    return expand(rows, "etp", inner["etp"], lambda w: (
        w["dp"] * w["cp"] * w["tp"] % (w["ep"] * w["etp"]) == 0))  # fmt: skip


def columns(space: Space, rows: dict[str, I64]) -> Columns:
    """Return expanded rows as candidate columns, the framework's own flags filled in."""
    job = space.job
    flags = framework_of(job.framework).defaults
    schedule = rows["schedule"]
    if "schedule" not in space.fixes.values:
        schedule = np.where(rows["vpp"] > 1, SCHEDULES.index("interleaved"), schedule)
    names = ("tp", "cp", "pp", "dp", "micro_batch", "vpp", "zero", "recompute", "cp_kind", "ep",
             "etp")  # fmt: skip
    return make_columns(
        len(rows["tp"]), **{n: rows[n] for n in names}, schedule=schedule,
        global_batch=job.global_batch, seq=job.seq, precisions=(space.precision,),
        sequence_parallel=int(flags.sequence_parallel), overlap_grad=int(flags.overlap_grad),
        overlap_param=int(flags.overlap_param), overlap_tp=int(flags.overlap_tp),
        overlap_pp=int(flags.overlap_pp), gradient_dtype=flags.gradient_dtype,
        offload_optimizer=int(space.offload), framework=job.framework, task=job.task,
    )  # fmt: skip


def candidates(space: Space, part: Outline) -> Columns:
    """Return every legal candidate of some outline rows."""
    found = columns(space, complete(space, batches(space, part)))
    return found.take(legal(space.job, found))


def count(space: Space, rows: Outline) -> int:
    """Return how many candidates the outline stands for, before any is priced or dropped.

    Counted by multiplying the choices of each row, never by listing them.
    """
    inner = inner_values(space)
    first = batches(space, rows)
    per = np.zeros(len(first["tp"]), np.int64)
    for zero in inner["zero"]:
        fine = sharded_stages(space, first["pp"], np.full(len(per), zero))
        per += 1 if fine is None else fine
    per *= len(inner["recompute"])
    per *= np.where(first["cp"] > 1, len(inner["cp_kind"]), 1) * len(inner["schedule"])
    cells = first["dp"] * first["cp"] * first["tp"]
    choices = np.zeros(len(per), np.int64)
    for ep in inner["ep"]:
        for etp in inner["etp"]:
            choices += cells % (ep * etp) == 0
    return int((per * choices).sum())


def keys_of(found: Columns) -> I64:
    """Return one number per candidate that is equal where all degrees are equal."""
    key = found.tp.astype(np.int64)
    for column in (found.pp, found.dp, found.cp, found.ep):
        key = key * 20011 + column
    return key
