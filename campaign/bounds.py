"""The most that an allocation can take, by its slots, the limits and the scheduler's time limit."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

from campaign.calibration import BOUNDED_KINDS
from campaign.documents import Slot


class Limits(Protocol):
    """The limits that bound one side of a slot, as campaign.toml has them or as they were frozen."""

    @property
    def import_s(self) -> int:
        """Most seconds to start and import."""

    @property
    def startup_s(self) -> int:
        """Most seconds for set-up and warm-up."""

    @property
    def stall_s(self) -> int:
        """Most seconds for one window or any other answer."""


def num_devices(gres: str | None) -> int:
    """Return the devices of one allocation: the GPUs that ``gres`` asks for, else one."""
    number = (gres or "").partition(",")[0].rpartition(":")[2]
    return int(number) if number.isdecimal() and int(number) > 0 else 1


def most_seconds(slots: Iterable[Slot], limits: Limits, windows: int, minutes: float = math.inf) -> float:
    """Return the longest that one allocation can take; infinite where nothing bounds it.

    Each side of each slot may use its whole time for imports, set-up, every window and the result; the time limit of
    the job bounds the sum.

    Args:
        slots: The allocation's slots.
        limits: The limits of one side.
        windows: Windows of one side.
        minutes: Time limit of the job.
    """
    own = list(slots)
    side_s = limits.import_s + limits.startup_s + (windows + 1) * limits.stall_s
    is_bounded = all(slot.kind in BOUNDED_KINDS for slot in own)
    all_s = float(sum(len(slot.order) for slot in own) * side_s) if is_bounded else math.inf
    return min(minutes * 60.0, all_s)
