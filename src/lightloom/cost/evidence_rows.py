"""Published training rows -> jobs and strategies, by published rules; or a reason why not."""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lightloom.core.errors import InputError, LightloomError
from lightloom.core.files import CATALOG, read_bytes
from lightloom.core.strategy import Strategy, Task

from .evidence_model import chip_of, cluster_of, model_of, number, whole
from .evidence_thrift import thrift_of
from .evidence_words import (
    Said,
    Software,
    precision_of,
    recompute_of,
    sequence_parallel_of,
    software_of,
    wire_of,
    zero_of,
)
from .job import Job

SHIPPED = CATALOG / "evidence"
TASKS: dict[str, Task] = {"pretrain": "pretrain", "sft": "finetune", "lora": "lora"}


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One published run: what was said, and the job it means."""

    id: str
    cells: dict[str, str]
    measured: float
    """Seconds of a step; nan where none is stated."""
    memory: float
    """Peak bytes; nan where none is stated."""
    software: Software
    job: Job | None
    strategy: Strategy | None
    scale: float
    """Measured batch over the batch that could be laid out (1 but for odd rows)."""
    assumptions: Said
    refused_why: str

    @property
    def prefix(self) -> str:
        """Source of the row: its id before the first dash."""
        return self.id.split("-")[0]

    @property
    def fold(self) -> str:
        """Group of rows that could leak into one another."""
        return self.cells.get("fold_group") or self.id

    @property
    def core(self) -> bool:
        """True for pretraining and full fine-tuning rows that are complete."""
        return self.cells.get("validation_set") == "core"


def read_cells(path: Path, key: str) -> list[dict[str, str]]:
    """Return the cells of a CSV file, compressed or not, that must have column `key`."""
    data = read_bytes(path, "rows")
    try:
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text)))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"rows {path} cannot be read: {error}") from error
    if not rows or key not in rows[0]:
        raise InputError(
            f"rows {path}: no column `{key}`", out="columns as in the shipped evidence"
        )
    return [
        {k: v.strip() if isinstance(v, str) else "" for k, v in row.items() if k is not None}
        for row in rows
    ]


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the cells of training rows: id, layers, hidden, heads, seq, tp ..."""
    return read_cells(path, "id")


def measured_of(cells: dict[str, str]) -> float:
    """Return seconds of a step: stated, or from tokens/s per card."""
    step = number(cells.get("step_time_s"), float("nan"))
    if step == step and step > 0:
        return step
    rate = number(cells.get("tokens_per_s_per_accel"))
    batch, seq, cards = (number(cells.get(k)) for k in ("global_batch", "seq", "num_accel"))
    if rate > 0 and batch > 0 and seq > 0 and cards > 0:
        return batch * seq / (rate * cards)
    return float("nan")


def memory_of(cells: dict[str, str]) -> float:
    """Return the peak in bytes. Tables of torchtitan print GiB, the others GB."""
    value = number(cells.get("memory_gb"), float("nan"))
    unit = 2.0**30 if "gib" in (cells.get("notes") or "").lower() else 1e9
    return value * unit


def row_of(cells: dict[str, str]) -> Row:
    """Return a row with its job and strategy, or with the reason why it has none."""
    year = whole(cells.get("year"), 2024)
    soft = software_of(cells.get("framework", ""), year, cells.get("notes", ""))
    measured, memory = measured_of(cells), memory_of(cells)
    try:
        job, strategy, scale, said = job_of(cells, soft)
        return Row(cells["id"], cells, measured, memory, soft, job, strategy, scale, said, "")
    except LightloomError as error:
        return Row(cells["id"], cells, measured, memory, soft, None, None, 1.0, (), error.what)


