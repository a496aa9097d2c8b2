"""Copying what a side saved, file by file: every byte is hashed as it is written, and no name leads elsewhere.

A side may still have processes that write where the harness reads. So folders and files are opened below open folders,
never by a path that somebody could replace by a link meanwhile, and no file is opened twice.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..common.verified import find_difference, identify

PIECE_BYTES = 8 << 20
"""No more of a file is held in memory."""
MOST_ENTRIES = 10_000
"""Files and folders of one checkpoint."""
MOST_NAME = 500
"""Characters of a file's name below the folder."""
MOST_HOLES_BYTES = 1 << 20
"""So much of all files together may be holes, or an eighth of it: more was never written."""
_LEAST_HELD = 16
"""Where a file system tells no holes, what takes so many times less of the disk than its size has some all the same."""
_BLOCK_BYTES = 512
_PART = re.compile(r"[A-Za-z0-9._+=@,:-]{1,255}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class SourceError(Exception):
    """What shall be copied is not what can be copied, or cannot be read.

    Args:
        text: Which file, and what is wrong with it.
        number: The error of the system, where one said so; 0 otherwise.
    """

    def __init__(self, text: str, number: int = 0) -> None:
        super().__init__(text)
        self.number = number


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedFile:
    """One file of a checkpoint."""

    name: str
    """Relative to the folder, with slashes."""
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What lies in a folder."""

    files: dict[str, tuple[int, ...]]
    """Identity by name."""
    sizes: dict[str, int]
    """Bytes by name."""
    folders: frozenset[str]


def is_name(text: str) -> bool:
    """Return whether a text names a file below a folder, in characters that every system and every shell takes."""
    parts = text.split("/")
    return len(text) <= MOST_NAME and all(_PART.fullmatch(part) and part not in (".", "..") for part in parts)


def folders_of(names: Iterable[str]) -> list[str]:
    """Return every folder that some files lie in, outer ones first."""
    found = {"/".join(parts[:end]) for parts in (name.split("/") for name in names) for end in range(1, len(parts))}
    return sorted(found)


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceError(f"{name or '.'}: {error.strerror}", error.errno or 0) from error


@contextlib.contextmanager
def opened_folder(path: Path | str, above: int | None = None) -> Iterator[int]:
    """Open a folder, not through a link; below an open one if it is given."""
    descriptor = os.open(path, _FOLDER, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened_source(path: Path) -> Iterator[int]:
    """Open the folder to copy from.

    Raises:
        SourceError: It is not there, a link, or no folder.
    """
    with contextlib.ExitStack() as stack:
        with _reading(path.name):
            descriptor = stack.enter_context(opened_folder(path))
        yield descriptor


@contextlib.contextmanager
def _opened_below(root: int, folder: str) -> Iterator[int]:
    """Open a folder some levels below an open one, no level through a link."""
    with contextlib.ExitStack() as stack:
        descriptor = root
        for part in folder.split("/") if folder else ():
            descriptor = stack.enter_context(opened_folder(part, descriptor))
        yield descriptor


def find_files(root: int) -> Found:
    """Return what lies below an open folder.

    Raises:
        SourceError: Something is neither a file nor a folder, is named oddly, or there is too much of it.
    """
    files: dict[str, tuple[int, ...]] = {}
    sizes: dict[str, int] = {}
    folders: list[str] = []
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        for name, found in _scan(root, folder, MOST_ENTRIES - len(files) - len(folders)):
            if stat.S_ISDIR(found.st_mode):
                folders.append(name)
                waiting.append(name)
            elif stat.S_ISREG(found.st_mode):
                files[name], sizes[name] = identify(found), found.st_size
            else:
                raise SourceError(f"{name}: neither a regular file nor a folder")
    return Found(files=files, sizes=sizes, folders=frozenset(folders))


def _scan(root: int, folder: str, most: int) -> list[tuple[str, os.stat_result]]:
    found: list[tuple[str, os.stat_result]] = []
    with _reading(folder), _opened_below(root, folder) as descriptor, os.scandir(descriptor) as entries:
        for entry in entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            if not is_name(name):
                raise SourceError(f"{ascii(name)[:MOST_NAME]}: not a name that a file of a checkpoint may have")
            if len(found) >= most:
                raise SourceError(f"more than {MOST_ENTRIES} files and folders")
            found.append((name, entry.stat(follow_symlinks=False)))
    return found


def make_folders(root: int, folders: Iterable[str]) -> None:
    """Make folders below an open one, outer ones first."""
    for folder in folders:
        above, _, name = folder.rpartition("/")
        with _opened_below(root, above) as descriptor:
            os.mkdir(name, dir_fd=descriptor)


def sync_folders(root: int, folders: Iterable[str]) -> None:
    """Make the names in folders below an open one durable, and those in itself last."""
    for folder in sorted(folders, reverse=True):
        with _opened_below(root, folder) as descriptor:
            os.fsync(descriptor)
    os.fsync(root)


def find_mounts(folder: Path, mounts: bytes) -> list[str]:
    """Return where file systems are mounted on a folder or below it: such a one could answer whatever it likes.

    Args:
        folder: The folder, its real path.
        mounts: /proc/self/mountinfo.
    """
    above = os.fsencode(folder)
    points = (line.split(b" ")[4] for line in mounts.splitlines())
    plain = (re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), point) for point in points)
    return [os.fsdecode(point) for point in plain if point == above or point.startswith(above + b"/")]


def refuse_mounts(folder: Path) -> None:
    """Refuse a folder that a file system is mounted on or below.

    Raises:
        SourceError: One is.
    """
    with _reading("mountinfo"):
        mounts = Path("/proc/self/mountinfo").read_bytes()
    if found := find_mounts(folder.parent.resolve() / folder.name, mounts):
        raise SourceError(f"another file system is mounted on {ascii(found[0])[:MOST_NAME]}")


def count_written(root: int, found: Found) -> int:
    """Return how many bytes of the files below an open folder were written: what has holes may claim any size.

    Raises:
        SourceError: More than an eighth of them was not, or one cannot be read.
    """
    claimed = sum(found.sizes.values())
    most, holes = max(MOST_HOLES_BYTES, claimed // 8), 0
    for name in sorted(found.files):
        folder, _, last = name.rpartition("/")
        with _reading(name), _opened_below(root, folder) as above:
            descriptor = os.open(last, _READ, dir_fd=above)
            try:
                holes += _count_holes(descriptor, found.sizes[name], most)
            finally:
                os.close(descriptor)
        if holes > most:
            text = f"a file with holes: more than {most} of {claimed} bytes were never written. Write zeros as well"
            raise SourceError(f"{name}: {text}")
    return claimed - holes


def _count_holes(descriptor: int, num_bytes: int, most: int) -> int:
    """Return how many bytes of an open file are holes; from some number on it may be less than all."""
    holes = position = 0
    while position < num_bytes and holes <= most:
        data = min(_seek(descriptor, position, os.SEEK_DATA, num_bytes), num_bytes)
        holes += data - position
        position = _seek(descriptor, data, os.SEEK_HOLE, num_bytes)
    if num_bytes - holes > _LEAST_HELD * _held_bytes(descriptor):
        # Some file systems count blocks when they write them.
        os.fsync(descriptor)
        held = _held_bytes(descriptor)
        return num_bytes - held if num_bytes - holes > _LEAST_HELD * held else holes
    return holes


def _held_bytes(descriptor: int) -> int:
    """Return what a file takes of its disk, or as much as blocks of a small one may lie elsewhere."""
    return max(os.fstat(descriptor).st_blocks * _BLOCK_BYTES, _BLOCK_BYTES)


def _seek(descriptor: int, position: int, whence: int, num_bytes: int) -> int:
    """Return where the next data or hole begins; the file's end if there is none."""
    try:
        return os.lseek(descriptor, position, whence)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return num_bytes
        if error.errno == errno.EINVAL:  # the file system tells no holes
            return position if whence == os.SEEK_DATA else num_bytes
        raise


def check_room(target: int, num_bytes: int) -> None:
    """Refuse at once what the file system of an open folder has no room for.

    Raises:
        OSError: It has none.
    """
    found = os.fstatvfs(target)
    # Some file systems tell no sizes at all.
    if found.f_blocks > 0 and num_bytes > found.f_bavail * found.f_frsize:
        raise OSError(errno.ENOSPC, f"no room for the {num_bytes} bytes of a checkpoint")


def copy_file(source: int, target: int, name: str, expected: tuple[int, ...] | None, *, durable: bool) -> SavedFile:
    """Copy one file from below an open folder to the same name below another one, read-only.

    Args:
        source: The folder to copy from.
        target: The folder to copy to; the folders between it and the file are there.
        name: The file.
        expected: Its identity, if it must not have changed since, nor change meanwhile.
        durable: Whether the copy shall outlive the machine.

    Raises:
        SourceError: It cannot be read, or changed.
        OSError: The copy cannot be written.
    """
    folder, _, last = name.rpartition("/")
    with contextlib.ExitStack() as stack:
        with _reading(name):
            reading = os.open(last, _READ, dir_fd=stack.enter_context(_opened_below(source, folder)))
            stack.callback(os.close, reading)
            found = os.fstat(reading)
        if not stat.S_ISREG(found.st_mode):
            raise SourceError(f"{name}: not a regular file")
        _expect(name, expected, found)
        writing = os.open(last, _WRITE, 0o600, dir_fd=stack.enter_context(_opened_below(target, folder)))
        stack.callback(os.close, writing)
        sha256 = _copy_bytes(name, reading, writing, found.st_size)
        with _reading(name):
            after = os.fstat(reading)
        _expect(name, expected, after)
        os.fchmod(writing, 0o444)
        if durable:
            os.fsync(writing)
    return SavedFile(name=name, num_bytes=found.st_size, sha256=sha256)


def _expect(name: str, expected: tuple[int, ...] | None, found: os.stat_result) -> None:
    if expected is not None and (changed := find_difference(expected, identify(found))):
        raise SourceError(f"{name}: its {changed} changed after the side said that it is saved")


def _copy_bytes(name: str, reading: int, writing: int, num_bytes: int) -> str:
    """Copy as many bytes as a file had when it was opened, however it grows; return their SHA-256."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(min(PIECE_BYTES, num_bytes)))
    left = num_bytes
    while left:
        with _reading(name):
            size = os.readv(reading, [buffer[: min(PIECE_BYTES, left)]])
        if not size:
            raise SourceError(f"{name}: {left} of {num_bytes} bytes are missing at its end")
        digest.update(buffer[:size])
        _write(writing, buffer[:size])
        left -= size
    return digest.hexdigest()


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
