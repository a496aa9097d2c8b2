"""What may be put on a terminal, and whether one can be drawn on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TextIO

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CANNOT_DRAW = ("", "dumb", "unknown")


def plain(text: str) -> str:
    """Return a text with control characters written out: what a side said must not command the terminal."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def can_draw(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether a stream is a terminal on which lines can be drawn over."""
    return stream.isatty() and environment.get("TERM", "") not in _CANNOT_DRAW
