"""How long a job has to ask for, from the protocol's limits and the pilots. docs/operator.md states the rule. Pure.

Too short a time ends attempts that were all right; too long a one keeps a job waiting in the queue. What the limits
allow bounds every pilot, solo measurement and pair; what the pilots found, doubled, is mostly much less. A side that
hangs must be found out by the harness and not by the end of the job, so that one whole limit comes on top.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from campaign.documents import ConvergenceRules, NumericalRules, Protocol, Slot, ThroughputRules, Workload
from campaign.planning.bounds import Limits, side_seconds, side_starts
from campaign.planning.calibration import BOUNDED_KINDS, CASE_KINDS, RUN_KIND, Experience, about_seconds

MARGIN = 2.0
"""How many times what the pilots let expect."""
START_S = 600.0
"""For the start of an allocation: private copies of harness and snapshots, on a busy file system."""
BYTES_PER_S = 50e6
"""At which data sets and images are taken to be hashed, once in each allocation."""
UNSEEN_CASE_S = 1800.0
"""For comparing the tensors of a case, until one of its workload has shown how long that takes."""
UNKNOWN_RUN_S = 24 * 3600.0
"""For a run of which the pilot does not tell."""
END_S = 90
"""How long before its limit a job is told to stop, at most a quarter of the limit."""
APART = 4
"""Allocations whose times differ by more than so many times are submitted apart: the short ones need not wait."""


def updates_of(trained: ConvergenceRules | None) -> dict[str, int]:
    """Return the updates of a run of each recipe; none where the family is not declared."""
    return {recipe.name: recipe.updates for recipe in trained.recipes} if trained is not None else {}


def several_of(workloads: Iterable[Workload]) -> frozenset[str]:
    """Return the workloads of several processes."""
    return frozenset(one.name for one in workloads if one.processes > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is known where times are computed."""

    limits: Limits
    throughput: ThroughputRules
    numerical: NumericalRules | None
    """None where the family is not declared."""
    trained: ConvergenceRules | None
    """As that."""
    known: Experience
    num_bytes: int = 0
    """Of the data sets and images that each allocation hashes."""
    timeouts: Mapping[str, int] = field(default_factory=dict)
    """How often a job's time was over before, by the slot's name in the protocol: twice the time for each."""
    behind: Mapping[str, int] = field(default_factory=dict)
    """Updates that runs have behind them, by the slot's name in the protocol."""
    several: frozenset[str] = frozenset()
    """Workloads of several processes, whose pilots start a side twice as those of recipes do."""

    @classmethod
    def of(
        cls,
        protocol: Protocol,
        known: Experience,
        *,
        num_bytes: int = 0,
        timeouts: Mapping[str, int] | None = None,
        behind: Mapping[str, int] | None = None,
    ) -> Case:
        """Return what is known, with the rules of a frozen protocol; the other arguments as the fields."""
        return cls(
            limits=protocol.limits,
            throughput=protocol.throughput,
            numerical=protocol.numerical,
            trained=protocol.convergence,
            known=known,
            num_bytes=num_bytes,
            timeouts=timeouts or {},
            behind=behind or {},
            several=several_of(protocol.workloads),
        )

    @property
    def updates(self) -> dict[str, int]:
        """Updates of a run of each recipe."""
        return updates_of(self.trained)

    @property
    def twice(self) -> frozenset[str]:
        """Recipes and workloads whose pilots start a side twice."""
        return self.several.union(self.updates)


_MinutesT = TypeVar("_MinutesT", int, float)


def notice_seconds(minutes: _MinutesT) -> _MinutesT:
    """Return how long before its time limit a job is told to stop."""
    return min(END_S, minutes * 15)


def seconds_until_notice(minutes: float) -> float:
    """Return after how long a job is told to stop; infinite where its time limit is."""
    return minutes * 60 - notice_seconds(minutes)


def minutes_for(case: Case, slots: Sequence[Slot]) -> int:
    """Return the minutes that the job of one allocation asks for.

    Args:
        case: What is known.
        slots: The allocation's slots, in any order.
    """
    limits = case.limits
    bound_s = sum(_bound_seconds(case, slot) for slot in slots)
    longest_answer_s = max(limits.import_s, limits.startup_s, limits.stall_s)
    slots_s = min(bound_s, sum(_slot_seconds(case, slot) for slot in slots) + longest_answer_s)
    return math.ceil((START_S + case.num_bytes / BYTES_PER_S + slots_s + END_S) / 60)


def expected_seconds(case: Case, slot: Slot) -> float | None:
    """Return how long a slot is expected to take, without a margin; None where nothing tells.

    A case takes about what one of its workload took, a control or not.
    """
    if slot.kind in CASE_KINDS:
        seen = [case.known.case_s.get((kind, slot.workload)) for kind in CASE_KINDS]
        return max((seconds for seconds in seen if seconds is not None), default=None)
    return _about(case, slot)


def _about(case: Case, slot: Slot) -> float | None:
    about_s = about_seconds(case.throughput, case.numerical, slot, case.known, trained=case.trained)
    if about_s is None:
        return None
    if slot.kind == RUN_KIND:
        about_s *= 1 - case.behind.get(slot.slot, 0) / case.updates[slot.workload]
    return about_s + case.known.besides(slot)


def _bound_seconds(case: Case, slot: Slot) -> float:
    """Return what the limits allow; infinite where they do not bound it."""
    if slot.kind not in BOUNDED_KINDS:
        return math.inf
    return float(side_starts(slot, case.twice) * side_seconds(case.limits, case.throughput.windows))


def _slot_seconds(case: Case, slot: Slot) -> float:
    """Return what a slot is given, with its margin."""
    about_s = _about(case, slot)
    if about_s is None:
        return _unknown_seconds(case, slot)
    if slot.kind in CASE_KINDS and (slot.kind, slot.workload) not in case.known.case_s:
        about_s += UNSEEN_CASE_S
    given_s = MARGIN * about_s * float(2 ** case.timeouts.get(slot.slot, 0))
    return min(given_s, _bound_seconds(case, slot))


def _unknown_seconds(case: Case, slot: Slot) -> float:
    if slot.kind in BOUNDED_KINDS:
        return _bound_seconds(case, slot)
    return UNKNOWN_RUN_S if slot.kind == RUN_KIND else UNSEEN_CASE_S


def apart(minutes: Sequence[int]) -> list[int]:
    """Return for each allocation the longest time of those that it is submitted with.

    Beginning with the shortest, allocations stay together as long as the longest of them asks for at most `APART`
    times as much.

    Args:
        minutes: What each allocation asks for.
    """
    shortest_of: dict[int, int] = {}
    longest_of: dict[int, int] = {}
    shortest = 0
    for one in sorted(set(minutes)):
        if not shortest_of or one > APART * shortest:
            shortest = one
        shortest_of[one] = shortest
        longest_of[shortest] = one
    return [longest_of[shortest_of[one]] for one in minutes]
