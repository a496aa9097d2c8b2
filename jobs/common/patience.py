"""Waiting for files that a shared file system may show late."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
MOST_WAIT_S = 5.0
"""How long files are waited for: another node may have written them a moment ago."""
_PAUSE_S = 0.25


class Patience:
    """Waits for files that a shared file system may show late, all of them together no longer than a few seconds.

    Args:
        pause: Waits for some seconds.
        limit_s: How long to wait altogether.
    """

    def __init__(self, pause: Callable[[float], None], limit_s: float = MOST_WAIT_S) -> None:
        self._pause = pause
        self._left_s = limit_s

    def read(self, path: Path, read: Callable[[Path], T]) -> T:
        """Read a file, once it is there.

        Raises:
            OSError: It cannot be read, or does not come.
        """
        while True:
            try:
                return read(path)
            except FileNotFoundError:
                if not self._left_s > 0 or not path.parent.is_dir():
                    raise
            self._pause(_PAUSE_S)
            self._left_s -= _PAUSE_S
            # Opened anew, a folder of a network file system is looked at again.
            os.close(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
