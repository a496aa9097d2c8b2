"""How much a verification could establish: never more than the checks that were made allow."""

from __future__ import annotations

import enum

from .findings import FAULTS, Checks, State


class Tier(enum.StrEnum):
    """What stands behind a home in which nothing was found tampered with, from least to most."""

    NONE = ""
    """Something was tampered with, or what the lowest tier needs was not looked at."""
    SELF_CONSISTENT = "self-consistent"
    """Everything agrees with the digests beside it; whoever rewrote all of it would have made them agree."""
    CHAINED = "chained"
    """The ledger is whole, names every receipt, and closes the campaign with a list of every file."""
    ANCHORED = "externally anchored"
    """And its last line is the one that was kept, or signed, outside the home."""


_CONSISTENT = ("frozen", "ledger", "order", "matrix", "attempts")
_NO_CONTRADICTION = (State.INTACT, State.INCOMPLETE)
_CHAINED = ("ledger", "closing", "matrix", "attempts")
_ANCHORS = ("head", "signature")


def tier_of(checks: Checks, *, is_underived: bool = False) -> Tier:
    """Return the tier that the checks establish.

    Args:
        checks: All that were made.
        is_underived: Whether a reported verdict could not be derived again: the evidence may be whole, and what was
            said of it is not shown.
    """
    states = {check.name: check.state for check in checks.made}
    if checks.state in FAULTS or not all(states.get(name) in _NO_CONTRADICTION for name in _CONSISTENT):
        return Tier.NONE
    if is_underived or not all(states.get(name) is State.INTACT for name in _CHAINED):
        return Tier.SELF_CONSISTENT
    if not any(states.get(name) is State.INTACT for name in _ANCHORS):
        return Tier.CHAINED
    return Tier.ANCHORED
