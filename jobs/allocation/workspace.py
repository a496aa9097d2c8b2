"""The private folder of one job: copies of the snapshots and of the harness, and the folders of each run of a side.

It lies on the node's own disk, readable by its owner alone, and goes when the job ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..common.endings import EndedError, Ending
from ..common.plan import Runnable
from ..common.storage import nothing
from ..processes.environment import SideFolders
from .compiled import is_started, write_bytecode
from .machine import read_boot_id
from .snapshot import PrivateCopy, TreeError, copy_whole, materialise, parse_listing, remove_tree

LAUNCHER = "launch.py"
_LEAST_FREE_BYTES = 1 << 20


def is_full(found: os.statvfs_result) -> bool:
    """Return whether a file system has next to no space or no files left for this user."""
    # Some file systems make files as they need them and count none.
    return found.f_bavail * found.f_frsize < _LEAST_FREE_BYTES or (found.f_files > 0 and found.f_favail == 0)


def _open_folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _hold(root: Path) -> int | None:
    """Open and lock a folder; None if another job took it for abandoned before that."""
    try:
        descriptor = _open_folder(root)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        # Where there are no locks nobody takes it for abandoned either.
        return descriptor
    if not root.exists():
        os.close(descriptor)
        return None
    return descriptor


def _remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove this user's private folders whose jobs were killed: nobody holds them any more."""
    for path in folder.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            descriptor = _open_folder(path)
            try:
                if os.fstat(descriptor).st_uid == os.getuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_tree(path)
            finally:
                os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Workspace:
    """The private folder, and what lies in it."""

    root: Path
    _descriptor: int
    """The open folder, locked as long as this process or a keeper of its lives.

    What a side puts in its place says nothing about the disk.
    """
    _copies: dict[str, PrivateCopy]
    _counter: list[int]

    @classmethod
    def create(cls) -> Workspace:
        """Create it where TMPDIR says; remove those of killed jobs."""
        # Of this boot alone: a folder that nodes share may have locks that each node sees for itself.
        prefix = f"campaign-{read_boot_id()[:8]}-"
        _remove_abandoned(Path(tempfile.gettempdir()), prefix)
        while True:
            # Resolved: the origins of loaded modules are compared by their real paths.
            root = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
            descriptor = _hold(root)
            if descriptor is not None:
                return cls(root, descriptor, {}, [0])

    def remove(self) -> None:
        """Remove it with everything in it."""
        os.close(self._descriptor)
        remove_tree(self.root)

    def is_full(self) -> bool:
        """Return whether the file system of the private folders has next to no space or no files left."""
        return is_full(os.fstatvfs(self._descriptor))

    def _next(self, prefix: str) -> Path:
        self._counter[0] += 1
        return self.root / f"{prefix}{self._counter[0]}"

    def harness(self, source: Path, sha256: str) -> PrivateCopy:
        """Return the private copy of what the workers run of the harness.

        Raises:
            TreeError: The harness is not the frozen one.
        """
        if sha256 not in self._copies:
            copy = self._next("harness")
            self._copies[sha256] = copy_whole(
                source, sha256, copy, keeps=is_started, add=lambda: write_bytecode(source, copy)
            )
        return self._copies[sha256]

    def snapshot(self, runnable: Runnable, between: Callable[[], None] = nothing) -> PrivateCopy:
        """Return the private copy of a side's snapshot, made once.

        Args:
            runnable: The side.
            between: Called between two entries: the job may be told to stop while many are copied.

        Raises:
            EndedError: The frozen tree is not what was frozen.
        """
        sha256 = runnable.snapshot_sha256
        if sha256 not in self._copies:
            try:
                entries = parse_listing(runnable.files.read_bytes())
                self._copies[sha256] = materialise(runnable.tree, entries, sha256, self._next("tree"), between)
            except (TreeError, ValueError, FileNotFoundError) as error:
                raise EndedError(Ending.SNAPSHOT_CHANGED, f"the frozen snapshot of {runnable.id}: {error}") from error
        return self._copies[sha256]

    def find_changes(self) -> list[str]:
        """Return what changed in the private copies; a copy that changed is not used again."""
        found: list[str] = []
        for sha256, copy in list(self._copies.items()):
            changes = copy.changes()
            if changes:
                del self._copies[sha256]
                found += [f"{copy.root.name}/{path}" for path in changes]
        return found

    def side_folders(self) -> SideFolders:
        """Create the folders of one run of a side, under a name that no earlier run could guess."""
        folders = SideFolders(root=Path(tempfile.mkdtemp(prefix="run-", dir=self.root)))
        folders.create()
        return folders

    @contextlib.contextmanager
    def private_folder(self) -> Iterator[Path]:
        """Create a folder for one case or run; it goes with everything in it when the context is left."""
        folder = Path(tempfile.mkdtemp(prefix="own-", dir=self.root))
        try:
            yield folder
        finally:
            remove_tree(folder)

    def leave(self, folders: SideFolders) -> None:
        """Remove the folders of one run."""
        remove_tree(folders.root)
