"""Everything that lies in a home, with size, mode and digest: each file is read once, and all checks ask here.

The folder is listed once, before anything is read. A path is opened only if it was found then, so that no document can
name a file outside the home; links are listed and never followed. Large files are hashed by threads from the beginning
(hashlib lets others run meanwhile); small ones when they are first asked for, which is cheaper than handing them over.
"""

from __future__ import annotations

import enum
import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from types import TracebackType
from typing import Self

from .findings import EvidenceError, Unread, unread

_LARGE_BYTES = 1 << 19
_CHUNK_BYTES = 1 << 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not wait for its writer
MAX_DOCUMENT_BYTES = 1 << 30
"""More than any document has: what is larger is not read into memory."""


class Kind(enum.StrEnum):
    """What something is, as the tree digest spells it."""

    FILE = "f"
    FOLDER = "d"
    LINK = "l"
    OTHER = "o"
    """A device, a pipe, a socket."""


_WORDS = {Kind.FILE: "a file", Kind.FOLDER: "a folder", Kind.LINK: "a symbolic link", Kind.OTHER: "no file or folder"}


@dataclass(frozen=True, slots=True)
class Found:
    """Something in the home.

    Attributes:
        path: Relative to the home, with ``/``; what is not UTF-8 as `os.fsdecode` has it.
        kind: What it is.
        mode: ``755`` or ``644`` of a file, as the tree digest counts it; ``755`` of a folder, ``777`` of a link.
        num_bytes: Size of a file.
        target: Of a link.
        withheld: Whether an export left its content out: then only its digest is known, and no mode.
    """

    path: str
    kind: Kind
    mode: str
    num_bytes: int
    target: str = ""
    withheld: bool = False

    @property
    def word(self) -> str:
        """What it is, for messages."""
        return _WORDS[self.kind]


