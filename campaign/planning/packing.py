"""The packing of slots into allocations: apart from the configuration, which submit and status do without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from campaign.documents import Slot, SlotKind

Group: TypeAlias = tuple[Slot, ...]

_ALONE: frozenset[SlotKind] = frozenset({"run"})
"""Kinds whose every slot has an allocation of its own."""


_ONE = (1, 1)
"""One process on one node."""


def pack(
    slots: Sequence[Slot], workloads_per_allocation: int, topologies: Mapping[str, tuple[int, int]] | None = None
) -> list[Group]:
    """Group slots into allocations.

    An allocation holds slots of one side, one phase and one repeat, of up to so many workloads, all with as many nodes
    and processes; two repeats of a workload never share one. A run has an allocation of its own. The order of the slots
    is kept.

    Args:
        slots: The slots to run, all or those that are missing.
        workloads_per_allocation: Most workloads of one allocation.
        topologies: Nodes and processes of each workload that asks for more than one.
    """
    if workloads_per_allocation < 1:
        raise ValueError(f"an allocation holds at least one workload, not {workloads_per_allocation}")
    rounds: dict[tuple[object, ...], dict[str, list[Slot]]] = {}
    for slot in slots:
        topology = (topologies or {}).get(slot.workload, _ONE)
        key = (slot.side, slot.phase, slot.repeat, slot.slot if slot.kind in _ALONE else "", topology)
        rounds.setdefault(key, {}).setdefault(slot.workload, []).append(slot)
    groups: list[Group] = []
    for by_workload in rounds.values():
        members = list(by_workload.values())
        for start in range(0, len(members), workloads_per_allocation):
            chosen = members[start : start + workloads_per_allocation]
            groups.append(tuple(slot for workload in chosen for slot in workload))
    return groups
