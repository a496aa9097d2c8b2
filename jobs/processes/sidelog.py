"""What a side prints: kept up to a limit, written to its file between commands, so that no window waits for a disk."""

from __future__ import annotations

import os
from pathlib import Path

from ..common.endings import EndedError, Ending

_TAIL_BYTES = 4096
_TAIL_LINES = 12


class SideLog:
    """The capped log of one side.

    Args:
        path: The file to create.
        most_bytes: What a side may print.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._stream = os.fdopen(os.open(path, flags, 0o644), "wb", buffering=0)
        self._most_bytes = most_bytes
        self._pending = bytearray()
        self._last = b""
        self.output_bytes = 0
        """What the side printed, kept or not."""

    @property
    def is_truncated(self) -> bool:
        """Whether the side printed more than is kept."""
        return self.output_bytes > self._most_bytes

    def add(self, data: bytes) -> None:
        """Take what the side printed.

        Raises:
            EndedError: It printed more than it may.
        """
        room = max(0, self._most_bytes - self.output_bytes)
        self.output_bytes += len(data)
        self._pending += data[:room]
        self._last = (self._last + data[:room])[-_TAIL_BYTES:]
        if self.is_truncated:
            raise EndedError(Ending.OUTPUT_FLOOD, f"the side printed more than {self._most_bytes} bytes")

    def flush(self) -> None:
        """Write what was taken; it may raise that the disk is full."""
        while self._pending:
            del self._pending[: self._stream.write(self._pending)]

    def tail(self) -> str:
        """Return the last lines as text."""
        text = self._last.decode("utf-8", "backslashreplace")
        return "\n".join(text.splitlines()[-_TAIL_LINES:])

    def close(self) -> None:
        """Write the rest and close the file."""
        try:
            self.flush()
        finally:
            self._stream.close()
