"""How many updates a run asks for at once. Pure."""

from __future__ import annotations

from ..measurement.blocks import Block

_CHUNK_S = 2.0
"""About how long a run is deaf to signals, and how often the parent learns how far it is."""
_LIMIT_SHARE = 0.5


class Pace:
    """Chooses chunks of updates that last about so long, from the rate of the last one.

    Args:
        limit_s: How long an answer may take.
    """

    def __init__(self, limit_s: float) -> None:
        self._wanted_s = min(_CHUNK_S, _LIMIT_SHARE * limit_s)
        self._largest = 0
        self._next = 1

    def next_chunk(self, most: int) -> int:
        """Return how many updates to ask for, from 1 to a most."""
        return min(self._next, most)

    def took(self, block: Block) -> None:
        """Learn from a chunk: the first ones compile, so that the next is at most twice the largest so far."""
        self._largest = max(self._largest, block.updates)
        most = 2 * self._largest
        # Not divided by the seconds, which a clock may give as none.
        fitting = most if block.seconds * most <= self._wanted_s * block.updates else 0
        self._next = fitting or max(1, int(self._wanted_s * block.updates / block.seconds))
