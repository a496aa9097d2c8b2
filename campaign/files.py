"""Writing and hashing files: atomic, durable, never overwriting in silence."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any

from campaign.errors import EvidenceError, InfrastructureError


def sha256_bytes(data: bytes) -> str:
    """Return the SHA-256 of bytes as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's content as 64 hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_regular(path: Path) -> bytes:
    """Read a regular file without following a link in its last part.

    Raises:
        EvidenceError: It is missing, unreadable or something else.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise EvidenceError(f"cannot be read: {error.strerror}", where=str(path)) from error
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise EvidenceError("not a regular file", where=str(path))
        return stream.read()


def dump_json(value: Any) -> bytes:
    """Return the bytes of a JSON document: sorted keys, two-space indent, ASCII, final newline, no NaN."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            raise ValueError(f"duplicate key {key!r}")
        value[key] = item
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def parse_json(data: bytes, *, where: str) -> Any:
    """Parse JSON strictly: UTF-8, no duplicate keys, no NaN or infinity.

    Raises:
        EvidenceError: The bytes are not such a document.
    """
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise EvidenceError(f"not a valid JSON document: {error}", where=where) from error


def read_json(path: Path) -> Any:
    """Read and parse a JSON file strictly; see `parse_json`."""
    return parse_json(path.read_bytes(), where=str(path))


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(folder: Path) -> None:
    """Make everything written to the file system of a folder durable: one call instead of one fsync per file.

    Raises:
        InfrastructureError: The file system reports that something could not be written.
    """
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:  # not Linux
        os.sync()
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if syncfs(descriptor) != 0:
            raise InfrastructureError(f"sync failed: {os.strerror(ctypes.get_errno())}", where=str(folder))
    finally:
        os.close(descriptor)


def _write_temporary(path: Path, data: bytes, mode: int) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    return temporary


def write_new(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Create a file atomically and durably.

    Raises:
        FileExistsError: The name is taken; nothing was changed.
    """
    temporary = _write_temporary(path, data, mode)
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink()
    sync_folder(path.parent)


def replace(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file atomically and durably over whatever has its name: only for what can be derived again."""
    _write_temporary(path, data, mode).replace(path)
    sync_folder(path.parent)
