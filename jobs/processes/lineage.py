"""Where a process stands among others: its state, its parent, and when it began."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_STAT_BYTES = 1 << 12
"""More than a process's stat has."""
_START_FIELD = 19


class Stat(NamedTuple):
    """What the kernel shows of one process."""

    state: str
    parent: int
    start: int
    """In clock ticks since boot."""

    @property
    def has_ended(self) -> bool:
        """Whether it only waits to be taken away."""
        return self.state in ("Z", "X")


def read_stat(pid: int | str, proc: Path | str = "/proc") -> Stat | None:
    """Return how a process stands; None if it is gone."""
    try:
        with open(f"{proc}/{pid}/stat", "rb", buffering=0) as stream:  # noqa: PTH123 - twice as fast, at every process of the node
            text = stream.read(_STAT_BYTES)
    except OSError:
        return None
    # The command's name may hold blanks and parentheses: the fields begin behind the last one.
    fields = text.rpartition(b")")[2].split(None, _START_FIELD + 1)
    if len(fields) <= _START_FIELD:
        return None
    return Stat(fields[0].decode("ascii", "replace"), int(fields[1]), int(fields[_START_FIELD]))


def is_below(pid: int, ancestor: int) -> bool | None:
    """Return whether a process descends from another one; None if it is gone, or its parents are."""
    while pid > 1:
        stat = read_stat(pid)
        if stat is None:
            return None
        if stat.parent == ancestor:
            return True
        pid = stat.parent
    return False
