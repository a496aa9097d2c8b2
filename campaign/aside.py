"""Work that a second process does meanwhile: a copy of this one, which tells what it found message by message.

It changes no result: whatever the copy does not tell, because there is none or it was killed, is for the caller to do.
It never outlives its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_PR_SET_PDEATHSIG = 1
_LENGTH_BYTES = 8
_PIPE_BYTES = 1 << 20
"""What the copy may be ahead; a pipe of the system's own size would let both wait for each other all the time."""


def is_worthwhile() -> bool:
    """Return whether a copy of this process would run beside it: there is another processor, and no thread to lose."""
    try:
        return len(os.sched_getaffinity(0)) > 1 and len(list(Path("/proc/self/task").iterdir())) == 1
    except (AttributeError, OSError):  # not on Linux
        return False


@contextmanager
def told(produce: Callable[[], Iterable[bytes]], *, is_wanted: bool = True) -> Iterator[Iterator[bytes]]:
    """Let a copy of this process produce messages; it is gone at the end.

    Args:
        produce: Yields them; it runs in the copy, and must touch nothing that this process has open for writing.
        is_wanted: Whether there is to be a copy at all.

    Yields:
        The messages as they come, in order. They end early, without a word, where the copy does: count them.
    """
    if not (is_wanted and is_worthwhile()):
        yield iter(())
        return
    readable, writable = os.pipe()
    with contextlib.suppress(OSError):  # more than this user may have: then it stays as it is
        fcntl.fcntl(writable, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    parent = os.getpid()
    try:
        copy = os.fork()
    except OSError:  # no more processes for this user
        os.close(readable)
        os.close(writable)
        yield iter(())
        return
    if copy == 0:
        _run_copy(produce, parent, readable, writable)
    os.close(writable)
    try:
        with os.fdopen(readable, "rb", _PIPE_BYTES) as stream:
            yield _received(stream)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)


def _run_copy(produce: Callable[[], Iterable[bytes]], parent: int, readable: int, writable: int) -> None:
    """Produce all messages and end, with nothing of what a process otherwise does at its end."""
    status = 1
    try:
        os.close(readable)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == parent:
            gc.disable()
            for message in produce():
                _send(writable, message)
            status = 0
    finally:
        # Whatever was raised: nothing else may go on in a copy, and its parent does by itself what it does not tell.
        os._exit(status)


def _send(writable: int, message: bytes) -> None:
    view = memoryview(len(message).to_bytes(_LENGTH_BYTES, sys.byteorder) + message)
    while view:
        view = view[os.write(writable, view) :]


def _received(readable: BinaryIO) -> Iterator[bytes]:
    """Yield every whole message."""
    while len(length := readable.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
        message = readable.read(int.from_bytes(length, sys.byteorder))
        if len(message) != int.from_bytes(length, sys.byteorder):
            return
        yield message
