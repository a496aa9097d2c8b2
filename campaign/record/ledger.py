"""The ledger: the append-only, hash-chained record of what was frozen, submitted, collected and decided.

Each line names the digest of the line before it, so that nothing can be changed or taken out of the middle without all
later lines changing too. One process writes at a time. A last line that a crash tore is set aside and named.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from campaign import files
from campaign.documents import Act, Entry
from campaign.errors import EvidenceError, InfrastructureError, StateError
from campaign.paths import HomePaths
from campaign.record.lock import Lock, Owner, acquire, break_lock

FIRST_PREVIOUS = "0" * 64
"""What the first line names as the digest of the line before it."""


def read_entries(paths: HomePaths) -> list[Entry]:
    """Read and check the whole chain; a torn last line, which a writer may be writing now, is not part of it.

    Raises:
        EvidenceError: A line does not parse, or does not follow the one before it.
    """
    return parse_entries(_read(paths.ledger), where=str(paths.ledger))


def read_chain(paths: HomePaths) -> tuple[list[Entry], str]:
    """Read the chain once; return its entries, as `read_entries` does, and the digest of its last line."""
    data = _read(paths.ledger)
    return parse_entries(data, where=str(paths.ledger)), head(data)


def parse_entries(data: bytes, *, where: str) -> list[Entry]:
    """Parse and check a chain; see `read_entries`.

    Args:
        data: The bytes of a ledger.
        where: The file, for messages.
    """
    return list(_parse_chain(data, where))


@functools.lru_cache(maxsize=1)
def _parse_chain(data: bytes, where: str) -> tuple[Entry, ...]:
    """Return the entries of a chain: several parts of one command ask for those of the same bytes."""
    entries: list[Entry] = []
    previous = FIRST_PREVIOUS
    for number, line in enumerate(_whole_lines(data), start=1):
        place = f"{where}:{number}"
        entry = Entry.parse(line, where=place)
        if entry.seq != number:
            raise EvidenceError(f"the chain is broken: entry {entry.seq} stands where {number} should", where=place)
        if entry.previous != previous:
            raise EvidenceError(
                "the chain is broken: the line before it is not the one that was there when this was written",
                where=place,
                why=f"the line names {entry.previous}, the line before it has {previous}",
            )
        entries.append(entry)
        previous = files.sha256_bytes(line)
    return tuple(entries)


def last_reports(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return the act of the last report on each candidate, by the candidate's id."""
    return {str(entry.data.get("candidate", "")): entry for entry in entries if entry.act == "reported"}


def reported_outcomes(entries: Iterable[Entry]) -> dict[str, str]:
    """Return what the last report on each candidate said, by the candidate's id."""
    return {candidate: str(entry.data["outcome"]) for candidate, entry in last_reports(entries).items()}


AFTER_CLOSED: frozenset[Act] = frozenset({"reported", "decided", "lock_taken_over", "torn_line", "unlocked"})
"""What may follow the act `closed`: what says something about the campaign, or about the ledger itself."""


def closed_entry(entries: Iterable[Entry]) -> Entry | None:
    """Return the act by which a campaign was closed; None if it is open."""
    return next((entry for entry in entries if entry.act == "closed"), None)


def require_open(paths: HomePaths, entries: Iterable[Entry], what: str) -> None:
    """Refuse what cannot be done to a closed campaign.

    Args:
        paths: The home.
        entries: Its ledger.
        what: What is refused.

    Raises:
        StateError: The campaign is closed.
    """
    closed = closed_entry(entries)
    if closed is not None:
        raise StateError(
            f"the campaign is closed: {what}",
            where=f"{paths.ledger}:{closed.seq}",
            why="campaign seal has listed all of it; only a report and a decision may follow",
            hint="to measure again, freeze a new campaign: campaign freeze CONFIG --home DIR",
        )


def head(data: bytes) -> str:
    """Return the digest of a ledger's last whole line: what an auditor keeps elsewhere to notice a shortened ledger."""
    lines = _whole_lines(data)
    return files.sha256_bytes(lines[-1]) if lines else FIRST_PREVIOUS


