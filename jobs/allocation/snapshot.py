"""Private copies of frozen trees: copied and hashed in one pass, read-only, and looked at again after every side.

The digest is the tree digest of docs/formats.md.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.storage import nothing, sha256_file
from ..common.strict import Fields, parse_json

DOMAIN = b"campaign-tree/1\n"
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a tree."""

    path: bytes
    type: str
    mode: str
    num_bytes: int
    sha256: str


class TreeError(Exception):
    """A tree is not what its digest says."""


def tree_digest(entries: Sequence[Entry]) -> str:
    """Return the digest of a tree."""
    digest = hashlib.sha256(DOMAIN)
    for entry in sorted(entries, key=lambda item: item.path):
        fields = (entry.type.encode(), entry.mode.encode(), entry.path, b"%d" % entry.num_bytes, entry.sha256.encode())
        for field in fields:
            digest.update(b"%d:%s," % (len(field), field))
    return digest.hexdigest()


def _entry_of(path: Path, relative: bytes, status: os.stat_result, between: Callable[[], None]) -> Entry:
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        return Entry(path=relative, type="d", mode="755", num_bytes=0, sha256="")
    if stat.S_ISLNK(mode):
        target = os.readlink(os.fsencode(path))  # noqa: PTH115 - bytes, not text
        sha256 = hashlib.sha256(target).hexdigest()
        return Entry(path=relative, type="l", mode="777", num_bytes=len(target), sha256=sha256)
    if not stat.S_ISREG(mode):
        raise TreeError(f"{path}: neither a file, a folder nor a link")
    executable = "755" if mode & stat.S_IXUSR else "644"
    return Entry(path=relative, type="f", mode=executable, num_bytes=status.st_size, sha256=sha256_file(path, between))


def walk(root: Path) -> Iterator[tuple[bytes, os.stat_result]]:
    """Yield path and status of everything below a folder; links are not followed."""
    folders = [(os.fsencode(root), b"")]
    while folders:
        folder, prefix = folders.pop()
        with os.scandir(folder) as found:
            for child in found:
                status = child.stat(follow_symlinks=False)
                yield prefix + child.name, status
                if stat.S_ISDIR(status.st_mode):
                    folders.append((child.path, prefix + child.name + b"/"))


