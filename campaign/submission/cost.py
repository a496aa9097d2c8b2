"""What allocations take: the bound that a person confirms before anything is submitted, and what the pilots say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from campaign.documents import Protocol, Slot
from campaign.planning import bounds, walltime
from campaign.planning.calibration import CASE_KINDS, Experience, about_seconds, besides_seconds
from campaign.submission.acts import Cluster
from campaign.watching.state import SlotStatus


def _num_devices(resources: Mapping[str, Any], cluster: Cluster) -> int:
    return bounds.num_devices(resources["slurm"].get("gres") if cluster == "slurm" else None)


def topologies(protocol: Protocol) -> dict[str, tuple[int, int]]:
    """Return nodes and processes of every workload; a recipe has one of each."""
    return {workload.name: workload.topology for workload in protocol.workloads}


def device_hours(
    protocol: Protocol,
    resources: Mapping[str, Any],
    cluster: Cluster,
    groups: Sequence[Sequence[Slot]],
    *,
    minutes: Sequence[int],
) -> float:
    """Return the most device-hours of some allocations; each process has the devices of one.

    Args:
        protocol: The frozen protocol.
        resources: The frozen resource tables.
        cluster: Where they run; locally the time limit is that of all together.
        groups: The slots of each allocation.
        minutes: The time limit of each.
    """
    own = topologies(protocol)
    jobs = [([slot for group in groups for slot in group], max(minutes, default=0))]
    if cluster != "local":
        jobs = [(list(group), limit) for group, limit in zip(groups, minutes, strict=True)]
    windows = protocol.throughput.windows
    twice = walltime.several_of(protocol.workloads).union(walltime.updates_of(protocol.convergence))
    process_s = sum(
        bounds.most_seconds(slots, protocol.limits, windows, limit, recipes=twice)
        * max((own.get(slot.workload, (1, 1))[1] for slot in slots), default=1)
        for slots, limit in jobs
    )
    return process_s * _num_devices(resources, cluster) / 3600


def limits_of(
    case: walltime.Case, resources: Mapping[str, Any], cluster: Cluster, groups: Sequence[Sequence[Slot]]
) -> list[int]:
    """Return the time limit of each allocation in minutes: the configured one, or what it would ask for.

    Args:
        case: What is known where times are computed.
        resources: The frozen resource tables.
        cluster: Where they run.
        groups: The slots of each allocation.
    """
    configured = configured_minutes(resources, cluster)
    return [walltime.minutes_for(case, group) if configured is None else configured for group in groups]


def configured_minutes(resources: Mapping[str, Any], cluster: Cluster) -> int | None:
    """Return the time limit that was configured; None where none was, as for bundles: who runs one says how long."""
    minutes = None if cluster == "detached" else resources[cluster]["minutes"]
    return None if minutes is None else int(minutes)


def further_hours(
    resources: Mapping[str, Any], cluster: Cluster, further_segments: Sequence[int], *, minutes: Sequence[int]
) -> float:
    """Return the most device-hours of the segments that runs may take beyond the next one of each.

    Args:
        resources: The frozen resource tables.
        cluster: Where they run; a local job holds a segment of every run that is left.
        further_segments: How many, for each run.
        minutes: The time limit of a segment of each.
    """
    if cluster == "local":
        total = max(further_segments, default=0) * max(minutes, default=0)
    else:
        total = sum(number * limit for number, limit in zip(further_segments, minutes, strict=True))
    return total / 60 * _num_devices(resources, cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What some slots will take, from the pilots."""

    device_hours: float
    """Of the slots whose pilots are complete."""
    num_known: int
    """How many those are."""
    num_slots: int

    @property
    def _is_known(self) -> bool:
        return self.num_known > 0 or self.num_slots == 0

    @property
    def known_device_hours(self) -> float | None:
        """The device-hours, rounded; None while no pilot tells."""
        return round(self.device_hours, 4) if self._is_known else None

    @property
    def text(self) -> str:
        """The same in words; ``-`` while no pilot tells."""
        if not self._is_known:
            return "-"
        part = f" for {self.num_known} of {self.num_slots} slots" if self.num_known < self.num_slots else ""
        return f"{self.device_hours:.2f}{part}"


def experience(slots: Iterable[SlotStatus]) -> Experience:
    """Return what the completed pilots and cases among some slots found."""
    done = [(one.slot, completed.receipt) for one in slots if (completed := one.completed) is not None]
    receipts = [(slot, receipt) for slot, receipt in done if receipt is not None]
    pilots = [
        (slot, receipt, receipt.calibration)
        for slot, receipt in receipts
        if slot.kind == "pilot" and receipt.calibration is not None
    ]
    return Experience(
        calibrations={(slot.side, slot.workload): calibration for slot, _, calibration in pilots},
        case_s={(slot.kind, slot.workload): receipt.elapsed_s for slot, receipt in receipts if slot.kind in CASE_KINDS},
        besides_s={
            (slot.side, slot.workload): besides_seconds(receipt.elapsed_s, calibration)
            for slot, receipt, calibration in pilots
        },
    )


def expect(
    protocol: Protocol,
    resources: Mapping[str, Any],
    cluster: Cluster,
    slots: Sequence[Slot],
    known: Experience,
    *,
    behind: Mapping[str, int] | None = None,
    next_only: bool = False,
) -> Expectation:
    """Return what some slots will take, as far as the pilots tell.

    A run that goes on takes its share of the whole, and a segment of one no longer than its job's time limit.

    Args:
        protocol: The frozen protocol.
        resources: The frozen resource tables.
        cluster: Where they run.
        slots: The slots.
        known: What has been found so far.
        behind: Updates that runs have behind them, by the slots' names in the protocol; default none.
        next_only: Whether the next segment of each run is meant, not all that it needs.
    """
    updates, minutes = walltime.updates_of(protocol.convergence), configured_minutes(resources, cluster)
    limit = math.inf if minutes is None else minutes
    # Locally a job may end anywhere in a run, since it holds several: how often each is cut is not known.
    segment_s = walltime.seconds_until_notice(limit) if cluster == "slurm" else math.inf
    seconds, own = [], topologies(protocol)
    for slot in slots:
        value = about_seconds(
            protocol.throughput,
            protocol.numerical,
            slot,
            known,
            trained=protocol.convergence,
            segment_s=segment_s,
        )
        if value is not None and slot.kind == "run":
            value *= 1 - (behind or {}).get(slot.slot, 0) / updates[slot.workload]
            value = min(value, limit * 60) if next_only else value
        seconds += [] if value is None else [value * own.get(slot.workload, (1, 1))[1]]
    hours = sum(seconds) * _num_devices(resources, cluster) / 3600
    return Expectation(device_hours=hours, num_known=len(seconds), num_slots=len(slots))