def encode_entry(entry: Entry) -> bytes:
    """Return an entry's line without the newline."""
    text = json.dumps(msgspec.to_builtins(entry), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


class Ledger:
    """The ledger, open for writing: holds the home's lock until it is closed.

    Use `Ledger.open` in a ``with`` statement.
    """

    def __init__(self, paths: HomePaths, clock: Callable[[], float], lock: Lock) -> None:
        """Use `open` instead."""
        self._paths = paths
        self._clock = clock
        self._lock = lock
        self._entries: list[Entry] = []
        self._num_bytes = 0
        self._head = FIRST_PREVIOUS

    @classmethod
    def open(cls, paths: HomePaths, clock: Callable[[], float]) -> Self:
        """Take the lock and read the chain.

        Args:
            paths: The home; its folder exists.
            clock: Returns the seconds since the epoch.

        Raises:
            StateError: Another process holds the lock.
            EvidenceError: The chain is broken.
        """
        ledger = cls(paths, clock, acquire(paths.lock))
        try:
            ledger._load()
        except BaseException:
            ledger.close()
            raise
        return ledger

    def __enter__(self) -> Self:
        """Return the ledger."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock."""
        self.close()

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, in order."""
        return tuple(self._entries)

    @property
    def head(self) -> str:
        """Digest of the last line."""
        return self._head

    def append(self, act: Act, data: dict[str, Any]) -> Entry:
        """Append one act durably, and return its entry.

        Raises:
            StateError: The lock is no longer held, or the campaign is closed and this may not follow.
            EvidenceError: Somebody else wrote to the file.
            InfrastructureError: It cannot be written.
        """
        if act not in AFTER_CLOSED:
            require_open(self._paths, self._entries, f"nothing more is recorded in it ({act})")
        self._lock.require()
        entry = Entry(seq=len(self._entries) + 1, previous=self._head, at=self._clock(), act=act, data=data)
        line = encode_entry(entry)
        _append_line(self._paths.ledger, line + b"\n", expected_bytes=self._num_bytes)
        self._entries.append(entry)
        self._num_bytes += len(line) + 1
        self._head = files.sha256_bytes(line)
        return entry

    def _load(self) -> None:
        data = _read(self._paths.ledger)
        self._entries = parse_entries(data, where=str(self._paths.ledger))
        self._head = head(data)
        whole = data[: data.rfind(b"\n") + 1]
        self._num_bytes = len(whole)
        if len(whole) < len(data):
            self._set_aside(data[len(whole) :])
        if self._lock.taken_from is not None:
            self.append("lock_taken_over", {"owner": _owner(self._lock.taken_from)})

    def _set_aside(self, torn: bytes) -> None:
        """Move a torn last line to a file of its own and say so in the ledger."""
        number = next(number for number in range(1, 1 << 20) if not self._paths.torn(number).exists())
        target = self._paths.torn(number)
        files.write_new(target, torn)
        with files.writing(self._paths.ledger), self._paths.ledger.open("rb+") as stream:
            stream.truncate(self._num_bytes)
            stream.flush()
            os.fsync(stream.fileno())
        self.append("torn_line", {"file": target.name, "bytes": len(torn), "sha256": files.sha256_bytes(torn)})


def unlock(paths: HomePaths, clock: Callable[[], float], reason: str) -> Owner | None:
    """Remove the lock of an owner that is gone for good, and record who asked for it and why.

    Returns:
        Whose lock it was; None if there was none, and then nothing is recorded.

    Raises:
        StateError: The owner is alive, or there is no reason.
    """
    if not reason.strip():
        raise StateError("no reason given", hint='campaign unlock --reason "node17 was reinstalled"')
    owner = break_lock(paths.lock)
    if owner is not None:
        with Ledger.open(paths, clock) as ledger:
            ledger.append("unlocked", {"owner": _owner(owner), "reason": reason.strip()})
    return owner


def _owner(owner: Owner) -> dict[str, Any]:
    return owner.to_json()


def _read(path: Path) -> bytes:
    return files.read_if_there(path) or b""


def _whole_lines(data: bytes) -> list[bytes]:
    """Return the lines that end with a newline; what follows the last newline was torn."""
    return data.split(b"\n")[:-1]


def _append_line(path: Path, line: bytes, *, expected_bytes: int) -> None:
    is_new = not os.path.lexists(path)
    with files.writing(path):
        # O_NONBLOCK: opening a pipe must not wait for its reader.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o644)
        try:
            if os.fstat(descriptor).st_size != expected_bytes:
                raise EvidenceError("somebody else wrote to the ledger while its lock was held", where=str(path))
            _write_whole(descriptor, line, path, expected_bytes)
        finally:
            os.close(descriptor)
        if is_new:
            files.sync_folder(path.parent)


def _write_whole(descriptor: int, line: bytes, path: Path, before_bytes: int) -> None:
    """Append a line, or leave the file as it was: an act whose line is not durable did not happen."""
    num_written = 0
    try:
        num_written = os.write(descriptor, line)
        os.fsync(descriptor)
    except OSError:
        num_written = 0
        raise
    finally:
        if num_written != len(line):
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, before_bytes)
    if num_written != len(line):
        raise InfrastructureError("only a part could be written", where=str(path), hint="free some space")
