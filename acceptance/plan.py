"""The protocol's slots, found by name and by place, for one candidate."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from acceptance.identity import slot_for
from acceptance.protocol import MEASURED_KINDS, Protocol, Slot, Workload

COMPARISON_OF = {"pair": "candidate", "control_pair": "control", "solo": "solo"}
"""What a kind of slot is called in the column ``comparison``."""

Place = tuple[str, str, int, int]
"""Comparison, workload, repeat, pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What evidence is expected."""

    protocol: Protocol
    slots: dict[str, Slot]
    """Every slot by its name, the candidate's id in place."""
    measured: dict[Place, Slot]
    """The slots whose measurements are checked, by place."""
    workloads: dict[str, Workload]

    def of_comparison(self, comparison: str) -> list[Slot]:
        """Return the measured slots of one comparison, in the order of their names."""
        found = (slot for place, slot in self.measured.items() if place[0] == comparison)
        return sorted(found, key=lambda slot: slot.slot)


def build(protocol: Protocol, candidate: str) -> Plan:
    """Put the candidate's id into the protocol's slots.

    Args:
        protocol: The frozen rules.
        candidate: The candidate's id.
    """
    slots = [dataclasses.replace(slot, slot=slot_for(slot.slot, candidate)) for slot in protocol.slots]
    return Plan(
        protocol=protocol,
        slots={slot.slot: slot for slot in slots},
        measured={
            (COMPARISON_OF[slot.kind], slot.workload, slot.repeat, slot.pair): slot
            for slot in slots
            if slot.kind in MEASURED_KINDS
        },
        workloads={workload.name: workload for workload in protocol.workloads},
    )
