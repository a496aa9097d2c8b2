"""What a side prints: kept up to a limit, written to its file between commands, so that no window waits for a disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from ..common.endings import EndedError, Ending

_TAIL_BYTES = 4096
_TAIL_LINES = 12


class Output(Protocol):
    """What takes the output of a process."""

    @property
    def output_bytes(self) -> int:
        """What was printed, kept or not."""

    @property
    def is_truncated(self) -> bool:
        """Whether more was printed than is kept."""

    def add(self, data: bytes) -> None:
        """Take what was printed; raises EndedError if it is too much."""

    def flush(self) -> None:
        """Write what was taken; called between commands."""

    def tail(self) -> str:
        """Return the last lines as text."""


class _Capped:
    """What a side printed, as far as it may.

    Args:
        most_bytes: What it may print.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._pending = bytearray()
        self._last = b""
        self.output_bytes = 0

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

    def tail(self) -> str:
        """Return the last lines as text."""
        return _tail(self._last)


class SideLog(_Capped):
    """The capped log of one side.

    Args:
        path: The file to create.
        most_bytes: What a side may print.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        super().__init__(most_bytes)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._stream = os.fdopen(os.open(path, flags, 0o644), "wb", buffering=0)

    def flush(self) -> None:
        """Write what was taken; it may raise that the disk is full."""
        while self._pending:
            del self._pending[: self._stream.write(self._pending)]

    def close(self) -> None:
        """Write the rest and close the file."""
        try:
            self.flush()
        finally:
            self._stream.close()


class RankLog:
    """What one of several processes of a side prints, in the log that they share: each line says whose it is.

    Args:
        log: The log of them all.
        rank: The number of the process.
    """

    def __init__(self, log: Output, rank: int) -> None:
        self._log = log
        self._prefix = f"[{rank}] ".encode()
        self._line = b""
        self._last = b""

    @property
    def output_bytes(self) -> int:
        """What all of them printed, kept or not."""
        return self._log.output_bytes

    @property
    def is_truncated(self) -> bool:
        """Whether they printed more than is kept."""
        return self._log.is_truncated

    def add(self, data: bytes) -> None:
        """Take what the process printed; a line that is not yet whole waits for its end.

        Raises:
            EndedError: The processes printed more than they may.
        """
        self._last = (self._last + data)[-_TAIL_BYTES:]
        *lines, self._line = (self._line + data).split(b"\n")
        if len(self._line) > _TAIL_BYTES:
            lines, self._line = [*lines, self._line], b""
        if lines:
            self._log.add(b"".join(self._prefix + line + b"\n" for line in lines))

    def flush(self) -> None:
        """Write what was taken; it may raise that the disk is full."""
        self._log.flush()

    def tail(self) -> str:
        """Return the last lines of the process as text."""
        return _tail(self._last)

    def close(self) -> None:
        """Hand over a line that has no end.

        Raises:
            EndedError: The processes printed more than they may.
        """
        if self._line:
            line, self._line = self._line, b""
            self._log.add(self._prefix + line + b"\n")


class HeldLog(_Capped):
    """The output of a side's processes on a further node, held there until it is fetched."""

    def flush(self) -> None:
        """Do nothing: it is fetched."""

    def fetch(self, most_bytes: int) -> bytes:
        """Return the next part of what was printed; empty once there is no more."""
        part = bytes(self._pending[:most_bytes])
        del self._pending[:most_bytes]
        return part


def _tail(data: bytes) -> str:
    return "\n".join(data.decode("utf-8", "backslashreplace").splitlines()[-_TAIL_LINES:])
