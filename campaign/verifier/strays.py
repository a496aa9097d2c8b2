"""Ending whatever child processes leave behind, also what made a session of its own and whose parents have gone.

Within the block of `ending` this process adopts the orphans among its descendants, as ``prctl`` of Linux offers it.
Elsewhere, and without ctypes, nothing is adopted: a child's process group is then all that can be ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_KILL_S = 10.0
"""How long killed processes may take to go: one that waits for a broken file system never does."""
_PAUSE_S = 0.005
_ENDED = (b"Z", b"X")

Processes = dict[int, tuple[bytes, int]]
"""State and parent by the process's number."""


class Strays:
    """What the block left.

    Attributes:
        survivors: How many processes could not be ended; known after the block.
    """

    def __init__(self) -> None:
        self.survivors = 0


@contextlib.contextmanager
def ending() -> Iterator[Strays]:
    """End, after the block, every process below this one that was not there before it, however it was started.

    Within the block no other thread of this process starts a child.
    """
    found = Strays()
    before = _adopt(1)
    if before is None:
        yield found
        return
    spared = _children(_processes())
    try:
        yield found
    finally:
        found.survivors = _end(spared)
        _adopt(before)


def _end(spared: Collection[int]) -> int:
    """Kill until nothing is left, and return how many stay: what is killed hands its own children on to this process.

    A process that forks and ends at once may never be seen alive, but leaves ended children to this process: there is
    nothing any more only once there are none of those either.
    """
    deadline = time.monotonic() + _KILL_S
    while True:
        known = _processes()
        living = _descendants(known, spared)
        ended = _children(known) - living - set(spared)
        if not living and not ended:
            return 0
        if time.monotonic() > deadline:
            return max(1, len(living))
        for pid in living:
            with contextlib.suppress(OSError):  # it has just ended, or is another user's and stays in the count
                os.kill(pid, signal.SIGKILL)
        for pid in ended:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_PAUSE_S)


def _processes() -> Processes:
    """Return every process that can be seen."""
    found: Processes = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - one call for thousands of processes
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as stream:  # noqa: PTH123 - as above
            state, parent = stream.read().rpartition(b")")[2].split()[:2]
            found[int(name)] = (state, int(parent))
    return found


def _children(known: Processes) -> set[int]:
    """Return the children of this process, those that have ended and were not waited for included."""
    own = os.getpid()
    return {pid for pid, (_, parent) in known.items() if parent == own}


def _descendants(known: Processes, spared: Collection[int]) -> set[int]:
    """Return the living processes below this one, but not the spared children nor what is below them."""
    below: dict[int, list[int]] = {}
    for pid, (_, parent) in known.items():
        below.setdefault(parent, []).append(pid)
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        new = [pid for pid in below.get(waiting.pop(), ()) if pid not in found and pid not in spared]
        found.update(new)
        waiting += new
    return {pid for pid in found if known[pid][0] not in _ENDED}


def _adopt(value: int) -> int | None:
    """Let this process adopt orphans, or no more; return what was so before, None where there is no such thing."""
    if sys.platform != "linux" or not os.path.isfile("/proc/self/stat"):  # noqa: PTH113 - pathlib is not needed
        return None
    try:
        import ctypes  # noqa: PLC0415 - a small build of Python lacks it

        prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int(0)
        nothing = ctypes.c_ulong(0)
        failed = prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), nothing, nothing, nothing)
        failed = failed or prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(value), nothing, nothing, nothing)
    except (ImportError, OSError, AttributeError):
        return None
    return None if failed else before.value
