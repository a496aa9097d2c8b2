"""Whether an allocation may go on: nobody else's processes on the node, the job never restarted, and none of it moved.

A measurement of which one side is lost, restarted or moved is invalid as a whole. What happened to the node or the job
is nobody's fault: what is measured then ends as ``node_fail``, after which another attempt may follow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.endings import EndedError, Ending
from ..common.storage import read_regular
from ..common.strict import parse_json, readable
from ..processes.marks import Mark
from . import orphans
from .conditions import Conditions
from .machine import read_boot_id, read_host_name

_LOOKS = 20
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What an allocation was when it began."""

    started: Path
    """Its started.json."""
    written: bytes
    """What this harness wrote there."""
    job: Mapping[str, object]
    mark: Mark
    """Of this harness; it names the machine's boot as well."""
    host: str
    conditions: Conditions
    read_host: Callable[[], str] = read_host_name
    read_boot_id: Callable[[], str] = read_boot_id
    find_orphans: Callable[[Mark], list[orphans.Orphan]] = orphans.find_orphans
    pause: Callable[[float], None] = time.sleep
    """Waits for so many seconds between two looks; may raise what ends the allocation."""

    def check(self) -> None:
        """Refuse to begin anything, or to count what was measured, if it may not go on.

        Raises:
            EndedError: It may not.
        """
        self.check_place()
        if what := self._find_orphans():
            raise EndedError(Ending.NODE_FAIL, what)

    def check_place(self) -> None:
        """Refuse if the job is not what it was. That is fast; the node's processes are not looked through.

        Raises:
            EndedError: It is not.
        """
        if what := self._find_change():
            raise EndedError(Ending.NODE_FAIL, what)

    def _find_change(self) -> str:
        if self.job["restart_count"] != 0:
            return f"the scheduler restarted this job ({self.job['restart_count']} times): what it began before is lost"
        return self._find_move() or self.conditions.find_move() or self._find_other()

    def _find_move(self) -> str:
        if (host := self.read_host()) != self.host:
            return f"began on {self.host}, and is now on {readable(host)}: moved"
        if (boot_id := self.read_boot_id()) != self.mark.boot_id:
            return (
                f"began in boot {self.mark.boot_id}, and the machine is now in boot {boot_id}: moved, or brought back"
            )
        return ""

    def _find_other(self) -> str:
        """Return whether another job has begun it as well, which a file system without exclusive creation lets it."""
        try:
            found = read_regular(self.started)
        except OSError as error:
            return f"what says which job began it cannot be read: {error}"
        if found == self.written:
            return ""
        return f"{self.started} now says that it was begun by {_whose(found)}"

    def _find_orphans(self) -> str:
        found = self.find_orphans(self.mark)
        for _ in range(_LOOKS):
            if not found:
                break
            # A harness beside this one may have died this moment: then its keepers are about to end what it ran.
            self.pause(_PAUSE_S)
            found = self.find_orphans(self.mark)
        return orphans.describe(found) if found else ""


def _whose(data: bytes) -> str:
    try:
        value: Any = parse_json(data)
        return readable(f"{value['job']['scheduler']} job {value['job']['job_id']} on {value['host']}")
    except (ValueError, KeyError, TypeError):
        return "nobody that can be read"
