"""The most that an allocation can take, by its slots, the limits and the scheduler's time limit."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Protocol

from campaign.documents import Slot
from campaign.planning.calibration import BOUNDED_KINDS, RUN_KIND


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


def side_seconds(limits: Limits, windows: int) -> int:
    """Return the longest that one start of a side can take: imports, set-up, every window and the result."""
    return limits.import_s + limits.startup_s + (windows + 1) * limits.stall_s


def side_starts(slot: Slot, recipes: Collection[str]) -> int:
    """Return how often a slot starts a side: the pilot of a recipe, or of several processes, starts its own twice."""
    return 2 if slot.kind == "pilot" and slot.workload in recipes else len(slot.order)


def most_seconds(
    slots: Iterable[Slot],
    limits: Limits,
    windows: int,
    minutes: float = math.inf,
    *,
    recipes: Collection[str] = (),
    segments: int = 1,
) -> float:
    """Return the longest that one allocation can take; infinite where nothing bounds it.

    Each side of each slot may use its whole time for imports, set-up, every window and the result; the time limit of
    the job bounds the sum. The pilot of a recipe starts its side twice. Nothing but the time limit bounds a case, nor
    a segment of a run, of which there may be several.

    Args:
        slots: The allocation's slots.
        limits: The limits of one side.
        windows: Windows of one side.
        minutes: Time limit of the job.
        recipes: Names of the recipes, and of workloads of several processes.
        segments: Allocations, one after another, that a run may use.
    """
    own = list(slots)
    side_s = side_seconds(limits, windows)
    is_bounded = all(slot.kind in BOUNDED_KINDS for slot in own)
    starts = sum(side_starts(slot, recipes) for slot in own)
    all_s = float(starts * side_s) if is_bounded else math.inf
    jobs = segments if any(slot.kind == RUN_KIND for slot in own) else 1
    return min(jobs * minutes * 60.0, all_s)
