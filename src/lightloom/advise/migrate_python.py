"""Python programs: devices, backends, environment by edits of the syntax tree's own places.

Nothing is reprinted: an edit replaces the bytes of one node, so comments and layout stay. A program
that does not parse is refused with its line.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from lightloom.core.errors import InputError
from lightloom.core.migration import Change, Lacking

from .migrate_env import MAP, answer, ours
from .migrate_ops import PACKAGES, WAITS

MARK = "# lightloom:"
GONE = {
    "torch.backends.cudnn": "torch.npu has no such switch",
    "torch.backends.cuda": "TF32 and kernel choice of CUDA; nearest: torch.npu.matmul.allow_hf32",
    "torch.cuda.nvtx": "nearest: torch_npu.npu.mstx",
    "torch.cuda.cudart": "no runtime binding; nearest: torch_npu.npu.mstx",
    "torch.cuda.profiler": "nearest: torch_npu.profiler",
}
"""Prefixes of what has no counterpart, with the nearest."""
DEVICE = re.compile(r"^cuda(:\d+)?$")
WIDE = {
    "torch.float64",
    "torch.double",
    "torch.complex64",
    "torch.complex128",
    "torch.float8_e4m3fn",
    "torch.float8_e5m2",
}


Placed = ast.stmt | ast.expr
"""Nodes that have a place in the text."""


class Used(NamedTuple):
    """What a program uses."""

    operators: dict[str, tuple[int, ...]]
    """Name -> lines."""
    groups: int
    """Calls that make a process group beyond the world."""
    group_s: float | None
    """Time-out of the process group, if said."""
    torch: bool


class MovedPython(NamedTuple):
    """A program after migration, and what it uses."""

    text: str
    changes: tuple[Change, ...]
    lacking: tuple[Lacking, ...]
    used: Used


class Edit(NamedTuple):
    """Bytes to replace."""

    start: int
    end: int
    text: str


def parse(name: str, text: str) -> ast.Module:
    """Return the syntax tree, or InputError with the line."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        what = getattr(error, "msg", None) or str(error)
        raise InputError(f"{name}:{line}: not Python: {what}", out="nothing was written") from error


def move_python(name: str, text: str) -> MovedPython:
    """Return a program for torch_npu: devices, backends, environment, imports."""
    work = _Work(name, text)
    work.visit(parse(name, text))
    moved = work.apply()
    parse(f"{name} (migrated)", moved)
    used = Used(
        {k: tuple(sorted(set(v))) for k, v in sorted(work.names.items())},
        work.groups,
        work.group_s,
        "torch" in work.alias.values() or bool(work.names),
    )
    key = lambda c: int(c.where.rpartition(":")[2])  # noqa: E731
    return MovedPython(
        moved, tuple(sorted(work.changes, key=key)), tuple(sorted(work.lacking, key=key)), used
    )


