"""The one door to files: versioned JSON and TOML in, JSON out, errors with a path."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from .errors import InputError

T = TypeVar("T")
CATALOG = Path(__file__).resolve().parent.parent / "catalog"
LARGEST = 512 * 2**20


def read_bytes(path: Path | str, what: str = "file") -> bytes:
    """Return the bytes of `path`, or say why it cannot be read."""
    path = Path(path)
    try:
        if path.is_dir():
            raise InputError(f"{what}: {path} is a folder, not a file")
        if path.stat().st_size > LARGEST:
            raise InputError(f"{what}: {path} is larger than 512 MiB")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{what}: {path} does not exist") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{what}: {path} cannot be read: {error}") from error


def decode_json(data: bytes, kind: type[T], where: str) -> T:
    """Return `data` as a checked noun; errors name file and field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(f"{where}: {error}") from error


def decode_toml(data: bytes, kind: type[T], where: str) -> T:
    """Return `data` as a checked noun; errors name file and field."""
    try:
        return msgspec.toml.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(f"{where}: {error}") from error


def read_json(path: Path | str, kind: type[T], what: str = "file") -> T:
    """Return the noun in a JSON file."""
    return decode_json(read_bytes(path, what), kind, f"{what} {path}")


def read_toml(path: Path | str, kind: type[T], what: str = "file") -> T:
    """Return the noun in a TOML file."""
    return decode_toml(read_bytes(path, what), kind, f"{what} {path}")


def encode_json(noun: Any) -> bytes:
    """Return indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(noun), indent=2) + b"\n"


def write_bytes(path: Path | str, data: bytes) -> None:
    """Write `data` so that a reader sees the old file or the whole new one, never a part."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"cannot write {path}: {error}") from error


def write_json(path: Path | str, noun: Any) -> None:
    """Write a noun as JSON, atomically."""
    write_bytes(path, encode_json(noun))
