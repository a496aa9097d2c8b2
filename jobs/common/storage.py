"""Writing files so that they are whole or absent, and hashing them."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from io import FileIO
from pathlib import Path

_CHUNK_BYTES = 1 << 20
_LEAST_CHUNK_BYTES = 1 << 12


def sha256_bytes(data: bytes) -> str:
    """Return the SHA-256 of bytes as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def nothing() -> None:
    """Do nothing between two pieces of long work."""


def sha256_file(path: Path | bytes, between: Callable[[], None] = nothing) -> str:
    """Return the SHA-256 of a regular file's content as 64 hex digits; a link is not followed.

    Args:
        path: The file.
        between: Called after every MiB: what takes minutes must end when the job is told to stop.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0) as stream:
        return sha256_stream(stream, between)


def sha256_stream(stream: FileIO, between: Callable[[], None] = nothing) -> str:
    """Return the same of an open file, from where it stands."""
    digest = hashlib.sha256()
    # Most files are small, and a large buffer is filled with zeros first.
    buffer = bytearray(min(max(os.fstat(stream.fileno()).st_size, _LEAST_CHUNK_BYTES), _CHUNK_BYTES))
    view = memoryview(buffer)
    while count := stream.readinto(buffer):
        digest.update(view[:count])
        between()
    return digest.hexdigest()


def read_regular(path: Path) -> bytes:
    """Return a regular file's bytes; a link is not followed, and no pipe is waited for.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        return stream.readall()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_temporary(path: Path, data: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o644), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def write_new(path: Path, data: bytes) -> None:
    """Create a file, whole and durable.

    Raises:
        FileExistsError: The name is taken; nothing was changed.
    """
    temporary = _write_temporary(path, data)
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink()
    sync_folder(path.parent)


def write_table(path: Path, data: bytes) -> None:
    """Put a file in place by rename, its content durable; the receipt that follows makes the name durable too."""
    if path.exists():
        raise FileExistsError(f"{path} is there already")
    _write_temporary(path, data).replace(path)
