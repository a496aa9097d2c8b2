"""Receipts that say no more than every receipt must."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from campaign import documents


def make_side(side: str, position: int, **said: Any) -> dict[str, Any]:
    """Return what a receipt says of a side that did nothing; `said` is what it says besides, or instead."""
    return {
        "side": side,
        "position": position,
        **dict.fromkeys(("exit_code", "max_rss_bytes", "output_bytes"), 0),
        **dict.fromkeys(("wall_s", "cpu_s"), 1.0),
        **dict.fromkeys(("signal", "engaged", "caches")),
        **dict.fromkeys(("offers", "missing", "foreign"), ()),
        "output_truncated": False,
        "path": "",
        "versions": {},
        **said,
    }


def make_receipt(
    sides: Sequence[dict[str, Any]], *, kind: str = "pair", ending: str = "completed"
) -> documents.Receipt:
    """Return a receipt with these sides."""
    return documents.Receipt.of(
        {
            **dict.fromkeys(("start_sha256", "slot", "allocation", "reason"), ""),
            "attempt": 1,
            "kind": kind,
            "ending": ending,
            "elapsed_s": 1.0,
            "at": 1.0,
            "sides": sides,
            "calibration": None,
            "files": (),
        }
    )
