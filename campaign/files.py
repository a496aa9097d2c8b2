"""Writing and hashing files: atomic, durable, never overwriting in silence."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from campaign.errors import EvidenceError, InfrastructureError, StateError


def sha256_bytes(data: bytes) -> str:
    """Return the SHA-256 of bytes as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's content as 64 hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _open_regular(path: Path | str) -> int:
    # O_NONBLOCK: opening a pipe must not wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise EvidenceError("not a regular file", where=str(path))
    return descriptor


_FIRST_BYTES = 1 << 16
"""Of a file that is read as a whole: most are smaller, and need no second look."""


def _read_regular(path: Path | str) -> bytes:
    descriptor = _open_regular(path)
    try:
        data = os.read(descriptor, _FIRST_BYTES)
        if len(data) < _FIRST_BYTES:
            # A regular file gives less than was asked for at its end alone, but for a signal or a network's mood.
            more = os.read(descriptor, _FIRST_BYTES)
            if not more:
                return data
            data += more
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            return data + stream.read()
    finally:
        os.close(descriptor)


def sha256_regular(path: Path) -> str:
    """Return the SHA-256 of a regular file of any size, without following a link in its last part.

    Raises:
        EvidenceError: It is missing, unreadable or something else.
    """
    try:
        with os.fdopen(_open_regular(path), "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise EvidenceError(f"cannot be read: {error.strerror}", where=str(path)) from error


def read_regular(path: Path | str) -> bytes:
    """Read a regular file without following a link in its last part.

    Raises:
        EvidenceError: It is missing, unreadable or something else.
    """
    try:
        return _read_regular(path)
    except OSError as error:
        raise EvidenceError(f"cannot be read: {error.strerror}", where=str(path)) from error


def read_if_there(path: Path) -> bytes | None:
    """Read a regular file as `read_regular` does; None if nothing has that name.

    Raises:
        EvidenceError: It is something else.
        InfrastructureError: It cannot be read.
    """
    try:
        return _read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:  # a link; a socket
            raise EvidenceError("not a regular file", where=str(path)) from error
        raise refusal(error, path, "cannot be read") from error


def require_folder_or_nothing(path: Path) -> None:
    """Refuse a file, or a link that leads nowhere, that has the name of a folder which is written when it is needed.

    Raises:
        StateError: It is one.
    """
    if os.path.lexists(path) and not path.is_dir():
        raise StateError("not a folder", where=str(path), hint=f"move it aside: mv {path} {path}.aside")


def dump_json(value: Any) -> bytes:
    """Return the bytes of a JSON document: sorted keys, two-space indent, ASCII, final newline, no NaN."""
    # The standard library indents in Python, which takes several times as long as to write in one line and indent that.
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    try:
        return msgspec.json.format(text.encode("ascii"), indent=2) + b"\n"
    except msgspec.DecodeError:  # a name that is no Unicode, such as one of a file, stands there as half a pair
        return (json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, indent=2) + "\n").encode("ascii")


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


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM})
_IN_THE_WAY = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENOTEMPTY})


def hint_of(error: OSError) -> str:
    """Return what to try after the operating system refused to read or write."""
    if error.errno in _FULL:
        return "free some space or raise the quota, then run the command again"
    if error.errno == errno.EROFS:
        return "the file system is mounted read-only: use a copy of the home in a folder that can be written"
    if error.errno in _FORBIDDEN:
        return "use an account that may read and write the home, or mend the modes of its folders (ls -ld)"
    if error.errno in _IN_THE_WAY:
        return "look what is in the way (ls -ld), and move it aside"
    return "look at the file system (df -h, dmesg), then run the command again"


def refusal(error: OSError, path: Path | str, what: str = "cannot be written") -> InfrastructureError:
    """Return the error to show for one of the operating system."""
    return InfrastructureError(f"{what}: {error.strerror or error}", where=str(path), hint=hint_of(error))


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Give an error of the operating system an exit code and the name of the file; a name that is taken passes.

    Args:
        path: What the block writes.

    Raises:
        InfrastructureError: The block could not write.
        FileExistsError: The block found the name taken.
    """
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise refusal(error, path) from error


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


@contextlib.contextmanager
def _temporary(path: Path, data: bytes, mode: int) -> Iterator[Path]:
    """Provide a durable file beside a path, which is gone when the block ends."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        yield temporary
    finally:
        with contextlib.suppress(OSError):  # renamed into place, or never made
            temporary.unlink()


def write_new(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Create a file atomically and durably.

    Raises:
        FileExistsError: The name is taken; nothing was changed.
        InfrastructureError: It cannot be written; nothing was left.
    """
    with writing(path):
        with _temporary(path, data, mode) as temporary:
            os.link(temporary, path)
        sync_folder(path.parent)


def replace(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file atomically and durably over whatever has its name: only for what can be derived again.

    Raises:
        InfrastructureError: It cannot be written; what was there still is.
    """
    with writing(path):
        with _temporary(path, data, mode) as temporary:
            temporary.replace(path)
        sync_folder(path.parent)