class _Work(ast.NodeVisitor):
    """Collects edits of one program."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.data = name, text.encode()
        self.starts = [0]
        for line in self.data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.alias: dict[str, str] = {}
        self.edits: list[Edit] = []
        self.changes: list[Change] = []
        self.lacking: list[Lacking] = []
        self.names: dict[str, list[int]] = {}
        self.groups, self.first = 0, 0
        self.group_s: float | None = None
        self.quiet = False

    def span(self, node: Placed) -> tuple[int, int]:
        """Return the byte range of a node."""
        start = self.starts[node.lineno - 1] + node.col_offset
        last, column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return start, self.starts[last - 1] + column

    def source(self, node: Placed) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.data[start:end].decode(errors="replace")

    def edit(self, node: Placed, new: str, why: str, source: str = "published: torch_npu") -> None:
        """Replace a node and note why."""
        start, end = self.span(node)
        old = self.data[start:end].decode(errors="replace")
        if old == new or self.quiet:
            return
        self.edits.append(Edit(start, end, new))
        self.changes.append(
            Change(
                where=f"{self.name}:{node.lineno}",
                action="replaced",
                before=old,
                after=new,
                why=why,
                source=source,
            )
        )

    def lose(self, node: Placed, what: str, why: str, nearest: str = "") -> None:
        """Note something without a counterpart."""
        self.lacking.append(
            Lacking(
                where=f"{self.name}:{node.lineno}",
                what=what,
                why=why,
                nearest=nearest,
            )
        )

    def full(self, node: ast.AST) -> str:
        """Return the dotted name of an attribute chain, imports resolved; empty for others."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.alias:
            return ""
        return ".".join([self.alias[node.id], *reversed(parts)])

    def use(self, name: str, node: Placed) -> None:
        """Note the use of an operator."""
        self.names.setdefault(name, []).append(node.lineno)

    def apply(self) -> str:
        """Return the program with all edits made, outermost first where they nest."""
        data, last = self.data, len(self.data) + 1
        for e in sorted(set(self.edits), key=lambda e: (-e.start, e.end)):
            if e.end <= last:
                data = data[: e.start] + e.text.encode() + data[e.end :]
                last = e.start
        return data.decode()

    def visit_Import(self, node: ast.Import) -> None:
        """Follow names; list packages of CUDA kernels."""
        for item in node.names:
            head = item.name.split(".")[0]
            self.alias[item.asname or head] = item.name if item.asname else head
            self.package(node, head)
            if item.name.startswith("torch.cuda"):
                self.edit(
                    node,
                    self.source(node).replace("torch.cuda", "torch_npu.npu"),
                    "the NPU's module",
                )
        self.torch_import(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Follow names; move ``torch.cuda`` imports."""
        module = node.module or ""
        for item in node.names:
            self.alias[item.asname or item.name] = f"{module}.{item.name}"
        self.package(node, module.split(".")[0])
        if module.startswith("torch.cuda"):
            new = self.source(node).replace("torch.cuda", "torch_npu.npu", 1)
            new = re.sub(r"\bCUDAGraph\b( as \w+)?",
                         lambda m: f"NPUGraph{m[1] or ' as CUDAGraph'}", new)  # fmt: skip
            self.edit(node, new, "the NPU's module")
        self.torch_import(node)

    def torch_import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Put ``import torch_npu`` behind the first top-level import of torch."""
        names = (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [i.name for i in node.names]
        )
        if self.first or node.col_offset or not any(n.split(".")[0] == "torch" for n in names):
            return
        self.first = node.lineno
        end = self.span(node)[1]
        self.edits.append(Edit(end, end, "\nimport torch_npu  # noqa: F401"))
        self.changes.append(
            Change(
                where=f"{self.name}:{node.lineno}",
                action="added",
                before="",
                after="import torch_npu",
                source="published: torch_npu",
                why="registers the device npu and the backend hccl",
            )
        )

    def package(self, node: Placed, head: str) -> None:
        """List a package of CUDA kernels; its import stays, for only its user can replace it."""
        if head in PACKAGES:
            self.use(head, node)
            self.lose(
                node,
                f"import {head}",
                "a package of CUDA kernels; the line is kept",
                PACKAGES[head],
            )

    def visit_Expr(self, node: ast.Expr) -> None:
        """Comment out calls that have no counterpart."""
        if isinstance(node.value, ast.Call) and self.gone(node, node.value.func):
            return
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Move settings of switches and of the environment."""
        target = node.targets[0]
        if self.gone(node, target) or self.environment(node, target):
            return
        self.generic_visit(node)

    def gone(self, node: ast.stmt, target: ast.AST) -> bool:
        """Replace a statement about something without a counterpart by ``pass`` and a comment."""
        name = self.full(target)
        prefix = next((p for p in GONE if name.startswith(p)), None)
        if prefix is None or node.lineno != node.end_lineno:
            return False
        self.lose(node, self.source(node), f"{prefix} is CUDA's own", GONE[prefix])
        self.edit(
            node,
            f"pass  {MARK} no counterpart: {self.source(node)}",
            GONE[prefix],
            "derived: CUDA only",
        )
        return True

    def environment(self, node: ast.Assign, target: ast.AST) -> bool:
        """Move ``os.environ["NCCL_X"] = "v"``."""
        if not (isinstance(target, ast.Subscript) and self.full(target.value) == "os.environ"):
            return False
        key, value = target.slice, node.value
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str) and ours(key.value)):
            return False
        text = str(value.value) if isinstance(value, ast.Constant) else "$"
        found = answer(key.value, text)
        if found.lacking:
            self.lose(node, self.source(node), found.why, found.nearest)
            new = f"pass  {MARK} no counterpart: {' '.join(self.source(node).split())}"
        elif isinstance(value, ast.Constant):
            where = self.source(target.value)
            new = "; ".join(f'{where}["{k}"] = "{v.strip(chr(34))}"' for k, v in found.pairs)
        else:
            new = self.source(node).replace(key.value, found.pairs[0][0])
        self.edit(node, new, found.why, found.source)
        return True

    def visit_Call(self, node: ast.Call) -> None:
        """Note operators; move methods, environment and process groups."""
        name = self.full(node.func)
        if name.startswith("torch.") or name.split(".")[0] in PACKAGES:
            self.use(name, node)
        elif isinstance(node.func, ast.Attribute) and not name:
            self.method(node, node.func)
        if name.endswith(".new_group"):
            self.groups += 1
        if name.endswith("init_device_mesh"):
            self.groups += 2
        if name.endswith(("init_process_group", "new_group")):
            self.timeout(node)
        if name.startswith("os.environ.") or name in ("os.getenv", "os.putenv"):
            self.getenv(node)
        self.generic_visit(node)

    def method(self, node: ast.Call, func: ast.Attribute) -> None:
        """Move ``x.cuda()`` and note methods that wait for the host."""
        full = f"torch.Tensor.{func.attr}"
        if func.attr == "cuda" and not self.quiet:
            end = self.span(func)[1]
            self.edits.append(Edit(end - 4, end, "npu"))
            self.changes.append(
                Change(
                    where=f"{self.name}:{node.lineno}",
                    action="replaced",
                    before=self.source(func),
                    why="the NPU's method",
                    after=self.source(func)[:-4] + "npu",
                    source="published: torch_npu",
                )
            )
        if full in WAITS:
            self.use(full, node)
        if func.attr == "double" and not node.args:
            self.use("torch.float64", node)

    def getenv(self, node: ast.Call) -> None:
        """Move the name of a variable that the program reads or sets."""
        first = node.args[0] if node.args else None
        if not (
            isinstance(first, ast.Constant) and isinstance(first.value, str) and ours(first.value)
        ):
            return
        second = node.args[1] if len(node.args) > 1 else None
        value = second.value if isinstance(second, ast.Constant) else None
        text = value if isinstance(value, str) else ""
        found = answer(first.value, text)
        if found.lacking or not found.pairs:
            self.lose(node, self.source(node), found.why, found.nearest)
        elif found.pairs[0][0] != first.value:
            self.edit(first, f'"{found.pairs[0][0]}"', found.why, found.source)
        new = found.pairs[0][1].strip('"') if found.pairs else text
        if len(found.pairs) == 1 and text and new != text:
            self.edit(node.args[1], f'"{new}"', found.why, found.source)

    def timeout(self, node: ast.Call) -> None:
        """Read ``timeout=timedelta(minutes=30)``."""
        units = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}
        for k in node.keywords:
            if k.arg == "timeout" and isinstance(k.value, ast.Call):
                parts = [(w.arg or "", w.value) for w in k.value.keywords]
                numbers = [
                    units.get(n, 0.0) * v.value
                    for n, v in parts
                    if isinstance(v, ast.Constant) and isinstance(v.value, int | float)
                ]
                seconds = sum(numbers)
                self.group_s = seconds or self.group_s

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Move ``torch.cuda`` wherever it stands."""
        name = self.full(node)
        if name == "torch.cuda.CUDAGraph" and self.source(node).endswith("cuda.CUDAGraph"):
            new = self.source(node).removesuffix("cuda.CUDAGraph") + "npu.NPUGraph"
            self.edit(node, new, "the NPU's graph")
            return
        if name == "torch.cuda" and isinstance(node.value, ast.Name):
            self.edit(node, f"{node.value.id}.npu", "the NPU's module")
        elif name in WIDE:
            self.use(name, node)
        elif node.attr == "is_cuda" and not name:
            self.edit(node, self.source(node).removesuffix("is_cuda") + "is_npu", "the NPU's flag")
        elif any(name.startswith(p) for p in GONE):
            self.lose(
                node,
                self.source(node),
                "no counterpart; the line is kept",
                next(GONE[p] for p in GONE if name.startswith(p)),
            )
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        """Move variables of an environment that is written as a dictionary."""
        for key, value in zip(node.keys, node.values, strict=True):
            if not (
                isinstance(key, ast.Constant) and isinstance(key.value, str) and ours(key.value)
            ):
                continue
            text = str(value.value) if isinstance(value, ast.Constant) else ""
            found = answer(key.value, text)
            if found.lacking or len(found.pairs) != 1 or not isinstance(value, ast.Constant):
                near = found.nearest or ", ".join(f"{k}={v}" for k, v in found.pairs)
                self.lose(key, f"{key.value}: {text}", found.why, near)
            elif found.pairs[0] != (key.value, text):
                new = found.pairs[0][1].strip('"')
                self.edit(key, f'"{found.pairs[0][0]}"', found.why, found.source)
                if new != text:
                    self.edit(value, f'"{new}"', found.why, found.source)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Move the name of a variable that is read as ``os.environ["NCCL_X"]``."""
        key = node.slice
        if (
            self.full(node.value) == "os.environ"
            and isinstance(key, ast.Constant)
            and isinstance(key.value, str)
            and ours(key.value)
        ):
            if key.value in MAP:
                self.edit(key, f'"{MAP[key.value]}"', f"counterpart of {key.value}")
            elif not answer(key.value, "").kept:
                self.lose(node, self.source(node), "read here, and it has another meaning or none")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Move device and backend names."""
        if not isinstance(node.value, str):
            return
        text = self.source(node)
        if DEVICE.match(node.value):
            self.edit(node, text.replace("cuda", "npu"), "the device")
        elif node.value in ("nccl", "cpu:gloo,cuda:nccl"):
            self.edit(node, text.replace("nccl", "hccl").replace("cuda", "npu"), "the backend")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Move ``f"cuda:{rank}"`` and ``torch.cuda`` inside as one piece of text.

        Places inside a formatted string are not exact before Python 3.12.
        """
        text = re.sub(r"([\"'])cuda:", r"\1npu:", self.source(node), count=1)
        text = re.sub(r"\btorch\.cuda\b", "torch.npu", text)
        self.edit(node, text, "the device")
        before, self.quiet = self.quiet, True
        self.generic_visit(node)
        self.quiet = before
