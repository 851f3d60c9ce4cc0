"""Rows of CSV and SQLite files that a profiler wrote, damaged ones included."""

from __future__ import annotations

import csv
import math
import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightloom.core.errors import InputError
from lightloom.core.files import LARGEST

from .stream import read_pieces

_MAGIC = b"SQLite format 3\x00"


def read_text(path: Path, notes: Counter[str]) -> str:
    """Return the text of a file (unpacked when gzip), bad bytes replaced."""
    parts, size = [], 0
    for piece in read_pieces(path, notes):
        parts.append(piece)
        size += len(piece)
        if size > LARGEST:
            raise InputError(f"{path} is larger than 512 MiB when unpacked")
    return b"".join(parts).decode("utf-8-sig", "replace")


def csv_rows(path: Path, notes: Counter[str]) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV as {column: text}; rows of another length are counted in notes."""
    lines = read_text(path, notes).replace("\x00", "").splitlines()
    reader = csv.reader(lines)
    try:
        header = [name.strip() for name in next(reader, [])]
        for row in reader:
            if len(row) >= len(header) > 1 or (len(row) > 2 and len(row) + 1 == len(header)):
                yield dict(zip(header, (cell.strip() for cell in row), strict=False))
            elif row:
                notes["rows of another length were skipped"] += 1
    except csv.Error as error:
        notes[f"CSV cannot be read to its end ({error})"] += 1


def number(text: object) -> float:
    """Return a finite float, or 0 for N/A, empty and nonsense."""
    try:
        value = float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return value if math.isfinite(value) and abs(value) < 1e15 else 0.0


@contextmanager
def database(path: Path, notes: Counter[str]) -> Iterator[sqlite3.Connection]:
    """Open a SQLite file read only (unpacking gzip to a temporary file); errors are answers."""
    temporary = ""
    try:
        head = next(read_pieces(path, notes), b"")[:16]
        if head != _MAGIC:
            raise InputError(f"{path} is not a SQLite database")
        with path.open("rb") as stream:
            packed = stream.read(2) == b"\x1f\x8b"
        if packed:
            handle, temporary = tempfile.mkstemp(suffix=".db", prefix="lightloom-")
            with os.fdopen(handle, "wb") as stream:
                for piece in read_pieces(path, notes):
                    stream.write(piece)
        name = Path(temporary or path).resolve().as_uri()
        connection = sqlite3.connect(f"{name}?mode=ro&immutable=1", uri=True)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            yield connection
        finally:
            connection.close()
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        raise InputError(
            f"{path}: the database is damaged or of an unknown version: {error}",
            out="export it again, or give the text export",
        ) from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def tables(connection: sqlite3.Connection) -> set[str]:
    """Return the names of the tables."""
    query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
    return {str(row[0]) for row in connection.execute(query)}


def whole(value: Any) -> int:
    """Return an integer of a cell that may be text; 0 for nonsense."""
    try:
        result = int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return result if abs(result) < 2**61 else 0
