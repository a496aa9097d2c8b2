"""harness.log: what the parent did in one allocation. Never evidence; losing a line never ends anything."""

from __future__ import annotations

import contextlib
import time
import traceback
from pathlib import Path


class HarnessLog:
    """Appends lines with the seconds since the allocation began.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = time.monotonic()

    def write(self, text: str) -> None:
        """Append a line."""
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(f"{time.monotonic() - self._began:10.3f}  {text}\n")

    def trace(self, error: BaseException) -> None:
        """Append an exception with its traceback."""
        self.write("".join(traceback.format_exception(error)))
