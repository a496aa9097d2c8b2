"""Whether another attempt fits into the time that a command has."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..common.plan import RUN, PlannedAttempt

MARGIN = 1.25
"""How many times what an attempt is expected to take must be left."""
LEAST_S = 60.0
"""What must be left for an attempt of which nothing is known."""


@dataclass(slots=True, kw_only=True)
class Deadline:
    """The end of a command's time, and how long its attempts took so far."""

    stop_at: float
    """On the monotonic clock."""
    clock: Callable[[], float] = time.monotonic
    num_made: int = 0
    is_over: bool = False
    """Whether an attempt was not begun for want of time: none that comes after it is."""
    longest_s: dict[str, float] = field(default_factory=dict)
    """Of the attempts of each kind."""

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return self.stop_at - self.clock()

    def note(self, planned: PlannedAttempt, seconds: float) -> None:
        """Take down how long an attempt took."""
        self.num_made += 1
        self.longest_s[planned.kind] = max(seconds, self.longest_s.get(planned.kind, 0.0))

    def objection(self, planned: PlannedAttempt, expected_s: Mapping[str, float | None]) -> str:
        """Return why an attempt is not begun; empty if it may be.

        A training that no command has time for is begun by one that has made nothing yet: it can be cut, and goes on in
        another segment. Anything else that does not fit is never begun.

        Args:
            planned: The attempt.
            expected_s: What attempts are expected to take, by name; None where nothing tells.
        """
        left_s, needed_s = self.left_s, self._needed_s(planned, expected_s.get(planned.name))
        if needed_s <= left_s or (self.num_made == 0 and left_s > 0 and (planned.kind == RUN or math.isinf(needed_s))):
            return ""
        needed = LEAST_S if math.isinf(needed_s) else needed_s
        return f"{planned.name} needs about {needed:.0f} s, and {max(left_s, 0.0):.0f} s are left"

    def _needed_s(self, planned: PlannedAttempt, expected_s: float | None) -> float:
        """Return what must be left; infinite where nothing tells and too little is left for that."""
        known_s = self.longest_s.get(planned.kind) if expected_s is None else expected_s
        if known_s is not None:
            return MARGIN * known_s
        return LEAST_S if self.left_s >= LEAST_S else math.inf
