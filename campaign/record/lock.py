"""The lock of a home's single writer: a file that says who holds it.

No lock of the kernel holds it, since those do not reach across the hosts that share a file system. A lock whose owner
surely is gone (same host and boot, process dead) is taken over, which the caller records in the ledger; any other
stays until a person removes it with ``campaign unlock``. Libraries break such locks by age, or without leaving a trace.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from campaign import files
from campaign.documents import Document
from campaign.errors import EvidenceError, StateError
from campaign.watching import processes
from campaign.watching.processes import Machine, Process

_UNLOCK = 'campaign unlock --reason "..."'


class Owner(Document):
    """Who holds a lock."""

    host: str
    boot_id: str
    pid_namespace: str
    """Process numbers of two containers of one host are not comparable."""
    pid: int
    process_start: int
    nonce: str
    """Random: tells two locks of one process apart, which a file's number does not, since it is given out again."""

    def is_of(self, machine: Machine) -> bool:
        """Return whether this process can see the owner, if it lives."""
        return (self.host, self.boot_id, self.pid_namespace) == (
            machine.host,
            machine.boot_id,
            read_pid_namespace(),
        )

    def is_alive(self) -> bool:
        """Return whether the owner lives; meaningful only if `is_of` this machine."""
        return processes.is_alive(Process(pid=self.pid, start=self.process_start))

    def describe(self) -> str:
        """Return the owner in words."""
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A lock that this process holds."""

    path: Path
    content: bytes
    taken_from: Owner | None
    """The dead owner from whom it was taken over."""

    def require(self) -> None:
        """Make sure that the lock is still held.

        Raises:
            StateError: Somebody removed it.
        """
        if not self._is_there():
            raise StateError(
                "the lock was removed while it was held",
                where=str(self.path),
                why="another process may be writing now, so this one stops",
                hint="run the command again",
            )

    def release(self) -> None:
        """Remove the lock, if it is still this process's."""
        if self._is_there():
            with files.writing(self.path):
                self.path.unlink()

    def _is_there(self) -> bool:
        try:
            return files.read_if_there(self.path) == self.content
        except EvidenceError:  # something else took its place
            return False


def acquire(path: Path) -> Lock:
    """Take a lock.

    Raises:
        StateError: Another process holds it, or may do so.
    """
    machine = processes.read_machine()
    content = _describe_this_process(machine).to_bytes()
    taken_from = None
    if not _create(path, content):
        taken_from = _remove_if_stale(path, machine)
        if not _create(path, content):
            raise _held(path, read_owner(path))
    return Lock(path=path, content=content, taken_from=taken_from)


def break_lock(path: Path) -> Owner | None:
    """Remove a lock at a person's request; return whose it was, None if there is none.

    Raises:
        StateError: Its owner is alive on this host, or it does not say whose it is.
    """
    owner = read_owner(path)
    if owner is None:
        return None
    if owner.is_of(processes.read_machine()) and owner.is_alive():
        raise StateError(
            f"{owner.describe()} holds the lock and is alive",
            where=str(path),
            hint=f"wait for it, or end it: kill {owner.pid}",
        )
    with files.writing(path):
        path.unlink(missing_ok=True)
    return owner


def read_owner(path: Path) -> Owner | None:
    """Return who holds a lock; None if nobody does.

    Raises:
        StateError: The file does not say.
    """
    try:
        data = files.read_if_there(path)
        return None if data is None else Owner.parse(data, where=str(path))
    except EvidenceError as error:
        raise StateError(
            "the lock does not say whose it is",
            where=str(path),
            why=error.what,
            hint=f"make sure that no campaign command runs, then remove it: rm {path}",
        ) from error


def read_pid_namespace() -> str:
    """Return the name of this process's space of process numbers; empty where the system has no such thing."""
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - the text of the link, which names no path
    except OSError:
        return ""


def _describe_this_process(machine: Machine) -> Owner:
    return Owner(
        host=machine.host,
        boot_id=machine.boot_id,
        pid_namespace=read_pid_namespace(),
        pid=os.getpid(),
        process_start=processes.read_start(os.getpid()) or 0,
        nonce=secrets.token_hex(8),
    )


def _create(path: Path, content: bytes) -> bool:
    try:
        files.write_new(path, content)
    except FileExistsError:
        return False
    return True


def _remove_if_stale(path: Path, machine: Machine) -> Owner | None:
    """Remove the lock of an owner that is gone, and return it; None if the lock vanished by itself.

    Raises:
        StateError: The owner is alive, or this process cannot tell.
    """
    with _guarded(path) as owner:
        if owner is None:
            return None
        if not owner.is_of(machine) or owner.is_alive():
            raise _held(path, owner)
        with files.writing(path):
            path.unlink()
        return owner


@contextlib.contextmanager
def _guarded(path: Path) -> Iterator[Owner | None]:
    """Keep two processes of this host from both removing one stale lock: the second would remove a new one."""
    if read_owner(path) is None:  # this also refuses what is no file
        yield None
        return
    try:
        stream = path.open("rb+")
    except FileNotFoundError:
        yield None
        return
    except OSError as error:  # another user's
        raise _held(path, read_owner(path)) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _held(path, read_owner(path)) from error
        owner = read_owner(path)
        if owner is not None and path.stat().st_ino != os.fstat(stream.fileno()).st_ino:
            raise _held(path, owner)
        yield owner


def _held(path: Path, owner: Owner | None) -> StateError:
    who = owner.describe() if owner is not None else "another process"
    return StateError(
        f"the ledger is locked by {who}",
        where=str(path),
        why="one process at a time may write to a campaign home",
        hint=f"wait until it ends; if it is surely gone: {_UNLOCK}",
    )
