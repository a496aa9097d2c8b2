"""Files whose content was hashed once and must still be the same whenever it is used."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .storage import nothing, sha256_stream

_NAMES = ("device", "inode", "size", "time of modification", "time of status change")


def identify(found: os.stat_result) -> tuple[int, ...]:
    """Return what tells whether a file is still the one that was looked at: no program can set the last of these."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def find_difference(expected: Sequence[int], found: Sequence[int]) -> str:
    """Return which parts of an identity differ, in words; empty if none do."""
    pairs = zip(_NAMES, expected, found, strict=True)
    return ", ".join(name for name, before, now in pairs if before != now)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile:
    """A file as it was when it was hashed."""

    path: Path
    sha256: str
    identity: tuple[int, ...]

    def find_touch(self) -> str:
        """Return how the file is not the one that was hashed any more, in words; empty if nothing tells so."""
        try:
            found = identify(self.path.lstat())
        except OSError as error:
            return f"{self.path} is not what it was: {error}"
        changed = find_difference(self.identity, found)
        return f"{self.path} is not what it was: its {changed} changed" if changed else ""

    def find_change(self) -> str:
        """Return the same after the file was hashed again."""
        if touch := self.find_touch():
            return touch
        try:
            found = verify(self.path).sha256
        except OSError as error:
            return f"{self.path} is not what it was: {error}"
        return "" if found == self.sha256 else f"{self.path} has the SHA-256 {found}, not {self.sha256} any more"


def verify(path: Path, between: Callable[[], None] = nothing) -> VerifiedFile:
    """Hash a regular file; a link is not followed.

    Args:
        path: The file.
        between: Called between pieces of it.

    Raises:
        OSError: It cannot be read, is no regular file, or changed meanwhile.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        sha256 = sha256_stream(stream, between)
        if identify(os.fstat(descriptor)) != identify(before):
            raise OSError(errno.EAGAIN, "it changed while it was read", str(path))
    return VerifiedFile(path=path, sha256=sha256, identity=identify(before))
