"""A set of candidate strategies as columns: one numpy entry per candidate and field.

Axes: N candidates. Words are codes into the tables of this file; a field that is the same for all
candidates may be a broadcast view (stride 0), which costs nothing to store or to look up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError, nearest
from lightloom.core.strategy import Recompute, ScheduleName, Strategy, Zero

I64 = NDArray[np.int64]

RECOMPUTE: tuple[str, ...] = get_args(Recompute)
ZERO: tuple[str, ...] = get_args(Zero)
SCHEDULES: tuple[str, ...] = get_args(ScheduleName)
CP_KINDS: tuple[str, ...] = ("ring", "all-to-all")
DTYPES: tuple[str, ...] = ("fp32", "bf16", "fp16", "fp8", "int8", "fp4", "int4")
"""Types of optimiser states and of gradients."""
_CODED: dict[str, tuple[str, ...]] = {
    "recompute": RECOMPUTE, "zero": ZERO, "schedule": SCHEDULES, "cp_kind": CP_KINDS,
    "optimizer_dtype": DTYPES, "gradient_dtype": DTYPES,
}  # fmt: skip
_PLAIN = ("tp", "pp", "dp", "cp", "ep", "etp", "vpp", "micro_batch", "global_batch", "seq",
          "recompute_layers", "hsdp_shard", "sequence_parallel", "offload_optimizer",
          "overlap_grad", "overlap_param", "overlap_tp", "overlap_pp", "overlap_ep")  # fmt: skip
_DEFAULTS = {name: getattr(Strategy(global_batch=1, seq=1), name) for name in (*_CODED, *_PLAIN)}
BOOLEANS = tuple(name for name in _PLAIN if isinstance(_DEFAULTS[name], bool))


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """N candidate strategies. Build them with `columns_of` or `make_columns`."""

    tp: I64
    pp: I64
    dp: I64
    cp: I64
    ep: I64
    etp: I64
    vpp: I64
    micro_batch: I64
    global_batch: I64
    seq: I64
    recompute: I64
    """Code into RECOMPUTE."""
    recompute_layers: I64
    zero: I64
    """Code into ZERO."""
    hsdp_shard: I64
    sequence_parallel: I64
    cp_kind: I64
    """Code into CP_KINDS."""
    schedule: I64
    """Code into SCHEDULES."""
    precision: I64
    """Index into `precisions`."""
    layout: I64
    """Index into `layouts`."""
    optimizer_dtype: I64
    """Code into DTYPES."""
    gradient_dtype: I64
    offload_optimizer: I64
    overlap_grad: I64
    overlap_param: I64
    overlap_tp: I64
    overlap_pp: I64
    overlap_ep: I64
    precisions: tuple[str, ...] = ("bf16",)
    layouts: tuple[tuple[int, ...], ...] = ((),)
    """Explicit layers per stage; the empty tuple spreads them evenly."""
    framework: str = "megatron"
    task: str = "pretrain"
    lora_rank: int = 16

    def __len__(self) -> int:
        return len(self.tp)

    def take(self, rows: Any) -> Columns:
        """Return the candidates chosen by an index array, a mask or a slice."""
        if len(self) == 1:  # any choice of one row that is not empty is that row
            chosen = np.arange(1)[rows]
            if len(chosen) == 1:
                return self
        cut = isinstance(rows, slice)
        if cut:
            size = len(range(*rows.indices(len(self))))
        else:
            rows = np.asarray(rows)
            rows = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
            size = len(rows)
        picked: dict[str, Any] = {}
        for name in _FIELDS:
            value = getattr(self, name)
            if name not in _TABLES:
                if value.strides == (0,) and size > 0:
                    value = np.broadcast_to(value[:1], (size,))
                else:
                    value = value[rows] if cut else value.take(rows)
            picked[name] = value
        return Columns(**picked)

    def code(self, name: str, word: str) -> int:
        """Return the code of `word` in the table of column `name`."""
        return code_of(name, word)

    @property
    def world(self) -> I64:
        """Ranks that each candidate uses."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def micro_batches(self) -> I64:
        """Micro-batches that each replica accumulates."""
        return self.global_batch // (self.dp * self.micro_batch)


_FIELDS = tuple(f.name for f in fields(Columns))
_TABLES = frozenset(("precisions", "layouts", "framework", "task", "lora_rank"))


