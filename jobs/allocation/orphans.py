"""What an earlier job left on this node: processes of sides whose harness is gone.

They would compute beside whatever is measured now. A harness that is killed at the same moment as its keepers leaves
them where the scheduler does not end all processes of a job by itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..common.strict import first_few, readable
from ..processes.lineage import read_stat
from ..processes.marks import Mark, find_mark

PROC = Path("/proc")
_MOST_SHOWN = 5
_COMMAND_BYTES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A process that outlived its harness."""

    pid: int
    command: str
    job: str

    def describe(self) -> str:
        """Return what it is, in words."""
        return f"process {self.pid} ({self.command}) of job {self.job}"


def find_orphans(own: Mark, proc: Path = PROC, user: int | None = None) -> list[Orphan]:
    """Return this user's processes that were started by a harness which does not live any more.

    Args:
        own: The mark of this harness: what it starts is none.
        proc: Where the kernel shows processes.
        user: Whose; this process's if None.
    """
    found = []
    lives = {own: True}
    for pid, mark in _marked(proc, os.getuid() if user is None else user):
        if mark not in lives:
            # All processes of the node are looked through, so once for all that one harness left.
            lives[mark] = _lives(mark, own.boot_id, proc)
        if lives[mark]:
            continue
        if (stat := read_stat(pid, proc)) is not None and not stat.has_ended:
            found.append(Orphan(pid=pid, command=_command(pid, proc), job=readable(mark.job)))
    return found


def describe(orphans: list[Orphan]) -> str:
    """Return in words why a node with these is refused."""
    shown = "; ".join(first_few([one.describe() for one in orphans], _MOST_SHOWN))
    some = "a process" if len(orphans) == 1 else f"{len(orphans)} processes"
    return f"this node still runs {some} of an earlier job whose harness is gone: {shown}"


def _marked(proc: Path, user: int) -> Iterator[tuple[int, Mark]]:
    """Yield the processes of a user that have a mark. What cannot be read is another user's, or has just ended."""
    for name in os.listdir(proc):  # noqa: PTH208 - one call for thousands of processes
        if not name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            folder = f"{proc}/{name}"
            if os.stat(folder).st_uid != user:  # noqa: PTH116 - twice as fast, at every process of the node
                continue
            with open(f"{folder}/environ", "rb", buffering=0) as stream:  # noqa: PTH123 - as above
                mark = find_mark(stream.readall())
            if mark is not None:
                yield int(name), mark


def _lives(mark: Mark, boot_id: str, proc: Path) -> bool:
    """Return whether a harness lives: by its number, or where that is of an inner namespace, by all of them."""
    # Of another boot, or of a machine whose processes are shown here: nothing on this node can be its harness.
    if mark.boot_id != boot_id:
        return False
    if _is_it(mark, str(mark.pid), proc):
        return True
    # A number of another namespace means nothing here, but the kernel lists those that a process has in all.
    return any(
        _is_it(mark, name, proc) and str(mark.pid) in _inner_numbers(name, proc)
        for name in os.listdir(proc)  # noqa: PTH208 - as above
        if name.isdecimal()
    )


def _is_it(mark: Mark, name: str, proc: Path) -> bool:
    stat = read_stat(name, proc)
    return stat is not None and stat.start == mark.process_start and not stat.has_ended


def _inner_numbers(name: str, proc: Path) -> list[str]:
    with contextlib.suppress(OSError):
        for line in (proc / name / "status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return line.split()[1:]
    return []


def _command(pid: int, proc: Path) -> str:
    try:
        data = (proc / str(pid) / "cmdline").read_bytes()[:_COMMAND_BYTES]
    except OSError:
        return "unknown command"
    return readable(data.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "backslashreplace")) or "unknown command"