def _degrees(cells: dict[str, str], cards: int) -> tuple[dict[str, int], Said]:
    """Return tp, pp, cp, dp, ep, etp; blanks are 1, dp what is left."""
    said: Said = ()
    got = {k: max(whole(cells.get(k), 1), 1) for k in ("tp", "pp", "cp", "ep", "etp")}
    blank = [k for k in ("tp", "pp") if not cells.get(k)]
    if blank:
        said = (f"{', '.join(blank)} not stated: 1",)
    inner = got["tp"] * got["pp"] * got["cp"]
    if cards % inner:
        raise InputError(f"tp x pp x cp = {inner} does not divide {cards} cards")
    dp = whole(cells.get("dp"), cards // inner)
    if dp * inner != cards:
        said = (*said, f"dp {dp} x {inner} is not {cards} cards: dp {cards // inner}")
        dp = cards // inner
    return got | {"dp": dp}, said


def _expert_tensor(
    cells: dict[str, str], soft: Software, d: dict[str, int], moe: bool
) -> tuple[dict[str, int], Said]:
    """Return the degrees with the expert tensor degree that MindSpeed takes: tp, if not said."""
    ranks = d["dp"] * d["cp"] * d["tp"]
    blank = soft.flavour == "mindspeed" and moe and d["tp"] > 1 and not cells.get("etp")
    if not blank or ranks % (d["ep"] * d["tp"]):
        return d, ()
    return d | {"etp": d["tp"]}, (f"expert tensor degree not stated: tp {d['tp']}",)


def job_of(cells: dict[str, str], soft: Software) -> tuple[Job, Strategy, float, Said]:
    """Return (job, strategy, batch scale, assumptions) of one row."""
    cards = whole(cells.get("num_accel"))
    seq, batch = whole(cells.get("seq")), number(cells.get("global_batch"))
    if cards < 1 or seq < 1 or batch < 1:
        raise InputError("cards, sequence or global batch not stated")
    model, said_model = model_of(cells, soft.era)
    per_node = whole(cells.get("accel_per_node"), 8) or 8
    wire = wire_of(cells.get("inter_bw_note", ""), per_node)
    cluster, said_cluster = cluster_of(cells, wire, cards)
    d, said_degrees = _degrees(cells, cards)
    d, said_etp = _expert_tensor(cells, soft, d, model.is_moe)
    task = TASKS.get(cells.get("task") or "pretrain")
    if task is None:
        raise InputError(f"task {cells.get('task')} is not one that is priced")
    precision, said_dtype = precision_of(cells.get("dtype", ""))
    if task == "lora" and "qlora" in (cells.get("notes") or "").lower():
        precision, said_dtype = "int4", ("QLoRA: frozen base in 4 bits",)
    again, said_again = recompute_of(cells.get("recompute", ""), soft)
    zero, shard, said_zero = zero_of(cells.get("zero_or_fsdp", ""), soft, d["dp"] * d["cp"])
    cut, said_sp = sequence_parallel_of(cells.get("sequence_parallel", ""), soft, d["tp"])
    micro, said_micro = _micro(cells, batch, d["dp"])
    vpp, said_vpp = _vpp(cells, soft, d["pp"], model.layers)
    laid = max(round(batch / (d["dp"] * micro)), 1) * d["dp"] * micro
    per_stage = -(-model.layers // d["pp"])
    repeated = again.layers * vpp  # Megatron's block method counts layers of each model chunk
    notes = (cells.get("notes") or "").lower()
    settings: dict[str, Any] = {
        **d, **overlaps(notes, soft, d, model.is_moe), "recompute": again.kind, "zero": zero,
    }  # fmt: skip
    strategy = Strategy(
        **settings, vpp=vpp, micro_batch=micro, global_batch=laid, seq=seq, precision=precision,
        recompute_layers=repeated if repeated < per_stage else 0,
        hsdp_shard=shard, sequence_parallel=cut,
        schedule="interleaved" if vpp > 1 else "1f1b",
        gradient_dtype=_gradient(cells, soft), framework=soft.framework, task=task,
    )  # fmt: skip
    thrift, said_thrift = thrift_of(cells, soft, strategy, model)
    job = Job(
        model=model, cluster=cluster, cards=cards, seq=seq, global_batch=laid,
        framework=soft.framework, task=task, flash=fused(notes, soft), stack=soft.flavour,
        era=soft.era, thrift=thrift,
    )  # fmt: skip
    said = (*said_model, *said_cluster, *said_degrees, *said_etp, *said_dtype, *said_again,
            *said_zero, *said_sp, *said_micro, *said_vpp, *said_thrift)  # fmt: skip
    if abs(laid / batch - 1.0) > 1e-9:
        said = (*said, f"global batch {batch:g} laid out as {laid}, time scaled")
    return job, strategy, batch / laid, said


def _vpp(cells: dict[str, str], soft: Software, pp: int, layers: int) -> tuple[int, Said]:
    """Return model chunks per rank. Blank: one layer per chunk in NeMo recipes, else 1."""
    if pp == 1:
        return 1, ()
    most = max((layers + 2) // pp, 1)
    stated = whole(cells.get("vpp"))
    if stated:
        return min(max(stated, 1), most), ()
    if soft.flavour == "nemo" and soft.era >= 2023:
        full = max(layers // pp, 1)
        return full, (f"vpp not stated: {full} (NeMo recipes interleave)",)
    return 1, ("vpp not stated: 1",)


def _micro(cells: dict[str, str], batch: float, dp: int) -> tuple[int, Said]:
    stated = whole(cells.get("micro_batch"))
    share = max(int(batch // dp), 1)
    if not stated:
        return 1, ("micro-batch not stated: 1",)
    if stated > share:
        return share, (f"micro-batch {stated} above the replica's {share}: {share}",)
    return stated, ()


def _gradient(cells: dict[str, str], soft: Software) -> str:
    text = (cells.get("zero_or_fsdp") or "").lower() + (cells.get("notes") or "").lower()
    if "mp=pure" in text or soft.flavour == "jax":
        return "bf16"
    if soft.flavour in ("nemo", "bridge") and soft.era >= 2023:
        return "bf16"  # mixed-precision plug-in of NeMo: grad_reduce_in_fp32 off
    if soft.flavour == "megatron-classic":
        return "fp16" if "fp16" in (cells.get("dtype") or "").lower() else "fp32"
    return "fp32"


def fused(notes: str, soft: Software) -> bool:
    """Return whether attention is fused: from 2023 on, or where flash attention is named."""
    if "flash" in notes:
        return True
    return soft.era >= 2023


def overlaps(notes: str, soft: Software, d: dict[str, int], moe: bool) -> dict[str, bool]:
    """Return overlap switches: words of the notes first, else what the software does.

    Megatron-Core recipes of 2023 and later overlap gradients, parameters and, for dense models
    with fused kernels, tensor parallelism; older software overlaps nothing but pipeline sends.
    """
    modern = soft.era >= 2023
    grad = modern and soft.framework in ("megatron", "fsdp", "torchtitan", "deepspeed")
    param = grad
    tensor = modern and soft.flavour in ("nemo", "bridge") and not moe
    if soft.framework == "mindspeed":
        grad, param = "overlap-grad-reduce" in notes, "overlap-param-gather" in notes
        tensor = "mc2" in notes or "coc" in notes
    if "asynctp" in notes.replace(" ", "").replace("-", "") or "async tp" in notes:
        tensor = True
    if "not overlapped" in notes:
        grad = param = False
    return {"overlap_grad": grad, "overlap_param": param, "overlap_tp": tensor,
            "overlap_pp": True,
            "overlap_ep": "a2a overlap" in notes or "a2a_overlap=true" in notes}  # fmt: skip


@lru_cache(maxsize=1)
def shipped_rows() -> tuple[Row, ...]:
    """Return every training row that ships with the product."""
    return tuple(row_of(cells) for cells in read_rows(SHIPPED / "training.csv.gz"))


@lru_cache(maxsize=1)
def shipped_sweep() -> tuple[Row, ...]:
    """Return the single-node sweep that ships with the product (a fold per layers, hidden)."""
    rows = read_rows(SHIPPED / "sweep.csv.gz")
    for cells in rows:
        cells.setdefault("chip", "A100")
        cells["fold_group"] = f"sweep-{cells['layers']}-{cells['hidden']}"
    return tuple(row_of(cells) for cells in rows)


__all__ = ["Row", "chip_of", "job_of", "read_rows", "row_of", "shipped_rows", "shipped_sweep"]