def code_of(name: str, word: str) -> int:
    """Return the code of `word` for column `name`, or say which words are known."""
    table = _CODED[name]
    if word not in table:
        raise InputError(f"{name}: unknown {word!r}{nearest(word, table)}",
                         out=f"one of {', '.join(table)}")  # fmt: skip
    return table.index(word)


def _array(value: Any, size: int) -> I64:
    data = np.asarray(value)
    if data.dtype != np.int64:
        data = data.astype(np.int64)
    return np.broadcast_to(data, (size,)) if data.shape != (size,) else data


def make_columns(size: int, **values: Any) -> Columns:
    """Return columns of `size` candidates from arrays or single values per field.

    Fields not named take the strategy's defaults; words (``recompute="full"``) become codes;
    tables (`precisions`, `layouts`) and scalars (`framework`, `task`, `lora_rank`) pass through.
    """
    arrays: dict[str, Any] = {}
    for name, default in _DEFAULTS.items():
        value = values.pop(name, default)
        arrays[name] = _array(code_of(name, value) if isinstance(value, str) else value, size)
    for name in ("precision", "layout"):
        arrays[name] = _array(values.pop(name, 0), size)
    return Columns(**arrays, **values)


def columns_of(strategies: Sequence[Strategy]) -> Columns:
    """Return the columns of a list of strategies of one framework and task."""
    if not strategies:
        raise InputError("no strategy to evaluate")
    first = strategies[0]
    data: dict[str, Any] = {
        name: np.array([getattr(s, name) for s in strategies], np.int64) for name in _PLAIN
    }
    for name, table in _CODED.items():
        data[name] = np.array([table.index(str(getattr(s, name))) for s in strategies], np.int64)
    precisions = tuple(dict.fromkeys(s.precision for s in strategies))
    layouts = tuple(dict.fromkeys(s.stage_layers for s in strategies))
    data["precision"] = np.array([precisions.index(s.precision) for s in strategies], np.int64)
    data["layout"] = np.array([layouts.index(s.stage_layers) for s in strategies], np.int64)
    return Columns(**data, precisions=precisions, layouts=layouts, framework=first.framework,
                   task=first.task, lora_rank=first.lora_rank)  # fmt: skip


def strategy_of(columns: Columns, row: int) -> Strategy:
    """Return candidate `row` as a strategy."""
    values: dict[str, Any] = {name: int(getattr(columns, name)[row]) for name in _PLAIN}
    values |= {name: bool(values[name]) for name in BOOLEANS}
    values |= {name: table[int(getattr(columns, name)[row])] for name, table in _CODED.items()}
    return Strategy(
        **values,
        precision=columns.precisions[int(columns.precision[row])],
        stage_layers=columns.layouts[int(columns.layout[row])],
        framework=columns.framework,  # type: ignore[arg-type]
        task=columns.task,  # type: ignore[arg-type]
        lora_rank=columns.lora_rank,
    )


def _compress(code: I64, radix: int) -> tuple[I64, int]:
    """Return dense codes 0 .. count-1 of the values present in `code` (all below `radix`)."""
    if radix > 1 << 24:
        _, dense = np.unique(code, return_inverse=True)
        return dense.astype(np.int64, copy=False), int(dense.max()) + 1
    present = np.zeros(radix, np.bool_)
    present[code] = True
    rank: I64 = np.cumsum(present, dtype=np.int64)
    rank -= 1
    return rank.take(code), int(rank[-1]) + 1


def unique_rows(*keys: I64) -> tuple[I64, I64]:
    """Return (one row index per distinct combination, index of each row's combination).

    Mixed radix over the values present, compressed as it goes: no sort while the product of the
    counts stays below 2^24.
    """
    size = len(keys[0])
    code: I64 | None = None
    radix = 1
    if size > 1:
        for key in keys:
            if key.strides == (0,):
                continue
            low, high = int(key.min()), int(key.max())
            if low == high:
                continue
            dense, count = _compress(key - low, high - low + 1)
            if code is not None:
                if radix * count > 1 << 24:
                    code, radix = _compress(code, radix)
                dense = code * count + dense
            code, radix = dense, radix * count
    if code is None:
        return np.zeros(1, np.int64), np.zeros(size, np.int64)
    inverse, count = _compress(code, radix)
    first = np.zeros(count, np.int64)
    first[inverse] = np.arange(size)
    return first, inverse
