"""Snapshots on disk: immutable, checked, complete or absent.

``snapshots/step-00000050/`` holds ``state.bin`` (tensors, 64-byte aligned), ``layout.bin`` (table
of contents) and ``manifest.json``; sharded.py says where the folders of shards lie. Data are
written to a hidden folder and synced, the manifest is written last, the folder is renamed and its
parent synced. A CRC-32 per 4 MiB of data, one of the table and one of the manifest itself: a
flipped bit anywhere is found.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import shutil
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from lightloom.core.errors import InputError

from .layout import Layout, Piece, decode

CHUNK = 4 * 2**20
MANIFEST = "manifest.json"


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a complete snapshot holds."""

    version: int = 1
    step: int
    cursor: int
    """Micro-batches consumed: the exact data position."""
    size: int
    """Bytes of state.bin."""
    chunk: int = CHUNK
    sums: tuple[int, ...]
    """CRC-32 of each chunk of state.bin."""
    layout_sum: int
    run: str = ""
    made_s: float = 0.0
    """Seconds since 1970."""
    crc: int = 0
    """CRC-32 of this manifest with crc = 0."""

    def sealed(self) -> Manifest:
        """Return the manifest with its own checksum."""
        bare = msgspec.structs.replace(self, crc=0)
        return msgspec.structs.replace(bare, crc=zlib.crc32(msgspec.json.encode(bare)))


def name_of(step: int) -> str:
    """Return the folder name of the snapshot after a step."""
    return f"step-{step:08d}"


