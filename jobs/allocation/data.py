"""Whether the data sets are the ones that were frozen, and stay what they were."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ..common.plan import DataIdentity
from ..common.storage import nothing, sha256_file
from ..common.strict import first_few
from ..common.verified import find_difference, identify
from .snapshot import Entry, TreeError, read_tree, tree_digest, walk_from

_MOST_SHOWN = 5
Stamps: TypeAlias = Mapping[str, tuple[int, ...]]
"""Identities by path. Of a folder there is none but its name: a side may keep locks beside its data for a moment."""


def _measure(identity: DataIdentity, between: Callable[[], None]) -> tuple[str, int, int]:
    """Return digest, bytes and number of files: of a file its SHA-256, of a folder its tree digest."""
    path = identity.path.resolve(strict=True)
    if path.is_dir():
        entries: list[Entry] = read_tree(path, between)
        files = [entry for entry in entries if entry.type == "f"]
        return tree_digest(entries), sum(entry.num_bytes for entry in files), len(files)
    return sha256_file(path, between), path.stat().st_size, 1


def _difference(name: str, identity: DataIdentity, between: Callable[[], None]) -> str:
    try:
        sha256, num_bytes, num_files = _measure(identity, between)
    except (OSError, TreeError) as error:
        return f"data {name}: {error}"
    if (sha256, num_bytes, num_files) == (identity.sha256, identity.num_bytes, identity.num_files):
        return ""
    frozen = f"{identity.sha256}, {identity.num_bytes} bytes in {identity.num_files} files"
    return f"data {name} at {identity.path}: now {sha256}, {num_bytes} bytes in {num_files} files; frozen was {frozen}"


def _stamp(path: Path) -> Stamps:
    """Return what tells whether a data set is touched.

    Raises:
        OSError: It cannot be looked at.
    """
    found = walk_from(path.resolve(strict=True))
    return {name: () if stat.S_ISDIR(status.st_mode) else identify(status) for name, status in found}


def _find_touches(name: str, before: Stamps, now: Stamps) -> list[str]:
    touched = []
    for path in sorted({*before, *now}):
        if path not in now or path not in before:
            touched.append(f"data {name}: {path} was {'added' if path in now else 'removed'} since it was hashed")
        elif before[path] != now[path]:
            same_kind = len(before[path]) == len(now[path])
            parts = find_difference(before[path], now[path]) if same_kind else "kind"
            touched.append(f"data {name}: the {parts} of {path} changed since it was hashed")
    return touched


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedData:
    """The data sets of an allocation as they were when they were hashed."""

    sets: Mapping[str, DataIdentity]
    changes: tuple[str, ...]
    """One sentence for each that was not what was frozen."""
    stamps: Mapping[str, Stamps]
    """Of those that can be looked at."""

    @classmethod
    def hashed(cls, sets: Mapping[str, DataIdentity], between: Callable[[], None] = nothing) -> WatchedData:
        """Hash the data sets, each after a look at its files: what changes meanwhile shows at the next look.

        Args:
            sets: The data sets by name.
            between: Called between pieces of what is read: the job may be told to stop while they are hashed.
        """
        changes: list[str] = []
        stamps: dict[str, Stamps] = {}
        for name, identity in sets.items():
            try:
                stamps[name] = _stamp(identity.path)
            except OSError as error:
                changes.append(f"data {name}: {error}")
            else:
                changes += filter(None, [_difference(name, identity, between)])
        return cls(sets=sets, changes=tuple(changes), stamps=stamps)

    def find_changes(self) -> list[str]:
        """Return a sentence for everything that is not what was frozen, or was touched since it was hashed."""
        found = list(self.changes)
        for name, before in self.stamps.items():
            try:
                found += _find_touches(name, before, _stamp(self.sets[name].path))
            except OSError as error:
                found.append(f"data {name}: {error}")
        return found

    def describe_changes(self) -> str:
        """Return the same in a few lines; empty if there is nothing."""
        return "\n".join(first_few(self.find_changes(), _MOST_SHOWN))
