"""Files of two halves through which tensors pass between processes, as the parent makes and reads them.

They lie in shared memory where that has room, else on the disk of the private folders; their names go as soon as every
process has mapped them, so that nothing is left behind however a job ends.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the shared memory of the host; the names in it cannot be guessed
MOST_HALF_BYTES = 64 << 20
MOST_DEVICE_HALF_BYTES = 128 << 20
"""Two sides with two halves each: what passes is bounded by half a GiB."""
_SPARE_BYTES = 8 << 20
"""Left to others: a container may have no more than 64 MiB of shared memory."""


def half_bytes(wanted: int, most: int) -> int:
    """Return the size of a half for a pass: as large as the pass, within the bound, a whole number of pages."""
    pages = -(-min(wanted, most) // mmap.PAGESIZE)
    return max(1, pages) * mmap.PAGESIZE


def choose_folder(needed_bytes: int, private: Path, *, is_confined: bool, shared: Path = SHARED_MEMORY) -> Path:
    """Return where staging files go.

    Args:
        needed_bytes: Room that all of them need.
        private: The private folder.
        is_confined: Whether a side runs by a launch prefix, which may show it the private folders alone.
        shared: The folder of shared memory.
    """
    if not is_confined:
        with contextlib.suppress(OSError):
            found = os.statvfs(shared)
            if found.f_bavail * found.f_frsize >= needed_bytes + _SPARE_BYTES and os.access(shared, os.W_OK):
                return shared
    return private


def _create(path: Path, num_bytes: int) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, num_bytes)
        return mmap.mmap(descriptor, num_bytes)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()


@dataclass(slots=True)
class StageFile:
    """One file of two halves."""

    path: Path
    half_bytes: int
    _mapped: mmap.mmap
    _views: list[memoryview] = field(default_factory=list)

    @classmethod
    def create(cls, half_bytes: int, folder: Path) -> StageFile:
        """Create it, with all of its room taken now: a process that writes must not find the memory full."""
        # A folder of its own, for this user alone.
        path = Path(tempfile.mkdtemp(prefix="campaign-", suffix=".stage", dir=folder)) / "halves"
        try:
            mapped = _create(path, 2 * half_bytes)
        except BaseException:
            _remove(path)
            raise
        return cls(path, half_bytes, mapped)

    def half(self, number: int) -> memoryview:
        """Return the bytes of a half."""
        if not self._views:
            whole = memoryview(self._mapped)
            self._views = [whole[: self.half_bytes], whole[self.half_bytes :]]
        return self._views[number]

    def forget_name(self) -> None:
        """Remove the name: the memory goes with the last process that has it mapped."""
        _remove(self.path)

    def close(self) -> None:
        """Remove the name and let go of the memory."""
        self.forget_name()
        for view in self._views:
            view.release()
        self._views = []
        # A slice that an exception still holds keeps the mapping until it goes as well.
        with contextlib.suppress(BufferError):
            self._mapped.close()
