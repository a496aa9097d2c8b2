"""Files that a bundle left behind on its machine: absent by record, known by digest and size, and so no finding."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """What the ledger says was left behind."""

    root: Path = Path()
    """The home."""
    files: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """SHA-256 and bytes, by path in the home."""

    def covers(self, path: Path | str, sha256: str, num_bytes: int) -> bool:
        """Return whether a file is not there, and was left behind as the very one that is asked for."""
        if not self.files or os.path.lexists(path):
            return False
        return self.files.get(os.path.relpath(path, self.root)) == (sha256, num_bytes)

    def number_below(self, folder: Path) -> int:
        """Return how many files of a folder were left behind, whether they are there by now or not."""
        if not self.files:
            return 0
        prefix = f"{os.path.relpath(folder, self.root)}/"
        return sum(path.startswith(prefix) for path in self.files)


NOTHING = LeftBehind()
