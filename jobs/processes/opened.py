"""Which files a side opens: noted inside the worker, judged by their real paths.

A side computes with what was frozen: its snapshot, its interpreter, declared data. A file from elsewhere that it reads
is an input which nobody declared. Noted is what Python's `open` and `os.open` are asked for. An audit hook would see a
little more, but costs a fifth of a microsecond at every audited call, `id()` among them, and so would slow down one
side's windows more than another's. What native code opens by itself, and what programs of the side's own do, is not
seen here.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import O_ACCMODE, O_APPEND, O_CREAT, O_EXCL, O_PATH, O_TRUNC, O_WRONLY, fsdecode, fsencode, getcwd, lstat
from os.path import realpath  # all bound here: a side may replace the modules' own
from types import ModuleType
from typing import Any

from .origins import LIBRARY, SYSTEM_LIBRARIES, Roots, is_below, mapped_paths

_open, _os_open = io.open, os.open
MOST_LISTED = 50
"""Most undeclared inputs that a receipt names; one is enough to end the attempt."""
MOST_SENT = 2000
"""Most files that a worker tells the parent of."""
_MOST_NOTED = 1 << 16
"""Most single files that are remembered; beyond, only their folders are."""
_MOST_LOG_BYTES = 1 << 20
MACHINE = (
    *SYSTEM_LIBRARIES,
    "/proc",
    "/sys",
    "/dev",
    "/etc",
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/sbin",
    "/usr/libexec",
    "/usr/include",
    "/usr/share",
    "/usr/local/bin",
    "/usr/local/etc",
    "/usr/local/include",
    "/usr/local/share",
    "/nix/store",
    "/gnu/store",
    "/run/NetworkManager",
    "/run/nscd",
    "/run/nvidia-persistenced",
    "/run/resolvconf",
    "/run/systemd",
    "/run/udev",
    "/var/cache/fontconfig",
    "/var/cache/nscd",
    "/var/lib/sss",
)
"""Folders that belong to the machine: what is installed and configured there is the same for both sides."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - nothing is written there
"""Holds ordinary files, which anybody can leave there."""
_CUDA = re.compile(r"/(usr/local|opt)/cuda(-[0-9.]+)?(/|$)")
_INSTALLED = ("/site-packages/", "/dist-packages/")


def is_of_machine(path: str) -> bool:
    """Return whether a real path belongs to the machine rather than to anybody's work."""
    return not is_below(path, (SHARED_MEMORY,)) and (is_below(path, MACHINE) or _CUDA.match(path) is not None)


def find_undeclared(paths: Iterable[str], allowed: Sequence[str]) -> list[str]:
    """Return those of some real paths that belong neither to the machine nor to what a side may read, in order."""
    return sorted({path for path in paths if not is_below(path, allowed) and not is_of_machine(path)})


def real_files(paths: Iterable[str]) -> Iterator[str]:
    """Yield the real path of every path that names a file which is there; of one with a final slash, the folder's."""
    folders: dict[str, str] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder not in folders:
            folders[folder] = realpath(folder or "/")
        whole = f"{folders[folder].rstrip('/')}/{name}"
        try:
            mode = lstat(whole).st_mode
            if stat.S_ISLNK(mode) or name in (".", ".."):
                whole = realpath(whole)
                mode = lstat(whole).st_mode
        except (OSError, ValueError):
            continue
        if not stat.S_ISDIR(mode):
            yield whole
        elif not name:
            yield whole.rstrip("/")


