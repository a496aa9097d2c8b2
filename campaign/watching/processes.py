"""Processes of this host: who is alive, who names what on its command line, and how one is told to stop."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """This host in its present boot: process numbers mean something only within it."""

    host: str
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process, told apart from a later one with the same number by its start time."""

    pid: int
    start: int
    """Clock ticks since boot."""


def read_machine() -> Machine:
    """Return this host and boot."""
    boot_id = (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return Machine(host=socket.gethostname(), boot_id=boot_id)


def read_user() -> str:
    """Return the name of the user that this process runs as; empty if the number has none here."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""


def read_start(pid: int) -> int | None:
    """Return a process's start time in clock ticks since boot; None if there is no such process, or only its zombie."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command's name may hold blanks and parentheses: the fields begin behind the last one.
    fields = text[text.rindex(")") + 1 :].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def is_alive(process: Process) -> bool:
    """Return whether this very process still runs."""
    return read_start(process.pid) == process.start


def find_processes(needle: str) -> Iterator[Process]:
    """Yield the processes of this host that name something on their command line, this one excepted."""
    wanted = os.fsencode(needle)
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes()
            start = read_start(int(entry.name))
            if wanted in line and start is not None:
                yield Process(pid=int(entry.name), start=start)


def terminate(process: Process) -> bool:
    """Send SIGTERM; return False if the process was already gone."""
    if not is_alive(process):
        return False
    try:
        os.kill(process.pid, signal.SIGTERM)
    except ProcessLookupError:
        return False
    return True
