"""Append-only files of JSON lines outside every home, which several commands write at the same time.

A line that is torn, or of a form that this release does not know, keeps its place and is nobody's.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from campaign.documents import Document
from campaign.errors import CampaignError

_MOST_TRIES = 40
_PAUSE_S = 0.05
"""The lock is held for one short write; whoever holds it for two seconds is stuck."""

_LineT = TypeVar("_LineT", bound=Document)


def parse_lines(data: bytes, form: type[_LineT]) -> tuple[list[_LineT], int]:
    """Return the lines of a form, and the number of those that are no such lines."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    found = []
    for line in lines:
        with contextlib.suppress(CampaignError):
            found.append(form.parse(line, where="line"))
    return found, len(lines) - len(found)


def append_once(path: Path, line: Document) -> bool:
    """Append a line, unless the file has one that says the same at another time; return whether it was appended.

    Args:
        path: The file; it and its folder are created.
        line: What to append; its field ``at`` is the time.

    Raises:
        OSError: It cannot be written, or somebody else holds the file's lock for too long.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    with os.fdopen(descriptor, "rb+", buffering=0) as stream, _locked(descriptor):
        data = stream.read()
        known, _ = parse_lines(data, type(line))
        if any(one.replace(at=0) == line.replace(at=0) for one in known):
            return False
        text = json.dumps(msgspec.to_builtins(line), sort_keys=True, separators=(",", ":"), allow_nan=False)
        # A line that was torn before keeps its own place: the new one starts after it.
        start = b"\n" if data and not data.endswith(b"\n") else b""
        os.write(descriptor, start + text.encode("ascii") + b"\n")
        os.fsync(descriptor)
    return True


@contextlib.contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    """Hold the file's lock, which ends with its descriptor.

    Raises:
        OSError: Somebody else holds it for too long, or the file system has no locks.
    """
    for tried in range(_MOST_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if tried == _MOST_TRIES - 1:
                raise
            time.sleep(_PAUSE_S)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
