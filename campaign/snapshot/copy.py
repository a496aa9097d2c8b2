"""Copies the files of a scan, each read once: hashed while it is copied, and refused when it changes meanwhile."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from campaign import files
from campaign.errors import StateError
from campaign.snapshot.entries import show
from campaign.snapshot.scan import Found, Stamp, unreadable

CHUNK_BYTES = 1 << 20
_BATCH = 64
_MOST_THREADS = 4
_HEAD_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What was seen of one file while it was copied."""

    item: Found
    sha256: str
    blob: str
    """What git would call its content; empty where the last commit has nothing to compare with."""
    head: bytes
    """Its first bytes."""


def copy_files(
    items: Sequence[Found], source: bytes, target: bytes, *, progress: Callable[[int], None]
) -> Iterator[Copied]:
    """Copy files into existing folders, read-only, and yield what was seen of each, in order.

    Args:
        items: The files.
        source: Folder that their paths are relative to.
        target: Folder to copy them into.
        progress: Called with the bytes of each file, from several threads in turn.

    Raises:
        StateError: A file changed since the scan or while it was read.
        ConfigError: A file cannot be read.
        InfrastructureError: The copy cannot be written.
    """
    copier = _Copier(source=source, target=target, progress=progress, lock=threading.Lock(), local=threading.local())
    batches = [items[start : start + _BATCH] for start in range(0, len(items), _BATCH)]
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        try:
            for copied in pool.map(copier.copy_batch, batches):
                yield from copied
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def changed(path: bytes, what: str = "changed while it was being frozen") -> StateError:
    """Return the error about a source that does not stand still."""
    return StateError(
        what,
        where=show(path),
        why="a snapshot must be of one moment",
        hint="let whatever writes there end, then freeze again",
    )


@dataclass(slots=True, kw_only=True)
class _Copier:
    source: bytes
    target: bytes
    progress: Callable[[int], None]
    lock: threading.Lock
    local: threading.local

    def copy_batch(self, items: Sequence[Found]) -> list[Copied]:
        copied = []
        for item in items:
            copied.append(self._copy(item))
            with self.lock:
                self.progress(item.stamp.num_bytes)
        return copied

    def _copy(self, item: Found) -> Copied:
        reader = self._open_source(item)
        try:
            if Stamp.of(os.fstat(reader)) != item.stamp:
                raise changed(item.path)
            copied = self._stream(item, reader)
            if Stamp.of(os.fstat(reader)) != item.stamp:
                raise changed(item.path)
        finally:
            os.close(reader)
        return copied

    def _open_source(self, item: Found) -> int:
        try:
            # O_NONBLOCK: should a pipe have taken the file's place, opening it must not wait for a writer.
            return os.open(self.source + b"/" + item.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
                raise changed(item.path) from error
            raise unreadable(error, self._place(item)) from error

    def _place(self, item: Found) -> Path:
        return Path(os.fsdecode(self.source)) / show(item.path)

    def _stream(self, item: Found, reader: int) -> Copied:
        sha256 = hashlib.sha256()
        blob = _blob_hash(item)
        head = b""
        num_read = 0
        buffer = self._buffer()
        try:
            mode = 0o555 if item.stamp.mode & stat.S_IXUSR else 0o444
            writer = os.open(self.target + b"/" + item.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
            try:
                while num_bytes := os.readv(reader, [buffer]):
                    chunk = buffer[:num_bytes]
                    head = head or bytes(chunk[:_HEAD_BYTES])
                    sha256.update(chunk)
                    if blob is not None:
                        blob.update(chunk)
                    _write_all(writer, chunk)
                    num_read += num_bytes
                    if num_read > item.stamp.num_bytes:
                        break  # it grows: to follow it to its end might take forever
            finally:
                os.close(writer)
        except OSError as error:
            raise files.refusal(error, self._place(item), "cannot be copied") from error
        if num_read != item.stamp.num_bytes:
            raise changed(item.path)
        return Copied(item=item, sha256=sha256.hexdigest(), blob=blob.hexdigest() if blob else "", head=head)

    def _buffer(self) -> memoryview:
        """Return this thread's buffer: a fresh one for each file would cost as much as the copy."""
        if not hasattr(self.local, "buffer"):
            self.local.buffer = memoryview(bytearray(CHUNK_BYTES))
        buffer: memoryview = self.local.buffer
        return buffer


def _blob_hash(item: Found) -> hashlib._Hash | None:
    """Start the hash by which git names a file's content, of the kind that the last commit's name has."""
    if item.committed is None:
        return None
    length = len(item.committed.oid)
    algorithm = hashlib.sha256() if length == 64 else hashlib.sha1(usedforsecurity=False)
    algorithm.update(b"blob %d\0" % item.stamp.num_bytes)
    return algorithm


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
