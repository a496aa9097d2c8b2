"""When a campaign may be finished, from what was found so far and what runs at once: a range, or why not. Pure.

The lower end is what is left if everything ran at once as far as the configuration lets it, and as fast as the fastest
slots so far; the upper end, if no more ran at once than now, and as slowly as the slowest. How long jobs wait in a
queue, and what has to be made again, nobody knows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from campaign.documents import Protocol
from campaign.planning.calibration import Experience, about_seconds
from campaign.planning.packing import pack
from campaign.planning.walltime import updates_of
from campaign.submission.acts import Cluster
from campaign.submission.cost import topologies
from campaign.watching.durations import duration
from campaign.watching.running import Running
from campaign.watching.state import ACTIVE, SlotState, SlotStatus

FEW = 5
"""Completed slots from which on their times say how far an expectation is off."""
UNTRIED = (1.0, 2.0)
"""How many times what the pilots let expect a slot takes, before that."""
ENDS = 0.1
"""Share of the slots that is left out at each end of what was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """When nothing will be left to measure."""

    low_s: float = math.nan
    """Seconds from now."""
    high_s: float = math.nan
    at_once: int = 0
    """Allocations that run now."""
    unknown: str = ""
    """Why it cannot be told; empty if it can."""

    @property
    def text(self) -> str:
        """The same in words."""
        if self.unknown:
            return f"unknown: {self.unknown}"
        if self.high_s == 0:
            return "nothing is left"
        low, high = duration(self.low_s), duration(self.high_s)
        span = f"in about {low}" if low == high else f"in {low} to {high}"
        at_once = f"{self.at_once} allocation{'s' if self.at_once > 1 else ''}"
        return f"{span}, with {at_once} or more at a time"

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        known = not self.unknown
        return {
            "low_s": round(self.low_s, 1) if known else None,
            "high_s": round(self.high_s, 1) if known else None,
            "allocations_at_once": self.at_once,
            "unknown": self.unknown,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What an estimate is made from."""

    protocol: Protocol
    known: Experience
    cluster: Cluster
    most_workloads: int
    """Of one allocation."""
    most_at_once: int
    """Allocations that the configuration lets run at the same time."""
    behind: Mapping[str, int]
    """Updates that runs have behind them, by the slot's name."""


def _seconds(outlook: Outlook, status: SlotStatus) -> float | None:
    """Return what a whole slot will take; None while that is not known."""
    rules, slot = outlook.protocol, status.slot
    about_s = about_seconds(rules.throughput, rules.numerical, slot, outlook.known, trained=rules.convergence)
    if about_s is not None and slot.kind == "run":
        about_s *= 1 - outlook.behind.get(status.name, 0) / updates_of(rules.convergence)[slot.workload]
    return about_s


def _factors(outlook: Outlook, slots: Iterable[SlotStatus]) -> tuple[float, float]:
    """Return how many times what was expected slots took so far: nearly the least, and nearly the most."""
    ratios = []
    for status in slots:
        done = status.completed
        if done is None or done.receipt is None or status.slot.kind in ("pilot", "run"):
            continue  # pilots are what is expected by; of a run this is its last segment alone
        about_s = _seconds(outlook, status)
        if about_s is not None and about_s > 0:
            ratios.append(done.receipt.elapsed_s / about_s)
    if len(ratios) < FEW:
        return UNTRIED
    ratios.sort()
    left_out = int(ENDS * len(ratios))
    return ratios[left_out], ratios[-1 - left_out]


def _unknown(slots: Collection[SlotStatus], left: Sequence[SlotStatus], seconds: Mapping[str, float | None]) -> str:
    hopeless = sum(bool(one.attempts and one.attempts[-1].hopeless) for one in slots)
    if hopeless:
        return f"{hopeless} slot(s) wait in jobs that will not start by themselves"
    if away := sum(one.state is SlotState.AWAY for one in left):
        return f"{away} slot(s) are in bundles, which somebody has to bring back"
    if any(one.slot.kind == "pilot" for one in left):
        return "pilots are not complete"
    wanting = [name for name, about_s in seconds.items() if about_s is None]
    return f"nothing tells yet how long {wanting[0]} takes" if wanting else ""


def _allocations(
    outlook: Outlook, left: Sequence[SlotStatus], seconds: Mapping[str, float], running: Mapping[str, Running]
) -> list[float]:
    """Return the seconds that each allocation will take that is under way or will be made."""
    under_way: dict[str, float] = {}
    for status in left:
        if status.state in ACTIVE:
            run = running.get(status.name)
            spent_s = run.elapsed_s or 0.0 if run is not None else 0.0
            name = status.attempts[-1].allocation
            under_way[name] = under_way.get(name, 0.0) + max(0.0, seconds[status.name] - spent_s)
    names = {one.slot.slot: one.name for one in left if one.state not in ACTIVE}
    slots = [one.slot for one in left if one.state not in ACTIVE]
    groups = pack(slots, outlook.most_workloads, topologies(outlook.protocol))
    return [*under_way.values(), *(sum(seconds[names[slot.slot]] for slot in group) for group in groups)]


def estimate(
    outlook: Outlook, slots: Collection[SlotStatus], left: Sequence[SlotStatus], running: Sequence[Running]
) -> Finish:
    """Return when nothing will be left.

    Args:
        outlook: What it is made from.
        slots: The state of every slot.
        left: Those that are still to be measured, or are being measured.
        running: What runs now.
    """
    at_once = len({one.allocation for one in running})
    if not left:
        return Finish(low_s=0.0, high_s=0.0)
    found = {one.name: _seconds(outlook, one) for one in left}
    if why := _unknown(slots, left, found):
        return Finish(at_once=at_once, unknown=why)
    if outlook.cluster != "local" and not at_once:
        return Finish(unknown="nothing runs now, and nobody knows how long jobs wait")
    seconds = {name: about_s for name, about_s in found.items() if about_s is not None}
    each_s = _allocations(outlook, left, seconds, {one.slot: one for one in running})
    total_s, longest_s = sum(each_s), max(each_s)
    fast, slow = _factors(outlook, slots)
    if outlook.cluster == "local":
        return Finish(low_s=fast * total_s, high_s=slow * total_s, at_once=1)
    most = max(at_once, min(len(each_s), outlook.most_at_once))
    low_s = fast * max(longest_s, total_s / most)
    # No order in which so many at once begin as soon as there is room takes longer than this.
    high_s = slow * (total_s / at_once + longest_s * (1 - 1 / at_once))
    return Finish(low_s=low_s, high_s=max(low_s, high_s), at_once=at_once)
