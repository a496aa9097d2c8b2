"""Times that were recorded, as text. Nothing here reads a clock."""

from __future__ import annotations

import datetime as dt
from typing import Any


def date(at: Any) -> str:
    """Return a time in seconds since the epoch as text; what no calendar holds is given in seconds."""
    try:
        return dt.datetime.fromtimestamp(float(at), tz=dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return f"{at} s"
