"""What a collection need not read again: tries of which an earlier one found every byte right, and stored the rows.

What is remembered counts only while the cache as a whole is what the ledger's last act ``collected`` says, and only of
a receipt that is still the same. docs/audit.md says which change is found by what.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from campaign import files
from campaign.collection.sealed import is_leftover
from campaign.keys import AttemptKey
from campaign.paths import AllocationPaths, AttemptPaths

SETTLED_NS = 2_000_000_000
"""How long before a collection the last change must lie for its time to tell it from the next one: clocks of file
systems tick in steps, of up to two seconds."""


class Care(enum.Enum):
    """What of a try that an earlier collection found right is read again."""

    STAMPS = "stamps"
    """Receipt and start record; every other file only where the file system says that something changed."""
    BYTES = "bytes"
    """Every byte; rows that the cache holds are not parsed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What is remembered of one try."""

    receipt_sha256: str
    """Of the receipt whose rows the cache holds."""
    stamp: str = ""
    """What the file system said of its files then; empty where that is not known."""
    line: str = ""
    """Its line of attempts.csv."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is remembered of all tries."""

    care: Care = Care.STAMPS
    tries: Mapping[AttemptKey, Remembered] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the file system says of a try's files, and of the documents of its allocation."""

    stamp: str
    """Digest over name, type, size, inode and both times of each."""
    changed_ns: int
    """The latest of the times, by the file system's clock."""


def look_at(folder: AttemptPaths, allocation: AllocationPaths) -> Look:
    """Look at the files of a try without reading one; what a killed writer left does not count.

    Raises:
        OSError: They cannot be looked at.
    """
    lines: list[str] = []
    changed_ns = 0
    for name, found in (*_entries(folder.root), *_documents(allocation)):
        if found is None:
            lines.append(name)
            continue
        times = found.st_mtime_ns, found.st_ctime_ns
        lines.append(f"{name}\0{found.st_mode}\0{found.st_size}\0{found.st_ino}\0{times[0]}\0{times[1]}")
        changed_ns = max(changed_ns, *times)
    return Look(stamp=files.sha256_bytes("\n".join(lines).encode("utf-8", "surrogateescape")), changed_ns=changed_ns)


def _entries(folder: Path) -> list[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries if not is_leftover(entry.name)]
    return sorted(found)


def _documents(allocation: AllocationPaths) -> Iterator[tuple[str, os.stat_result | None]]:
    for path in allocation.documents:
        try:
            yield path, os.lstat(path)
        except FileNotFoundError:
            yield path, None


def is_settled(look: Look, lock: Path) -> bool:
    """Return whether a later change of the files would surely show.

    Args:
        look: What was seen.
        lock: The lock that this command made when it began: its time is the file system's own.
    """
    try:
        return look.changed_ns + SETTLED_NS < lock.stat().st_mtime_ns
    except OSError:
        return False
