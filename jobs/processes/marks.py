"""The mark in the environment of everything that the harness starts: by which harness, in which job.

A process that outlived its harness is known by it, to whatever harness comes to the node later.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from .lineage import read_stat

VARIABLE = "CAMPAIGN_ALLOCATION"
_PARTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Which harness a process belongs to."""

    boot_id: str
    pid: int
    """Of the harness, as it sees itself."""
    process_start: int
    """When it began, in clock ticks since boot: a number is used again, never at the same tick."""
    job: str
    """What the scheduler calls its job; for a person."""

    @property
    def text(self) -> str:
        """The variable's value."""
        return f"{self.boot_id}:{self.pid}:{self.process_start}:{self.job}"


def parse_mark(text: str) -> Mark | None:
    """Return the mark of a variable's value; None if it is none."""
    parts = text.split(":", _PARTS - 1)
    if len(parts) != _PARTS or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    return Mark(boot_id=parts[0], pid=int(parts[1]), process_start=int(parts[2]), job=parts[3])


def find_mark(environ: bytes) -> Mark | None:
    """Return the mark of a process by the bytes of its /proc/PID/environ; None if it has none."""
    prefix = VARIABLE.encode() + b"="
    if prefix not in environ:
        return None
    for entry in environ.split(b"\0"):
        if entry.startswith(prefix):
            return parse_mark(entry.removeprefix(prefix).decode("utf-8", "replace"))
    return None


def own_mark(boot_id: str, job: str) -> Mark:
    """Return the mark of this process."""
    pid = os.getpid()
    found = read_stat(pid)
    return Mark(boot_id=boot_id, pid=pid, process_start=found.start if found else 0, job=job)
