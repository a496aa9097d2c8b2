"""The most that allocations can take: the bound that a person confirms before anything is submitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from campaign.documents import Protocol, Slot
from campaign.submission.acts import Cluster


def num_devices(resources: Mapping[str, Any], cluster: Cluster) -> int:
    """Return the devices of one allocation: the GPUs that ``gres`` asks for on Slurm, else one."""
    gres = str((resources["slurm"].get("gres") or "") if cluster == "slurm" else "")
    number = gres.partition(",")[0].rpartition(":")[2]
    return int(number) if number.isdecimal() and int(number) > 0 else 1


def most_seconds(protocol: Protocol, slots: Iterable[Slot], minutes: int) -> float:
    """Return the longest that one allocation can take.

    Each side of each slot may use its whole time for imports, set-up, every window and the result; the time limit of
    the job bounds the sum.
    """
    limits = protocol.limits
    side_s = limits.import_s + limits.startup_s + (protocol.throughput.windows + 1) * limits.stall_s
    return min(minutes * 60.0, float(sum(len(slot.order) for slot in slots) * side_s))


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
    devices = num_devices(resources, cluster)
    if cluster == "local":
        return most_seconds(protocol, [slot for group in groups for slot in group], minutes) * devices / 3600
    return sum(most_seconds(protocol, group, minutes) for group in groups) * devices / 3600