def write(
    folder: Path, step: int, cursor: int, toc: bytes, data: memoryview, *, run: str = "",
    rest: Callable[[], None] | None = None,
) -> Path:  # fmt: skip
    """Write a snapshot and return its folder; on any error nothing visible is left.

    `rest` is called after each chunk: the pace. One of the same step and course stays as it is.
    """
    final = folder / name_of(step)
    if mark_of(final) == decode(toc).mark:
        return final
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{final.name}.{secrets.token_hex(4)}"
    try:
        draft.mkdir()
        sums = _write_data(draft / "state.bin", data, rest)
        _write_synced(draft / "layout.bin", toc)
        manifest = Manifest(
            step=step, cursor=cursor, size=len(data), sums=tuple(sums),
            layout_sum=zlib.crc32(toc), run=run, made_s=time.time(),
        ).sealed()  # fmt: skip
        _write_synced(draft / MANIFEST, msgspec.json.encode(manifest))
        _sync_folder(draft)
        if final.exists():
            shutil.rmtree(final)
        draft.rename(final)
        _sync_folder(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return final


def _write_data(path: Path, data: memoryview, rest: Callable[[], None] | None) -> list[int]:
    sums = []
    with open(path, "wb", buffering=0) as stream:
        for at in range(0, len(data), CHUNK):
            part = data[at : at + CHUNK]
            sums.append(zlib.crc32(part))
            _write_all(stream.fileno(), part)
            if rest is not None:
                if (at // CHUNK) % 8 == 7:
                    os.fdatasync(stream.fileno())
                rest()
        os.fdatasync(stream.fileno())
    return sums


def _write_all(fd: int, part: memoryview) -> None:
    while len(part):
        done = os.write(fd, part)
        if done == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part = part[done:]


def _write_synced(path: Path, data: bytes) -> None:
    with open(path, "wb", buffering=0) as stream:
        _write_all(stream.fileno(), memoryview(data))
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove(paths: Iterable[Path], folder: Path) -> None:
    """Delete snapshots of a folder, and drafts that writers left there when killed."""
    for old in paths:
        (old / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(old, ignore_errors=True)
    for draft in folder.glob(".step-*"):
        if time.time() - draft.stat().st_mtime > 600:
            shutil.rmtree(draft, ignore_errors=True)


def folders(folder: Path) -> list[Path]:
    """Return the complete snapshots of a folder, oldest step first."""
    return sorted(p for p in folder.glob("step-*") if (p / MANIFEST).is_file())


def manifest(path: Path) -> Manifest:
    """Return the checked manifest of one snapshot, or say what is wrong with it."""
    try:
        found = msgspec.json.decode((path / MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError as error:
        raise InputError(f"snapshot {path}: no manifest: it was never completed") from error
    except (msgspec.MsgspecError, OSError, ValueError) as error:
        raise InputError(f"snapshot {path}: the manifest cannot be read: {error}") from error
    if found.sealed().crc != found.crc:
        raise InputError(f"snapshot {path}: the manifest's checksum is wrong")
    return found


def layout(path: Path) -> Layout:
    """Return the checked table of contents of one snapshot."""
    found = manifest(path)
    try:
        toc = (path / "layout.bin").read_bytes()
    except OSError as error:
        raise InputError(f"snapshot {path}: {error}") from error
    if zlib.crc32(toc) != found.layout_sum:
        raise InputError(f"snapshot {path}: layout.bin: the checksum is wrong")
    return decode(toc, f"snapshot {path}")


def mark_of(path: Path) -> str | None:
    """Return which course of the training a snapshot is of; None if that cannot be read."""
    try:
        return layout(path).mark
    except InputError:
        return None


def read(path: Path) -> tuple[Layout, mmap.mmap]:
    """Return (table of contents, private writable memory of the tensors), each chunk checked."""
    found = manifest(path)
    toc = layout(path)
    try:
        size = (path / "state.bin").stat().st_size
        if size != found.size:
            raise InputError(
                f"snapshot {path}: state.bin has {size} bytes, the manifest says {found.size}"
            )
        with open(path / "state.bin", "rb") as stream:
            memory = mmap.mmap(-1, max(found.size, 1))
            whole = memoryview(memory)
            for index, want in enumerate(found.sums):
                part = whole[index * found.chunk : min((index + 1) * found.chunk, found.size)]
                _read_all(stream, part)
                if zlib.crc32(part) != want:
                    first = next(
                        (p.name for p in toc.pieces if p.offset + p.size > index * found.chunk), "?"
                    )
                    raise InputError(
                        f"snapshot {path}: state.bin: chunk {index} of {len(found.sums)} is "
                        f"damaged (from tensor {first} on)"
                    )
            whole.release()
    except OSError as error:
        raise InputError(f"snapshot {path}: {error}") from error
    return toc, memory


def _read_all(stream: Any, part: memoryview) -> None:
    while len(part):
        got = stream.readinto(part)
        if not got:
            raise InputError("state.bin ends early")
        part = part[got:]


def verify(path: Path) -> str:
    """Return what is wrong with a snapshot, an empty string if every byte is right."""
    try:
        _, memory = read(path)
    except InputError as error:
        return str(error).removeprefix(f"snapshot {path}: ")
    memory.close()
    return ""


def position(path: Path) -> tuple[int, int]:
    """Return (step, micro-batches consumed) of a snapshot."""
    found = manifest(path)
    return found.step, found.cursor


def part(path: Path, piece: Piece, start: int, stop: int) -> bytes:
    """Return rows start..stop of one tensor without reading the rest (resharding on load).

    Whole chunks around the rows are read and checked.
    """
    found = manifest(path)
    row = piece.size // piece.shape[0] if piece.shape and piece.shape[0] else piece.size
    lo, hi = piece.offset + start * row, piece.offset + stop * row
    first, last = lo // found.chunk, max(hi - 1, lo) // found.chunk
    with open(path / "state.bin", "rb") as stream:
        stream.seek(first * found.chunk)
        data = stream.read((last - first + 1) * found.chunk)
    for index in range(first, last + 1):
        inside = data[(index - first) * found.chunk : (index - first + 1) * found.chunk]
        if zlib.crc32(inside) != found.sums[index]:
            raise InputError(f"snapshot {path}: state.bin: chunk {index} is damaged")
    return data[lo - first * found.chunk : hi - first * found.chunk]
