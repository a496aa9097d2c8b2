"""What allocations take: the bound that a person confirms before anything is submitted, and what the pilots say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from campaign import bounds
from campaign.calibration import Calibrations, about_seconds
from campaign.documents import Protocol, Slot
from campaign.state import SlotStatus
from campaign.submission.acts import Cluster


def _num_devices(resources: Mapping[str, Any], cluster: Cluster) -> int:
    return bounds.num_devices(resources["slurm"].get("gres") if cluster == "slurm" else None)


def device_hours(
    protocol: Protocol, resources: Mapping[str, Any], cluster: Cluster, groups: Sequence[Sequence[Slot]]
) -> float:
    """Return the most device-hours of some allocations.

    Args:
        protocol: The frozen protocol.
        resources: The frozen resource tables.
        cluster: Where they run; locally the time limit is that of all together.
        groups: The slots of each allocation.
    """
    minutes = int(resources[cluster]["minutes"])
    jobs = [[slot for group in groups for slot in group]] if cluster == "local" else groups
    windows = protocol.throughput.windows
    seconds = sum(bounds.most_seconds(slots, protocol.limits, windows, minutes) for slots in jobs)
    return seconds * _num_devices(resources, cluster) / 3600


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


def pilots_found(slots: Iterable[SlotStatus]) -> Calibrations:
    """Return what the completed pilots among some slots found."""
    done = [(one.slot, one.completed.receipt) for one in slots if one.slot.kind == "pilot" and one.completed]
    return {
        (slot.side, slot.workload): receipt.calibration
        for slot, receipt in done
        if receipt is not None and receipt.calibration is not None
    }


def expect(
    protocol: Protocol,
    resources: Mapping[str, Any],
    cluster: Cluster,
    slots: Sequence[Slot],
    calibrations: Calibrations,
) -> Expectation:
    """Return what some slots will take, as far as the pilots tell.

    Args:
        protocol: The frozen protocol.
        resources: The frozen resource tables.
        cluster: Where they run.
        slots: The slots.
        calibrations: What the pilots found.
    """
    seconds = [about_seconds(protocol.throughput, slot, calibrations) for slot in slots]
    known = [value for value in seconds if value is not None]
    hours = sum(known) * _num_devices(resources, cluster) / 3600
    return Expectation(device_hours=hours, num_known=len(known), num_slots=len(slots))
