"""Whether what was frozen for all sides, and what the harness wrote first, is still as it was in the home.

A side has no business there, and whoever else changes it does harm as well. Looked at is each file's status; only one
whose status changed is read again, so that a copy of the home by hard links, say, disturbs nothing.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from ..common.layout import frozen_paths
from ..common.storage import sha256_file
from ..common.verified import identify
from .snapshot import walk_from

Stamp: TypeAlias = tuple[int, ...]


def _stamps(tops: Iterable[Path]) -> Iterator[tuple[str, Stamp]]:
    """Yield what is there, by path: its kind, and of all but a folder what tells whether it was touched."""
    for top in tops:
        # What is not there can only appear.
        with contextlib.suppress(FileNotFoundError):
            for path, status in walk_from(top):
                kind = stat.S_IFMT(status.st_mode)
                yield path, (kind,) if stat.S_ISDIR(kind) else (kind, *identify(status))


def _digest(path: str, stamp: Stamp) -> str:
    """Return what a file holds, or says where it is a link; empty for a folder."""
    if stamp[0] == stat.S_IFREG:
        return sha256_file(Path(path))
    return os.readlink(path) if stamp[0] == stat.S_IFLNK else ""  # noqa: PTH115 - as it is written


@dataclass(slots=True, kw_only=True)
class WatchedFrozen:
    """Programs, protocol and manifest in the home, who began the allocation, and whatever else nobody may touch."""

    home: Path
    tops: tuple[Path, ...]
    stamps: dict[str, Stamp] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, home: Path, *further: Path) -> WatchedFrozen:
        """Take down what is there now.

        Args:
            home: The home.
            further: Other files, and folders with all that is in them, such as the allocation's started.json. A side
                that could change it unblamed would have another attempt.

        Raises:
            OSError: It cannot be looked at.
        """
        tops = (*frozen_paths(home), *further)
        stamps = dict(_stamps(tops))
        digests = {path: _digest(path, stamp) for path, stamp in stamps.items()}
        return cls(home=home, tops=tops, stamps=stamps, digests=digests)

    def find_changes(self) -> list[str]:
        """Return what was added, removed or changed since the last look, by paths relative to the home."""
        try:
            now = dict(_stamps(self.tops))
        except OSError as error:
            return [f"{error.filename}: {error.strerror}"]
        paths = [path for path in sorted({*now, *self.stamps}) if now.get(path) != self.stamps.get(path)]
        before = {path: self._held(path) for path in paths}
        self._take_down(paths, now)
        changed = [path for path in paths if before[path] is None or self._held(path) != before[path]]
        return [os.path.relpath(path, self.home) for path in changed]

    def _held(self, path: str) -> tuple[int, str] | None:
        """Return kind and content as they were taken down; None if nothing was."""
        return (self.stamps[path][0], self.digests[path]) if path in self.stamps else None

    def _take_down(self, paths: Iterable[str], now: Mapping[str, Stamp]) -> None:
        """Let no later attempt be blamed for what has been found."""
        for path in paths:
            self.stamps.pop(path, None)
            self.digests.pop(path, None)
            with contextlib.suppress(OSError, KeyError):
                self.digests[path] = _digest(path, now[path])
                self.stamps[path] = now[path]