def walk_from(top: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield whole path and status of what is there, and if it is a folder, of everything below it."""
    status = top.lstat()
    yield str(top), status
    if stat.S_ISDIR(status.st_mode):
        for path, below in walk(top):
            # Joined as text: there are hundreds, looked at after each side.
            yield f"{top}/{os.fsdecode(path)}", below


def read_tree(root: Path, between: Callable[[], None] = nothing) -> list[Entry]:
    """Return the entries of a folder as it is on disk.

    Args:
        root: The folder.
        between: Called between pieces of what is read.

    Raises:
        TreeError: It holds something that no snapshot can.
    """
    return [_entry_of(root / os.fsdecode(path), path, status, between) for path, status in walk(root)]


# --- files.json -------------------------------------------------------------------------------------------------------


def _path(fields: Fields, value: dict[str, Any]) -> bytes:
    encoded = base64.b64decode(fields.text("path_b64"), validate=True) if "path_b64" in value else None
    path = fields.text("path").encode("utf-8") if encoded is None else encoded
    if not path or b"\0" in path or any(part in (b"", b".", b"..") for part in path.split(b"/")):
        raise ValueError(f"files.json: a path leaves the tree: {path!r}")
    return path


def _entry(value: Any) -> Entry:
    fields = Fields(value, "files.json")
    entry = Entry(
        path=_path(fields, value),
        type=fields.text("type"),
        mode=fields.text("mode"),
        num_bytes=fields.count("bytes"),
        sha256=fields.text("sha256"),
    )
    fields.skip(("origin",))
    fields.done()
    if entry.type not in ("f", "d", "l"):
        raise ValueError(f"files.json: unknown type {entry.type!r}")
    return entry


def parse_listing(data: bytes) -> list[Entry]:
    """Parse files.json.

    Raises:
        ValueError: It is not such a document.
    """
    fields = Fields(parse_json(data), "files.json")
    if fields.text("format") != "files/1":
        raise ValueError("files.json: not of format files/1")
    entries = [_entry(value) for value in fields.items("entries")]
    fields.done()
    return entries


# --- private copies ---------------------------------------------------------------------------------------------------


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    """Return what changes when an entry is written, replaced, renamed or has its mode changed, for whatever reason.

    The time of the last status change cannot be set back by a process, so that a change which was undone shows too.
    """
    return (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateCopy:
    """A private copy of a tree, as it was when its digest was checked."""

    root: Path
    stamps: dict[bytes, tuple[int, ...]]

    def changes(self) -> list[str]:
        """Return what is different now: added, gone or touched entries, as printable paths."""
        now = _stamps(self.root)
        paths = {path for path in {*now, *self.stamps} if now.get(path) != self.stamps.get(path)}
        return sorted(ascii(os.fsdecode(path))[1:-1] or "." for path in paths)


def _stamps(root: Path) -> dict[bytes, tuple[int, ...]]:
    try:
        stamps = {path: _stamp(status) for path, status in walk(root)}
        return {b"": _stamp(root.lstat()), **stamps}
    except OSError:
        # Gone, or made unreadable: nothing of it is as it was.
        return {}


def _copy_file(source: Path | str, target: Path | str, mode: str) -> str:
    """Copy a file; return the SHA-256 of what was copied."""
    digest = hashlib.sha256()
    read_fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    write_fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(read_fd, "rb", buffering=0) as reading, os.fdopen(write_fd, "wb", buffering=0) as writing:
        while chunk := reading.read(CHUNK):
            digest.update(chunk)
            view = memoryview(chunk)
            while view:
                view = view[writing.write(view) :]
        os.fchmod(writing.fileno(), 0o555 if mode == "755" else 0o444)
    return digest.hexdigest()


def _copy_link(source: Path, target: Path, entry: Entry) -> None:
    text = os.readlink(os.fsencode(source))  # noqa: PTH115 - bytes, not text
    if hashlib.sha256(text).hexdigest() != entry.sha256:
        raise TreeError(f"{source}: the link says something else than what was frozen")
    os.symlink(text, os.fsencode(target))  # noqa: PTH211 - bytes, not text


def _copy_entry(source: Path, target: Path, entry: Entry) -> None:
    if entry.type == "d":
        target.mkdir()
    elif entry.type == "l":
        _copy_link(source, target, entry)
    elif (sha256 := _copy_file(source, target, entry.mode)) != entry.sha256:
        raise TreeError(f"{source}: its SHA-256 is {sha256}, frozen is {entry.sha256}")


def _check(source: Path, entries: Sequence[Entry], sha256: str) -> None:
    if (found := tree_digest(entries)) != sha256:
        raise TreeError(f"the list of files of {source} has the digest {found}, frozen is {sha256}")


def _close(target: Path) -> PrivateCopy:
    """Make a copy read-only and take down how it is."""
    for path, status in walk(target):
        if stat.S_ISDIR(status.st_mode):
            (target / os.fsdecode(path)).chmod(0o555)
    target.chmod(0o555)
    return PrivateCopy(root=target, stamps=_stamps(target))


def materialise(
    source: Path, entries: Sequence[Entry], sha256: str, target: Path, between: Callable[[], None] = nothing
) -> PrivateCopy:
    """Copy a frozen tree to a new folder, checking every byte on the way.

    Args:
        source: The frozen tree.
        entries: Its entries.
        sha256: The tree digest that they shall have.
        target: The folder to create.
        between: Called between two entries.

    Raises:
        TreeError: The tree or its list is not what was frozen.
    """
    _check(source, entries, sha256)
    target.mkdir()
    try:
        for entry in sorted(entries, key=lambda item: item.path):
            between()
            name = os.fsdecode(entry.path)
            _copy_entry(source / name, target / name, entry)
    except FileNotFoundError as error:
        raise TreeError(f"{error.filename}: is listed but not there") from error
    return _close(target)


def everything(_path: str) -> bool:
    """Return True: all of a tree is copied."""
    return True


def copy_whole(
    source: Path,
    sha256: str,
    target: Path,
    *,
    keeps: Callable[[str], bool] = everything,
    add: Callable[[], None] = nothing,
) -> PrivateCopy:
    """Copy a frozen tree of files and folders that has no list to a new folder, reading every byte once.

    Args:
        source: The frozen tree.
        sha256: The tree digest that it shall have.
        target: The folder to create.
        keeps: Returns whether an entry is copied, by its relative path; what is not is read all the same.
        add: Called once the copy is known to be what was frozen, before it is read-only.

    Raises:
        TreeError: The tree is not what was frozen.
    """
    target.mkdir()
    entries = []
    for path, status in walk(source):
        name = os.fsdecode(path)
        if stat.S_ISREG(status.st_mode):
            mode = "755" if status.st_mode & stat.S_IXUSR else "644"
            if keeps(name):
                found = _copy_file(f"{source}/{name}", f"{target}/{name}", mode)
            else:
                found = sha256_file(source / name)
            entries.append(Entry(path=path, type="f", mode=mode, num_bytes=status.st_size, sha256=found))
        elif stat.S_ISDIR(status.st_mode):
            if keeps(name):
                (target / name).mkdir()
            entries.append(Entry(path=path, type="d", mode="755", num_bytes=0, sha256=""))
        else:
            raise TreeError(f"{source / name}: neither a file nor a folder")
    _check(source, entries, sha256)
    add()
    return _close(target)


def _open_up(folder: str) -> None:
    """Let the entries of a folder be listed and removed; where a link leads, nothing is touched."""
    with contextlib.suppress(OSError):
        if not stat.S_ISLNK(os.lstat(folder).st_mode):
            os.chmod(folder, 0o700)  # noqa: PTH101 - there are dozens for each side


def remove_tree(root: Path) -> None:
    """Remove a folder that may hold read-only ones; what cannot be removed stays."""
    _open_up(str(root))
    for folder, names, _ in os.walk(root):
        for name in names:
            _open_up(f"{folder}/{name}")
    shutil.rmtree(root, ignore_errors=True)
