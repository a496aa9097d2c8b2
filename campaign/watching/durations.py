"""How long something takes, for reading."""

from __future__ import annotations

import math

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


def duration(seconds: float) -> str:
    """Return a time such as ``42 s``, ``7 min``, ``3 h 05 min`` or ``4 d 3 h``."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < _MINUTE_S:
        return f"{max(0, int(seconds))} s"
    if seconds < _HOUR_S:
        return f"{int(seconds // _MINUTE_S)} min"
    if seconds < 2 * _DAY_S:
        minutes = int(seconds // _MINUTE_S)
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = int(seconds // _HOUR_S)
    return f"{hours // 24} d {hours % 24} h"