class Opened:
    """What this process and those that it forks have opened since it is noted."""

    def __init__(self) -> None:
        self._noted: set[str] = set()
        self._made: set[str] = set()
        self._declared: frozenset[str] = frozenset()
        self._folders: tuple[str, ...] = ()
        self._own: tuple[str, ...] = ()
        self._log = ""
        self._is_child = False

    def install(self) -> None:
        """Begin to note, in every module that holds one of the functions by which files are opened and renamed."""
        for original, noting in (
            (_open, self._noting_open()),
            (_os_open, self._noting_os_open()),
            (os.rename, self._noting_rename(os.rename)),
            (os.replace, self._noting_rename(os.replace)),
        ):
            _stand_in(original, noting)
        os.register_at_fork(after_in_child=self._become_child)

    def declare(self, declared: Iterable[str], own: Iterable[str], log: str) -> None:
        """Say what need not be noted, and where processes that are forked from this one shall note.

        Args:
            declared: Real paths of declared files and folders; no link in them leads elsewhere.
            own: Real paths of the private folders.
            log: A file in the private folders, which need not exist.
        """
        self._noted.add(log)
        self._declared = frozenset(declared)
        self._folders = tuple(f"{path}/" for path in self._declared)
        self._own = tuple(own)
        self._log = log

    def files(self, roots: Roots) -> list[str]:
        """Return the real paths of what was opened that is neither declared, the side's own, nor the machine's.

        Args:
            roots: The interpreter's folders.
        """
        allowed = (*self._declared, *self._own, *roots.packages, *roots.libraries, *roots.further)
        noted = [path for path in (*self._noted, *self._logged()) if not _is_standard(path, roots)]
        return find_undeclared(real_files(noted), allowed)[:MOST_SENT]

    # --- what stands in for the functions -----------------------------------------------------------------------------

    def _noting_open(self) -> Callable[..., Any]:
        def open(file: Any, mode: Any = "r", *arguments: Any, **named: Any) -> Any:  # noqa: A001 - it stands in for it
            # Whatever is odd about an argument is for what is called to say.
            with contextlib.suppress(Exception):
                self._hear(file, is_new=mode[:1] in ("w", "x"), is_read="+" in mode or mode[:1] not in ("w", "x", "a"))
            return _open(file, mode, *arguments, **named)

        return open

    def _noting_os_open(self) -> Callable[..., int]:
        def open(path: Any, flags: int, *arguments: Any, **named: Any) -> int:  # noqa: A001 - as above
            with contextlib.suppress(Exception):
                is_new = bool(flags & O_TRUNC) or flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL
                is_read = flags & O_ACCMODE != O_WRONLY and not flags & O_PATH
                folder = named.get("dir_fd")
                self._hear(path if folder is None else _under(folder, path), is_new=is_new, is_read=is_read)
            return _os_open(path, flags, *arguments, **named)

        return open

    def _noting_rename(self, original: Callable[..., None]) -> Callable[..., None]:
        def rename(src: Any, dst: Any, **named: Any) -> None:
            original(src, dst, **named)
            with contextlib.suppress(Exception):
                if self._made and _absolute(src) in self._made:
                    self._made.add(_absolute(dst))

        return rename

    def _hear(self, path: Any, *, is_new: bool, is_read: bool) -> None:
        if path in self._noted or isinstance(path, int):
            return
        path = _absolute(path)
        if is_new:
            if len(self._made) < _MOST_NOTED:
                self._made.add(path)
        elif is_read and not (path in self._made or path in self._declared or self._lies_in_declared(path)):
            self._note(path)

    def _lies_in_declared(self, path: str) -> bool:
        return path.startswith(self._folders) and "/.." not in path

    def _note(self, path: str) -> None:
        if path in self._noted:
            return
        if len(self._noted) >= _MOST_NOTED:
            path = f"{path.rpartition('/')[0]}/"
            if len(self._noted) >= 2 * _MOST_NOTED:
                return
        self._noted.add(path)
        if self._is_child and self._log and ("/.." in path or not (is_below(path, self._own) or is_of_machine(path))):
            self._write(path)

    # --- processes that are forked ------------------------------------------------------------------------------------

    def _become_child(self) -> None:
        self._is_child = True

    def _write(self, path: str) -> None:
        # By its name each time: a child may have closed descriptors that it does not know, and reused their numbers.
        descriptor = _os_open(self._log, O_WRONLY | O_APPEND | O_CREAT, 0o600)
        try:
            if os.fstat(descriptor).st_size < _MOST_LOG_BYTES:
                os.write(descriptor, fsencode(path) + b"\0")
        finally:
            os.close(descriptor)

    def _logged(self) -> list[str]:
        if not self._log:
            return []
        try:
            with _open(self._log, "rb") as stream:
                return [fsdecode(path) for path in stream.read(2 * _MOST_LOG_BYTES).split(b"\0") if path]
        except OSError:
            return []


def _absolute(path: Any) -> str:
    path = fsdecode(path)
    return path if path.startswith("/") else f"{getcwd()}/{path}"  # noqa: PTH109 - bound before a side could replace it


def _under(folder: int, path: Any) -> str:
    path = fsdecode(path)
    return path if path.startswith("/") else f"{os.readlink(f'/proc/self/fd/{folder}')}/{path}"  # noqa: PTH115 - one call


def _stand_in(original: Callable[..., Any], noting: Callable[..., Any]) -> None:
    """Put a function in the place of another one, wherever a module holds that under whatever name."""
    for name in ("__doc__", "__module__", "__name__", "__qualname__"):
        setattr(noting, name, getattr(original, name))
    for module in [builtins, *sys.modules.values()]:
        if isinstance(module, ModuleType) and module.__name__ != __name__:
            for name in [name for name, held in vars(module).items() if held is original]:
                setattr(module, name, noting)
    for able in (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks):
        if original in able:
            able.add(noting)


def _is_standard(path: str, roots: Roots) -> bool:
    """Return whether a path is spelled as one of the standard library: systems link single files of it to elsewhere."""
    return is_below(path, roots.standard) and "/.." not in path and not any(name in path for name in _INSTALLED)


# --- from outside -----------------------------------------------------------------------------------------------------


def mapped_files(maps: str) -> set[str]:
    """Return the files that a process has mapped, shared libraries left out: these are looked at as code.

    Args:
        maps: Text of /proc/<pid>/maps.
    """
    return {path for path in mapped_paths(maps) if not path.endswith(" (deleted)") and not LIBRARY.search(path)}


def open_files(pid: int) -> set[str]:
    """Return the regular files that a process holds open for reading.

    Raises:
        OSError: It is gone, or cannot be looked at.
    """
    found = set()
    for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - names alone
        try:
            path = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 - as the kernel writes it
            is_file = stat.S_ISREG(os.stat(f"/proc/{pid}/fd/{number}").st_mode)  # noqa: PTH116 - as above
            is_read = is_file and not _flags(pid, number) & O_WRONLY
        except (OSError, ValueError):
            continue
        if is_read and path.startswith("/") and not path.endswith(" (deleted)"):
            found.add(path)
    return found


def _flags(pid: int, number: str) -> int:
    with _open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as stream:
        return next((int(line.split()[1], 8) for line in stream if line.startswith("flags:")), 0)


def older_than(paths: Iterable[str], began_ns: int) -> Iterator[str]:
    """Yield those of some files that were there, as they are, before a moment: the others were made or written since.

    Args:
        paths: Files.
        began_ns: Nanoseconds since the epoch.
    """
    for path in paths:
        try:
            found = os.lstat(path)
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode) and found.st_ctime_ns < began_ns:
            yield path