@dataclass(slots=True)
class Digests:
    """The listing of a home, and the digests of its files. Use it in a ``with`` statement.

    Attributes:
        root: The home.
        withheld: What an export left out, by path relative to the home: bytes and SHA-256.
    """

    root: str
    withheld: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    num_threads: int = field(default_factory=lambda: min(8, os.cpu_count() or 1))
    _found: dict[str, Found] = field(init=False, default_factory=dict)
    _names: dict[str, tuple[str, ...]] = field(init=False, default_factory=dict)
    _unreadable: dict[str, Unread] = field(init=False, default_factory=dict)
    _sha256: dict[str, str] = field(init=False, default_factory=dict)
    _under_way: dict[str, Future[str]] = field(init=False, default_factory=dict)
    _pool: ThreadPoolExecutor = field(init=False)
    _closed: Event = field(init=False, default_factory=Event)

    def __post_init__(self) -> None:
        """List the home, and begin with the large files."""
        self._list("")
        self._add_withheld()
        self._pool = ThreadPoolExecutor(self.num_threads, thread_name_prefix="digest")

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the threads."""
        self.close()

    def close(self) -> None:
        """End the threads; what nobody asked for is not hashed to its end."""
        self._closed.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def hash_ahead(self, *, but: tuple[str, ...] = ()) -> None:
        """Begin to hash the large files in other threads.

        Args:
            but: Folders of the home that nobody will ask for.
        """
        for path, found in self._found.items():
            is_large = found.kind is Kind.FILE and found.num_bytes >= _LARGE_BYTES and not found.withheld
            if is_large and path not in self._sha256 and path.partition("/")[0] not in but:
                self._under_way.setdefault(path, self._pool.submit(self._digest, path))

    # --- what there is ------------------------------------------------------------------------------------------------

    def get(self, path: str) -> Found | None:
        """Return what lies at a path; None if nothing does.

        Raises:
            EvidenceError: It lies in a folder that cannot be listed: nobody knows.
        """
        found = self._found.get(path)
        if found is None:
            self._require_listed(path)
        return found

    def is_file(self, path: str) -> bool:
        """Return whether a regular file lies at a path; raises as `get` does."""
        found = self.get(path)
        return found is not None and found.kind is Kind.FILE

    def is_folder(self, path: str) -> bool:
        """Return whether a folder lies at a path; the home itself is ``""``. Raises as `get` does."""
        if path in self._names:
            return True
        self._require_listed(path)
        return False

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names of what lies in a folder, sorted; none if it is no folder.

        Raises:
            EvidenceError: It cannot be listed, or lies in one that cannot.
        """
        if self._unreadable:
            self._require_listed(f"{folder}/" if folder else "")
        return self._names.get(folder, ())

    def hidden_in(self, path: str) -> str | None:
        """Return the folder that cannot be listed and would hold a path; None if there is none."""
        if not self._unreadable:
            return None
        if "" in self._unreadable:
            return ""
        parts = path.split("/")
        above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
        return next((folder for folder in above if folder in self._unreadable), None)

    def _require_listed(self, path: str) -> None:
        folder = self.hidden_in(path)
        if folder is not None:
            raise EvidenceError(path.rstrip("/"), Unread(f"nobody knows: {folder or 'the home'} cannot be listed"))

    def below(self, folder: str) -> Iterator[Found]:
        """Yield everything below a folder that is known, folders before what they hold; `folder` itself is left out."""
        pending = [folder]
        while pending:
            current = pending.pop()
            prefix = f"{current}/" if current else ""
            here = [self._found[prefix + name] for name in self._names.get(current, ())]
            yield from here
            pending += [found.path for found in reversed(here) if found.kind is Kind.FOLDER]

    @property
    def unreadable(self) -> Mapping[str, Unread]:
        """Folders that could not be listed, the root being ``""``, and why: what they hold is not known."""
        return self._unreadable

    # --- content ------------------------------------------------------------------------------------------------------

    def require_file(self, path: str) -> Found:
        """Return the regular file at a path.

        Raises:
            EvidenceError: There is none.
        """
        found = self.get(path)
        if found is None:
            raise EvidenceError(path, "is not there")
        if found.kind is not Kind.FILE:
            raise EvidenceError(path, f"is {found.word} where a file should be")
        return found

    def require_readable(self, path: str) -> None:
        """Open a file that something else will read, and close it again.

        Raises:
            EvidenceError: There is no file, or it cannot be read.
        """
        self.require_file(path)
        os.close(_open(self._whole(path), path))

    def sha256(self, path: str) -> str:
        """Return the digest of a file; of one that was withheld, what the export says.

        Raises:
            EvidenceError: There is no file, or it cannot be read.
        """
        known = self._sha256.get(path)
        if known is not None:
            return known
        self.require_file(path)
        under_way = self._under_way.get(path)
        # One that waits for its turn is hashed here: files that nobody asks for may be before it, of any size.
        digest = self._digest(path) if under_way is None or under_way.cancel() else under_way.result()
        self._sha256[path] = digest
        return digest

    def read(self, path: str) -> bytes:
        """Return the content of a file; its digest is that of these very bytes.

        Raises:
            EvidenceError: There is no file, it cannot be read, was withheld, or changed since it was hashed.
        """
        found = self.require_file(path)
        if found.withheld:
            raise EvidenceError(path, "was withheld from this copy, and is needed")
        if found.num_bytes > MAX_DOCUMENT_BYTES:
            raise EvidenceError(path, f"has {found.num_bytes} bytes: too many for a document")
        data = _read(self._whole(path), path)
        digest = hashlib.sha256(data).hexdigest()
        if self._sha256.setdefault(path, digest) != digest:
            raise EvidenceError(path, "changed while it was looked at: nobody may write to a home that is verified")
        return data

    def contradiction(self, path: str, num_bytes: int | None, sha256: str) -> str:
        """Return why a file is not the one that something sealed; empty if it is.

        Args:
            path: Relative to the home.
            num_bytes: The size that was sealed; None where none was.
            sha256: The digest that was sealed.

        Raises:
            EvidenceError: It is there, and cannot be read.
        """
        try:
            size = self.require_file(path).num_bytes
            if num_bytes is not None and size != num_bytes:
                # Its content need not be looked at, of which there may be any amount: a file can be all holes.
                return f"it has {size} bytes, sealed were {num_bytes}"
            if num_bytes is None and size > MAX_DOCUMENT_BYTES:
                return f"it has {size} bytes: too many for a document"
            found = self.sha256(path)
        except EvidenceError as error:
            if error.is_unread:
                raise
            return error.what
        return f"its SHA-256 is {found}, sealed was {sha256}" if found != sha256 else ""

    # --- the disk -----------------------------------------------------------------------------------------------------

    def _whole(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _digest(self, path: str) -> str:
        return _hash(self._whole(path), path, self._found[path].num_bytes, self._closed)

    def _list(self, folder: str) -> None:
        pending = [folder]
        while pending:
            current = pending.pop()
            names: list[str] = []
            prefix = f"{current}/" if current else ""
            try:
                with os.scandir(self._whole(current) if current else self.root) as children:
                    for child in children:
                        found = _look(child, prefix + child.name)
                        names.append(child.name)
                        self._found[found.path] = found
                        if found.kind is Kind.FOLDER:
                            pending.append(found.path)
            except OSError as error:
                self._unreadable[current] = Unread(f"is there, and cannot be listed: {error.strerror or error}")
            names.sort(key=os.fsencode)
            self._names[current] = tuple(names)

    def _add_withheld(self) -> None:
        for path, (num_bytes, sha256) in self.withheld.items():
            self.leave_out(path, num_bytes, sha256)

    def leave_out(self, path: str, num_bytes: int, sha256: str) -> bool:
        """Take a file for one of which the digest alone is known; return whether it is not here, so that it is one.

        Args:
            path: Relative to the home.
            num_bytes: What is recorded of it.
            sha256: What is recorded of it.
        """
        if path in self._found:
            return self._found[path].withheld  # if it is here after all its own bytes speak
        self._found[path] = Found(path=path, kind=Kind.FILE, mode="", num_bytes=num_bytes, withheld=True)
        self._sha256[path] = sha256
        self._enter(path)
        return True

    def _enter(self, path: str) -> None:
        """Put a withheld file into the listing of its folder, and the folder into that of its own."""
        folder, _, name = path.rpartition("/")
        if name not in self._names.get(folder, ()):
            self._names[folder] = tuple(sorted((*self._names.get(folder, ()), name), key=os.fsencode))
        if folder and folder not in self._found:
            self._found[folder] = Found(path=folder, kind=Kind.FOLDER, mode="755", num_bytes=0)
            self._enter(folder)


def _look(child: os.DirEntry[str], path: str) -> Found:
    about = child.stat(follow_symlinks=False)
    mode = about.st_mode
    if stat.S_ISREG(mode):
        return Found(path, Kind.FILE, "755" if mode & stat.S_IXUSR else "644", about.st_size)
    if stat.S_ISDIR(mode):
        return Found(path, Kind.FOLDER, "755", 0)
    if stat.S_ISLNK(mode):
        return Found(path, Kind.LINK, "777", 0, target=os.readlink(child.path))  # noqa: PTH115 - no Path for each of many files
    return Found(path, Kind.OTHER, "", 0)


_REPLACED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""What opening says of a file that was there when the folder was listed, and no longer is: no trouble of the disk."""


def _unread(path: str, error: OSError) -> EvidenceError:
    if error.errno in _REPLACED:
        return EvidenceError(path, f"cannot be read: {error.strerror or error}")
    return EvidenceError(path, unread(error))


def _open(whole: str, path: str) -> int:
    try:
        descriptor = os.open(whole, _OPEN)
    except OSError as error:
        raise _unread(path, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise EvidenceError(path, "is no longer a file")
    return descriptor


def _read(whole: str, path: str) -> bytes:
    descriptor = _open(whole, path)
    try:
        # One call reads a small file whole, and a second one finds its end.
        parts = []
        while part := os.read(descriptor, _CHUNK_BYTES):
            parts.append(part)
    except OSError as error:
        raise _unread(path, error) from error
    finally:
        os.close(descriptor)
    return b"".join(parts)


def _hash(whole: str, path: str, num_bytes: int, is_over: Event | None = None) -> str:
    if num_bytes < _LARGE_BYTES:
        return hashlib.sha256(_read(whole, path)).hexdigest()
    digest = hashlib.sha256()
    buffer = bytearray(_CHUNK_BYTES)
    view = memoryview(buffer)
    descriptor = _open(whole, path)
    try:
        while size := os.readv(descriptor, [buffer]):
            digest.update(view[:size])
            if is_over is not None and is_over.is_set():
                raise EvidenceError(path, "was not looked at to its end")
    except OSError as error:
        raise _unread(path, error) from error
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def size_outside(path: str) -> int:
    """Return the size of a file outside the home; a link to it is followed.

    Raises:
        EvidenceError: It is not there, or cannot be looked at.
    """
    try:
        return os.stat(path).st_size  # noqa: PTH116 - called for each of many files
    except OSError as error:
        raise _unread(path, error) from error


def hash_outside(path: str) -> tuple[int, str]:
    """Return size and digest of a file outside the home, such as declared data; a link to it is followed.

    Raises:
        EvidenceError: It is no file, or cannot be read.
    """
    whole = os.path.realpath(path)
    num_bytes = size_outside(path)
    return num_bytes, _hash(whole, path, num_bytes)
